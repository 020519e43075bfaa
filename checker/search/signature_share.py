"""How far a search came, in site signatures: of those of the plainest crash states, how many it has tested.

Crash states are too many to be a measure: a large program's search decides almost none of them, and has tested all of
its code. Site signatures do not grow with the length of a run. The plainest states are those that lose everything,
nothing, or one granule's updates, or keep one granule's alone, where one set of sites is pending for the first time.
"""

from __future__ import annotations

from functools import cache, partial

from crashcheck.analyzer.arrays import halving_order
from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.signature import SiteSignatures
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.plain import first_points, plain_states, site_numbers
from crashcheck.checker.strategies.plan import Decided
from crashcheck.interruption import KeepOn, always

_LEAST_POINTS = 64  # the share of fewer means little
_MOST_STATES = 10_000  # that are examined, spread over the run
_MOST_PENDING = 20_000_000  # pieces that are pending at these, in sum: two seconds


class SignatureShare:
    """The site signatures of a search's states, against those of the plainest states."""

    def __init__(self, space: StateSpace) -> None:
        self._space = space
        self._site = cache(partial(site_numbers, space.graph))  # with the first state, as SiteSignatures asks for it
        self._signatures = SiteSignatures(space, self._site)
        self._tested: set[bytes] = set()

    def test(self, state: CrashState) -> None:
        """A state, or one with an equal image, has a verdict."""
        self._tested.add(self._signatures.of(state))

    def counts(self, decided: Decided, keep_on: KeepOn = always) -> tuple[int, int]:
        """(signatures of the plainest states, those of them that were tested). `decided`: points of which all were.

        Of fewer points, spread over the run, once `keep_on` raises OutOfTime; of _LEAST_POINTS in any case.
        """
        canonical, wanted, states, pending = CanonicalStates(self._space), set[bytes](), 0, 0
        found = set[bytes]()
        points = first_points(self._space, self._site())
        for number, at in enumerate(halving_order(len(points))):
            if number >= _LEAST_POINTS:
                try:
                    keep_on()
                except OutOfTime:
                    break
            point = int(points[at])
            for state in plain_states(canonical, point):
                states, pending = states + 1, pending + self._signatures.pending(state)
                wanted.add(signature := self._signatures.of(canonical.first(state)))
                if point in decided:
                    found.add(signature)
            if states >= _MOST_STATES or pending >= _MOST_PENDING:
                break
        return len(wanted), len(wanted & (self._tested | found))
