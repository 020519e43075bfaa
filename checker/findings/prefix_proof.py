"""Proves that `kill -9` at a moment leaves bad files: the run is recorded again, and its real files are checked.

1. What is checked are the files that the second run really had just before an event, not an image made of the trace.
   So no crash model, and no gap in the trace, is behind a proof: it is what `kill -9` at that moment leaves.
2. The two runs need not be identical: heap addresses, times and random numbers in the files may differ. They have to
   be at the same place: the updates before and after the moment come from the same sites and stacks, and as many
   operations have begun and ended. The place is first looked for by the number of its event. If other threads did more
   or less by then, it is looked for after as many events of the last update's site as there were in its process.
3. If that run is nowhere at the place, or the check does not fail there, the workload is recorded with digests of its
   real files: where one equals that of the replayed files, they were these. So every moment of the run that is at the
   place can be tried, whatever other threads did meanwhile.
4. The check has to fail there as it fails on the replayed files: it ends equally, and what it prints there is
   among what it prints here, or the other way round: how much more is lost depends on what other threads had done.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among, halving_order
from crashcheck.analyzer.trace.digests import Digests
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.budget import Left, OutOfTime, endless, within
from crashcheck.checker.images.real_files import RealFiles, Snapshot
from crashcheck.checker.results import TO_SETTLE, Outcome
from crashcheck.checker.subject import UPDATES, Subject
from crashcheck.checker.token import digest
from crashcheck.runtime import sparse
from crashcheck.runtime.record import DigestsAt, NthEvent
from crashcheck.runtime.trace_format import Kind

if TYPE_CHECKING:
    from crashcheck.checker.findings.cause import Cause
    from crashcheck.checker.results import Verdict
    from crashcheck.checker.states.space import CrashState

TRACE_ALL = "build all code that writes the files with crashcheck-cc"
SAME_COURSE = "make the workload do the same in each run (fixed seeds, no dependence on time)"
NO_SNAPSHOT = (
    "the run could not be recorded a second time up to this moment, so the check was not tried on its real files"
    + TO_SETTLE
    + SAME_COURSE
)
NO_TIME = f"the search ended before the check was tried on the real files of a second run{TO_SETTLE}a larger budget"
OTHER_COURSE = (
    "a second run was elsewhere in the program at this moment, so the check was not tried on its real files"
    + TO_SETTLE
    + SAME_COURSE
)
ON_REAL_FILES = "the trace is incomplete: on the real files of a second run at this moment the check"
ON_OTHER_FILES = "a second run made other updates, or in another order: on its real files at this moment the check"

WriteImage = Callable[["CrashState", Path], None]
# (files, a crash point of the first run, operations ended and bytes printed by then)
RunOnFiles = Callable[[RealFiles, int, tuple[int, int]], "Verdict"]
# Runs with digests, in this order. Digests slow down the thread that takes them, so that others may run before it;
# a run with few is more like one without. Each serves all findings, or (None) has them at all events near one moment.
_RUNS = (None, DigestsAt(8), None, DigestsAt(1), None, DigestsAt(8), DigestsAt(8))
_NEAR_EVENTS = 64  # on either side
# Of the seconds that are left of a search: what digests may take for one finding, as long as they prove each.
_SHARE = 0.25
_MOMENTS = 64  # of each of them, at most, at which the check is tried


@dataclass(frozen=True, slots=True, eq=False)
class DigestedRun:
    """A further recording of the workload, with digests of its real files."""

    subject: Subject
    digests: Digests
    write_image: WriteImage
    stdout: Path  # all that it printed
    addresses: Path  # where it mapped files


RunDigested = Callable[[DigestsAt], DigestedRun | None]  # None: it could not be recorded


class SecondRuns(NamedTuple):
    """How the workload is recorded once more: with its files copied at an event, and with digests of them."""

    snapshot: Snapshot | None = None
    digested: RunDigested | None = None


NO_SECOND_RUNS = SecondRuns()


@dataclass(slots=True)
class PrefixProof:
    """Proves prefixes of one recorded run."""

    subject: Subject
    snapshot: Snapshot
    write_image: WriteImage
    run_on_files: RunOnFiles
    digested: RunDigested | None = None
    left: Left = endless  # of the search
    # changing
    _runs: dict[int, DigestedRun | None] = field(default_factory=dict)  # that serve all findings, by index in _RUNS
    _unproved: int = 0  # findings that digests did not prove, although they were tried

    def missing(self, cause: Cause, folder: Path) -> str:
        """Why a failing prefix is not proved; empty if it is. `folder` is used for replayed images."""
        events = self.subject.trace.events
        if cause.moment is None or cause.moment >= len(events):
            return NO_SNAPSHOT
        try:
            why = self._missing_in_copy(cause, cause.moment, folder)
        except OutOfTime:
            return NO_TIME
        return "" if why and self._shown_by_digests(cause, cause.moment, folder) else why

    def _missing_in_copy(self, cause: Cause, moment: int, folder: Path) -> str:
        """Why the files that a second run had at a moment are no proof; empty if they are."""
        number = int(self.subject.trace.events["seq"][moment])
        real = self.snapshot(number)
        if real is None:
            return NO_SNAPSHOT
        place = _Course(self.subject.trace).place(moment)
        there = int(np.searchsorted(real.trace.events["seq"], number))
        if place != _Course(real.trace).place(there):
            last = _last_update(self.subject.trace, moment)
            real = self.snapshot(last) if last is not None else None
            found = _found_again(real.trace, last, place) if real is not None and last is not None else None
            if real is None or found is None:
                return OTHER_COURSE
            there = found
        if digest(real.trace) == digest(self.subject.trace) and self._replays(cause.state, real.folder, folder):
            return ""  # the check has failed on these very bytes
        return self._fails_otherwise(cause, moment, real, there)

    def _fails_otherwise(self, cause: Cause, moment: int, real: RealFiles, there: int) -> str:
        """How the check ends on the real files of another run just before its event `there`; empty if as it should."""
        point = self.subject.point_at(moment)
        for _ in range(2):  # what passes once is flaky
            verdict = self.run_on_files(real, point, _acknowledged(real.trace, there))
            if verdict.passed or not verdict.fails_as(cause.verdict):
                return _not_replayed(verdict, _same_updates(self.subject.trace, real.trace))
            if verdict.outcome is Outcome.TIMEOUT:
                break  # it had all the time that the limits allow
        return ""

    def _shown_by_digests(self, cause: Cause, moment: int, folder: Path) -> bool:
        """Whether the check fails on files that a run with digests had at the place of a moment."""
        with suppress(OutOfTime):
            for run, real, there, seq in self._digested_files(cause, moment, folder):
                if run.digests.hold(seq, real.folder) and not self._fails_otherwise(cause, moment, real, there):
                    return True
        self._unproved += 1
        return False

    def _digested_files(
        self, cause: Cause, moment: int, folder: Path
    ) -> Iterator[tuple[DigestedRun, RealFiles, int, int]]:
        """Runs with digests, the files replayed at each place of a moment, its event there, and the digest's number."""
        place = _Course(self.subject.trace).around(moment, cause.kept is not None)
        keep_on = within(self.left, _SHARE / (1 + self._unproved))
        for number, at in enumerate(_RUNS):
            keep_on()
            run = self._digested_run(number, at, moment)
            if run is None:
                return
            moments = _moments_at(run, place, cause.kept is not None)
            if at is None:
                moments.sort(key=lambda found: abs(found[0] - moment))
            for there, seq in moments:
                keep_on()
                files = folder / f"digested-{number}-{there}"
                run.write_image(run.subject.prefix(there), files)
                yield run, RealFiles(files, run.subject.trace, run.stdout, run.addresses), there, seq
                shutil.rmtree(files)

    def _digested_run(self, number: int, at: DigestsAt | None, moment: int) -> DigestedRun | None:
        if self.digested is None:
            return None
        if at is None:
            seq = int(self.subject.trace.events["seq"][moment])
            return self.digested(DigestsAt(1, max(0, seq - _NEAR_EVENTS), seq + _NEAR_EVENTS))
        if number not in self._runs:
            self._runs[number] = self.digested(at)
        return self._runs[number]

    def _replays(self, state: CrashState, real: Path, folder: Path) -> bool:
        """Whether a state's image has the same watched files as a folder."""
        image = folder / "replayed"
        self.write_image(state, image)
        for path in sorted({file.path for file in self.subject.trace.files.values()}):
            replayed, there = image / path, real / path
            if replayed.is_file() != there.is_file():
                return False
            if replayed.is_file() and not sparse.equal_files(replayed, there):
                return False
        return True


