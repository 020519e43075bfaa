"""What shows that a driver is wrong after a crash, whichever operation it was in."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import cast

import pytest

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.checker.execution.process import Ended
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.oracles.histories import History, Operations, Standings
from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
from crashcheck.checker.oracles.references import Printed, Reference, References
from crashcheck.checker.oracles.symptoms import differences, signs
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.states.space import StateSpace
from support.tracing import TraceBuilder

THREE = Operations.of(b"put 1 7\nput 2 8\nget 1\n")
EXITED, SEGMENTATION, BUS = 0, int(signal.SIGSEGV), int(signal.SIGBUS)


def ended(status: int, output: bytes = b"", errors: bytes = b"", *, timed_out: bool = False) -> Ended:
    return Ended(status, timed_out, "", output, False, 0.0, b"", errors, len(output))


class Known:
    """What the driver prints when nothing crashes: "ok" for a put, the value or "missing" for a get."""

    outputs = ("stdout",)
    divides = True

    def of(self, history: History) -> Reference:
        done = 1 in (*history.before, *history.rest)
        answers = {1: b"ok\n", 2: b"ok\n", 3: b"7\n" if done else b"missing\n"}
        return Reference(history, Printed.of(ended(0, b"".join(answers[line] for line in history.rest)), {}), (0,), "")

    def soonest(self, history: History) -> Reference:
        return self.of(history)

    def tail(self, ordinal: int) -> bytes | None:
        return None

    def try_boundary(self, ordinal: int) -> bool:
        return True

    def differs_at(self, ordinal: int) -> bool:
        return False


@pytest.fixture
def oracle(tmp_path: Path) -> OutputEquivalence:
    """Of three operations one after another; crash points: before and after each mark."""
    trace = TraceBuilder(tmp_path / "t.cct")
    trace.file("p", size=4096)
    for operation in (1, 2, 3):
        trace.begin(operation)
        trace.store("p", 64 * operation, 8, 1)
        trace.end(operation)
    read = trace.trace()
    points = StateSpace(build(read, "px86", Options())).points
    return OutputEquivalence(THREE, Standings(read, points), cast(References, Known()))


def judged(oracle: OutputEquivalence, run: Ended) -> list[Verdict]:
    """At each crash point in and after the first operation, and in the second."""
    found = [oracle.judge(run, {}, point) for point in (1, 2, 3)]
    assert len({verdict.output.split(";")[0] for verdict in found}) == 3
    return found


def test_a_death_is_the_same_failure_in_and_after_whichever_operation_and_of_whichever_signal(
    oracle: OutputEquivalence,
) -> None:
    one = judged(oracle, ended(SEGMENTATION, b"ok\n"))
    other = judged(oracle, ended(BUS, b"ok\nok\n"))
    assert all(a.shows_no_more_than(b) and b.shows_no_more_than(a) for a in one for b in other)
    asserted = judged(oracle, ended(SEGMENTATION, b"ok\n", b"table.c:7: no entry at 0x7f12\n"))
    assert all(a.shows_no_more_than(b) and not b.shows_no_more_than(a) for a in one for b in asserted)
    hung = judged(oracle, ended(SEGMENTATION, b"ok\n", timed_out=True))
    assert not any(a.shows_no_more_than(b) or b.shows_no_more_than(a) for a in one for b in hung)


def test_a_wrong_output_is_the_same_failure_if_the_same_answers_are_wrong(oracle: OutputEquivalence) -> None:
    within = oracle.judge(ended(EXITED, b"ok\n9\n"), {}, 1)
    after = oracle.judge(ended(EXITED, b"ok\n0\n"), {}, 2)
    second = oracle.judge(ended(EXITED, b"0\n"), {}, 3)
    assert within.signs == after.signs == second.signs == {"# instead of #"}
    missing = oracle.judge(ended(EXITED, b"missing\n"), {}, 3)
    assert missing.signs == {"missing instead of #"}
    assert not missing.shows_no_more_than(second)
    assert within.outcome is missing.outcome is Outcome.FAIL


def test_an_output_is_compared_with_the_legal_one_that_is_most_like_it() -> None:
    done, not_done = ["1", "x 5", "y 5"], ["0", "missing", "missing"]
    assert differences(["x", "x 5", "y 5"], [not_done, done]) == {"x instead of #"}
    assert differences(["1", "x 5"], [done]) == {"nothing instead of y #"}


def test_numbers_addresses_garbage_and_repetitions_are_no_signs_of_their_own() -> None:
    assert signs(["node 12 at 0x7ffe01 is 0xdead", "node 7 at 0x1 is 00beef", ""]) == {"node # at # is #"}
    assert signs(["scan 3: 1=2 3=4 5=6", "scan 4: 9=9"]) == {"scan #: #=#"}
    assert signs(["name \ufffd\x01\x02", "name \x7f"]) == {"name ?"}


def test_an_exit_status_distinguishes_failures_with_the_words_of_the_check() -> None:
    def judge(*arguments: object, **more: object) -> Verdict:
        return ExitStatus().judge(ended(*arguments, **more), {})  # type: ignore[arg-type]

    one, both = judge(1 << 8, b"entry 3: no value\n"), judge(1 << 8, b"entry 9: no value\nentry 9: no key\n")
    assert one.shows_no_more_than(both)
    assert not both.shows_no_more_than(one)
    assert one.fails_as(both)
    assert both.fails_as(one)
    assert not both.fails_as(judge(1 << 8, b"entry 3: no key\nentry 4: gone\n"))
    assert not one.fails_as(judge(2 << 8, b"entry 3: no value\n"))
    assert not one.fails_as(judge(1 << 8))
    assert not one.shows_no_more_than(judge(2 << 8, b"entry 3: no value\n"))
    assert judge(EXITED, b"entry 3: fine\n").signs == frozenset()
    assert judge(EXITED, b"still at it", timed_out=True).signs == frozenset()
