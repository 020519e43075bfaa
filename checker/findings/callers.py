"""A cause by the functions that led to its lost update: a helper that forgets its flush may get one more caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.uses import callers_of
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject

_STATES = 3  # for each caller, of different operations: in another version one of them may be harmless


def by_callers(
    subject: Subject, cause: Cause, cases: Iterable[CrashState], lost: NDArray[np.int64], kept: NDArray[np.int64]
) -> Iterator[Cause]:
    """The cause as failing states show it that lose the update only as called by the same functions; none where all of
    its updates are. `lost`, `kept`: all pieces of the two places.
    """
    space = subject.space
    _, firsts, which = np.unique(subject.trace.calls(subject.graph.event[lost]), return_index=True, return_inverse=True)
    places = [subject.place(piece) for piece in lost[firsts].tolist()]
    callers = ["" if here is None else callers_of(here) for here in places]
    of_piece = dict(zip(lost.tolist(), (callers[at] for at in which.reshape(-1).tolist()), strict=True))
    wanted = {name: set[int]() for name in callers} if len(set(callers)) > 1 else {}
    for state in (cause.state, *cases):
        if all(len(operations) == _STATES for operations in wanted.values()):
            return
        gone = space.lost(state)
        mine = [piece for piece in gone if piece in of_piece]
        names = {of_piece[piece] for piece in mine}
        if len(names) != 1:
            continue
        operations, operation = wanted[names.pop()], int(space.points[state.point].acked)
        if len(operations) == _STATES or operation in operations:
            continue
        low, high = np.searchsorted(subject.graph.event[kept], [subject.event_of(mine[0]), space.moment(state.point)])
        later = [piece for piece in kept[low:high].tolist() if piece not in gone]
        if later or cause.kept is None:
            operations.add(operation)
            yield replace(cause, state=state, lost=mine[0], kept=later[-1] if later else None)
