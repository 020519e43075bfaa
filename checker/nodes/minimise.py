"""Minimises a run that fails: fewest failures, then fewest actions out of the default order, then fewest actions.

A machine that starts again without something that was written is a failure, too; the fewer updates it lost, the better.

Each step is proved by a run, which fails in the same way. An action is out of order if another one that was possible,
and is first by default, was chosen later; one that was never chosen counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from crashcheck.checker.nodes.dependence import BOUND_OF, HappensBefore, footprint
from crashcheck.checker.nodes.runs import AT_END, NodeRun, order_of
from crashcheck.runtime.nodes.actions import ALL_WRITTEN, Action, ActionKind

_Part = TypeVar("_Part")
_Found = TypeVar("_Found")
# Asks for the runs that take actions in some orders, where possible, and ends with what these have shown.
Attempts = Generator[Sequence[Sequence[Action]], Sequence[NodeRun], _Found]
_AT_ONCE = 4  # orders whose runs may be made at the same time
_ALL_ROUNDS = 64  # more than any number of parts can be halved
_COARSE_ROUNDS = 4  # down to eighths: a failure at the beginning of a long run makes it short at once


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
    """`best` is the smallest run so far, which stays if nobody makes the rest of the runs.

    It is delta debugging (Zeller and Hildebrandt 2002): parts of a run are taken away, large ones first, so that a long
    run takes about as many attempts as there are actions in the smallest one.
    """

    def __init__(self, run: NodeRun) -> None:
        self._tried: set[tuple[Action, ...]] = set()  # of these none leads to a smaller run than the best one
        self.best = run

    def attempts(self) -> Attempts[Pair | None]:
        """Try what is smaller until none of it fails in the same way; then find the `pair` of the best run."""
        before = None
        while before != (before := cost(self.best)):
            yield from self._take_away(_actions, _without, _COARSE_ROUNDS)
            yield from self._take_away(_failures, _without)
            while (yield from self._first(_with_other_disks(self.best))) is not None:
                pass
            yield from self._take_away(_out_of_order, _in_order)
            yield from self._take_away(_actions, _without)
        return (yield from self._pair())

    def _take_away(
        self,
        parts: Callable[[NodeRun], Sequence[_Part]],
        without: Callable[[Sequence[Action], Sequence[_Part]], list[Action]],
        rounds: int = _ALL_ROUNDS,
    ) -> Attempts[None]:
        """Try to do without all parts of one kind, then halves, then quarters, each from the end of the run on."""
        all_parts = len(parts(self.best))
        for size in filter(None, (all_parts >> halvings for halvings in range(rounds))):
            end = len(parts(self.best))
            while end > 0:
                actions, there = until_failure(self.best), parts(self.best)
                ends = range(end, 0, -size)
                found = yield from self._first([without(actions, there[max(at - size, 0) : at]) for at in ends])
                if found is None:
                    break
                end = min(ends[found] - size, len(parts(self.best)))

    def _first(self, orders: Iterable[Sequence[Action]]) -> Attempts[int | None]:
        """The place of the first order that leads to a smaller run failing in the same way, which is then the best."""
        new = ((at, order) for at, order in enumerate(map(tuple, orders)) if order not in self._tried)
        while some := list(islice(new, _AT_ONCE)):
            runs = yield [order for _, order in some]
            for (at, order), run in zip(some, runs, strict=True):
                self._tried.add(order)
                if _same(run, self.best) and cost(run) < cost(self.best):
                    self.best = run
                    return at
        return None

    def _pair(self) -> Attempts[Pair | None]:
        """Two actions such that the best run does not fail if the second one precedes the first.

        The latest such pair of the run; if there is none, of an action and one that was possible when it failed.
        """
        reordered = _reordered(self.best)
        while some := list(islice(reordered, _AT_ONCE)):
            runs = yield [order for _, order in some]
            for (pair, _), run in zip(some, runs, strict=True):
                if _precedes(run, *reversed(pair)) and not _same(run, self.best):
                    return pair
        return None


def _precedes(run: NodeRun, earlier: Action, later: Action) -> bool:
    """Whether an action happened, and another one not before it: a run may end before, or depart from what is asked."""
    happened = [action for action in run.chosen if action in (earlier, later)]
    return happened[:1] == [earlier]


def _same(run: NodeRun, other: NodeRun) -> bool:
    return run.failure is not None and other.failure is not None and run.failure.same_as(other.failure)


def _actions(run: NodeRun) -> Sequence[int]:
    """Places that a run may do without. One that fails at its end has all its actions, whatever their order."""
    at_end = run.failure is not None and run.failure.wrong in AT_END
    return () if at_end else range(len(until_failure(run)))


def _failures(run: NodeRun) -> Sequence[int]:
    return [at for at, action in enumerate(until_failure(run)) if action.kind in BOUND_OF]


def _without(actions: Sequence[Action], places: Sequence[int]) -> list[Action]:
    """Without what is at some places; a message that is delivered twice there is delivered once."""
    once = {at: _as_delivered(actions[at]) for at in places if actions[at].kind is ActionKind.DUPLICATE}
    return [once.get(at, action) for at, action in enumerate(actions) if at in once or at not in places]


def _as_delivered(action: Action) -> Action:
    """The delivery of a message that is delivered twice; other actions as they are."""
    return action._replace(kind=ActionKind.DELIVER) if action.kind is ActionKind.DUPLICATE else action


def _out_of_order(run: NodeRun) -> Sequence[tuple[Action, Action]]:
    """Actions that are out of order, each with one that is first by default."""
    actions = until_failure(run)
    return [(actions[at], actions[first]) for at, first in skipped(run)]


def _in_order(actions: Sequence[Action], pairs: Sequence[tuple[Action, Action]]) -> list[Action]:
    """With the second action of each pair right before the first one."""
    changed = list(actions)
    for action, first in pairs:
        if changed.index(first) > changed.index(action):
            changed.remove(first)
            changed.insert(changed.index(action), first)
    return changed


def _with_other_disks(run: NodeRun) -> Iterator[Sequence[Action]]:
    """Orders in which one machine starts again with another state of its disk."""
    actions = until_failure(run)
    for at, action in enumerate(actions):
        if action.kind is ActionKind.RESTART and action.channel != ALL_WRITTEN:
            for other in run.enabled[at]:
                if other.kind is ActionKind.RESTART and other.node == action.node and other != action:
                    yield [*actions[:at], other, *actions[at + 1 :]]


def _reordered(run: NodeRun) -> Iterator[tuple[Pair, Sequence[Action]]]:
    """Pairs of actions that may happen in either order, each with an order in which the second one is first."""
    actions = until_failure(run)
    order = order_of(run)
    for later in range(len(actions) - 1, -1, -1):
        for earlier in order.reversible(later):
            if _as_delivered(actions[earlier]) == _as_delivered(actions[later]):
                continue  # a message cannot be delivered twice once it was delivered
            yield (actions[earlier], actions[later]), _swapped(actions, order, earlier, later, actions[later])
    for pending in dict.fromkeys((*run.enabled[len(actions)], *_missed(run))):
        for earlier in order.direct(footprint(pending)) if pending.kind not in BOUND_OF else ():
            if earlier < len(actions):
                yield (actions[earlier], pending), _swapped(actions, order, earlier, len(actions), pending)


def _missed(run: NodeRun) -> Sequence[Action]:
    """What could have happened to a node before the action that ended it, and may not any more."""
    last = len(until_failure(run)) - 1
    if last < 0 or run.results[last].ended is None or run.chosen[last].kind in BOUND_OF:
        return ()
    return [one for one in run.enabled[last] if one.node == run.chosen[last].node and one != run.chosen[last]]


def _swapped(
    actions: Sequence[Action], order: HappensBefore, earlier: int, later: int, action: Action
) -> Sequence[Action]:
    """`action`, at the place `later`, and what it needs before the one at `earlier`."""
    between = [at for at in range(earlier + 1, later) if not order.precedes(earlier, at)]
    rest = [at for at in range(earlier, len(actions)) if at not in between and at != later]
    front, back = ([actions[at] for at in places] for places in ([*range(earlier), *between], rest))
    return [*front, action, *back]
