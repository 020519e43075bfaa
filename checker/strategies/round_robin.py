"""Phases of a search take turns, and within them what looks like the fewest states before it comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies.plan import Choice

_AT_HAND = 16  # choices of a phase at first
_MORE = 16  # further ones for each that was taken
_MOST_AT_HAND = 1024
_MOST_PENDING = 1 << 16  # at the crash points of a phase's choices at hand, in sum: looking at a state costs as much


@dataclass(slots=True)
class Phase:
    """Choices of one kind. `weight`: how often they have their turn; `in_order`: none is taken before an earlier one;
    `everything`: no other phase has a state that this one does not have.

    Some are at hand, so that the one with the newest look can be taken: few at first, more while the search goes on.
    """

    choices: Iterator[Choice]
    weight: int
    in_order: bool = False
    everything: bool = False
    credit: int = 0
    heap: list[tuple[int, int, bytes, Choice]] = field(default_factory=list)  # at hand: level, place, look
    pending: int = 0  # at the crash points of what is at hand, in sum
    came: int = 0
    given: int = 0

    def at_hand(self) -> list[Choice]:
        """What came from the choices and was not given yet, in their order."""
        return [choice for _, _, _, choice in sorted(self.heap, key=lambda each: each[1])]

    @property
    def wants(self) -> bool:
        """Whether more should be at hand."""
        many = 1 if self.in_order else min(_AT_HAND + _MORE * self.given, _MOST_AT_HAND)
        return not self.heap or (len(self.heap) < many and self.pending < _MOST_PENDING)


class Turns:
    """Choices of phases, each as often as its weight says, in rounds.

    In round r a state comes that looks like fewer than 2**r before it; a phase that has none at hand is passed over.
    `fresh`: whether a state was not chosen before, by any phase. `look`: what it looks like. `pending`: of how many
    pieces.
    """

    def __init__(
        self,
        phases: dict[str, Phase],
        fresh: Callable[[Choice], bool],
        look: Callable[[CrashState], bytes],
        pending: Callable[[CrashState], int],
    ) -> None:
        self._phases = dict(phases)
        self._fresh = fresh
        self._look = look
        self._pending = pending
        self._seen: dict[bytes, int] = {}
        self._round = 0

    def choices(self) -> Iterator[Choice]:
        """Until the phases have no more, or the one that has everything."""
        passed: set[str] = set()
        while self._phases:
            name = self._next()
            phase = self._phases[name]
            choice = self._take(phase)
            if choice is not None:
                passed.clear()
                yield choice
                continue
            if not phase.heap:
                if phase.everything:
                    return
                del self._phases[name]
            passed.add(name)
            if passed.issuperset(self._phases):
                self._round += 1
                passed.clear()

    def _next(self) -> str:
        """Whose turn it is: in proportion to the weights, spread evenly."""
        for phase in self._phases.values():
            phase.credit += phase.weight
        name = max(self._phases, key=lambda each: self._phases[each].credit)
        self._phases[name].credit -= sum(phase.weight for phase in self._phases.values())
        return name

    def _take(self, phase: Phase) -> Choice | None:
        """Of what a phase has at hand that with the lowest level, the first one of equals; None if not in this round.

        Levels only rise, so that one which has not risen since it was noted is the lowest.
        """
        self._fill(phase)
        while phase.heap:
            level, place, look, choice = phase.heap[0]
            now = self._level(look)
            if not self._fresh(choice):
                self._pop(phase)
                self._fill(phase)
            elif now != level:
                heapreplace(phase.heap, (now, place, look, choice))
            elif level > self._round:
                return None
            else:
                self._pop(phase)
                phase.given += 1
                self._seen[look] = self._seen.get(look, 0) + 1
                return choice
        return None

    def _fill(self, phase: Phase) -> None:
        while phase.wants:
            choice = next(phase.choices, None)
            if choice is None:
                return
            if self._fresh(choice):
                look = self._look(choice.state)
                heappush(phase.heap, (self._level(look), phase.came, look, choice))
                phase.came += 1
                phase.pending += self._pending(choice.state)

    def _pop(self, phase: Phase) -> None:
        phase.pending -= self._pending(heappop(phase.heap)[-1].state)

    def _level(self, look: bytes) -> int:
        return self._seen.get(look, 0).bit_length()
