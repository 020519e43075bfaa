"""What the driver prints when nothing crashes: the references that crashed runs are compared with.

Each is two runs on the first image, the operations before and then, in a process of its own as after a crash, the
rest; only the rest's output counts. Each is run once, when it is first needed, and kept compressed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import Run
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.oracles.histories import History, Operations
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.errors import CrashcheckError

_PRINTS_ITS_OWN = "the driver prints something of its own when it opens or closes the pool"
_FEW = 64
_SPREAD = 16  # boundaries tried before anything is crashed, besides the first and the last
_WHOLE_BYTES = 64 << 20  # of the undisturbed output, kept to be cut at the boundaries


@dataclass(frozen=True, slots=True)
class Printed:
    """An output, with the paths of its run masked. Equal outputs have equal keys.

    Where several outputs are compared, `parts` has them in their order, and this is all of them together.
    """

    key: bytes
    kept: bytes
    packed: bool
    whole: bool  # False: the middle was not kept, and only the key identifies it
    size: int
    parts: tuple[Printed, ...] = ()

    @staticmethod
    def of(ended: Ended, names: Mapping[str, str]) -> Printed:
        if len(ended.compared) > 1:
            parts = tuple(Printed.of(each, names) for each in ended.by_output())
            return Printed(
                key=joined_key([part.key for part in parts]),
                kept=b"",
                packed=False,
                whole=all(part.whole for part in parts),
                size=sum(part.size for part in parts),
                parts=parts,
            )
        (ended,) = ended.by_output()
        if ended.output_truncated:
            return Printed(digest_key(ended.digest), ended.output, False, False, ended.total_bytes)
        data = masked(ended.output, names)
        return Printed(content_key(data), data, False, True, ended.total_bytes)

    def pack(self) -> Printed:
        """The same, compressed."""
        if self.parts:
            return replace(self, parts=tuple(part.pack() for part in self.parts))
        return self if self.packed else replace(self, kept=zlib.compress(self.kept, 1), packed=True)

    def by_output(self) -> tuple[Printed, ...]:
        """One for each output that is compared."""
        return self.parts or (self,)

    @property
    def data(self) -> bytes:
        return zlib.decompress(self.kept) if self.packed else self.kept

    @property
    def lines(self) -> list[str]:
        return self.data.decode("utf-8", "replace").splitlines()


def masked(data: bytes, names: Mapping[str, str]) -> bytes:
    for path, name in names.items():
        data = data.replace(path.encode(), name.encode())
    return data


def content_key(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def digest_key(digest: bytes) -> bytes:
    return b"digest" + digest


def joined_key(keys: Sequence[bytes]) -> bytes:
    """The key of several outputs together."""
    return keys[0] if len(keys) == 1 else content_key(b"".join(len(key).to_bytes(8) + key for key in keys))


@dataclass(frozen=True, slots=True)
class Reference:
    """An uncrashed run. `unusable`: why it cannot be compared with, or ""."""

    history: History
    printed: Printed
    before_bytes: tuple[int, ...]  # of each output that is compared
    unusable: str


@dataclass(frozen=True, slots=True)
class ReopenDifference:
    """A clean close and reopen after an operation changes what the driver prints: a bug that needs no crash.

    `ordinal`: the operation, 0 if the reopen is before the first; `shown`: it, as a text; `how`: the output differs;
    `before`: when it does not.
    """

    ordinal: int
    shown: str
    how: str
    before: str

    @property
    def after(self) -> str:
        return f"operation {self.ordinal} ({self.shown})" if self.ordinal else "no operation"


class Tails:
    """What the undisturbed run printed from each operation on.

    Where operation k's output begins is known of the boundaries that were tried, and of all others if the output has
    the same number of lines for each operation, at each of those boundaries too. Else `key` knows nothing.
    """

    def __init__(self, ended: Ended, names: Mapping[str, str], kept_bytes: int, operations: int) -> None:
        """`kept_bytes`: outputs that are longer are compared by their digests."""
        self._raw = ended.output
        self._names = names
        self._masks = masked(self._raw, names) != self._raw
        self._kept = kept_bytes
        self._starts: dict[int, int] = {}
        self._tried: dict[int, int] = {}
        self._keys: dict[int, bytes] = {}
        lines = self._raw.count(b"\n")
        if ended.output_truncated or not operations or lines % operations or not self._raw.endswith(b"\n"):
            return
        each, at = lines // operations, 0
        for ordinal in range(operations + 1):
            self._starts[ordinal] = at
            for _ in range(each if ordinal < operations else 0):
                at = self._raw.index(b"\n", at) + 1

    def agree(self, ordinal: int, before_bytes: int) -> None:
        """A boundary was tried: so much had been printed by then. If that is news, no other is known any more."""
        self._tried[ordinal] = before_bytes
        if self._starts.get(ordinal, before_bytes) != before_bytes:
            self._starts = dict(self._tried)
            self._keys.clear()
        self._starts[ordinal] = before_bytes

    def start(self, ordinal: int) -> int | None:
        """Where the output of the rest begins after so many operations, in one that is short enough to be kept whole
        and to be cut there; None if not known."""
        return self._starts.get(ordinal) if len(self._raw) <= self._kept else None

    def key(self, ordinal: int) -> bytes | None:
        """Of all that was printed after the first `ordinal` operations, as Printed.key; None if not known."""
        if ordinal not in self._keys:
            start = self._starts.get(ordinal)
            if start is None:
                return None
            tail = self._raw[start:]
            if len(tail) > self._kept:
                if self._masks:
                    return None
                self._keys[ordinal] = digest_key(content_key(tail))
            else:
                self._keys[ordinal] = content_key(masked(tail, self._names))
        return self._keys[ordinal]


class References:
    """References by history, each run once, when it is first needed, by the workers that run crash states as well."""

    def __init__(self, operations: Operations, outputs: Sequence[str] = ("stdout",)) -> None:
        """`outputs`: the names of those that are compared."""
        self._operations = operations
        self.outputs = tuple(outputs)
        self._workers: WorkerPool | None = None
        self._known: dict[History, Reference] = {}
        self._asked: dict[History, int] = {}
        self._how: dict[int, str] = {}  # by the boundaries that were tried: how a clean reopen there shows, or ""
        self.differences: dict[int, ReopenDifference] = {}  # by the operation that did the harm
        # Outputs in which a reopen changes nothing but the order in which so many writers come.
        self.interleaved: dict[str, int] = {}
        # How many open files the driver writes to each output through, where that can be found out.
        self.count_writers: Callable[[], tuple[int, ...] | None] = lambda: None
        self._tails: tuple[Tails, ...] = ()  # one for each output
        self._undisturbed: Reference | None = None
        self._whole: Run | None = None  # of that
        self.assumes_reopenable = False  # until a reopen shows: what one process prints may then be a reference
        self._in_one: dict[History, Reference] = {}
        self._asked_in_one: dict[History, int] = {}

    def run_by(self, workers: WorkerPool) -> None:
        """Before anything is asked for; what another was asked for and did not answer is asked again."""
        self._workers = workers
        self._asked.clear()
        self._asked_in_one.clear()

    @property
    def workers(self) -> WorkerPool:
        assert self._workers is not None
        return self._workers

    @property
    def boundaries(self) -> int:
        """How many of the operations' ends were tried."""
        return len(self._how)

    def want(self, history: History) -> None:
        """It will be needed soon."""
        if history not in self._known and history not in self._asked:
            self._asked[history] = self.workers.submit_bare(self._stages(history))

    def want_boundary(self, ordinal: int) -> None:
        """The end of an operation will be tried soon."""
        if ordinal and ordinal not in self._how:
            self.want(self._operations.boundary(ordinal))

    @property
    def divides(self) -> bool:
        """Whether each reference is of two processes, and each reopen that it rests on is tried."""
        return not self.assumes_reopenable or bool(self.differences)

    def want_soonest(self, history: History) -> None:
        """What `soonest` gives will be needed soon."""
        if self._cuts(history) is None:
            self.want(history)
        elif not self._is_whole(history) and history not in self._in_one and history not in self._asked_in_one:
            text = self._operations.text((*history.before, *history.rest))
            self._asked_in_one[history] = self.workers.submit_bare((text,))

    def soonest(self, history: History) -> Reference:
        """As `of`, by fewer runs where possible: with as little as one process prints, or has printed."""
        cuts = self._cuts(history)
        if cuts is None:
            return self.of(history)
        if history not in self._in_one:
            self.want_soonest(history)
            whole = self._is_whole(history)
            run = self._whole if whole else self.workers.ended(self._asked_in_one.pop(history))
            assert run is not None
            cut = _rest_of(run.ended, cuts)
            self._in_one[history] = (
                self.of(history) if cut is None else self._reference(history, replace(run, ended=cut))
            )
        return self._in_one[history]

    def _cuts(self, history: History) -> tuple[int, ...] | None:
        """Where the rest's part of each output begins if one process runs all of a history; None: unknown, or no
        reference."""
        done = len(history.before)
        if self.divides or history.before != tuple(range(1, done + 1)):
            return None
        starts = [tails.start(done) for tails in self._tails]
        known = tuple(start for start in starts if start is not None)
        return known if known and len(known) == len(starts) else None

    def _is_whole(self, history: History) -> bool:
        return len(history.before) + len(history.rest) == len(self._operations)

    def of(self, history: History) -> Reference:
        """Runs the driver if this history has not been run."""
        self.want(history)
        if history in self._asked:
            self._known[history] = self._reference(history, self.workers.ended(self._asked.pop(history)))
        return self._known[history]

    def undisturbed(self) -> Reference:
        """All operations in one process; what they print is cut into tails."""
        if self._undisturbed is None:
            history = self._operations.boundary(0)
            self._whole = run = self._run(*self._stages(history))
            self._undisturbed = self._reference(history, run)
            kept_bytes, count = self.workers.limits.kept_bytes, len(self._operations)
            self._tails = tuple(Tails(each, run.names, kept_bytes, count) for each in run.ended.by_output())
        return self._undisturbed

    def tail(self, ordinal: int) -> bytes | None:
        """The key of what the undisturbed run printed after so many operations; None if that is not known."""
        keys = [key for tails in self._tails if (key := tails.key(ordinal)) is not None]
        return joined_key(keys) if keys and len(keys) == len(self._tails) else None

    def whole_again(self) -> Printed:
        """All operations, once more, remembered nowhere."""
        run = self._run(*self._stages(self._operations.boundary(0)))
        return Printed.of(run.ended, run.names)

    def try_boundary(self, ordinal: int) -> bool:
        """Whether a clean reopen after so many operations changes nothing; what it changes is among the differences.

        Raises CrashcheckError driver-not-reopenable if the driver prints something of its own.
        """
        if ordinal and ordinal not in self._how and self._try(ordinal):
            self._find_harm(ordinal)
        return not self.differs_at(ordinal)

    def differs_at(self, ordinal: int) -> bool:
        """Whether a clean reopen after so many operations is known to change something."""
        return bool(self._how.get(ordinal))

    def _try(self, ordinal: int) -> str:
        """Reopen after so many operations, 0: before the first; how that shows."""
        boundary = self._operations.boundary(ordinal)
        here = (
            self.of(boundary)
            if ordinal
            else self._reference(boundary, self._run(b"", self._operations.text(boundary.rest)))
        )
        how = self._reopened(here)
        if how.startswith(_PRINTS_ITS_OWN):
            raise CrashcheckError(
                "driver-not-reopenable",
                f"closed and reopened after operation {ordinal} ({self._operations.shown(ordinal)}), {how}",
                "It must print nothing when it opens or closes the pool.",
            )
        if how and self._is_only_interleaved(boundary):
            how = ""
        self._how[ordinal] = how
        if not how and ordinal:
            for tails, before_bytes in zip(self._tails, here.before_bytes, strict=False):
                tails.agree(ordinal, before_bytes)
        return how

    def _is_only_interleaved(self, boundary: History) -> bool:
        """Whether each output that differs has several writers, and the same bytes in another order.

        Each writer has its own buffer, and when that is full or the driver ends decides where its bytes are.
        """
        writers = self.count_writers()
        if writers is None or max(writers) < 2:
            return False
        before, rest = (self._operations.text(part) for part in (boundary.before, boundary.rest))
        runs = self._run(before), self._run(before, rest), self._run(before + rest)
        outputs = zip(*(Printed.of(run.ended, run.names).by_output() for run in runs), strict=True)
        found: dict[str, int] = {}
        for name, count, (one, two, both) in zip(self.outputs, writers, outputs, strict=True):
            if one.data + two.data == both.data:
                continue
            if count < 2 or not both.whole or Counter(one.data + two.data) != Counter(both.data):
                return False
            found[name] = count
        self.interleaved |= found
        self._tails = ()  # an output that is cut there begins otherwise
        return True

    def _find_harm(self, failed: int) -> None:
        """Find the operation that did the harm: a reopen after the one before it does not show.

        It is bisected, as `git bisect` does: what reads the damage may come hundreds of operations later.
        """
        passed = max((tried for tried, how in self._how.items() if not how and tried < failed), default=0)
        failed = min(tried for tried, how in self._how.items() if how and tried > passed)
        if not passed and (self._how[0] if 0 in self._how else self._try(0)):
            failed = 0
        while failed - passed > 1:
            middle = (passed + failed) // 2
            shows = self._how[middle] if middle in self._how else self._try(middle)
            passed, failed = (passed, middle) if shows else (middle, failed)
        if failed not in self.differences:
            before = f"Closed and reopened after operation {passed}" if passed else "Not closed in between"
            self.differences[failed] = ReopenDifference(
                failed, self._operations.shown(failed) if failed else "", self._how[failed], before
            )

    def require_reopenable(self) -> None:
        """Raise CrashcheckError driver-not-reopenable if a clean reopen was found to change what the driver prints."""
        for difference in self.differences.values():
            raise CrashcheckError(
                "driver-not-reopenable",
                f"a bug without any crash: closed and reopened after {difference.after}, {difference.how}. "
                f"{difference.before}, it does what it should",
                "If that is the driver's fault, and not the program's: it must leave all it needs in the pool.",
            )

    def _run(self, *stages: bytes) -> Run:
        """Run files of operations one after another; all that the last of them prints is kept."""
        return self.workers.ended(self.workers.submit_bare(stages, _WHOLE_BYTES))

    def reopened_after(self, ordinal: int) -> str:
        """How the output differs if the driver is closed and reopened after so many operations; "" if it does not."""
        return self._how[ordinal] if ordinal in self._how else self._try(ordinal)

    def _reopened(self, here: Reference) -> str:
        """How the rest differs from what the undisturbed run printed; "" if it does not."""
        if here.unusable:
            return here.unusable
        whole = self.undisturbed().printed.by_output()
        for at, (mine, theirs) in enumerate(zip(here.printed.by_output(), whole, strict=True)):
            how = _reopened(mine, here.before_bytes[at], theirs, self._operations, len(here.history.before))
            if how:
                return how + self.in_output(at)
        return ""

    def in_output(self, number: int) -> str:
        """ " in {pool}/results.txt"; "" of standard output alone."""
        return "" if self.outputs == ("stdout",) else f" in {self.outputs[number]}"

    def _stages(self, history: History) -> tuple[bytes, ...]:
        rest = self._operations.text(history.rest)
        return (self._operations.text(history.before), rest) if history.before else (rest,)

    def _reference(self, history: History, run: Run) -> Reference:
        ended, names = run.ended, run.names
        verdict = ExitStatus().judge(ended, names)
        unusable = ""
        if not verdict.passed:
            which = "the rest" if ended.stage == (1 if history.before else 0) else "the operations before"
            last = _last_line(ended)
            unusable = f"running {which}, {how_it_ended(verdict)}" + (f": {last}" if last else "")
        before_bytes = tuple(each.before_bytes for each in ended.by_output())
        return Reference(history, Printed.of(ended, names).pack(), before_bytes, unusable)


