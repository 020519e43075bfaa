"""Which boundaries are tried, and what is known of the undisturbed run's output without running more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import Run
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.oracles.histories import History, Operations, Standing, Standings
from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
from crashcheck.checker.oracles.references import Printed, References, Tails, content_key, digest_key, prepare, spread
from crashcheck.errors import CrashcheckError

Drive = Callable[..., Any]
Example = Callable[..., str]
KEPT = 64


def ended(output: bytes) -> Ended:
    return Ended(0, False, "", output, False, 0.0, b"", b"", len(output))


def test_all_boundaries_are_tried_if_few_else_the_first_the_last_and_some_between() -> None:
    assert spread(0) == []
    assert spread(64) == list(range(1, 65))
    many = spread(2000)
    assert (len(many), many[0], many[-1]) == (18, 1, 2000)
    assert {b - a for a, b in pairwise(many)} <= {117, 118}


@given(st.lists(st.binary(max_size=6).map(lambda line: line.replace(b"\n", b"")), max_size=6), st.integers(1, 3))
def test_with_as_many_lines_for_each_operation_every_tail_is_known(lines: list[bytes], each: int) -> None:
    output = b"".join((line + b"\n") * each for line in lines)
    tails = Tails(ended(output), {}, KEPT, len(lines))
    for ordinal in range(len(lines) + 1):
        rest = b"".join((line + b"\n") * each for line in lines[ordinal:])
        expected = content_key(rest) if len(rest) <= KEPT else digest_key(content_key(rest))
        assert tails.key(ordinal) == (expected if lines else None)


def test_a_tail_is_compared_with_the_paths_masked_as_outputs_are() -> None:
    tails = Tails(ended(b"/a/pool\n/a/pool\n"), {"/a/pool": "{pool}"}, KEPT, 2)
    assert tails.key(1) == Printed.of(ended(b"/b/pool\n"), {"/b/pool": "{pool}"}).key


@pytest.mark.parametrize("output", [b"1\n2\n3\n", b"1\n2", b""])
def test_where_lines_show_nothing_only_what_was_tried_is_known(output: bytes) -> None:
    tails = Tails(ended(output), {}, KEPT, 2)
    assert [tails.key(ordinal) for ordinal in range(3)] == [None, None, None]
    tails.agree(1, 1)
    assert [tails.key(ordinal) for ordinal in range(3)] == [None, content_key(output[1:]), None]


def test_a_boundary_that_does_not_agree_takes_the_others_back() -> None:
    tails = Tails(ended(b"1\n2\n3\n4\n"), {}, KEPT, 4)
    tails.agree(1, 2)
    assert tails.key(2) == content_key(b"3\n4\n")
    tails.agree(3, 4)
    assert [tails.key(ordinal) for ordinal in range(5)] == [
        None,
        content_key(b"2\n3\n4\n"),
        None,
        content_key(b"3\n4\n"),
        None,
    ]


QUERIES = [f"query {key}" for key in range(70)]


def test_a_bad_boundary_that_was_not_tried_first_is_found_beside_what_was_found_before(
    drive: Drive, example: Example
) -> None:
    """Only between the two updates does a clean reopen show, and no sample is there."""
    counts = "        static int latest;\n        if (name[0] == 'u') latest = (int)value;\n"
    prints = "        if (name[0] == 'q' && latest == 12 && key == 1) puts(\"12\");\n"
    source = example("buggy", answer=lambda old: counts + prints + old)
    early = [f"update 1 {value}" for value in (8, 7, 6)]
    operations = ["insert 1 9", *early, *QUERIES[2:], "update 1 12", "query 1", "update 1 13", *QUERIES[10:20]]
    assert 73 not in spread(len(operations))
    ran = drive(source, operations)
    assert ran.exit_code == 1
    reopen, *others = ran.findings
    assert reopen["kind"] == "reopen"
    assert "after operation 73 (update 1 12)" in reopen["message"]
    assert ran.report["run"]["stop_reason"] == "exhausted"
    assert [finding["kind"] for finding in others] == ["ordering"]
    (note,) = [text for text in ran.report["run"]["warnings"] if text.startswith("reopened with nothing crashed")]
    assert note.split(":")[0].endswith(f"of {len(operations)} operations")


def test_a_report_shows_how_many_boundaries_were_tried(drive: Drive, example: Example) -> None:
    ran = drive(example("buggy"), ["insert 1 11", *QUERIES[10:20], "update 1 12", *QUERIES])
    assert ran.exit_code == 1
    (note,) = [text for text in ran.report["run"]["warnings"] if text.startswith("reopened with nothing crashed")]
    assert note.split(":")[0] == "reopened with nothing crashed after 20 of 82 operations"


class Forgetful:
    """A driver that counts updates in memory only: each operation prints the count, or `-` if it is no query."""

    limits = SimpleNamespace(kept_bytes=1 << 20)

    def __init__(self, opening: str = "") -> None:
        self.runs = 0
        self._opening = opening
        self._asked: list[tuple[bytes, ...]] = []

    def submit_bare(self, stages: tuple[bytes, ...], kept_bytes: int | None = None) -> int:
        self._asked.append(stages)
        return len(self._asked) - 1

    def ended(self, ticket: int) -> Run:
        self.runs += 1
        printed = []
        for stage in self._asked[ticket]:
            updates = 0
            lines = [self._opening] if self._opening else []
            for line in stage.decode().splitlines():
                updates = 0 if line == "reset" else updates + line.startswith("update")
                lines.append(str(updates) if line.startswith("query") else "-")
            printed.append("".join(line + "\n" for line in lines).encode())
        before = sum(map(len, printed[:-1]))
        return Run(0, ended(printed[-1])._replace(before_bytes=before), {})


def prepared(driver: Forgetful, lines: list[bytes]) -> References:
    operations = Operations(tuple(lines))
    references = References(operations)
    references.run_by(cast(WorkerPool, driver))
    prepare(references, operations)
    return references


@pytest.mark.parametrize("harm", [2, 40, 1000, 1800])
def test_the_operation_that_did_the_harm_is_named_and_not_only_the_one_that_reads(harm: int) -> None:
    lines = [b"insert %d" % number for number in range(1, 2001)]
    lines[harm - 1] = b"update 7"
    lines[1999] = b"query 7"
    driver = Forgetful()
    references = prepared(driver, lines)
    (difference,) = references.differences.values()
    assert (difference.ordinal, difference.after) == (harm, f"operation {harm} (update 7)")
    assert difference.how == "operation 2000 (query 7) prints '0' instead of '1'"
    assert difference.before == f"Closed and reopened after operation {harm - 1}"
    assert driver.runs < 40
    with pytest.raises(CrashcheckError, match="closed and reopened after operation"):
        references.require_reopenable()


def test_each_operation_that_does_harm_is_found_beside_those_that_do_none() -> None:
    lines = [b"insert 1", b"update 1", b"query 1", b"query 2", b"insert 2", b"update 2", b"query 3", b"insert 3"]
    lines += [b"reset", b"insert 4", b"update 3", b"query 4", b"reset", b"insert 5"]
    references = prepared(Forgetful(), lines)
    assert list(references.differences) == [2, 11]
    assert [ordinal for ordinal in range(1, len(lines) + 1) if references.try_boundary(ordinal)] == [
        1,
        7,
        8,
        9,
        10,
        12,
        13,
        14,
    ]


def test_a_driver_that_prints_when_it_opens_is_not_called_forgetful() -> None:
    with pytest.raises(CrashcheckError, match="prints something of its own when it opens or closes") as caught:
        prepared(Forgetful("opened"), [b"insert 1", b"insert 2", b"query 1"])
    assert caught.value.slug == "driver-not-reopenable"


@pytest.mark.parametrize("status", [0, 1])
def test_all_references_of_a_state_that_fails_are_begun_before_the_first_is_awaited(status: int) -> None:
    """In operation 101 of 200: done, not done, and a reopen before it."""
    lines = [b"insert %d" % number for number in range(1, 201)]
    driver = Forgetful()
    references = prepared(driver, lines)
    standing = Standing(tuple(range(1, 101)), (101,))
    standings = cast(Standings, SimpleNamespace(at=lambda point: standing))
    oracle = OutputEquivalence(references._operations, standings, references)
    asked, begun = len(driver._asked), list[int]()
    await_end = driver.ended

    def counted(ticket: int) -> Run:
        begun.append(len(driver._asked) - asked)
        return await_end(ticket)

    driver.ended = counted  # type: ignore[method-assign]
    crashed = ended(b"nothing\n")._replace(status=status)
    oracle.arrived(crashed, {}, 0)
    assert not oracle.judge(crashed, {}, 0).passed
    assert begun == ([3, 3, 3] if status else [1, 3, 3])


def test_until_a_reopen_shows_a_reference_is_of_at_most_one_process() -> None:
    """In operation 101 of 200: what was done is known from the undisturbed run, and one process shows the other."""
    lines = [b"insert %d" % number for number in range(1, 201)]
    driver = Forgetful()
    references = prepared(driver, lines)
    done, asked = references._operations.boundary(101), len(driver._asked)
    lost = History(tuple(range(1, 101)), done.rest)
    references.assumes_reopenable = True
    soonest = [references.soonest(history) for history in (done, lost)]
    assert driver._asked[asked:] == [(references._operations.text((*lost.before, *lost.rest)),)]
    assert soonest == [references.of(history) for history in (done, lost)]


def test_once_a_reopen_shows_each_reference_is_of_two_processes() -> None:
    references = prepared(Forgetful(), [b"insert 1", b"update 1", b"query 1"])
    references.assumes_reopenable = True
    assert references.differences
    history = History((1, 2), (3,))
    assert references.soonest(history) is references.of(history)


def test_what_only_a_reopen_without_an_operation_shows_is_no_finding(drive: Drive, example: Example) -> None:
    """Its query reads what the first insertion leaves in memory, and the second takes back: one process without that
    prints otherwise than two, although no reopen after an operation shows."""
    keeps = "        static int latest;\n        if (name[0] == 'i') latest = key;\n"
    prints = "        if (name[0] == 'q' && latest == 1) puts(\"1\");\n"
    source = example("fixed", answer=lambda old: keeps + prints + old)
    ran = drive(source, ["insert 1 9", "insert 2 8", *QUERIES[:12]])
    assert (ran.exit_code, ran.findings) == (0, [])
    assert ran.report["run"]["stop_reason"] == "exhausted"
    assert not ran.report["run"]["states"]["flaky"]


def test_operations_under_way_at_once_are_judged_by_references_of_two_processes() -> None:
    """Nothing tries later whether a reopen between them shows, as is done before a finding rests on one operation's."""
    lines = [b"insert %d" % number for number in range(1, 201)]
    driver = Forgetful()
    references = prepared(driver, lines)
    standing = Standing(tuple(range(1, 101)), (101, 102))
    standings = cast(Standings, SimpleNamespace(at=lambda point: standing))
    oracle = OutputEquivalence(references._operations, standings, references)
    oracle.assume_reopenable()
    asked = len(driver._asked)
    assert not oracle.judge(ended(b"nothing\n"), {}, 0).passed
    assert [len(stages) for stages in driver._asked[asked:]] == [2] * 5
