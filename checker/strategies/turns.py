"""Phases of a search take turns, and within them what looks like the fewest states before it comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace

from crashcheck.checker.states import CrashState
from crashcheck.checker.strategies.plan import Choice

_AT_HAND = 16  # choices of a phase at first
_MORE = 16  # further ones for each that was taken
_MOST_AT_HAND = 1024
_MOST_PIECES = 1 << 18  # of a phase's choices at hand, in sum

Fresh = Callable[[Choice], bool]
Look = Callable[[CrashState], bytes]


class Phase:
    """Choices of one kind. `weight`: how often they have their turn; `in_order`: none is taken before an earlier one;
    `everything`: no other phase has a state that this one does not have.

    Some are at hand, so that the one with the newest look can be taken: few at first, more while the search goes on.
    """

    def __init__(
        self, choices: Iterator[Choice], weight: int, *, in_order: bool = False, everything: bool = False
    ) -> None:
        self.weight = weight
        self.everything = everything
        self.credit = 0
        self._choices = choices
        self._most = 1 if in_order else _MOST_AT_HAND
        self._at_hand: list[tuple[int, int, bytes, Choice]] = []  # a heap by level and place
        self._pieces = 0  # of what is at hand
        self._given = self._taken = 0

    def at_hand(self) -> list[Choice]:
        """What was taken from the choices and not given yet, in their order."""
        return [choice for _, _, _, choice in sorted(self._at_hand, key=lambda each: each[1])]

    def over(self) -> bool:
        return not self._at_hand

    def take(self, fresh: Fresh, look: Look, level: Callable[[bytes], int], round_: int) -> tuple[Choice, bytes] | None:
        """The fresh choice with the lowest level of its look, the first one of equals; None if it is above `round_`."""
        self._fill(fresh, look, level)
        while self._at_hand:
            known, place, seen, choice = self._at_hand[0]
            if not fresh(choice):
                self._pop()
                self._fill(fresh, look, level)
            elif level(seen) != known:
                heapreplace(self._at_hand, (level(seen), place, seen, choice))
            elif known > round_:
                return None
            else:
                self._pop()
                self._given += 1
                return choice, seen
        return None

    def _pop(self) -> None:
        self._pieces -= len(heappop(self._at_hand)[-1].state.pieces)

    def _fill(self, fresh: Fresh, look: Look, level: Callable[[bytes], int]) -> None:
        many = min(self._most, _AT_HAND + _MORE * self._given)
        while not self._at_hand or (len(self._at_hand) < many and self._pieces < _MOST_PIECES):
            choice = next(self._choices, None)
            if choice is None:
                return
            if fresh(choice):
                seen = look(choice.state)
                heappush(self._at_hand, (level(seen), self._taken, seen, choice))
                self._taken += 1
                self._pieces += len(choice.state.pieces)


class Turns:
    """Choices of phases, each as often as its weight says, in rounds.

    In round r a state comes that looks like fewer than 2**r before it; a phase that has none at hand is passed over.
    `fresh`: whether a state was not chosen before, by any phase. `look`: what it looks like.
    """

    def __init__(self, phases: dict[str, Phase], fresh: Fresh, look: Look) -> None:
        self._phases = dict(phases)
        self._fresh = fresh
        self._look = look
        self._seen: dict[bytes, int] = {}
        self._round = 0

    def choices(self) -> Iterator[Choice]:
        """Until the phases have no more."""
        passed: set[str] = set()
        while self._phases:
            name = self._next()
            taken = self._phases[name].take(self._fresh, self._look, self._level, self._round)
            if taken is not None:
                choice, look = taken
                self._seen[look] = self._seen.get(look, 0) + 1
                passed.clear()
                yield choice
                continue
            if self._phases[name].over() and self._phases.pop(name).everything:
                return
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

    def _level(self, look: bytes) -> int:
        return self._seen.get(look, 0).bit_length()
