"""Depth first over partial orders: of all orders of independent actions one is run (DPOR).

Flanagan and Godefroid 2005, with sleep sets (Godefroid 1996): a run is examined for pairs of dependent actions that
could have been in the other order; where the earlier one was chosen, what leads to that order is planned.
Of those that would lead there, one is planned (source sets: Abdulla et al. 2014). What an earlier sibling has begun
with is asleep until something dependent on it happens: a run in which all that may come is asleep is cut.

Invariants that the code below keeps:

1. Siblings have an order, that in which they begin; an action is asleep only below later siblings. So no two complete
   runs are one partial order, however many runs are under way at once.
2. A state stays as long as something is planned or under way below it: whatever a run shows is planned at once.
3. At most one run is under way from each state, because what its siblings read and write has to be known.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Mapping, Sequence
from itertools import takewhile
from random import Random
from typing import NamedTuple

from crashcheck.checker.nodes.cuts import nodes_of
from crashcheck.checker.nodes.dependence import BOUND_OF, Footprint, HappensBefore, footprint, same_lapse
from crashcheck.checker.nodes.paths import Branch
from crashcheck.checker.nodes.runs import Ending, Needs, NodeRun, promised
from crashcheck.checker.search.schedules import ROUND, Execution
from crashcheck.runtime.nodes.actions import Action, ActionKind


class _State:
    """Where a choice was made, as far as the search below it needs it."""

    def __init__(
        self,
        number: int,
        above: tuple[_State, Action] | None,
        enabled: Sequence[Action],
        asleep: Mapping[Action, Footprint],
        deviations: int,
    ) -> None:
        # constant
        self.number = number
        self.above = above  # the state before, and what was chosen there
        self.asleep = asleep  # when it was reached
        self.deviations = deviations  # branches taken on the way to it
        # changing
        self.enabled = list(enabled)  # and lapses, once an action has shown them
        self.begun: dict[Action, Footprint | None] = {}  # in the order in which runs began; None: under way
        self.last: set[Action] = set()  # those that ended a run, although more was possible
        self.planned: list[Action] = []
        self.breaks: Action | None = None  # the crash that is planned because its machine has just promised something

    def __lt__(self, other: _State) -> bool:
        return self.number < other.number

    @property
    def idle(self) -> bool:
        return None not in self.begun.values()

    def sleeping(self, before: Action | None = None) -> dict[Action, Footprint]:
        """What is asleep in a run that begins here now, or that began with `before`.

        Nothing follows what ended a run: so the orders in which it comes later are others.
        """
        earlier = takewhile(lambda one: one[0] != before, self.begun.items())
        return {**self.asleep, **{one: shown for one, shown in earlier if shown is not None and one not in self.last}}

    def learn(self, enabled: Sequence[Action]) -> None:
        """Take note of lapses that are possible here, unless the same is possible before other lapses that led here."""
        for action in enabled:
            if action.kind is ActionKind.LAPSE and action not in self.enabled and not self._passed(action):
                self.enabled.append(action)

    def _passed(self, lapse: Action) -> bool:
        above = self.above
        while above is not None and above[1].kind is ActionKind.LAPSE and above[1].node == lapse.node:
            if any(same_lapse(lapse, other) for other in above[0].enabled):
                return True
            above = above[0].above
        return False

    def path(self) -> list[_State]:
        """The states from the start to this one."""
        states = [self]
        while states[-1].above is not None:
            states.append(states[-1].above[0])
        return states[::-1]

    def prefix(self) -> tuple[Action, ...]:
        return tuple(state.above[1] for state in self.path() if state.above is not None)


class _EarlyTimers:
    """The timers that may not fire yet as a run comes to its states (NodeRun.early).

    `begun`: those for which that begins; `passed`: those whose time is now, but an action has disarmed them before:
    which one, and what they need.
    """

    def __init__(self, run: NodeRun) -> None:
        # constant
        self._run = run
        # changing
        self._armed = Needs(run)
        self._disarmed: dict[Action, tuple[int, frozenset[int]]] = {}
        self.begun: list[Action] = []
        self.passed: list[tuple[Action, tuple[int, frozenset[int]]]] = []

    def reach(self, at: int) -> None:
        """Take note of the next state."""
        early = self._run.early
        before, offered = early[at - 1] if at else (), self._run.offered[at]
        gone = {timer: (at - 1, self.needs(timer)) for timer in before if timer not in {*early[at], *offered}}
        self._disarmed.update(gone)
        self._armed.reach(at, (*offered, *early[at]))
        self.begun = [timer for timer in early[at] if timer not in before]
        dues_ns = [one.due_ns for one in offered if one.kind is ActionKind.TIMER]
        self.passed = [one for one in self._disarmed.items() if all(one[0].due_ns <= due_ns for due_ns in dues_ns)]
        for timer, _ in self.passed:
            del self._disarmed[timer]

    def needs(self, timer: Action) -> frozenset[int]:
        return self._armed.of(timer)


def _may_arm(action: Action, nodes: Container[int]) -> bool:
    """Whether an action may have armed a timer of some nodes which was not armed before."""
    return action.kind is not ActionKind.TIMER and any(node in nodes for node in nodes_of(action))


class Bound(NamedTuple):
    """What a search over partial orders may take; None: no bound."""

    deviations: int | None = None  # branches on the way of a run
    branches: int | None = None  # in all


UNBOUNDED = Bound()

# How often a run of a seeded search parts at such a crash. Of 24 searches of 150 runs, with voters of which one answers
# and never syncs, `hybrid` found two leaders in 22, half of them within 26 runs; without these crashes in 16, and 86.
_BREAKING = 0.5


class Dpor:
    """All partial orders, within a bound (schedules.Frontier).

    `seed`: what is not decided is picked at random, and what is planned is begun in a random order, but in half of the
    runs the crash of a machine that has just promised something; without one, the first that may come, and the newest.
    """

    def __init__(self, bound: Bound = UNBOUNDED, seed: str = "") -> None:
        # constant
        self._bound = bound
        self._seed = seed
        self._random = Random(seed)
        # changing
        self._excluded = 0  # branches, by the bound
        self._begun = False
        self._branches = 0
        self._made = 0
        self._open: list[_State] = []  # with something planned, and nothing under way; by number
        self._under_way: dict[tuple[Action, ...], _State] = {}

    @property
    def left_out(self) -> str:
        """Why there may be orders that it does not make, once it has ended; empty if it makes all."""
        return f"a bound excludes {self._excluded} branches" if self._excluded else ""

    def round(self) -> Sequence[Branch]:
        if not self._begun:
            self._begun = True
            return [Branch(seed=self._seed and f"{self._seed}/0")]
        return [self._begin() for _ in range(min(ROUND, len(self._open), self._branches_left()))]

    def _branches_left(self) -> int:
        if self._bound.branches is None:
            return ROUND
        left = self._bound.branches - self._branches
        if left <= 0:
            self._excluded += sum(len(state.planned) for state in self._open)
            self._open.clear()
        return max(left, 0)

    def _begin(self) -> Branch:
        state = self._open.pop(self._next())
        action = state.planned.pop(0)
        asleep = tuple(state.sleeping().items())
        state.begun[action] = None
        self._branches += 1
        prefix = (*state.prefix(), action)
        self._under_way[prefix] = state
        # Ticks after the end of a run would make one more run for each of them. So all that follow are in one.
        return Branch(prefix, asleep, self._seed and f"{self._seed}/{self._branches}", passing=bool(state.last))

    def _next(self) -> int:
        """The place of the open state that the next run parts from."""
        if not self._seed:
            return -1
        breaking = [at for at, state in enumerate(self._open) if state.planned[0] == state.breaks]
        if breaking and self._random.random() < _BREAKING:
            return self._random.choice(breaking)
        return self._random.randrange(len(self._open))

    def ended(self, choice: Branch, execution: Execution[Action, NodeRun]) -> None:
        run = execution.shows
        states = self._states_of(choice, run)
        new = len(choice.prefix) - 1  # the first choice that the run it parts from does not have
        order, needs, early = HappensBefore(), Needs(run), _EarlyTimers(run)
        promises = promised(run) if self._seed else {}
        excluded: set[Action] = set()  # what only a bound excludes
        for at, (offered, enabled) in enumerate(zip(run.offered, run.enabled, strict=True)):
            needs.reach(at, offered)
            if run.clock:
                early.reach(at)
            before, excluded = excluded, set(offered) - set(enabled)
            if at > new:
                if early.begun or early.passed:
                    self._race_of_early(states, run, order, early, at)
                for failure in sorted(excluded - before):  # instead of those that used up its bound before it could
                    bound = BOUND_OF[failure.kind]
                    uses = {one for one in range(at) if BOUND_OF.get(run.chosen[one].kind) == bound}
                    self._race_of_possible(states, run, order, failure, at, needs.of(failure), uses)
            if at == len(run.chosen):
                for pending in enabled if run.ending is Ending.BOUND else ():
                    needed = needs.of(pending)
                    self._race_of_possible(states, run, order, pending, at, needed, set(range(at)) - needed)
                break
            action = run.chosen[at]
            if at > new and at in promises:
                states[at].breaks = promises[at]
                self._plan(states[at], [promises[at]])
            races = order.add(run.footprints[at], needs.of(action))
            if at < new:
                continue
            for earlier in races:
                first = order.initials(earlier, at, order.before(at))
                self._plan(states[earlier], [run.chosen[number] for number in first])
            states[at].learn(enabled)
            for other in enabled:
                if other != action and other not in run.offered[at + 1] and other in states[at].enabled:
                    self._plan(states[at], [other])
        for at, state in enumerate(states):
            self._race_with_sleepers(state, run, order, at, new)
        if run.ending is Ending.ENDED and run.chosen:
            states[-1].last.add(run.chosen[-1])
            for other in run.enabled[-1]:
                if other in states[-1].enabled:
                    self._plan(states[-1], [other])

    def _states_of(self, choice: Branch, run: NodeRun) -> list[_State]:
        """The states in which a run's choices were made; those after its prefix are new."""
        states: list[_State] = []
        deviations = 0
        if choice.prefix:
            state = self._under_way.pop(choice.prefix)
            state.begun[choice.prefix[-1]] = run.footprints[len(choice.prefix) - 1]
            if state.planned:
                insort(self._open, state)
            states, deviations = state.path(), state.deviations + 1
        for at in range(len(states), len(run.chosen)):
            above = (states[-1], run.chosen[at - 1]) if states else None
            asleep = run.path.sleeps[at - len(choice.prefix)]
            states.append(_State(self._made, above, run.enabled[at], asleep, deviations))
            states[-1].begun[run.chosen[at]] = run.footprints[at]
            self._made += 1
        return states

    def _race_with_sleepers(self, state: _State, run: NodeRun, order: HappensBefore, at: int, new: int) -> None:
        """Plan what wakes the same sleepers as the choice of this state does, without this choice.

        What woke up may do something else now: its order with later actions does not show that it matters.
        """
        chosen = run.chosen[at]
        woken = [one for one in state.sleeping(chosen).values() if one.depends_on(run.footprints[at])]
        for later in range(max(at + 1, new), len(run.chosen)) if woken else ():
            if not order.precedes(at, later) and any(one.depends_on(run.footprints[later]) for one in woken):
                first = order.initials(at, later, order.before(later))
                self._plan(state, [run.chosen[number] for number in first])

    def _race_of_early(
        self, states: Sequence[_State], run: NodeRun, order: HappensBefore, early: _EarlyTimers, at: int
    ) -> None:
        """Plan to let timers that could only fire too late, or not at all, do that earlier."""
        first_due = {one.node for one in run.enabled[at] if one.kind is ActionKind.TIMER}
        arming = {number for number in range(at) if _may_arm(run.chosen[number], first_due)}
        for timer in early.begun:
            self._race_of_possible(states, run, order, timer, at, early.needs(timer), arming)
        for timer, (disarmed, needs) in early.passed:
            before = order.closed(order.direct(footprint(timer, clock=True), needs))
            first = order.initials(disarmed, at, before)
            if at not in first:
                self._plan(states[disarmed], [run.chosen[number] for number in first])

    def _race_of_possible(
        self,
        states: Sequence[_State],
        run: NodeRun,
        order: HappensBefore,
        action: Action,
        at: int,
        needs: frozenset[int],
        against: Container[int],
    ) -> None:
        """Plan to let an action that was possible after `at` choices happen before those that it races with.

        `against`: of these choices, by their numbers, which.
        """
        direct = order.direct(footprint(action, clock=run.clock), needs)
        for earlier in direct:
            if earlier in against:
                first = order.initials(earlier, at, order.closed(direct))
                self._plan(states[earlier], [run.chosen[number] if number < at else action for number in first])

    def _plan(self, state: _State, first: Sequence[Action]) -> None:
        """Plan to begin with one of some actions, unless that was done, or another run does it."""
        if any(action in state.asleep or action in state.begun or action in state.planned for action in first):
            return
        if self._bound.deviations is not None and state.deviations >= self._bound.deviations:
            self._excluded += 1
            return
        possible = [action for action in first if action in state.enabled]
        if not possible:  # what leads there is not known: all is tried, as in Flanagan and Godefroid, figure 3
            done = {*state.asleep, *state.begun, *state.planned}
            possible = [action for action in state.enabled if action not in done]
        else:
            possible = possible[:1]
        if possible and not state.planned and state.idle:
            insort(self._open, state)
        state.planned += possible
