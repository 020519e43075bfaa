"""The strategies of a search over actions: which runs are made, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

from crashcheck.checker.nodes.dpor import Bound, Dpor
from crashcheck.checker.nodes.paths import Branch
from crashcheck.checker.nodes.runs import NodeRun
from crashcheck.checker.nodes.situations import Situations
from crashcheck.checker.search.schedules import ROUND, EveryOrder, Execution
from crashcheck.runtime.nodes.actions import Action, ActionKind

NodeStrategy = Literal["random", "dfs", "dpor", "bounded-dpor", "hybrid"]


REDUCED: tuple[NodeStrategy, ...] = ("dpor", "bounded-dpor", "hybrid")  # run one order of each partial order


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A strategy and its options; those of other strategies mean nothing."""

    name: NodeStrategy = "hybrid"
    runs: int = 1000  # of `random`
    deviations: int = 2  # of `bounded-dpor`: branches on the way of a run
    rounds: int = 100  # of `hybrid`
    backtracks: int = 100  # of `hybrid`: branches of a round
    seed: int = 1


# The share of random runs. On a simulated raft with three planted bugs, 0.1 with situations.py's 0.5 of the longest run
# made four times as many runs fail as 0.5 with 0.9, and fifteen times as many as runs that all begin at the start.
_FROM_THE_START = 0.1


_ALONE = 2 * ROUND  # runs of a round of `hybrid` before the first random ones


class NodeFrontier(Protocol):
    """A frontier of runs (schedules.Frontier)."""

    @property
    def left_out(self) -> str:
        """Why there may be orders that it does not make, once it has ended; empty if it makes all."""
        ...

    def round(self) -> Sequence[Branch]: ...

    def ended(self, choice: Branch, execution: Execution[Action, NodeRun]) -> None: ...


def lapses_of(run: NodeRun, since: int) -> Iterator[tuple[Action, ...]]:
    """For each lapse that a run shows, its choices up to there and the lapse; from choice `since` on."""
    for at in range(since, len(run.chosen)):
        for lapse in run.results[at].lapses:
            yield (*run.chosen[:at], lapse)


def _without_lapses(prefix: tuple[Action, ...]) -> tuple[Action, ...]:
    """A prefix that ends with a lapse: those just before it that let the same node's time pass make no difference."""
    *before, lapse = prefix
    while before and before[-1].kind is ActionKind.LAPSE and before[-1].node == lapse.node:
        before.pop()
    return (*before, lapse._replace(channel=0))


class DepthFirst:
    """Every order of the actions, and every lapse."""

    left_out = ""

    def __init__(self) -> None:
        self._orders: EveryOrder[Action, NodeRun] = EveryOrder()
        self._lapses: set[int] = set()  # hashes of what leads to those that are planned

    def round(self) -> Sequence[Branch]:
        return [Branch(prefix) for prefix in self._orders.round()]

    def ended(self, choice: Branch, execution: Execution[Action, NodeRun]) -> None:
        self._orders.ended(choice.prefix, execution)
        for prefix in lapses_of(execution.shows, max(len(choice.prefix) - 1, 0)):
            key = hash(_without_lapses(prefix))
            if key not in self._lapses:
                self._lapses.add(key)
                self._orders.plan(prefix)


