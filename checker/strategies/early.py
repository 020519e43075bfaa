"""Crash states that need no analysis: a long trace is tested with them while its groups are being ranked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.signature import by_call
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies.numbers import EARLY_PENDING, EARLY_PIECES, EARLY_POINTS
from crashcheck.runtime.trace_format import Kind


def first_states(canonical: CanonicalStates) -> Iterator[CrashState]:
    """At the crash points from the first operation on: everything, nothing, and one granule's updates lost or kept.

    Of each site signature only the first state, under its canonical name. Where millions of pieces are pending, the
    points are few.
    """
    space = canonical.space
    signatures, seen = by_call(space), set[bytes]()
    begins = space.graph.trace.rows(Kind.MARK_BEGIN)
    first = int(np.searchsorted(space.points.event, begins[0])) if len(begins) else 0
    left = EARLY_PIECES
    for point in islice(range(first, len(space.points)), EARLY_POINTS):
        left -= len(space.pending_rows(point))
        if left < 0:
            return
        for state in plain_states(canonical, point):
            signature = signatures.of(state)
            if signature not in seen:
                seen.add(signature)
                yield canonical.first(state)


def plain_states(canonical: CanonicalStates, point: int) -> Iterator[CrashState]:
    """At a crash point: everything, nothing, and one granule's updates lost or kept."""
    space = canonical.space
    pending = space.pending_rows(point)
    yield space.full(point)
    if not len(pending):
        return
    yield space.empty(point)
    if len(pending) > EARLY_PENDING:
        return
    granules = space.graph.granule[pending]
    for granule in dict.fromkeys(granules.tolist()):
        mine = pending[granules == granule].tolist()
        yield space.drop(point, mine)
        yield space.keep(point, mine)
