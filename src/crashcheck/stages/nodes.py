"""A run of a configuration of nodes: worlds of processes, the checks of their state, and the search over both."""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic
from typing import TypeVar

import crashcheck
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.change.diff import head_commit
from crashcheck.change.unreached import Stack, StacksOfRuns
from crashcheck.checker.budget import Budget
from crashcheck.checker.images import image_folder
from crashcheck.checker.nodes.describe import Describer
from crashcheck.checker.nodes.disks import RankedDisks
from crashcheck.checker.nodes.runs import NodeRole, RunChecks, RunRules, StateChecks
from crashcheck.checker.nodes.search import NodeRunner, NodeSearch, NodeSearchResult, searched_by
from crashcheck.checker.nodes.stacks import SenderStacks
from crashcheck.checker.nodes.strategies import REDUCED, NodePlan, NodeStrategy
from crashcheck.checker.results import CONTROL_GUIDE, Location, NotFollowed, RunResult, TraceSummary
from crashcheck.checker.search.schedules import Diverged
from crashcheck.checker.store import ended_beside
from crashcheck.checker.token import DIGEST_BYTES, OrderToken
from crashcheck.checker.verdicts.copies import CopiesDiffer
from crashcheck.command import Command
from crashcheck.config import Config
from crashcheck.config.faults import NodeFault
from crashcheck.config.nodes import EXPLORE_THREADS, NO_CRASH_MODEL, NodeConfig, NodesConfig
from crashcheck.errors import CrashcheckError
from crashcheck.masking import inherited_environment
from crashcheck.runtime.build import NodePrograms, build_nodes
from crashcheck.runtime.nodes.actions import World
from crashcheck.runtime.nodes.machines import CallFault, CrashDisk, NameCalls, NodeCommand
from crashcheck.runtime.nodes.network import address_of
from crashcheck.runtime.nodes.world import PATIENCE_S, NodeWorld
from crashcheck.stages.failing_orders import LastOrders
from crashcheck.stages.node_checks import CommandChecks, NodeStates, PassedStates
from crashcheck.stages.phases import OnProgress, left_of
from crashcheck.stages.state_judge import StateJudge
from crashcheck.wording import remark

T = TypeVar("T")
_FOLDER = "nodes"  # in a run's folder
_TEMPORARY = ("TMPDIR", "TEMPDIR", "TEMP", "TMP")  # variables: the place is a node's own /tmp
_JUDGES_BITS = 8  # of a process, which has one for each command of [check]
_Kept = tuple[Sequence[str], Sequence[Stack]]  # notes, and what was recorded
STATE_BYTES = 16 << 20  # of a state of all nodes, with which it is kept in memory