class RandomRuns:
    """So many runs, whose choices are random and uneven (paths.UnevenChoice, paths.PhasedChoice).

    The first ROUND begin at the start, whatever other runs have reached by then: those of DPOR are all like one run.
    Most that follow begin as an earlier one did, up to where few runs have been (situations.py). What may follow is
    known of an earlier run: so every second one begins with the choices up to a lapse that one showed, or to the crash
    of a machine that has just promised something.
    """

    left_out = "they are a sample"

    def __init__(self, runs: int, seed: str) -> None:
        self._runs = runs
        self._seed = seed
        self._made = 0
        self._random = Random(seed)
        self._reached = Situations()
        self._lapses: list[tuple[Action, ...]] = []  # choices of a run that has ended, up to a lapse

    def round(self) -> Sequence[Branch]:
        numbers = range(self._made, min(self._runs, self._made + ROUND))
        self._made = numbers.stop
        return [Branch(self._beginning(number), seed=f"{self._seed}/{number}") for number in numbers]

    def _beginning(self, number: int) -> tuple[Action, ...]:
        if number < ROUND:
            return ()
        if number % 2:
            promise = self._reached.broken_promise(self._random) if number % 4 == 1 or not self._lapses else ()
            if promise or self._lapses:
                return promise or self._lapses.pop()
        return () if self._random.random() < _FROM_THE_START else self._reached.beginning(self._random)

    def ended(self, choice: Branch, execution: Execution[Action, NodeRun]) -> None:
        self.learn(execution.shows, len(choice.prefix))
        shown = list(lapses_of(execution.shows, len(choice.prefix)))
        if shown:
            self._lapses.append(self._random.choice(shown))

    def learn(self, run: NodeRun, since: int) -> None:
        """Take note of what a run has reached, whoever planned it."""
        self._reached.learn(run, since)


class Hybrid:
    """Rounds of DPOR with so many backtracks, each from a new random run (MODIST 4.5), and as many random runs.

    It ends with the first round that does without the bound: that one has made all. So a small program has no random
    runs beside: these begin once a round has made _ALONE runs, and are made in turn with its own from there on: the
    branches of a round differ in the last actions of one run, and programs that begin slowly make one run a second.
    """

    def __init__(self, rounds: int, backtracks: int, seed: int) -> None:
        # constant
        self._rounds = rounds
        self._bound = Bound(branches=backtracks)
        self._seed = seed
        # changing
        self._round_number = 0
        self._dpor = self._new()
        self._random_runs = RandomRuns(rounds * (backtracks + 1), f"{seed}/between")
        self._of_round = 0  # runs of DPOR
        self._random_left = 0  # random runs that are due
        self._at_random: set[Branch] = set()  # those that are under way

    def _new(self) -> Dpor:
        return Dpor(self._bound, f"{self._seed}/{self._round_number}")

    @property
    def left_out(self) -> str:
        return self._dpor.left_out

    def round(self) -> Sequence[Branch]:
        if self._random_left >= ROUND:
            runs = self._random_runs.round()
            self._random_left -= len(runs)
            self._at_random.update(runs)
            return runs
        if found := self._dpor.round():
            self._of_round += len(found)
            self._random_left += len(found) if self._of_round > _ALONE else 0
            return found
        if not self.left_out or self._round_number + 1 >= self._rounds:
            return ()
        self._round_number += 1
        self._dpor = self._new()
        self._random_left += min(self._of_round, _ALONE)
        self._of_round = 0
        return self.round()

    def ended(self, choice: Branch, execution: Execution[Action, NodeRun]) -> None:
        if choice in self._at_random:
            self._at_random.remove(choice)
            self._random_runs.ended(choice, execution)
        else:
            self._random_runs.learn(execution.shows, max(len(choice.prefix) - 1, 0))
            self._dpor.ended(choice, execution)


class Again:
    """First the orders in which another version failed, which are no part of the strategy's runs; then these."""

    def __init__(self, orders: Sequence[tuple[Action, ...]], strategy: NodeFrontier) -> None:
        # constant
        self._strategy = strategy
        # changing
        self._left = [Branch(followed=order) for order in orders if order]

    @property
    def left_out(self) -> str:
        return self._strategy.left_out

    def round(self) -> Sequence[Branch]:
        branches, self._left = self._left[:ROUND], self._left[ROUND:]
        return branches or self._strategy.round()

    def ended(self, choice: Branch, execution: Execution[Action, NodeRun]) -> None:
        if not choice.followed:
            self._strategy.ended(choice, execution)


def frontier_of(plan: NodePlan) -> NodeFrontier:
    """The runs that a strategy makes."""
    match plan.name:
        case "random":
            return RandomRuns(plan.runs, str(plan.seed))
        case "dfs":
            return DepthFirst()
        case "dpor":
            return Dpor()
        case "bounded-dpor":
            return Dpor(Bound(deviations=plan.deviations))
        case "hybrid":
            return Hybrid(plan.rounds, plan.backtracks, plan.seed)
