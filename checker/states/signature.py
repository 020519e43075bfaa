"""Crash states that look alike: the same static sites lost, the same kept of what was pending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b

import numpy as np

from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.space import CrashState, StateSpace


class Looks:
    """A look: which sites' updates a state lost, and which it kept of what was pending.

    States of one look differ in the instance, the moment, and in how often: most fail together or pass together.
    `site` gives a number of each piece's site; asked for when the first state is looked at, for in a search in which
    nothing fails or hangs none is.
    """

    def __init__(self, space: StateSpace, site: Callable[[], Ints]) -> None:
        self._space = space
        self._numbers = site

    @cached_property
    def _site(self) -> Ints:
        return self._numbers()

    def of(self, state: CrashState) -> bytes:
        """Equal hashes of 128 bits are taken for equal looks."""
        lost, kept = (self._sites(pieces(state)) for pieces in (self._space.lost, self._space.persisted))
        return blake2b(len(lost).to_bytes(8, "little") + lost.tobytes() + kept.tobytes(), digest_size=16).digest()

    def pending(self, state: CrashState) -> int:
        """How many pieces a look is about."""
        return len(self._space.pending(state.point))

    def _sites(self, pieces: Sequence[int]) -> Ints:
        many, whole = len(self._site), self._space.graph.whole
        rows = [piece if piece < many else whole(piece)[0] for piece in pieces]
        return np.unique(self._site[np.array(rows, dtype=np.int64)])


def by_call(space: StateSpace) -> Looks:
    """A site is an instruction and its call stack; of an update without one, the place in the file must do."""
    graph = space.graph

    def site() -> Ints:
        known = graph.trace.events["site"][graph.event] > 0
        return np.where(known, graph.trace.calls(graph.event).astype(np.int64), -1 - graph.granule)

    return Looks(space, site)


__all__ = ["Looks", "by_call"]
