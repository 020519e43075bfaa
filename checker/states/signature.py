"""Site signatures: crash states that lost the same static sites and kept the same of what was pending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import blake2b

import numpy as np

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.space import CrashState, StateSpace

_MOST_KEPT = 1 << 18  # pieces of crash points whose sites are remembered
_NONE = np.zeros(0, dtype=np.int64)


class SiteSignatures:
    """The site signature of a state: which sites' updates it lost, and which it kept of what was pending.

    States with one signature differ in the instance, the moment, and in how often: most fail together or pass
    together. `site` gives a number for each piece's site. It is called with the first state, because a search in which
    nothing fails or hangs asks for none.
    """

    def __init__(self, space: StateSpace, site: Callable[[], Ints]) -> None:
        self._space = space
        self._numbers = site
        # by crash point: the sites of what is pending there, how many pieces each has, and the number of each piece's
        self._known: dict[int, tuple[Ints, Ints, Ints]] = {}
        self._kept = 0  # pieces in `_known`, in sum

    @cached_property
    def _site(self) -> Ints:
        return self._numbers()

    def of(self, state: CrashState) -> bytes:
        """The signature of a state, hashed to 128 bits; equal hashes are taken for equal signatures."""
        if state.pieces and state.pieces[-1] >= len(self._site):
            lost, kept = (self._sites(pieces(state)) for pieces in (self._space.lost, self._space.persisted))
        else:
            listed, others = self._sides(state)
            lost, kept = (listed, others) if state.dropped else (others, listed)
        return blake2b(len(lost).to_bytes(8, "little") + lost.tobytes() + kept.tobytes(), digest_size=16).digest()

    def _sides(self, state: CrashState) -> tuple[Ints, Ints]:
        """The sites of the pieces that the state lists, and of the other pending ones: of a state without parts."""
        pending = self._space.pending_rows(state.point)
        known = self._known.get(state.point)
        if known is None:
            sites, number = np.unique(self._site[pending], return_inverse=True)
            if self._kept + len(pending) > _MOST_KEPT:
                self._known.clear()
                self._kept = 0
            known = self._known[state.point] = sites, np.bincount(number, minlength=len(sites)), number
            self._kept += len(pending)
        sites, many, number = known
        if not state.pieces:
            return _NONE, sites
        listed = number[pending.searchsorted(np.array(state.pieces, dtype=np.int64))]
        mine = np.bincount(listed, minlength=len(sites))
        return sites[mine > 0], sites[mine < many]

    def pending(self, state: CrashState) -> int:
        """Count the pieces that the signature of a state covers."""
        return len(self._space.pending_rows(state.point))

    def _sites(self, pieces: Sequence[int]) -> Ints:
        return np.unique(self._site[self._space.graph.wholes(np.array(pieces, dtype=np.int64))])


def call_sites(graph: PersistenceGraph) -> Ints:
    """A number for each piece's instruction and call stack; an update without these has its granule of the file."""
    known = graph.trace.events["site"][graph.event] > 0
    sites: Ints = np.where(known, graph.trace.calls(graph.event).astype(np.int64), -1 - graph.granule)
    return sites


def by_call(space: StateSpace) -> SiteSignatures:
    """Signatures by instruction and call stack."""
    return SiteSignatures(space, lambda: call_sites(space.graph))
