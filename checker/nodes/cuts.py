"""Consistent cuts of a run: the states of all nodes that other orders of the same partial order pass through.

A strategy that runs one order of each partial order does not visit them, but they are states of the system all the same
(MODIST 3.5). A cut is a set of actions that holds, with an action, all that precede it; the state of a node in it is
the one after its own last action in the set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import or_

from crashcheck.checker.nodes.dependence import HappensBefore
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult

Versions = tuple[int, ...]  # for each node, how many of the run's actions on it are in the cut

_ON_LINKS = (ActionKind.LOSE, ActionKind.CUT, ActionKind.HEAL)
_ON_BOTH = (ActionKind.CONNECT, ActionKind.RESET)


def nodes_of(action: Action) -> tuple[int, ...]:
    """The nodes that an action runs or ends."""
    if action.kind in _ON_LINKS:
        return ()
    return (action.node, action.peer) if action.kind in _ON_BOTH else (action.node,)


class Cuts:
    """The consistent cuts of a run with these results, the smallest first, without those that the run passes through.

    Timers that tick are ordered with none of their node's other actions (dependence.py). In a cut they keep their place
    among these all the same, and are part of it only with a later one: the state of a node is that after its own last
    action.
    """

    def __init__(self, results: Sequence[ActionResult], order: HappensBefore, nodes: int) -> None:
        self._actions = [result.action for result in results]
        self._quiet = sum(1 << at for at, result in enumerate(results) if result.quiet)
        self._own = [
            sum(1 << at for at, action in enumerate(self._actions) if node in nodes_of(action)) for node in range(nodes)
        ]
        self._up_to: list[int] = []  # each action, and all that a cut holds with it
        for at, action in enumerate(self._actions):
            needed = order.before(at)
            for node in nodes_of(action):
                needed |= self._own[node] & ((1 << at) - 1)
            for earlier, held in enumerate(self._up_to):
                if needed >> earlier & 1:
                    needed |= held
            self._up_to.append(needed | 1 << at)

    def __len__(self) -> int:
        """How many actions the run has."""
        return len(self._actions)

    def versions(self, cut: int) -> Versions:
        return tuple((own & cut).bit_count() for own in self._own)

    def actions(self, cut: int) -> list[Action]:
        """The actions of a cut, in the order of the run."""
        return [action for at, action in enumerate(self._actions) if cut >> at & 1]

    def __iter__(self) -> Iterator[int]:
        """Each cut, as the bits of the places of its actions; of cuts with equal versions the first."""
        return self._without(self._quiet)

    def differing(self, states: Sequence[Sequence[object]]) -> Iterator[int]:
        """The cuts of which other states are not known to be equal. `states`: of each node, before its first action and
        after each; an action that changes none is part of a cut only with a later one."""
        return self._without(self._quiet | sum(1 << at for at in range(len(self)) if self._keeps(at, states)))

    def _keeps(self, at: int, states: Sequence[Sequence[object]]) -> bool:
        numbers = [(node, (self._own[node] & (2 << at) - 1).bit_count()) for node in nodes_of(self._actions[at])]
        return all(states[node][number] == states[node][number - 1] for node, number in numbers)

    def _without(self, alone: int) -> Iterator[int]:
        """`alone`: the actions that no cut is larger by."""
        larger_by = [each for at, each in enumerate(self._up_to) if not alone >> at & 1]
        seen = {self.versions(passed) for passed in accumulate(larger_by, or_, initial=0)}
        reached = {0}
        waiting = deque(reached)
        while waiting:
            cut = waiting.popleft()
            if (versions := self.versions(cut)) not in seen:
                seen.add(versions)
                yield cut
            for each in larger_by:
                larger = cut | each
                if larger not in reached and (each & ~alone & ~cut).bit_count() == 1:
                    reached.add(larger)
                    waiting.append(larger)
