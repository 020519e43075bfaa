"""A search over orders of actions: the runs of a strategy, and a finding for each way in which they fail.

A run that fails is repeated first; then the smallest one that fails in the same way is looked for, beside the search,
and each step is proved by a run. Runs that fail in one way at one action, or at the end after the same failures, are
taken for one bug: the first of them is minimised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, replace
from threading import Timer
from typing import Protocol

from crashcheck.checker.budget import Budget, Meter, OutOfTime, Progress
from crashcheck.checker.nodes.dependence import BOUND_OF
from crashcheck.checker.nodes.describe import Describer, RunFacts
from crashcheck.checker.nodes.minimise import Minimal, Minimising, Pair, until_failure
from crashcheck.checker.nodes.paths import Branch, GuidedPath, SleepPath, SteeredPath, path_of
from crashcheck.checker.nodes.run_processes import Copied, RunProcesses
from crashcheck.checker.nodes.runs import AT_END, Ending, NodeRun, RunFailure, RunRules, Wrong, execution_of
from crashcheck.checker.nodes.strategies import REDUCED, Again, NodePlan, frontier_of
from crashcheck.checker.nodes.under_way import RunsUnderWay
from crashcheck.checker.nodes.unused import Used
from crashcheck.checker.results import CONTROL_GUIDE, NODE_RUN, TO_SETTLE, Discovery, Finding, StateCounts, StopReason
from crashcheck.checker.search.loop import Loop
from crashcheck.checker.search.protocol import Candidate
from crashcheck.checker.search.schedules import Execution, Schedules
from crashcheck.checker.verdicts.verdict_source import Awaited
from crashcheck.runtime.nodes.actions import Action, World

_Key = tuple[object, ...]

# While failures are minimised, so many results of the search are taken for each few runs of that
# (minimise.py): the search has half of all runs, and a failure that is hard to minimise hides no other one.
_RESULTS_BETWEEN = 4


class _Explaining:
    """A failure whose run is being minimised. `runs`, `elapsed_s`: until it was found; `states`: runs that fail so."""

    def __init__(self, minimising: Minimising, runs: int, elapsed_s: float) -> None:
        # constant
        self.first = minimising.best
        self.minimising = minimising
        self.attempts = minimising.attempts()
        self.runs = runs
        self.elapsed_s = elapsed_s
        # changing
        self.orders: Sequence[Sequence[Action]] = ()  # to be run next
        self.states = 1


@dataclass(frozen=True, slots=True)
class NodeSearchResult:
    """What a search found. `runs`: all that the strategy made; `cut`: of these, those that sleep sets cut.

    `passed`: of the orders in which another version failed, those that came to their end and passed.
    """

    findings: tuple[Finding, ...]
    uncertain: tuple[Finding, ...]
    states: StateCounts
    stop_reason: StopReason
    runs: int
    cut: int
    warnings: tuple[str, ...]
    uncontrolled: tuple[str, ...]
    discoveries: tuple[Discovery, ...]
    passed: frozenset[tuple[Action, ...]]


def _key_of(run: NodeRun, failure: RunFailure) -> _Key:
    """How a run fails: with what, and where."""
    signs = failure.verdict.signs if failure.verdict is not None else frozenset()
    return failure.wrong, failure.node, failure.value, signs, *_place_of(run, failure)


def _place_of(run: NodeRun, failure: RunFailure) -> _Key:
    """At which action a run fails; at its end, after which failures; and what machines lost."""
    actions = until_failure(run)
    shown = [one for one in actions if one.kind in BOUND_OF] if failure.wrong in AT_END else actions[-1:]
    telling = frozenset((one.kind, one.node, one.peer) for one in shown)
    lost = frozenset(each.action.node for each in run.results[: failure.at] if each.disk and each.disk.losses)
    return telling, lost


def _never_rests(run: NodeRun) -> bool:
    """Whether a run fails because a node does not come to rest."""
    return run.failure is not None and run.failure.wrong is Wrong.DIVERGENCE


def one_bug(run: NodeRun, other: NodeRun) -> bool:
    """Whether two runs, perhaps of two versions of the programs, fail in one way at one action."""
    if run.failure is None or other.failure is None or not run.failure.same_as(other.failure):
        return False
    return _place_of(run, run.failure) == _place_of(other, other.failure)


class NodeRunner(Protocol):
    """Other machines that make runs. `ahead`: how many they can be busy with at once."""

    @property
    def ahead(self) -> int: ...

    def begin_run(self, branch: Branch) -> Awaited[NodeRun]: ...


def searched_by(plan: NodePlan, rules: RunRules) -> RunRules:
    """The rules of the runs that a strategy makes: one that runs one order of each judges the states of the others."""
    return replace(rules, cuts=plan.name in REDUCED and rules.checks.after_each)


class NodeSearch:
    """One search; `run` once. `world`: makes a new execution, at its start. `token`: what repeats a run."""

    def __init__(
        self,
        world: Callable[[], World],
        rules: RunRules,
        plan: NodePlan,
        describer: Describer,
        token: Callable[[Sequence[Action]], str],
        budget: Budget,
        *,
        again: Sequence[tuple[Action, ...]] = (),
        jobs: int = 1,
        elsewhere: NodeRunner | None = None,
        placing: Callable[[], World] | None = None,
        hasty: Callable[[], World] | None = None,
        copied: Copied | None = None,
        progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        """`again`: orders in which another version failed, which are tested first. `elsewhere`: makes the runs; what
        fails there is made again here, by `world`. `placing`: as `world`, with the call stacks of messages, which takes
        longer; None: they are not known. `hasty`: as `world`, but a node soon counts as one that does not come to rest:
        with these, runs of one that does not are minimised. `copied`: what the processes of several jobs use."""
        # constant
        self._world = world
        self._placing = placing
        self._hasty = (
            hasty if hasty is not None and placing is not None else world
        )  # what it shows is proved by placing
        self._reduced = plan.name in REDUCED
        self._rules = searched_by(plan, rules)
        self._describer = describer
        self._token = token
        self._jobs = jobs
        # One more than processes, so that each has its next run while what the last one shows is taken.
        self._ahead = (jobs if jobs > 1 else 0) if elsewhere is None else elsewhere.ahead
        self._begin_run = self._begin_here if elsewhere is None else elsewhere.begin_run
        self._progress = progress
        self._meter = Meter(budget)
        self._frontier = Again(again, frontier_of(plan))
        self._schedules: Schedules[Branch, Action, NodeRun] = Schedules(
            self._frontier, self._begin, lambda execution: None
        )
        worlds = [one for one in (world, self._hasty, placing) if one is not None]
        # The client of a cluster has threads: a copy would keep for ever the locks that they hold then.
        copies = jobs > 1 and elsewhere is None
        self._under_way = RunProcesses(jobs, worlds, self._rules, copied) if copies else RunsUnderWay()
        self._pool = ThreadPoolExecutor(jobs, "run")  # that wait for the processes, or make runs
        # changing
        self._runs = self._failing = self._flaky = self._at_bound = self._idle = self._ticked = self._not_all_cuts = 0
        self._untried_disks = 0
        self._used = Used()
        self._followed = 0  # runs in orders of another version
        self._passed: set[tuple[Action, ...]] = set()  # of these orders
        self._restless: set[int] = set()  # nodes that do not come to rest in a run, nor when it is made again
        self._repeated_unrest: set[tuple[Action, ...]] = set()  # orders in which that was found
        self._kept_from_rest: list[int] = []  # the nodes that once did not, by run
        self._findings: dict[str, Finding] = {}  # by id
        self._ids: dict[_Key, str] = {}  # of what a run with this key shows; "" if it was not repeated
        self._explaining: dict[_Key, _Explaining] = {}  # the next one first
        self._since_explained = 0  # results
        self._placed_s = 0.0  # the longest run with the call stacks of messages
        self._discoveries: dict[str, Discovery] = {}
        self._not_repeated: Counter[str] = Counter()  # what failed once, by what it was
        self._cut_short: str | None = None  # what failed once, of which the budget ended the repetition
        self._uncontrolled: dict[str, None] = {}

    def run(self) -> NodeSearchResult:
        """Search until the strategy or the budget ends. Raises NodeError, Diverged."""
        loop: Loop[Branch, Execution[Action, NodeRun]] = Loop(
            self._schedules,
            self._meter,
            ahead=self._ahead,
            between=self._explain,
            cost=lambda candidate, _: 0 if candidate.choice.followed else 1,
        )
        left_s = self._meter.reporting_left()
        timer = Timer(left_s or 0.0, self._under_way.end)
        timer.daemon = True
        if left_s is not None:
            timer.start()
        try:
            stop = loop.run(self._count)
            for key in list(self._explaining):
                self._finish(key, None, "the search ended before it was minimised", place=False)
        finally:
            timer.cancel()
            self._under_way.end()
            self._pool.shutdown(cancel_futures=True)
            self._under_way.close()
        found = self._findings.values()
        restless = map(self._restless_at_end, self._under_way.restless)
        unused = self._used.warnings(self._rules.failures, self._describer.numbered)
        return NodeSearchResult(
            findings=tuple(one for one in found if not one.uncertain),
            uncertain=tuple(one for one in found if one.uncertain),
            states=self._counts(stop),
            stop_reason=stop,
            runs=self._runs,
            cut=self._schedules.cut - self._followed,
            warnings=(*loop.reached.warnings, *self._unrepeated(), *self._remade(), *restless, *unused),
            uncontrolled=tuple(self._uncontrolled),
            discoveries=tuple(self._discoveries.values()),
            passed=frozenset(self._passed),
        )

    def _begin(self, branch: Branch) -> Awaited[Execution[Action, NodeRun]]:
        begun = self._begin_run(branch)

        def awaited(left_s: float | None) -> Execution[Action, NodeRun] | None:
            run = begun(left_s)
            if run is None:
                return None
            return (
                Execution(run.path, None, run)
                if branch.followed
                else execution_of(self._rested(run, lambda: path_of(branch)))
            )

        return awaited

    def _begin_here(self, branch: Branch) -> Awaited[NodeRun]:
        future = self._pool.submit(self._made, lambda: path_of(branch))

        def awaited(left_s: float | None) -> NodeRun | None:
            try:
                return future.result(left_s)
            except NotYet:
                return None

        return awaited

    def _made(
        self, path: Callable[[], SleepPath], world: Callable[[], World] | None = None, *, until_failure: bool = False
    ) -> NodeRun:
        run = self._under_way.execute(world or self._world, path(), self._rules, until_failure=until_failure)
        return self._rested(run, path, until_failure=until_failure)

    def _guided(self, order: Sequence[Action], world: Callable[[], World] | None = None) -> NodeRun:
        """A run of given actions, until it fails."""
        return self._made(lambda: GuidedPath(order), world, until_failure=True)

    def _repeated(self, order: Sequence[Action], what: str) -> NodeRun:
        """`_guided`, of what failed once. Raises OutOfTime, after which the report names it."""
        try:
            return self._guided(order)
        except OutOfTime:
            self._cut_short = what
            raise

    def _rested(self, run: NodeRun, path: Callable[[], SleepPath], *, until_failure: bool = False) -> NodeRun:
        """A run, made once more if a node did not come to rest for the first time.

        Other programs may have kept it from that for too long: what would follow is not searched then, nor repeated.
        """
        if run.ending is not Ending.UNREST or run.chosen[-1].node in self._restless:
            return run
        node = run.chosen[-1].node
        again = self._under_way.execute(self._world, path(), self._rules, until_failure=until_failure)
        if again.ending is Ending.UNREST:
            self._restless.add(node)
            self._repeated_unrest.add(tuple(again.chosen))
        else:
            self._kept_from_rest.append(node)
        return again

    def _count(self, candidate: Candidate[Branch], execution: Execution[Action, NodeRun]) -> None:
        run = execution.shows
        self._uncontrolled.update(dict.fromkeys(run.uncontrolled))
        self._schedules.taken(candidate, execution)
        if candidate.choice.followed:
            self._count_followed(candidate.choice.followed, run)
            return
        self._runs += 1
        self._at_bound += run.ending is Ending.BOUND
        self._idle += run.ending is Ending.IDLE
        self._ticked += any(result.ticks for result in run.results)
        self._not_all_cuts += not run.all_cuts
        self._untried_disks += run.untried_disks
        self._used.take(run)
        if run.failing_cut:
            what = "a check on a consistent cut of a run"
            run = self._repeated(run.failing_cut, what)
            if run.failure is None:
                self._fails_once(what)
        if run.failure is not None:
            self._take(run, run.failure)
        self._show()

    def _count_followed(self, order: tuple[Action, ...], run: NodeRun) -> None:
        """Take a run in an order in which another version failed: it is no run of the strategy."""
        assert isinstance(run.path, SteeredPath)
        self._followed += 1
        if run.failure is None and run.path.departed is None and not run.uncontrolled:
            self._passed.add(order)
        key = _key_of(run, run.failure) if run.failure is not None else None
        if key is not None and key not in self._ids and key not in self._explaining:
            self._begin_to_explain(key, run)
        self._show()

    def _show(self, *, explaining: bool = False) -> None:
        self._progress(
            Progress(
                self._meter.elapsed_s,
                self._runs,
                self._schedules.same,
                failing=self._failing,
                findings=len(self._findings),
                explaining=explaining,
            )
        )

    def _take(self, run: NodeRun, failure: RunFailure) -> None:
        self._failing += 1
        key = _key_of(run, failure)
        if key in self._explaining:
            self._explaining[key].states += 1
        elif key not in self._ids:
            self._begin_to_explain(key, run)
        elif found := self._findings.get(self._ids[key]):
            self._findings[found.id] = replace(found, states=found.states + 1)
        else:
            self._flaky += 1

    def _begin_to_explain(self, key: _Key, run: NodeRun) -> None:
        """Repeat a failing run; one that fails again is minimised beside the search."""
        what = f"a run ({self._failure_of(run)})"
        known = tuple(run.chosen) in self._repeated_unrest  # 10 s each time
        again = run if known else self._repeated(until_failure(run), what)
        if again.failure is None or run.failure is None or not again.failure.same_as(run.failure):
            self._fails_once(what)
            self._ids[key] = ""
        else:
            self._explaining[key] = _Explaining(Minimising(again), self._runs, self._meter.elapsed_s)

    def _explain(self, ended: bool) -> bool:
        """Make the next runs that explain a failure, each in turn; whether there is more to do. `ended`: the search,
        which else continues meanwhile."""
        self._since_explained += 1
        if not self._explaining or (not ended and self._since_explained < _RESULTS_BETWEEN):
            return False
        self._since_explained = 0
        key, failure = next(iter(self._explaining.items()))
        self._show(explaining=ended)
        left_s = self._meter.reporting_left()
        if left_s is not None and left_s <= (len(self._explaining) * self._placed_s if ended else 0.0):
            self._finish(key, None, "the budget ended before it was minimised", place=left_s > 0.0)
            return ended
        world = self._hasty if _never_rests(failure.minimising.best) else self._world
        made = [self._pool.submit(self._guided, order, world) for order in failure.orders]
        try:
            runs = [run.result() for run in made]
            failure.orders = failure.attempts.send(runs) if runs else next(failure.attempts)
            self._explaining[key] = self._explaining.pop(key)  # now it is the last one
        except StopIteration as minimised:
            self._finish(key, minimised.value)
        return ended

    def _finish(self, key: _Key, pair: Pair | None, note: str = "", *, place: bool = True) -> None:
        """Report the smallest run of a failure. `place`: made again, with the call stacks of messages."""
        failure = self._explaining.pop(key)
        best = failure.minimising.best
        placed = self._placed(best) if place else None
        if placed is None and _never_rests(best) and self._hasty is not self._world and best is not failure.first:
            best, pair, note = failure.first, None, note or "a smaller run may have come to rest later"
        best = placed or best
        uncertain = ""
        if best.uncontrolled:
            uncertain = f"the run is not fully under control: {', '.join(best.uncontrolled)}{TO_SETTLE}{CONTROL_GUIDE}"
        finding = self._describer.finding(Minimal(best, pair), self._token(until_failure(best)), note, uncertain)
        known = self._findings.get(finding.id)
        self._ids[key] = finding.id
        self._findings[finding.id] = replace(known or finding, states=(known.states if known else 0) + failure.states)
        met = Discovery(finding.id, failure.runs, failure.elapsed_s)
        self._discoveries[finding.id] = min(self._discoveries.get(finding.id, met), met, key=lambda each: each.states)

    def _placed(self, run: NodeRun) -> NodeRun | None:
        """A failing run whose messages have the call stacks of their senders, if it fails in the same way once more."""
        if self._placing is None or run.failure is None:
            return None
        order, began_s = until_failure(run), self._meter.elapsed_s
        try:
            placed = self._under_way.execute(self._placing, GuidedPath(order), self._rules, until_failure=True)
        except OutOfTime:
            return None
        self._placed_s = max(self._placed_s, self._meter.elapsed_s - began_s)
        same = placed.failure is not None and placed.failure.same_as(run.failure) and until_failure(placed) == order
        return placed if same else None

    def _remade(self) -> Iterator[str]:
        if self._kept_from_rest:
            names = ", ".join(sorted({self._describer.node(node) for node in self._kept_from_rest}))
            yield (
                f"{len(self._kept_from_rest)} runs were made again, because a node ({names}) did not come to rest, and "
                "then did: other programs may keep it from computing"
            )

    def _restless_at_end(self, last: tuple[Action, float]) -> str:
        action, seconds = last
        node, what = self._describer.node(action.node), self._describer.clause(action, RunFacts())
        return f"a run was ended with the search: {node} had not come to rest for {seconds:.1f} s after {what}"

    def _fails_once(self, what: str) -> None:
        self._flaky += 1
        self._not_repeated[what] += 1

    def _unrepeated(self) -> Iterator[str]:
        for what, times in self._not_repeated.items():
            yield f"{what} failed, and did not when it was repeated{f' ({times} times)' if times > 1 else ''}"
        if self._cut_short is not None:
            yield f"{self._cut_short} failed, and the budget ended before it was repeated"

    def _failure_of(self, run: NodeRun) -> str:
        return self._describer.failure(run.failure) if run.failure is not None else "it does not fail"

    def _counts(self, stop: StopReason) -> StateCounts:
        complete = self._runs + self._followed - self._schedules.cut
        why = [self._frontier.left_out] if self._frontier.left_out else []
        if self._reduced and self._rules.clock:
            why.append("with clock_error, partial orders do not distinguish all of them")
        if self._not_all_cuts:
            why.append(f"{self._not_all_cuts} runs have too many consistent cuts for the check after each action")
        if self._untried_disks:
            why.append(f"{self._untried_disks} crashes of machines may leave more states of a disk than [bounds] disk")
        if self._idle:
            why.append(f"{_runs(self._idle)} ended with timers that had no effect for long")
        elif self._reduced and self._ticked:
            why.append(f"{self._ticked} runs have timers without effect, whose order is not searched")
        if self._at_bound:
            why.append(f"{_runs(self._at_bound)} reached the bound of {self._rules.actions} actions")
        if stop is not StopReason.EXHAUSTED:
            why.append("the search did not end")
        return StateCounts(
            feasible=complete,
            feasible_exact=not why,
            feasible_note=f"there may be more runs: {'; '.join(why)}" if why else "",
            executed=complete - self._schedules.same,
            pruned=self._schedules.same,
            skipped=0,
            failing=self._failing,
            flaky=self._flaky,
            uncertain=sum(one.states for one in self._findings.values() if one.uncertain),
            unit=NODE_RUN,
        )


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"
