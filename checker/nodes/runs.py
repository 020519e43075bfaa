"""One run of several nodes, from the start: a strategy chooses its actions, within the bounds, and checks judge it."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from time import monotonic
from typing import NamedTuple

from crashcheck.checker.nodes.cuts import Cuts, nodes_of
from crashcheck.checker.nodes.dependence import (
    BOUND_OF,
    CLOCK,
    CRASHES,
    OF_MESSAGES,
    Footprint,
    HappensBefore,
    footprint,
)
from crashcheck.checker.nodes.paths import ExactPath, SleepPath, SteeredPath
from crashcheck.checker.results import Verdict
from crashcheck.checker.search.schedules import Execution
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult, Message, NodeError, World

_SET_UP = (ActionKind.START, ActionKind.CONNECT, ActionKind.COMPLETE)


class Ending(StrEnum):
    """Why a run is over."""

    COMPLETE = "complete"  # nothing may happen any more
    IDLE = "idle"  # nothing but timers, which have had no effect for long
    ENDED = "ended"  # all nodes that are to end have ended
    BOUND = "bound"  # it has as many actions as the bound allows
    ASLEEP = "asleep"  # whatever may come is part of another run, or none that is asked for
    FAILED = "failed"  # it need not continue
    UNREST = "unrest"  # the node of its last action did not come to rest


class Wrong(StrEnum):
    """What is wrong with a run."""

    SIGNAL = "signal"  # a node's process ended by a signal
    STATUS = "status"  # a node's process ended with a status that is not allowed
    DEADLOCK = "deadlock"  # nothing may happen any more, and a node that is to end has not ended
    AFTER = "after"  # the check after each action fails
    END = "end"  # the check of the end fails
    PROGRESS = "progress"  # the check of progress does not pass, although failures have stopped
    DIVERGENCE = "divergence"  # a node does not come to rest after an action


AT_END = (Wrong.DEADLOCK, Wrong.END, Wrong.PROGRESS)  # where nothing is left but failures, or the bound of actions is
PROGRESS_ACTIONS = 1000  # in which progress must be made


class RunFailure(NamedTuple):
    """The first thing that is wrong with a run. `at`: after so many actions; `node`: -1 if no node is to blame."""

    wrong: Wrong
    at: int
    node: int = -1
    value: int = 0  # the signal or status
    verdict: Verdict | None = None  # of a check

    def same_as(self, other: RunFailure) -> bool:
        """Whether two runs fail in one way, wherever they do."""
        if (self.wrong, self.node, self.value) != (other.wrong, other.node, other.value):
            return False
        return self.verdict is None or other.verdict is None or self.verdict.fails_as(other.verdict)


@dataclass(frozen=True, slots=True)
class NodeRole:
    """What is expected of a node. `statuses`: with which it may end."""

    name: str
    ends: bool = False
    statuses: tuple[int, ...] = (0,)


class RunChecks:
    """Checks of the states of one run; these pass on all. A verdict is one that fails; None: it passes."""

    def begun(self, world: World) -> None:
        """The set-up of the world is over."""

    def after(self, world: World, result: ActionResult) -> Verdict | None:
        return None

    def end(self, world: World) -> Verdict | None:
        return None

    def progress(self, world: World) -> Verdict | None:
        return None

    def failing_cut(self, world: World, cuts: Cuts) -> tuple[Sequence[Action], bool]:
        """The actions of a consistent cut on whose state the check after each action fails, or none; and whether all
        cuts were judged."""
        return (), True


@dataclass(frozen=True, slots=True)
class StateChecks:
    """Makes the checks of each run. `after_each`: there is a check after each action."""

    begin: Callable[[World], RunChecks] = lambda world: RunChecks()
    after_each: bool = False


@dataclass(frozen=True, slots=True)
class RunRules:
    """What all runs of a search share. `failures`: how many there may be in a run, by the names in BOUND_OF."""

    roles: Sequence[NodeRole]
    actions: int  # timers without effect do not count
    failures: Mapping[str, int] = field(default_factory=dict)
    clock: bool = False  # all nodes have one clock, up to an error
    checks: StateChecks = field(default_factory=StateChecks)
    cuts: bool = False  # whether the check after each action judges the consistent cuts of a run as well


@dataclass(frozen=True, slots=True, eq=False)
class NodeRun:
    """A run that is over: n choices, and what could be chosen in each of the n + 1 states."""

    path: SleepPath
    offered: tuple[Sequence[Action], ...]  # what was possible
    # what the bounds allow of it; of lapses, which no state shows before the next choice, those that are known by then
    enabled: tuple[Sequence[Action], ...]
    early: tuple[Sequence[Action], ...]  # timers that only the other nodes' clocks did not permit yet
    set_up: tuple[ActionResult, ...]  # what happened before the first choice
    results: tuple[ActionResult, ...]
    footprints: tuple[Footprint, ...]
    ending: Ending
    failure: RunFailure | None
    uncontrolled: tuple[str, ...] = ()  # what may differ when the run is repeated, with the node
    failing_cut: Sequence[Action] = ()  # if the run did not fail: actions after which, without the others, a check does
    all_cuts: bool = True  # whether all consistent cuts were judged
    clock: bool = False  # all nodes have one clock, up to an error
    untried_disks: int = 0  # crashes of machines that may leave more than was offered
    met_faults: frozenset[int] = frozenset()  # the numbers of those with which a call failed

    @property
    def chosen(self) -> Sequence[Action]:
        return self.path.chosen


def execute(world: World, path: SleepPath, rules: RunRules, *, until_failure: bool = False) -> NodeRun:
    """Make a run, and close the world. `until_failure`: it need not continue once it has failed.

    Raises Diverged, NodeError.
    """
    try:
        return _Executing(world, path, rules, until_failure).run()
    finally:
        world.close()


class _Executing:
    def __init__(self, world: World, path: SleepPath, rules: RunRules, until_failure: bool) -> None:
        # constant
        self._until_failure = until_failure
        self._world = world
        self._path = path
        self._rules = rules
        self._checks = rules.checks.begin(world)
        # changing
        self._used: Counter[str] = Counter()  # failures so far, by bound
        self._to_end = {number for number, role in enumerate(rules.roles) if role.ends}
        self._must_end = bool(self._to_end)
        self._failure: RunFailure | None = None
        self._results: list[ActionResult] = []
        self._quiet = 0  # of these
        self._set_up: list[ActionResult] = []
        self._footprints: list[Footprint] = []

    def run(self) -> NodeRun:
        self._path.begin(one_clock=self._rules.clock)
        offered = self._with_lapses(self._after_set_up())
        self._checks.begun(self._world)
        seen, reached, early = [offered], list[list[Action]](), [self._world.early]
        ending = Ending.COMPLETE
        while True:
            # The order is stable: what happens by default is no failure as long as anything else may happen.
            enabled = sorted(filter(self._within_bounds, offered), key=lambda action: action.kind in BOUND_OF)
            reached.append(enabled)
            over = self._must_end and not self._to_end
            if over or (all(action.kind in BOUND_OF for action in enabled) and not self._world.idle):
                self._judge_end(deadlock=not over)
            if self._until_failure and self._failure is not None:
                ending = Ending.FAILED
                break
            if over or not enabled:
                ending = Ending.ENDED if over else Ending.IDLE if self._world.idle else Ending.COMPLETE
                break
            if len(self._results) - self._quiet >= self._rules.actions:
                ending = Ending.BOUND
                break
            if not self._path.comes_to(enabled):
                ending = Ending.ASLEEP
                break
            action = self._path.next(enabled)
            result = self._took(action)
            if result is None:
                self._results.append(ActionResult(action))
                self._footprints.append(footprint(action, clock=self._rules.clock))
                self._fail(Wrong.DIVERGENCE, action.node)
                seen.append(())
                early.append(())
                reached.append([])
                ending = Ending.UNREST
                break
            shown = [lapse for lapse in result.lapses if lapse not in offered]
            seen[-1], reached[-1] = (*offered, *shown), [*enabled, *shown]
            before, offered = offered, self._with_lapses(self._world.enabled())
            seen.append(offered)
            early.append(self._world.early)
            self._take(result, self._moved_timers(action, before, offered))
        if self._failure is None and (ending is not Ending.ASLEEP or isinstance(self._path, ExactPath | SteeredPath)):
            self._judge_progress()
        stacks = self._world.stacks()
        run = NodeRun(
            self._path,
            tuple(seen),
            tuple(reached),
            tuple(early),
            tuple(_with_stacks(self._set_up, stacks)),
            tuple(_with_stacks(self._results, stacks)),
            tuple(self._footprints),
            ending,
            self._failure,
            tuple(self._uncontrolled()),
            clock=self._rules.clock,
            untried_disks=self._world.untried_disks,
            met_faults=frozenset(self._world.met_faults),
        )
        if not self._rules.cuts or run.failure is not None or ending is Ending.ASLEEP:
            return run
        cuts = Cuts(run.results, order_of(run), len(self._rules.roles))
        found, complete = self._checks.failing_cut(self._world, cuts)
        return replace(run, failing_cut=found, all_cuts=complete)

    def _with_lapses(self, offered: Sequence[Action]) -> Sequence[Action]:
        """What a world offers, and what it permits of the lapses that the path may take now."""
        return (*offered, *filter(self._world.permits, self._path.lapses))

    def _took(self, action: Action) -> ActionResult | None:
        """What an action leads to; None if its node does not come to rest."""
        try:
            return self._took_to_rest(action)
        except NodeError as error:
            if error.slug != "node-unrest":
                raise
            return None

    def _took_to_rest(self, action: Action) -> ActionResult:
        """What an action leads to. Raises NodeError."""
        began_s = monotonic()
        try:
            return self._world.take(action)
        except NodeError as error:
            error.action, error.seconds = action, monotonic() - began_s
            raise

    def _uncontrolled(self) -> Iterator[str]:
        for node, each in sorted(self._world.uncontrolled.items()):
            yield from (f"{self._rules.roles[node].name}: {what}" for what in each)

    def _after_set_up(self) -> Sequence[Action]:
        """Start and connect the nodes in their order, which is no choice, and give what may happen then.

        Where it is a choice which thread continues, nodes are not connected before it: one may not listen yet.
        """
        answers: set[Action] = set()  # to connection requests, under way
        while True:
            offered = self._world.enabled()
            threads = any(action.kind is ActionKind.THREAD for action in offered)
            kinds = (ActionKind.START,) if threads else _SET_UP
            first = next((action for action in offered if action.kind in kinds or action in answers), None)
            if first is None:
                return offered
            result = self._took_to_rest(first)
            if first.kind is ActionKind.CONNECT:
                answers.update(delivery_of(message) for message in result.sent if not message.data)
            self._set_up.append(result)
            self._note_end(result)

    def _within_bounds(self, action: Action) -> bool:
        bound = BOUND_OF.get(action.kind)
        return bound is None or self._used[bound] < self._rules.failures.get(bound, 0)

    def _take(self, result: ActionResult, moved_timers: bool) -> None:
        action = result.action
        shown = footprint(action, result, clock=self._rules.clock)
        if moved_timers:
            shown = Footprint(shown.reads, shown.writes | {CLOCK})
        self._path.took(shown, quiet=result.quiet)
        self._footprints.append(shown)
        self._results.append(result)
        self._quiet += result.quiet
        if action.kind in BOUND_OF:
            self._used[BOUND_OF[action.kind]] += 1
        self._note_end(result)
        if self._failure is None and (verdict := self._checks.after(self._world, result)) is not None:
            self._fail(Wrong.AFTER, verdict=verdict)

    def _moved_timers(self, action: Action, before: Sequence[Action], after: Sequence[Action]) -> bool:
        """Whether an action lets timers of other nodes fire, or keeps them from that: they have one clock."""
        if not self._rules.clock:
            return False
        changed = set(before) ^ set(after)
        return any(other.kind is ActionKind.TIMER and other.node != action.node for other in changed)

    def _note_end(self, result: ActionResult) -> None:
        action = result.action
        if action.kind in (ActionKind.START, ActionKind.RESTART) and self._rules.roles[action.node].ends:
            self._to_end.add(action.node)
        if result.ended is None or action.kind in CRASHES:
            return
        role = self._rules.roles[action.node]
        self._to_end.discard(action.node)
        if os.WIFSIGNALED(result.ended):
            self._fail(Wrong.SIGNAL, action.node, os.WTERMSIG(result.ended))
        elif (status := os.waitstatus_to_exitcode(result.ended)) not in role.statuses:
            self._fail(Wrong.STATUS, action.node, status)

    def _judge_end(self, *, deadlock: bool) -> None:
        """Of a state in which a run may end: only failures are left, if anything."""
        if deadlock and self._to_end:
            self._fail(Wrong.DEADLOCK, min(self._to_end))
        elif self._failure is None and (verdict := self._checks.end(self._world)) is not None:
            self._fail(Wrong.END, verdict=verdict)

    def _judge_progress(self) -> None:
        """Let what is left happen without failures, until the check of progress passes."""
        verdict = self._checks.progress(self._world)
        for _ in range(PROGRESS_ACTIONS):
            action = _recovering(self._world.enabled()) if verdict is not None else None
            if action is None:
                break
            result = self._took(action)
            if result is None:
                self._fail(Wrong.DIVERGENCE, action.node)
            else:
                self._note_end(result)
            if self._failure is not None:
                return
            verdict = self._checks.progress(self._world)
        if verdict is not None:
            self._fail(Wrong.PROGRESS, verdict=verdict)

    def _fail(self, wrong: Wrong, node: int = -1, value: int = 0, verdict: Verdict | None = None) -> None:
        if self._failure is None:
            self._failure = RunFailure(wrong, len(self._results), node, value, verdict)


def _with_stacks(results: Sequence[ActionResult], stacks: Mapping[int, tuple[str, ...]]) -> Iterator[ActionResult]:
    """Results whose messages, and threads that continued, have call stacks."""
    for result in results:
        sent = tuple(message._replace(stack=stacks.get(message.call, ())) for message in result.sent)
        thread = result.thread and result.thread._replace(stack=stacks.get(result.thread.call, ()))
        yield result._replace(sent=sent, thread=thread) if stacks else result


def _recovering(enabled: Sequence[Action]) -> Action | None:
    """What happens next where no failure does: links heal and nodes start again before all else."""
    ends = (ActionKind.HEAL, ActionKind.RESTART)
    usual = (action for action in enabled if action.kind not in BOUND_OF)
    return next((action for action in enabled if action.kind in ends), None) or next(usual, None)


def delivery_of(message: Message) -> Action:
    """The name of a message's delivery."""
    return Action(ActionKind.DELIVER, message.receiver, message.sender, message.number, message.channel)