@dataclass(slots=True, eq=False)
class NodeSetup:
    """Makes worlds of a configuration's nodes, in a folder; at most `most` at a time. `states`: where checks find them,
    and nodes their own /tmp.

    A context manager: leaving it ends what judges states.

    A world has a place of its own, and all places have names of one length: what a program sees of its paths is the
    same in each run.
    """

    config: Config
    nodes: NodesConfig
    folder: Path
    most: int
    states: Path
    _free: queue.LifoQueue[int] = field(default_factory=queue.LifoQueue)  # the same ones again, whose checks may stay
    _programs: NodePrograms = field(default_factory=build_nodes)
    _disks: CrashDisk | None = None  # what crashes of machines leave; None: all that was written
    recorded: StacksOfRuns | None = None  # is given the traces of all nodes of each run
    stays: bool = True  # whether a check with {states} is given one state after another
    _judges: dict[tuple[Path, Command], StateJudge] = field(default_factory=dict)  # by place
    _numbers: Iterator[int] = field(default_factory=count)  # of their workers
    _notes: dict[str, None] = field(default_factory=dict)
    _passed: PassedStates = field(default_factory=PassedStates)

    def __post_init__(self) -> None:
        model, most = self.config.model, self.nodes.bounds.disk
        if model.name != NO_CRASH_MODEL:
            options = Options(model.tear, model.files, model.amplify)
            self._disks = RankedDisks(model.name, options, most, self.config.folder)
        for number in reversed(range(self.most)):
            self._free.put(number)

    def __enter__(self) -> NodeSetup:
        return self

    def __exit__(self, *_: object) -> None:
        for judge in self._judges.values():
            self._notes.update(dict.fromkeys(judge.notes))
            judge.close()
        self._judges.clear()

    def begin_copy(self, number: int) -> None:
        """This process is a copy in which one run is made at a time (run_processes.Copied)."""
        self._free = queue.LifoQueue()
        self._free.put(number)
        self._judges, self._numbers = {}, count(os.getpid() << _JUDGES_BITS)

    def news(self) -> Sequence[NodeStates]:
        return self._passed.news()

    def hear_news(self, news: Sequence[NodeStates]) -> None:
        self._passed.hear(news)

    def end_copy(self) -> _Kept:
        self.__exit__()
        return self.notes, self.recorded.stacks if self.recorded is not None else ()

    def hear(self, kept: _Kept) -> None:
        notes, stacks = kept
        self._notes.update(dict.fromkeys(notes))
        if self.recorded is not None:
            self.recorded.stacks += stacks

    @property
    def notes(self) -> tuple[str, ...]:
        """What kept checks with {states} from staying, once all runs are over."""
        return tuple(self._notes)

    def judging(self, make_runs: Callable[[], T]) -> T:
        """Make runs; if a check with {states} ends otherwise where it stays, make them again without."""
        with self:
            try:
                return make_runs()
            except CopiesDiffer as difference:
                note = f"{difference.again}: {difference}"
        self.stays = False
        self._notes[note] = None
        remark(note)
        with self:
            return make_runs()

    def _judge(self, place: Path, command: Command) -> StateJudge:
        """What judges states by a command, in a place."""
        known = self._judges.get((place, command))
        if known is None:
            check, index = self.nodes.check, next(self._numbers)
            known = StateJudge(command, check, self.config.folder, self.states, index, stays=self.stays)
            self._judges[place, command] = known
        return known

    def placing_world(self) -> World:
        """As `world`; its messages have the call stacks of their senders."""
        return self.world(SenderStacks(self.config.folder))

    def hasty_world(self) -> World:
        """As `world`; a node that does not come to rest for a second does not count as one that will."""
        return self.world(patience_s=1)

    def world(self, name_calls: NameCalls | None = None, patience_s: int = PATIENCE_S) -> World:
        """A new execution, before its start."""
        number = self._free.get()
        folder = self.folder / f"world-{number:04}"
        named = zip(self.nodes.folders(), self.nodes.each(), strict=True)
        commands = [self._command(at, name, each, folder / where) for at, (where, (name, each)) in enumerate(named)]
        place = self.states / f"state-{number:04}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        free = partial(self._free.put, number)
        error_ns, disks, programs = self.nodes.clock_error_ns, self._disks, self._programs
        recorded = self.recorded.take if self.recorded is not None else None
        return PlacedWorld(commands, folder, place, error_ns, free, disks, programs, name_calls, recorded, patience_s)

    def _command(self, number: int, name: str, node: NodeConfig, folder: Path) -> NodeCommand:
        seed = self.config.folder / node.seed if node.seed else None
        if seed is not None and not seed.is_dir():
            raise CrashcheckError(
                "node-seed", f"[[node]] seed: {seed} is no folder.", "Make it, for example in [build]."
            )
        variables = {**inherited_environment(*_TEMPORARY), **node.env}
        words = self.words(number, node.command, folder)
        faults = tuple(
            CallFault(at, fault.call, getattr(errno, fault.error), fault.nth, fault.times)
            for at, fault in enumerate(self.nodes.faults)
            if fault.node in ("", node.name)
        )
        explores = node.threads == EXPLORE_THREADS
        crash = frozenset(node.crash)
        return NodeCommand(words, folder.name, seed, node.ends, crash, variables, faults, explores, name)

    def words(self, number: int, command: Command, folder: Path) -> tuple[str, ...]:
        """A node's command. A program that is named by a path is found from the configuration's folder."""
        peers = ",".join(map(address_of, range(len(self.nodes.names()))))
        own = {"folder": str(folder), "index": str(number), "address": address_of(number)}
        program, *rest = command.argv(**own, peers=peers, project=str(self.config.folder))
        return (str(self.config.folder / program) if "/" in program else program, *rest)

    def roles(self) -> Sequence[NodeRole]:
        """What is expected of the nodes."""
        return [NodeRole(name, node.ends, node.status) for name, node in self.nodes.each()]

    def rules(self) -> RunRules:
        """What all runs share. Those of one search are made by the last rules."""
        self._passed = PassedStates()
        return RunRules(
            roles=self.roles(),
            actions=self.nodes.bounds.actions,
            failures=self.nodes.bounds.failures(),
            clock=self.nodes.clock_error_ns is not None,
            checks=StateChecks(
                partial(self._checks, None if self.nodes.strategy.name == "dfs" else self._passed),
                self.nodes.check.after is not None,
            ),
        )

    def plan(self) -> NodePlan:
        """The strategy."""
        one = self.nodes.strategy
        name: NodeStrategy = one.name  # type: ignore[assignment]  # one of NODE_STRATEGIES
        return NodePlan(name, one.runs, one.deviations, one.rounds, one.backtracks, one.seed)

    def rules_of_search(self) -> RunRules:
        """What all runs share that the strategy makes."""
        return searched_by(self.plan(), self.rules())

    def _checks(self, passed: PassedStates | None, world: World) -> RunChecks:
        assert isinstance(world, PlacedWorld)
        strategy, nodes = self.nodes.strategy.name, len(self.nodes.folders())
        cuts, sample = strategy in REDUCED, strategy == "hybrid"
        judge_of = partial(self._judge, world.place)
        return CommandChecks(self.nodes.check, judge_of, nodes, world.place, passed, cuts, sample)

    def digest(self) -> bytes:
        """8 bytes that differ where a token of other nodes, bounds or programs is repeated."""
        state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        nodes = self.nodes
        state.update(repr((nodes.bounds, nodes.clock_error_ns, nodes.faults, self.config.model)).encode())
        for number, (name, node) in enumerate(nodes.each()):
            words = self.words(number, node.command, Path())
            shown = [word.replace(str(self.config.folder), "{project}") for word in words]  # a checkout may be anywhere
            state.update(
                repr((name, shown, node.folder, node.seed, node.crash, node.ends, sorted(node.env.items()))).encode()
            )
            state.update(node.threads.encode())
            for word in words:
                path = self.config.folder / word
                if path.is_file():
                    state.update(path.read_bytes())
        return state.digest()

    def describer(self) -> Describer:
        """Names what is found; a finding's place is the first [[node]]."""
        lines = self.config.path.read_text(encoding="utf-8").splitlines()
        line = next((at for at, text in enumerate(lines, 1) if text.strip().startswith("[[node]]")), 1)
        place = Location(self.config.path.name, line, 0, "", "", (), lines[line - 1].strip())
        faults = [f"{fault.call} ({fault.error})" for fault in self.nodes.faults]
        numbered = [_numbered(fault) for fault in self.nodes.faults]
        return Describer(self.roles(), self.config.model.name, place, faults, numbered)


