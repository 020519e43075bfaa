"""What the driver prints when nothing crashes: the references that crashed runs are compared with.

Each is two runs on the first image, the operations before and then, in a process of its own as after a crash, the
rest; only the rest's output counts. Each is computed once and kept compressed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crashcheck.checker.equivalence import History, Operations
from crashcheck.checker.executor import Executor
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.process import Ended
from crashcheck.checker.result import Outcome, Verdict
from crashcheck.errors import CrashcheckError

_AHEAD = 16  # references asked for ahead while all boundaries are tried


@dataclass(frozen=True, slots=True)
class Printed:
    """An output, with the paths of its run masked. Equal outputs have equal keys."""

    key: bytes
    packed: bytes
    whole: bool  # False: the middle was not kept, and the key alone tells
    size: int

    @staticmethod
    def of(ended: Ended, names: Mapping[str, str]) -> Printed:
        data = ended.output
        if ended.output_truncated:
            return Printed(b"digest" + ended.digest, zlib.compress(data), False, ended.total_bytes)
        for path, name in names.items():
            data = data.replace(path.encode(), name.encode())
        return Printed(hashlib.blake2b(data, digest_size=16).digest(), zlib.compress(data), True, ended.total_bytes)

    @property
    def data(self) -> bytes:
        return zlib.decompress(self.packed)

    @property
    def lines(self) -> list[str]:
        return self.data.decode("utf-8", "replace").splitlines()


@dataclass(frozen=True, slots=True)
class Reference:
    """An uncrashed run. `unusable`: why it cannot be compared with, or ""."""

    history: History
    printed: Printed
    before_bytes: int
    unusable: str


class References:
    """References by history. `executor` must do nothing else: its workers stay on the first image."""

    def __init__(self, executor: Executor, operations: Operations) -> None:
        self._executor = executor
        self._operations = operations
        self._known: dict[History, Reference] = {}
        self._asked: dict[History, int] = {}

    def want(self, history: History) -> None:
        """It will be needed soon."""
        if history not in self._known and history not in self._asked:
            self._asked[history] = self._executor.submit_bare(self._stages(history))

    def of(self, history: History) -> Reference:
        """Runs the driver if this history has not been run."""
        self.want(history)
        if history in self._asked:
            ended, names = self._executor.ended(self._asked.pop(history))
            self._known[history] = self._reference(history, ended, names)
        return self._known[history]

    def whole_again(self) -> Printed:
        """All operations, once more, remembered nowhere."""
        stages = (self._operations.text(self._operations.boundary(0).rest),)
        return Printed.of(*self._executor.ended(self._executor.submit_bare(stages)))

    def _stages(self, history: History) -> tuple[bytes, ...]:
        rest = self._operations.text(history.rest)
        return (self._operations.text(history.before), rest) if history.before else (rest,)

    def _reference(self, history: History, ended: Ended, names: Mapping[str, str]) -> Reference:
        verdict = ExitStatus().judge(ended, names)
        unusable = ""
        if not verdict.passed:
            which = "the rest" if ended.stage == (1 if history.before else 0) else "the operations before"
            said = _last_line(ended)
            unusable = f"running {which}, {how_it_ended(verdict)}" + (f": {said}" if said else "")
        return Reference(history, Printed.of(ended, names), ended.before_bytes, unusable)


def prepare(references: References, operations: Operations) -> None:
    """The driver must do the same each time, and a clean reopen between any two operations must change nothing.

    Raises CrashcheckError: driver-failed, driver-not-deterministic, driver-not-reopenable.
    """
    whole = references.of(operations.boundary(0))
    if whole.unusable:
        raise CrashcheckError(
            "driver-failed",
            f"the driver fails with nothing crashed, on the image before the workload: {whole.unusable}",
            "Run [check] command by hand with the whole operation file: it must exit with status 0.",
        )
    again = references.whole_again()
    if again.key != whole.printed.key:
        raise CrashcheckError(
            "driver-not-deterministic",
            f"two runs of the driver on the same image print different things: "
            f"{first_difference(whole.printed.lines, again.lines)}",
            "Take clocks, random numbers and addresses out of what it prints on standard output.",
        )
    boundaries = [operations.boundary(ordinal) for ordinal in range(1, len(operations) + 1)]
    for number, boundary in enumerate(boundaries):
        for soon in boundaries[number : number + _AHEAD]:
            references.want(soon)
        _must_reopen(references.of(boundary), whole, operations)


def _must_reopen(here: Reference, whole: Reference, operations: Operations) -> None:
    ordinal = len(here.history.before)
    place = f"after operation {ordinal} ({operations.shown(ordinal)})"
    hint = "The driver must leave all it needs in the pool, and print nothing of its own when it opens and closes it."
    if here.unusable:
        raise CrashcheckError(
            "driver-not-reopenable", f"closed and reopened {place}, with nothing crashed, {here.unusable}", hint
        )
    expected = whole.printed.data
    tail = here.printed.data if here.printed.whole else here.printed.data.rpartition(b"\n[...]\n")[2]
    if not whole.printed.whole:
        kept = expected.rpartition(b"\n[...]\n")[2]
        tail, expected = tail[-len(kept) :], kept
    same = expected.endswith(tail) and here.before_bytes + here.printed.size == whole.printed.size
    if not same:
        wanted = expected[len(expected) - len(tail) :] if len(tail) <= len(expected) else expected
        if here.before_bytes + here.printed.size != whole.printed.size:
            wanted = expected[here.before_bytes :]
        difference = first_difference(wanted.decode("utf-8", "replace").splitlines(), here.printed.lines)
        raise CrashcheckError(
            "driver-not-reopenable",
            f"closed and reopened {place}, with nothing crashed, the driver prints other things for the rest: "
            f"{difference}",
            hint,
        )


def first_difference(one: list[str], other: list[str]) -> str:
    """ "line 3 is 'a' in one and 'b' in the other"."""
    for number in range(max(len(one), len(other))):
        mine, theirs = (_line(lines, number) for lines in (one, other))
        if mine != theirs:
            return f"line {number + 1} is {mine} and then {theirs}"
    return "they differ in a part that was not kept, or in white space"


def _line(lines: list[str], number: int) -> str:
    return repr(lines[number][:80]) if number < len(lines) else "missing"


def how_it_ended(verdict: Verdict) -> str:
    """Of a run that failed."""
    if verdict.outcome is Outcome.TIMEOUT:
        return f"it did not end within {verdict.seconds:.1f} s"
    if verdict.signal is not None:
        return f"it died of signal {verdict.signal}"
    if verdict.outcome is Outcome.LIMIT:
        return "it was ended by a limit"
    return f"it exited with status {verdict.exit_code}"


def _last_line(ended: Ended) -> str:
    lines = ended.errors.decode("utf-8", "replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def all_legal(references: References, histories: Iterable[History]) -> list[Reference]:
    """In the order given, computed side by side."""
    wanted = list(histories)
    for history in wanted:
        references.want(history)
    return [references.of(history) for history in wanted]