def promised(run: NodeRun) -> dict[int, Action]:
    """The crash in each state, after so many choices, of a node that has just promised something.

    To send or to print is a promise: others rely on what the node may lose. A process loses what it did not write; a
    machine also what it wrote to files since it began, so that one crashes, if it may, once the node has written any.
    A run's last state has none: where something could still happen there, a bound or its end excluded it.
    """
    wrote: set[int] = set()
    crashes: dict[int, Action] = {}
    for at, result in enumerate((*run.set_up, *run.results), 1 - len(run.set_up)):
        node = result.action.node
        if result.action.kind in CRASHES:
            wrote.discard(node)
        elif not result.kept:
            wrote.add(node)
        told = result.wrote or any(message.data for message in result.sent)
        if told and 0 <= at < len(run.results):
            kinds = CRASHES if node in wrote else (ActionKind.CRASH_PROCESS,)
            own = [one for one in run.enabled[at] if one.kind in kinds and one.node == node]
            crashes.update((at, crash) for crash in own[-1:])  # a machine follows its process
    return crashes


class Needs:
    """What the actions of a run need to have happened before them: what enabled them, and what sent their message.

    A message may be sent long before it may be delivered, so the last action that enabled it is not all that it needs.
    """

    def __init__(self, run: NodeRun) -> None:
        self._chosen = run.chosen
        self._sent = {  # by receiver, sender, number and channel
            (one.receiver, one.sender, one.number, one.channel): at
            for at, result in enumerate(run.results)
            for one in result.sent
        }
        self._ran: dict[int, int] = {}  # the last action of each node so far
        self._since: dict[Action, int] = {}  # what may happen, and from which state on it could

    def reach(self, state: int, offered: Sequence[Action]) -> None:
        """Take note of what may happen in the next state."""
        self._since = {action: self._since.get(action, state) for action in offered}
        if state:
            last = self._chosen[state - 1]
            self._ran.update((node, state - 1) for node in nodes_of(last))

    def of(self, action: Action) -> frozenset[int]:
        """The places of the actions that one of those that may happen now needs."""
        if action.kind is ActionKind.LAPSE:
            return frozenset(at for at in (self._ran.get(action.node, -1),) if at >= 0)
        name = (action.node, action.peer, action.number, action.channel)
        sent = self._sent.get(name, -1) if action.kind in OF_MESSAGES else -1
        return frozenset(at for at in (self._since[action] - 1, sent) if at >= 0)


def order_of(run: NodeRun) -> HappensBefore:
    """The partial order of a run's choices."""
    order, needs = HappensBefore(), Needs(run)
    for at, (action, shown) in enumerate(zip(run.chosen, run.footprints, strict=True)):
        needs.reach(at, run.offered[at])
        order.add(shown, needs.of(action))
    return order


def execution_of(run: NodeRun) -> Execution[Action, NodeRun]:
    """A run as schedules compare it: by its partial order; None if it was cut. Raises Diverged if it is less than its
    prefix: a frontier would take it for what that leads to."""
    run.path.check_prefix()
    if run.ending is Ending.ASLEEP:
        return Execution(run.path, None, run)
    order = hashlib.blake2b(order_of(run).canonical(run.chosen), digest_size=16)
    return Execution(run.path, order.digest(), run)
