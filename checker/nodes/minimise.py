"""Minimises a run that fails: fewest failures, then fewest actions out of the default order, then fewest actions.

A machine that starts again without something that was written is a failure, too; the fewer updates it lost, the better.

Each step is proved by a run, which fails in the same way. An action is out of order if another one that was possible,
and is first by default, was chosen later; one that was never chosen counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from crashcheck.checker.nodes.dependence import BOUND_OF, HappensBefore, footprint
from crashcheck.checker.nodes.runs import AT_END, NodeRun, order_of
from crashcheck.runtime.nodes.actions import ALL_WRITTEN, Action, ActionKind

Attempt = Callable[[Sequence[Action]], NodeRun]  # makes the run that takes actions in this order, where possible


class RunCost(NamedTuple):
    """How large a failing run is. `lost`: updates that crashes of machines lost."""

    failures: int
    lost: int
    out_of_order: int
    actions: int


Pair = tuple[
    Action, Action
]  # if the second one precedes the first, it does not fail; it may be one that is still to come


class Minimal(NamedTuple):
    """A failing run, and the two actions whose order matters, if there are any."""

    run: NodeRun
    pair: Pair | None


def until_failure(run: NodeRun) -> list[Action]:
    """The choices of a run that fails, up to the failure."""
    assert run.failure is not None
    return list(run.chosen[: run.failure.at])


def skipped(run: NodeRun) -> Iterator[tuple[int, int]]:
    """Places of actions that are out of order, each with that of an action that is first by default."""
    actions = until_failure(run)
    places = {action: at for at, action in enumerate(actions)}
    for at, action in enumerate(actions):
        before = run.enabled[at][: run.enabled[at].index(action)]
        later = [places[other] for other in before if places.get(other, -1) > at]
        if later and action.kind not in BOUND_OF:
            yield at, later[0]


def cost(run: NodeRun) -> RunCost:
    actions = until_failure(run)
    lost = [result.disk.losses for result in run.results[: len(actions)] if result.disk is not None]
    failures = sum(action.kind in BOUND_OF for action in actions) + sum(map(bool, lost))
    return RunCost(failures, sum(lost), sum(1 for _ in skipped(run)), len(actions))


class Minimising:
    """`best` is the smallest run so far, which stays if an attempt raises an exception."""

    def __init__(self, run: NodeRun, attempt: Attempt) -> None:
        self._attempt = attempt
        self.best = run

    def shrink(self) -> None:
        """Try what is smaller, the largest steps first, until none of them fails in the same way."""
        while any(map(self._fails, self._smaller())):
            pass

    def _smaller(self) -> Iterator[list[Action]]:
        """Orders to try; the caller begins again after the first that fails."""
        actions = until_failure(self.best)
        for at, action in enumerate(actions):
            if action.kind is ActionKind.DUPLICATE:
                yield [*actions[:at], action._replace(kind=ActionKind.DELIVER), *actions[at + 1 :]]
            if action.kind in BOUND_OF:
                yield actions[:at] + actions[at + 1 :]
            if action.kind is ActionKind.RESTART and action.channel != ALL_WRITTEN:
                for other in self.best.enabled[at]:
                    if other.kind is ActionKind.RESTART and other.node == action.node and other != action:
                        yield [*actions[:at], other, *actions[at + 1 :]]
        for at, first in skipped(self.best):
            yield [*actions[:at], actions[first], *actions[at:first], *actions[first + 1 :]]
        at_end = self.best.failure is not None and self.best.failure.wrong in AT_END
        size = len(actions) // 2
        while size:
            # A run that fails at its end has all its actions; they may be in the default order from some place on.
            for end in (len(actions),) if at_end else range(len(actions), 0, -size):
                yield actions[: max(end - size, 0)] + actions[end:]
            size //= 2

    def _fails(self, wanted: Sequence[Action]) -> bool:
        """Whether an order leads to a smaller run that fails in the same way, which is then the best."""
        run = self._attempt(wanted)
        if not _same(run, self.best) or cost(run) >= cost(self.best):
            return False
        self.best = run
        return True

    def pair(self) -> Pair | None:
        """Two actions such that the best run does not fail if the second one precedes the first.

        The latest such pair of the run; if there is none, of an action and one that was possible when it failed.
        """
        actions = until_failure(self.best)
        order = order_of(self.best)
        for later in range(len(actions) - 1, -1, -1):
            for earlier in order.reversible(later):
                if self._matters(actions, order, earlier, later, actions[later]):
                    return actions[earlier], actions[later]
        for pending in self.best.enabled[len(actions)]:
            for earlier in order.direct(footprint(pending)) if pending.kind not in BOUND_OF else ():
                if earlier < len(actions) and self._matters(actions, order, earlier, len(actions), pending):
                    return actions[earlier], pending
        return None

    def _matters(
        self, actions: Sequence[Action], order: HappensBefore, earlier: int, later: int, action: Action
    ) -> bool:
        """Whether the run does not fail if `action`, at the place `later`, precedes the one at `earlier`."""
        between = [at for at in range(earlier + 1, later) if not order.precedes(earlier, at)]
        rest = [at for at in range(earlier, len(actions)) if at not in between and at != later]
        front, back = ([actions[at] for at in places] for places in ([*range(earlier), *between], rest))
        return not _same(self._attempt([*front, action, *back]), self.best)


def _same(run: NodeRun, other: NodeRun) -> bool:
    return run.failure is not None and other.failure is not None and run.failure.same_as(other.failure)
