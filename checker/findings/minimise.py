"""Making a failing crash state small: delta debugging over the lattice of order ideals.

A crash state at a point is the set of pending updates that are *lost*, which is closed upwards in
the persistence order (what must persist after a lost update is lost too); what is *persisted* is
closed downwards. Plain delta debugging (Zeller, Hildebrandt, TSE 2002) tries arbitrary subsets, most
of which are no crash states at all; here each candidate is a subset's closure, so every state that
is executed may really survive a crash.

Invariants that the code below keeps:

1. Every candidate is an ideal of the same crash point, and its reduced set a strict subset of the
   one being reduced.
2. The result fails: the given state must fail, and only failing candidates are ever adopted.
3. The result is 1-minimal in the lattice: giving back any one element, with what that brings along
   by closure, makes the check pass.
4. Candidates depend on the state and on earlier answers alone, in one fixed order: the same check
   gives the same result for any number of workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crashcheck.checker.states.space import CrashState, StateSpace

Pieces = tuple[int, ...]
Candidate = tuple["CrashState", Pieces]  # a state, and what of the reduced set remains in it
Expect = Callable[[Iterable["CrashState"]], None]  # of the states that are asked about next if this one passes
_EXPECTED = 2


def nobody(states: Iterable[CrashState]) -> None:
    """Whom it does not help to know which states are asked about next."""


def alone(pieces: Pieces) -> Pieces:
    """Each piece is lost or kept by itself."""
    return pieces


def fewest_lost(
    space: StateSpace,
    state: CrashState,
    fails: Callable[[CrashState], bool],
    together: Callable[[Pieces], Pieces] = alone,
    expect: Expect = nobody,
) -> CrashState:
    """A failing state at the same point that loses a 1-minimal subset of what `state` loses, all else persisted.

    "Everything persisted" is never tried: the caller knows how it ends. `together` adds what must share the fate
    of some pieces.
    """
    point = state.point

    def of(candidate: CrashState) -> Candidate:
        return candidate, tuple(space.lost(candidate))

    def only(lost: Pieces) -> Candidate:
        return of(space.drop(point, together(lost)))

    def without(lost: Pieces, given_back: Pieces) -> Candidate:
        return of(space.keep_too(space.without(point, lost), _wholes(space, together(given_back))))

    lost = _reduce(tuple(space.lost(state)), only, without, fails, expect)
    return space.drop(point, lost)


def fewest_persisted(
    space: StateSpace,
    state: CrashState,
    among: Iterable[int],
    fails: Callable[[CrashState], bool],
    together: Callable[[Pieces], Pieces] = alone,
    expect: Expect = nobody,
) -> tuple[CrashState, Pieces]:
    """A failing state that persists a 1-minimal subset of `among`, with the rest of `state` as it is.

    `among` must be persisted in `state`, and closed upwards within what is persisted there. Returns
    the state and the subset, which is empty if the check fails with none of it.
    """
    point = state.point
    candidates = set(among)
    rest = tuple(piece for piece in space.persisted(state) if piece not in candidates)

    def of(candidate: CrashState) -> Candidate:
        return candidate, tuple(piece for piece in space.persisted(candidate) if piece in candidates)

    rest_only = space.with_(point, rest)

    def only(kept: Pieces) -> Candidate:
        return of(space.keep_too(rest_only, together(kept)))

    def without(kept: Pieces, lost: Pieces) -> Candidate:
        return of(space.drop_too(space.with_(point, rest + kept), _wholes(space, together(lost))))

    bare = only(())
    if fails(bare[0]):
        return bare
    kept = _reduce(tuple(sorted(candidates)), only, without, fails, expect)
    return only(kept)


def _wholes(space: StateSpace, pieces: Pieces) -> Pieces:
    """The pieces, with the whole extension for a part of one (PersistenceGraph)."""
    return tuple(space.graph.whole(piece) for piece in pieces)


def _reduce(
    items: Pieces,
    only: Callable[[Pieces], Candidate],
    without: Callable[[Pieces, Pieces], Candidate],
    fails: Callable[[CrashState], bool],
    expect: Expect,
) -> Pieces:
    """ddmin with closures: `only(chunk)` reduces to a chunk, `without(items, chunk)` takes a chunk away."""
    size = max(1, len(items) // 2)
    while len(items) > 1:
        chunks = [items[at : at + size] for at in range(0, len(items), size)]
        smaller = _first_failing(items, (only(chunk) for chunk in chunks), fails, expect)
        if smaller is None:
            smaller = _first_failing(items, (without(items, chunk) for chunk in chunks), fails, expect)
        if smaller is not None:
            items = smaller
            size = max(1, min(size, len(items) // 2))
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return items


def _first_failing(
    items: Pieces, candidates: Iterable[Candidate], fails: Callable[[CrashState], bool], expect: Expect
) -> Pieces | None:
    smaller = (one for one in candidates if 0 < len(one[1]) < len(items))
    coming = deque(islice(smaller, 1 + _EXPECTED))
    while coming:
        state, remaining = coming.popleft()
        expect([each for each, _ in coming])
        if fails(state):
            return remaining
        coming.extend(islice(smaller, 1))
    return None


def earliest(low: int, high: int, fails: Callable[[int], bool]) -> int:
    """A point of `[low, high]` that fails although the one before it passes, or `low`; `high` must fail.

    Bisection: failing need not be monotone, and then it is one such point, always the same.
    """
    while low < high:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle + 1
    return high