def _numbered(fault: NodeFault) -> str:
    """Which call a fault with a number is; empty of one that the search chooses."""
    return f"{fault.call} number {fault.nth} of {fault.node or 'any node'} ({fault.error})" if fault.nth else ""


class PlacedWorld(NodeWorld):
    """A world whose place, for the states that checks judge, is free again once it is closed."""

    def __init__(
        self,
        commands: Sequence[NodeCommand],
        folder: Path,
        place: Path,
        error_ns: int | None,
        free: partial[None],
        crash_disk: CrashDisk | None,
        programs: NodePrograms,
        name_calls: NameCalls | None,
        recorded: Callable[[Path], None] | None,
        patience_s: int,
    ) -> None:
        self._place = place
        self._set_free = free
        self._closed = False
        super().__init__(
            commands,
            folder,
            error_ns,
            crash_disk=crash_disk,
            programs=programs,
            name_calls=name_calls,
            recorded=recorded,
            patience_s=patience_s,
            private=place / "private",  # in memory, where there is room: making and removing folders on a disk waits
        )

    @property
    def place(self) -> Path:
        """The folder that nobody else uses until it is closed."""
        return self._place

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            super().close()
            self._set_free()


def search_nodes(
    config: Config,
    folder: Path,
    jobs: int,
    on_progress: OnProgress,
    failing: Path | None = None,
    cluster: Callable[[NodeSetup], AbstractContextManager[NodeRunner]] | None = None,
    recorded: StacksOfRuns | None = None,
) -> RunResult:
    """Search the orders of actions of a configuration's nodes. Raises CrashcheckError.

    `failing`: a file of the orders that failed in the last run, taken first; it gets those of this run. `cluster`:
    makes the runs. `recorded`: is given the traces of all nodes of each run that is made on this machine.
    """
    assert config.nodes is not None
    last = LastOrders(failing)
    for killed in ended_beside(folder):  # those that were not have removed it
        shutil.rmtree(killed / _FOLDER, ignore_errors=True)
    with ExitStack() as ending:
        states = ending.enter_context(image_folder.held_home(folder, STATE_BYTES, jobs + 1))
        setup = NodeSetup(config, config.nodes, folder / _FOLDER, jobs + 1, states, recorded=recorded)
        ending.callback(shutil.rmtree, setup.folder, ignore_errors=True)
        digest = setup.digest()
        elsewhere = None if cluster is None else ending.enter_context(cluster(setup))
        on_progress("checking", None)
        began = monotonic()

        def search() -> NodeSearchResult:
            budget = left_of(config, began).budget
            return NodeSearch(
                setup.world,
                setup.rules(),
                setup.plan(),
                setup.describer(),
                lambda actions: str(OrderToken(digest, tuple(actions))),
                Budget(budget.seconds, budget.states),
                again=last.orders(),
                jobs=jobs,
                elsewhere=elsewhere,
                placing=setup.placing_world,
                hasty=setup.hasty_world,
                copied=setup,
                progress=partial(on_progress, "checking"),
            ).run()

        try:
            found = setup.judging(search)
        except Diverged as error:
            raise CrashcheckError(
                "nodes-diverged",
                f"a run of the nodes was not repeated: {error}.",
                "Something that the nodes read is not under control: docs/nodes.md lists what is.",
            ) from error
    result = _result(config, replace(found, warnings=(*setup.notes, *found.warnings)))
    return last.searched(result, found.passed, head_commit(config.folder))


def _result(config: Config, found: NodeSearchResult) -> RunResult:
    assert config.nodes is not None
    outside = tuple(NotFollowed(what, CONTROL_GUIDE) for what in found.uncontrolled)
    return RunResult(
        config_path=str(config.path),
        model=config.model.name,
        strategy=config.nodes.strategy.name,
        stop_reason=found.stop_reason,
        states=found.states,
        trace=TraceSummary("", 0, 0, 0, 0, 0, 0, 0, (), 0, 0, 0, (), not_followed=outside),
        findings=found.findings,
        uncertain=found.uncertain,
        not_instrumented=(),
        warnings=(*_counted(found), *found.warnings),
        seconds=0.0,
        version=crashcheck.__version__,
        discoveries=found.discoveries,
        fail_on=config.report.fail_on,  # type: ignore[arg-type]  # one of FAIL_ON
    )


def _counted(found: NodeSearchResult) -> Iterator[str]:
    if found.cut:
        yield f"{found.cut} of {found.runs} runs were cut, because all that they could come to is part of other runs"
