"""Locks in the watched files that a crash leaves held, so that the check waits for them for ever, or fails.

A lock is recognised by what it does: an atomic operation takes it, a later update of the same thread to the
same bytes releases it, and the crash is between the two. That the check waits for it is shown by running the check on
the crash image with those bytes as the releases leave them. No crash leaves that image, so it proves the reason only.
Where the check does not wait, a lock is only what its release leaves as it was before it was taken, and what an
operation takes, it releases: a pointer that one operation sets and a later one clears is no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.checker.findings import describe
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.results import Fix, Outcome, Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import Kind, StoreFlag

_PLACE = ("file", "offset", "size")
RunChanged = Callable[[CrashState, Callable[[Path], None]], Verdict]


def advice(subject: Subject, cause: Cause, run_changed: RunChanged) -> Fix | None:
    """What to do about a check that hangs or fails because locks are held; None if it does for another reason.

    `run_changed` executes the check on a state's image after the function that it is given has changed the image.
    """
    hangs = cause.verdict.outcome is Outcome.TIMEOUT
    if cause.prefix:
        return None if cause.moment is None else advice_at(subject, cause.state, cause.moment, hangs, run_changed)
    if cause.kept is None:
        return None
    part_of = subject.event_of(cause.kept)  # a lock of which only a part persisted, or else another update is to blame
    return advice_at(subject, cause.state, subject.space.moment(cause.state.point), hangs, run_changed, part_of)


def untested(subject: Subject, cause: Cause) -> Fix | None:
    """The same for a check that hangs, where no time is left to execute it with the locks released."""
    if not cause.prefix or cause.moment is None or cause.verdict.outcome is not Outcome.TIMEOUT:
        return None
    taken, _ = _held_at(subject, cause.moment, restored=False)
    last = subject.update_from(int(taken[-1])) if len(taken) else None
    if last is None:
        return None
    return Fix(
        "atomic",
        f"no flush can help: {describe.named(subject, last)} may be a lock that is still held after the crash; release "
        "it when the files are opened again (not tested: no time was left)",
    )


def advice_at(
    subject: Subject,
    state: CrashState,
    moment: int,
    hangs: bool,
    run_changed: RunChanged,
    part_of: int | None = None,
) -> Fix | None:
    """The same for what a crash at a moment leaves: `state`, on which the check hangs or fails otherwise.

    `part_of`: only if this event takes one of the locks.
    """
    taken, released = _held_at(subject, moment, restored=not hangs)
    if part_of is not None and part_of not in taken:
        return None
    if not len(taken) or not run_changed(state, partial(_release, subject, taken, released)).passed:
        return None
    first = subject.update_from(int(taken[-1]))
    if first is None:
        return None
    more = f" and {describe.count(len(taken) - 1, 'other lock')}" if len(taken) > 1 else ""
    held, them, their = (
        ("is a lock that is", "it", "its") if len(taken) == 1 else ("are locks that are", "them", "their")
    )
    how = f"the check waits for {them}" if hangs else "the check fails for that"
    return Fix(
        "atomic",
        f"no flush can help: {describe.named(subject, first)}{more} {held} still held after the crash, and {how}; "
        f"release {them} when the files are opened again",
        verified=f"with {their} bytes as the release leaves them, the check passes on the same crash state",
    )


def _held_at(subject: Subject, moment: int, restored: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The locks that are held at a moment: the events that took them, in order, and those that release them.

    `restored`: only those whose release stores the bytes from before (zeros, if nothing was stored before), within the
    operation, if one took it.
    """
    events = subject.trace.events
    stores = np.flatnonzero(events["kind"] == Kind.STORE)
    rows = events[stores]
    by_place = np.lexsort((stores, rows["size"], rows["offset"], rows["file"]))
    now, then = by_place[:-1], by_place[1:]
    alike = np.ones(len(now), dtype=np.bool_)
    for field in (*_PLACE, "thread"):
        alike &= rows[field][now] == rows[field][then]
    # Whether it also read is not recorded: the fence of a locked instruction is left out where it orders nothing.
    alike &= (rows["flags"][now] & StoreFlag.ATOMIC) != 0
    alike &= (stores[now] < moment) & (stores[then] >= moment)
    if restored:
        for at in np.flatnonzero(alike).tolist():
            taken, released = int(stores[now[at]]), int(stores[then[at]])
            same = at > 0 and all(rows[field][by_place[at - 1]] == rows[field][now[at]] for field in _PLACE)
            release = subject.trace.data(released)
            before = subject.trace.data(int(stores[by_place[at - 1]])) if same else bytes(len(release))
            alike[at] = before == release and not _outlives_operation(subject, taken, released)
    order = np.argsort(stores[now[alike]])
    return stores[now[alike]][order], stores[then[alike]][order]


def _outlives_operation(subject: Subject, taken: int, released: int) -> bool:
    """Whether the operation in which an event takes a lock has ended when another releases it."""
    events = subject.trace.events
    marks = subject.trace.rows(Kind.MARK_BEGIN, Kind.MARK_END)
    marks = marks[events["thread"][marks] == events["thread"][taken]]
    before, after = np.searchsorted(marks, [taken, released]).tolist()
    return 0 < before < after and int(events["kind"][marks[before - 1]]) == Kind.MARK_BEGIN


def _release(subject: Subject, taken: NDArray[np.int64], released: NDArray[np.int64], folder: Path) -> None:
    """Write what the releases store over the locks in the files of an image."""
    events = subject.trace.events
    for lock, release in zip(taken.tolist(), released.tolist(), strict=True):
        with (folder / subject.trace.files[int(events["file"][lock])].path).open("r+b") as file:
            file.seek(int(events["offset"][lock]))
            file.write(subject.trace.data(release))