def _rest_of(ended: Ended, cuts: Sequence[int]) -> Ended | None:
    """What one process printed from there on, in each output; None if it failed, or not all was kept."""
    outputs = ended.by_output()
    if ended.status != 0 or ended.timed_out or ended.limit or any(each.output_truncated for each in outputs):
        return None
    if not ended.compared:
        (cut,) = cuts
        return ended._replace(output=ended.output[cut:], total_bytes=ended.total_bytes - cut, before_bytes=cut)
    parts = (
        each._replace(data=each.data[cut:], total_bytes=each.total_bytes - cut, before_bytes=cut)
        for each, cut in zip(ended.compared, cuts, strict=True)
    )
    return ended._replace(compared=tuple(parts))


def spread(count: int) -> list[int]:
    """The boundaries to try first: all of a few, else the first, the last and some evenly between."""
    if count <= _FEW:
        return list(range(1, count + 1))
    return sorted({1 + step * (count - 1) // (_SPREAD + 1) for step in range(_SPREAD + 2)})


def prepare(references: References, operations: Operations) -> None:
    """The driver must do the same each time, and print nothing when it is reopened.

    Where a clean reopen changes what it prints is noted (`References.differences`). Of many operations some ends are
    tried here, and any other before a finding rests on it (`References.try_boundary`).

    Raises CrashcheckError: driver-failed, driver-not-deterministic, driver-not-reopenable.
    """
    whole = references.undisturbed()
    if whole.unusable:
        raise CrashcheckError(
            "driver-failed",
            f"the driver fails with nothing crashed, on the image before the workload: {whole.unusable}",
            "Run [check] command by hand with the whole operation file: it must exit with status 0.",
        )
    again = references.whole_again().by_output()
    for at, (one, other) in enumerate(zip(whole.printed.by_output(), again, strict=True)):
        if one.key != other.key:
            raise CrashcheckError(
                "driver-not-deterministic",
                f"two runs of the driver on the same image print different things{references.in_output(at)}: "
                f"{first_difference(one.lines, other.lines)}",
                f"Take clocks, random numbers and addresses out of what it prints on "
                f"{'standard output' if references.outputs == ('stdout',) else references.outputs[at]}.",
            )
    ordinals = spread(len(operations))
    for ordinal in ordinals:
        references.want(operations.boundary(ordinal))
    for ordinal in ordinals:
        references.try_boundary(ordinal)


def _reopened(here: Printed, before_bytes: int, whole: Printed, operations: Operations, done: int) -> str:
    """How one output of the rest differs from what the undisturbed run printed; "" if it does not.

    `before_bytes`: what the first `done` operations printed there.
    """
    expected = whole.data
    tail = here.data if here.whole else here.data.rpartition(b"\n[...]\n")[2]
    if not whole.whole:
        kept = expected.rpartition(b"\n[...]\n")[2]
        tail, expected = tail[-len(kept) :], kept
    as_long = before_bytes + here.size == whole.size
    if as_long and expected.endswith(tail):
        return ""
    wanted = expected[max(0, len(expected) - len(tail)) :] if as_long else expected[before_bytes:]
    longer = before_bytes + here.size > whole.size
    if longer and wanted and (tail.endswith(wanted) or expected.endswith(tail)):
        return _PRINTS_ITS_OWN
    mine, theirs = wanted.decode("utf-8", "replace").splitlines(), here.lines
    number = next(
        (row for row in range(max(len(mine), len(theirs))) if mine[row : row + 1] != theirs[row : row + 1]), 0
    )
    reader = _operation_of(number, done, whole, operations)
    if not reader:
        return f"the driver prints other things for the rest: {first_difference(mine, theirs)}"
    return f"{reader} prints {_line(theirs, number)} instead of {_line(mine, number)}"


def _operation_of(line: int, done: int, whole: Printed, operations: Operations) -> str:
    """The operation that prints a line of the rest, where each prints as many lines; else ""."""
    each, more = divmod(len(whole.lines), len(operations))
    ordinal = done + 1 + line // each if each else 0
    if more or not 0 < ordinal <= len(operations) or not whole.whole:
        return ""
    return f"operation {ordinal} ({operations.shown(ordinal)})"


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
