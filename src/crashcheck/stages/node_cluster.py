"""Runs of nodes on the workers of a cluster: what a worker is sent, how it makes runs, and who makes which.

The search stays where it was started. It sends branches, and takes the runs in its order: which worker made one, and
when, does not matter to it. What fails is made again on the own machine, and that counts.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from crashcheck.checker.images import image_folder
from crashcheck.checker.nodes.paths import Branch, path_of
from crashcheck.checker.nodes.runs import NodeRun, RunRules, execute
from crashcheck.checker.nodes.search import NodeRunner
from crashcheck.checker.remote.host import BATCH_S
from crashcheck.checker.remote.packing import Packed, Place, packed_folder, unpack
from crashcheck.checker.remote.remote_machines import SLOTS, Cluster, MachineSlot, RemoteMachines, SessionPlan
from crashcheck.checker.remote.shipped_files import (
    FILES,
    ShippedFiles,
    moved_below,
    named_files,
    shipped,
    texts_of,
    why_unfit,
    with_libraries,
)
from crashcheck.checker.search.schedules import Diverged
from crashcheck.checker.verdicts.verdict_source import Awaited
from crashcheck.command import Command
from crashcheck.config import Config
from crashcheck.config.nodes import NodesConfig
from crashcheck.errors import CrashcheckError
from crashcheck.masking import inherited_environment
from crashcheck.one_folder import STATE_COMMAND
from crashcheck.stages.nodes import STATE_BYTES, NodeSetup
from crashcheck.wording import remark

_LOOK_S = 1.0  # between two questions who is there
_REST_S = 600.0  # for what a run does besides checks


@dataclass(frozen=True, slots=True)
class NodeShipment(ShippedFiles):
    """What a worker makes the nodes of. `config`: as it is here; `seeds`: folders that nodes start from."""

    config: Config


class NodesBegun(NamedTuple):
    """The default run on a worker. `why`: or why it cannot be used."""

    why: str
    run: NodeRun | None = None


class NodeBatch(NamedTuple):
    """The first runs of a batch. `why`: why there are no others, if it was not time."""

    runs: tuple[NodeRun, ...]
    why: str = ""


def shipment_of_nodes(setup: NodeSetup) -> tuple[NodeShipment, Mapping[bytes, Place]]:
    """What a worker needs, as far as that can be known, and where its pieces are: what else nodes open is not sent."""
    config, nodes, places = setup.config, setup.nodes, dict[bytes, Place]()
    env = inherited_environment()
    programs, on_path, texts = dict[str, None](), [], list[str]()
    commands = [setup.words(number, node.command, Path()) for number, (_, node) in enumerate(nodes.each())]
    checks = [one for one in (nodes.check.after, nodes.check.end, nodes.check.progress) if one]
    commands += [tuple(one.argv()[one.folders_at :]) for one in checks]
    for program, *words in commands:
        found = program if "/" in program else shutil.which(program, path=env.get("PATH"))
        if found is not None:
            path = os.path.normpath(config.folder / found)
            programs[path] = None
            on_path += [] if "/" in program else [Path(path)]
        texts += texts_of(words, "", ())
    for variables in (*(node.env for node in nodes.nodes), nodes.check.env):
        texts += variables.values()
    there = [one for one in programs if os.path.isfile(one)]
    files = shipped(named_files(config.folder, there, texts), on_path, env, places)
    entries = list(files.entries)
    for seed in sorted({node.seed for node in nodes.nodes if node.seed}):
        folder = (config.folder / seed).absolute()
        entries += packed_folder(folder, f"{FILES}{folder}", places)
    return NodeShipment(tuple(entries), files.own, files.programs, files.moved, config), places


def config_below(shipment: NodeShipment, root: Path) -> Config:
    """The configuration of nodes whose files were unpacked into `root`."""
    config = shipment.config
    folder = root / f"{FILES}{config.folder}"
    folder.mkdir(parents=True, exist_ok=True)

    def moved(text: str) -> str:
        return moved_below(shipment, root, text)

    def command(one: Command) -> Command:
        own = tuple(map(moved, one.words[one.folders_at :]))
        begins = STATE_COMMAND if one.folders_at else ()  # of this machine
        return Command(moved(one.text), (*begins, *own), len(begins))

    def variables(env: Mapping[str, str]) -> dict[str, str]:
        return with_libraries(root, {name: moved(value) for name, value in env.items()})

    assert config.nodes is not None
    check = config.nodes.check
    nodes = replace(
        config.nodes,
        nodes=tuple(
            replace(each, command=command(each.command), env=variables(each.env)) for each in config.nodes.nodes
        ),
        check=replace(
            check,
            after=command(check.after) if check.after else None,
            end=command(check.end) if check.end else None,
            progress=command(check.progress) if check.progress else None,
            env=variables(check.env),
        ),
    )
    return replace(config, path=folder / config.path.name, folder=folder, nodes=nodes)


class NodeSession:
    """The nodes of a search on a worker (host.HostSession)."""

    def __init__(self, folder: Path, shipment: NodeShipment) -> None:
        # constant
        self.folder = folder
        self._shipment = shipment
        # changing
        self._ending = ExitStack()
        self._setup: NodeSetup | None = None

    @property
    def entries(self) -> Sequence[Packed]:
        return self._shipment.entries

    def begin(self, pieces: Path, first: Branch, slots: int) -> NodesBegun:
        """Make a run, after which `slots` may be made at a time."""
        self.folder.mkdir()
        unpack(self.entries, self.folder, lambda digest: (pieces / digest.hex()).read_bytes())
        if why := why_unfit(self._shipment, with_libraries(self.folder, inherited_environment()), self.folder):
            return NodesBegun(why)
        config = config_below(self._shipment, self.folder)
        states = self._ending.enter_context(image_folder.held_home(self.folder, STATE_BYTES, slots))
        assert config.nodes is not None
        setup = NodeSetup(config, config.nodes, self.folder / "nodes", slots, states, stays=False)
        self._setup = self._ending.enter_context(setup)
        batch = self.run(0, [first])
        return NodesBegun(batch.why, batch.runs[0] if batch.runs else None)

    def run(self, slot: int, tasks: Sequence[Branch]) -> NodeBatch:
        """Make runs for a while, at least one."""
        assert self._setup is not None
        rules, until, runs = self._setup.rules_of_search(), monotonic() + BATCH_S, list[NodeRun]()
        for branch in tasks:
            if runs and monotonic() > until:
                break
            try:
                runs.append(execute(self._setup.world(), path_of(branch), rules))
            except (CrashcheckError, Diverged) as error:
                return NodeBatch(tuple(runs), str(error))
        return NodeBatch(tuple(runs))

    def close(self) -> None:
        """Remove all that was written."""
        self._ending.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class RemoteNodeRuns(RemoteMachines):
    """The runs of one search over nodes on a cluster (search.NodeRunner)."""

    def __init__(self, cluster: Cluster, setup: NodeSetup) -> None:
        shipment, places = shipment_of_nodes(setup)
        rules = setup.rules_of_search()

        def tell(line: str) -> None:
            remark(f"{cluster.name}: {line}")

        super().__init__(cluster, SessionPlan(NodeSession, shipment, places, "runs", _most_seconds(setup.nodes)), tell)
        # constant
        self._setup = setup
        self._rules: RunRules = rules
        self._default = self._made_here(Branch())
        # changing
        self._numbers = count()
        self._branches: dict[int, Branch] = {}  # by ticket
        self._waiting: deque[int] = deque()
        self._made: dict[int, NodeRun | None] = {}  # None: nobody made it

    # -- search.NodeRunner

    @property
    def ahead(self) -> int:
        return SLOTS * self.threads

    def begin_run(self, branch: Branch) -> Awaited[NodeRun]:
        """Let a worker make a run."""
        ticket = next(self._numbers)
        self._branches[ticket] = branch
        self._waiting.append(ticket)
        self._hand_out()

        def awaited(left_s: float | None) -> NodeRun | None:
            until = None if left_s is None else monotonic() + left_s
            while ticket not in self._made:
                self._look()
                self._hand_out()
                if not self.works and ticket in self._waiting:
                    self._waiting.remove(ticket)
                    self._made[ticket] = None
                left = _LOOK_S if until is None else min(_LOOK_S, until - monotonic())
                if ticket not in self._made and left <= 0:
                    return None
                if ticket not in self._made:
                    self._cluster.wait(left)
            branch = self._branches.pop(ticket)
            return self._made.pop(ticket) or self._made_here(branch)

        return awaited

    def _made_here(self, branch: Branch) -> NodeRun:
        return execute(self._setup.world(), path_of(branch), self._rules)

    def _hand_out(self) -> None:
        for slot in [slot for slot in self._slots() if not slot.held]:
            if not self._again and not self._waiting:
                return
            ticket = (self._again or self._waiting).popleft()
            self._give(slot, [ticket], [self._branches[ticket]], BATCH_S + self._plan.run_s)

    # -- remote_machines.RemoteMachines

    def _first(self) -> object:
        return Branch()

    def _differs(self, begun: NodesBegun) -> str:
        if begun.run is None:
            return "it did not make the default run"
        here, there = _shown(self._default), _shown(begun.run)
        if here == there:
            return ""
        same = next((at for at, pair in enumerate(zip(here.steps, there.steps, strict=False)) if pair[0] != pair[1]), 0)
        return f"the default run is not as it is here: it differs after {same} actions"

    def _executed(self, slot: MachineSlot, tickets: Sequence[int], outcome: NodeBatch) -> int:
        self._made.update(zip(tickets, outcome.runs, strict=False))
        return len(outcome.runs)

    def _not_executed(self, tickets: Sequence[int]) -> None:
        self._made.update(dict.fromkeys(tickets))


class _Shown(NamedTuple):
    """What a search sees of a run."""

    steps: tuple[object, ...]
    ended: tuple[object, ...]


def _shown(run: NodeRun) -> _Shown:
    steps = zip(run.enabled, (*run.chosen, None), (*run.footprints, None), strict=True)
    failure = run.failure and (run.failure.wrong, run.failure.at, run.failure.node, run.failure.value)
    return _Shown(tuple((tuple(enabled), action, shown) for enabled, action, shown in steps), (run.ending, failure))


def _most_seconds(nodes: NodesConfig) -> float:
    """What one run may take."""
    judged = nodes.bounds.actions if nodes.check.after is not None else 2
    return _REST_S + judged * nodes.check.timeout_s


@contextmanager
def runs_on(cluster: Cluster, setup: NodeSetup) -> Iterator[NodeRunner]:
    """While this lasts, a cluster makes runs. Raises CrashcheckError(executor-unusable)."""
    remote = RemoteNodeRuns(cluster, setup)
    try:
        remote.begin()
        yield remote
    finally:
        remote.close()