def _not_replayed(verdict: Verdict, same: bool) -> str:
    """Why a verdict on the real files is no proof. `same`: that run made the same updates, so the trace lacks some."""
    how = "fails in another way"
    if verdict.passed:
        how = "passes"
    elif verdict.outcome is Outcome.TIMEOUT:
        how = "hangs, perhaps on a lock in the files that the C library took"
    return f"{ON_REAL_FILES} {how}{TO_SETTLE}{TRACE_ALL}" if same else f"{ON_OTHER_FILES} {how}{TO_SETTLE}{SAME_COURSE}"


def _same_updates(one: Trace, other: Trace) -> bool:
    """Whether two runs updated the same places in the same order, whatever they stored."""
    fields = ["kind", "file", "offset", "size"]
    return bool(np.array_equal(one.events[_updates(one)][fields], other.events[_updates(other)][fields]))


class _Course:
    """Where in the program a recorded run is just before each of its events."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.updates = _updates(trace)
        kinds = trace.events["kind"]
        self._marks = [np.flatnonzero(kinds == kind) for kind in (Kind.MARK_BEGIN, Kind.MARK_END)]

    def place(self, event: int) -> tuple[object, ...]:
        """Operations begun and ended, and the updates before and after, with their stacks."""
        return (*self._begun_and_ended(event), *self._calls(event))

    def around(self, event: int, both: bool) -> tuple[object, ...]:
        """The same by what names a finding: the sites of the updates, and that of the one before only with `both`."""
        sites = [call[:2] for call in self._calls(event)]
        return (*self._begun_and_ended(event), *(sites if both else sites[1:]))

    def _begun_and_ended(self, event: int) -> list[int]:
        return [int(np.searchsorted(marks, event)) for marks in self._marks]

    def _calls(self, event: int) -> list[tuple[object, ...]]:
        at = int(np.searchsorted(self.updates, event))
        return [_call(self._trace, self.updates, index) for index in (at - 1, at)]


def _moments_at(run: DigestedRun, place: tuple[object, ...], both: bool) -> list[tuple[int, int]]:
    """Events of a run with digests, just before which it is at a place of `around`, with the numbers of the digests:
    _MOMENTS of them at most, in an order in which each first part is spread over the run.

    Of those between two updates it is the last: what was promised meanwhile is known to the check.
    """
    trace = run.subject.trace
    course = _Course(trace)
    numbers = np.sort(np.fromiter(run.digests.taken, dtype=np.uint64))
    moments = np.searchsorted(trace.events["seq"], numbers)
    numbers, moments = numbers[moments < len(trace.events)], moments[moments < len(trace.events)]
    after = np.searchsorted(course.updates, moments)
    last = np.append(after[1:] != after[:-1], True)[: len(after)]
    found = [
        (int(moment), int(number))
        for moment, number in zip(moments[last], numbers[last], strict=True)
        if course.around(int(moment), both) == place
    ]
    return [found[index] for index in islice(halving_order(len(found)), _MOMENTS)]


def _last_update(trace: Trace, event: int) -> NthEvent | None:
    """The last update before an event, so that another run can be asked for it; None if there is none, or no site."""
    updates = _updates(trace)
    at = int(np.searchsorted(updates, event))
    if not at:
        return None
    last = int(updates[at - 1])
    site = int(trace.events["site"][last])
    unit = trace.unit_of(site)
    if unit is None:
        return None
    count = int(np.count_nonzero(_of_site(trace, site, _process(trace, last))[: last + 1]))
    return NthEvent(unit.key, site - unit.base, count)


def _found_again(trace: Trace, last: NthEvent, place: tuple[object, ...]) -> int | None:
    """An event of a run that was copied after `last`, before which it is at a place; None if there is none.

    Up to the next update the files stay as they were copied. If another process recorded the next event, then that is
    not known, because only the counting process makes the copy.
    """
    course = _Course(trace)
    updates = course.updates
    for unit in trace.units:
        if unit.key != last.unit:
            continue
        site = unit.base + last.site
        for process in _processes(trace).values():
            events = np.flatnonzero(_of_site(trace, site, process))
            if len(events) < last.nth:
                continue
            first = int(events[last.nth - 1]) + 1
            end = int(updates[np.searchsorted(updates, first)]) if updates[-1] >= first else len(trace.events) - 1
            if first < len(trace.events) and _process(trace, first) == process:
                return next((at for at in range(first, end + 1) if course.place(at) == place), None)
    return None


def _of_site(trace: Trace, site: int, process: int | None) -> NDArray[np.bool_]:
    threads = [thread for thread, its in _processes(trace).items() if its == process]
    of_process = among(trace.events["thread"], threads)
    of_site: NDArray[np.bool_] = (trace.events["site"] == site) & of_process
    return of_site


def _process(trace: Trace, event: int) -> int | None:
    return _processes(trace).get(int(trace.events["thread"][event]))


def _processes(trace: Trace) -> dict[int, int]:
    """The process of each thread."""
    starts = trace.events[trace.events["kind"] == Kind.THREAD_START]
    return {int(start["aux"]): int(start["payload"]) for start in starts}


def _updates(trace: Trace) -> NDArray[np.intp]:
    return trace.rows(*UPDATES)


def _call(trace: Trace, updates: NDArray[np.intp], index: int) -> tuple[object, ...]:
    """The site and the stack of an update, by names that hold in each run; without a site, which update it is."""
    if not 0 <= index < len(updates):
        return ()
    row = trace.events[int(updates[index])]
    kind, site = int(row["kind"]), int(row["site"])
    if not site:
        return kind, index, int(row["offset"]), int(row["size"])
    return kind, *(_site(trace, each) for each in (site, *trace.stack(int(row["stack"]))))


def _site(trace: Trace, site: int) -> tuple[int, int]:
    unit = trace.unit_of(site)
    return (0, site) if unit is None else (unit.key, site - unit.base)


def _acknowledged(trace: Trace, event: int) -> tuple[int, int]:
    """Operations ended and bytes printed before an event."""
    before = trace.events[:event]
    printed = before["offset"][before["kind"] == Kind.OUTPUT]
    return int(np.count_nonzero(before["kind"] == Kind.MARK_END)), int(printed.max()) if len(printed) else 0
