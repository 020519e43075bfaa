"""Phases of a search take turns; within a phase the state whose signature came least often is first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies.numbers import MOST_PENDING, MOST_QUEUED, QUEUED, QUEUED_MORE
from crashcheck.checker.strategies.plan import Choice


@dataclass(slots=True)
class WeightedQueue:
    """Choices of one kind. `weight`: how often they have their turn; `in_order`: none is taken before an earlier one;
    `everything`: no other phase has a state that this one does not have; `similar_too`: none waits for its signature.

    Some are queued, so that the one with the rarest signature can be taken: few at first, more as the search continues.
    """

    choices: Iterator[Choice]
    weight: int
    in_order: bool = False
    everything: bool = False
    similar_too: bool = False
    credit: int = 0
    heap: list[tuple[int, int, bytes, Choice]] = field(default_factory=list)  # queued: level, place, signature
    pending: int = 0  # at the crash points of what is queued, in sum
    came: int = 0
    given: int = 0

    def queued(self) -> list[Choice]:
        """What came from the choices and was not given yet, in their order."""
        return [choice for _, _, _, choice in sorted(self.heap, key=lambda each: each[1])]

    @property
    def needs_refill(self) -> bool:
        """Whether more should be queued."""
        wanted = 1 if self.in_order else min(QUEUED + QUEUED_MORE * self.given, MOST_QUEUED)
        return not self.heap or (len(self.heap) < wanted and self.pending < MOST_PENDING)


class RoundRobin:
    """Choices of phases, each as often as its weight demands, in rounds.

    Round r takes states with fewer than 2**r states of their signature before them; a phase that has none queued is
    passed over. `fresh`: whether a state was not chosen before, by any phase. `signature`: its site signature.
    `pending`: how many pieces that covers.
    """

    def __init__(
        self,
        phases: dict[str, WeightedQueue],
        fresh: Callable[[Choice], bool],
        signature: Callable[[CrashState], bytes],
        pending: Callable[[CrashState], int],
    ) -> None:
        self._phases = dict(phases)
        self._fresh = fresh
        self._signature = signature
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

    def _take(self, phase: WeightedQueue) -> Choice | None:
        """Of what a phase has queued that with the lowest level, the first one of equals; None if not in this round.

        Levels only rise, so that one which has not risen since it was noted is the lowest.
        """
        self._fill(phase)
        while phase.heap:
            level, place, signature, choice = phase.heap[0]
            now = self._level(signature)
            if not self._fresh(choice):
                self._pop(phase)
                self._fill(phase)
            elif now != level:
                heapreplace(phase.heap, (now, place, signature, choice))
            elif level > self._round:
                return None
            else:
                self._pop(phase)
                phase.given += 1
                if not phase.similar_too:
                    self._seen[signature] = self._seen.get(signature, 0) + 1
                return choice
        return None

    def _fill(self, phase: WeightedQueue) -> None:
        while phase.needs_refill:
            choice = next(phase.choices, None)
            if choice is None:
                return
            if self._fresh(choice):
                signature = b"" if phase.similar_too else self._signature(choice.state)
                heappush(phase.heap, (self._level(signature), phase.came, signature, choice))
                phase.came += 1
                phase.pending += self._pending(choice.state)

    def _pop(self, phase: WeightedQueue) -> None:
        phase.pending -= self._pending(heappop(phase.heap)[-1].state)

    def _level(self, signature: bytes) -> int:
        return self._seen.get(signature, 0).bit_length()
