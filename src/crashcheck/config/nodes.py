"""The part of crashcheck.toml that describes nodes: processes of a distributed system, whose messages are reordered.

A file with [[node]] has [bounds] and [time] beside it, and [check] and [strategy] mean something else in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from crashcheck.command import Command
from crashcheck.config.faults import NodeFault
from crashcheck.config.folders import states_command
from crashcheck.config.values import Count, Environment, Flag, Number, Seconds, T, Table, Text, choice
from crashcheck.errors import CrashcheckError

NODE_STRATEGIES = ("hybrid", "bounded-dpor", "dpor", "dfs", "random")
NO_CRASH_MODEL = "none"  # a crash of a machine loses nothing that was written
MOST_NODES = 64
_NO_TIME = re.compile(r"0+(?:[a-z]*)")
_UNUSED = {
    "workload": "each [[node]] has a command of its own, and is what is checked",
    "setup": 'what a node\'s folder holds at the start of each run is seed = "FOLDER" in its [[node]]',
    "pool": "each node has a folder of its own, {folder} in its command",
    "record": "what the nodes do is controlled, not recorded",
}

_CHOSEN = {True: "a [[faults]] has no nth", False: "no [[faults]] is without nth"}
_EXAMPLE = "./server {index} {peers}"
_OF_NODES = ("folder", "index", "address", "peers", "project")  # placeholders
_OF_CHECKS = ("state", "project")
_STAYING = ("after", "end")  # checks that may be given one state after another

Crash = Literal["process", "machine"]
EXPLORE_THREADS = "explore"
THREADS = ("first", EXPLORE_THREADS)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """[[node]]: a process, or some that differ in their number only."""

    command: Command
    name: Text = ""
    count: Annotated[int, Meta(ge=1, le=MOST_NODES, description="a whole number")] = 1
    folder: Annotated[str, Meta(pattern=r"^([A-Za-z0-9_-]|\{index\})+$", description='a name, as in "data{index}"')] = (
        "n{index}"  # how its private folder is named, in {state} as well
    )
    seed: Text = ""  # a folder: what the node's own folder is a copy of at the start of each run; else it is empty
    crash: Annotated[
        tuple[Crash, ...],
        Meta(description='a list, as in ["process", "machine"]', extra={"choices": ("process", "machine")}),
    ] = ()
    ends: Flag = False  # a run is over when all such nodes have ended
    status: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=255)], ...], Meta(description="a list of exit statuses, as in [0, 1]")
    ] = (0,)
    threads: Annotated[str, choice(THREADS)] = "first"  # which of several continues, after a call that waited
    env: Environment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BoundsConfig:
    """[bounds]: of one run, how many actions and how many failures of each kind."""

    actions: Count = 300
    crashes: Number = 0
    loss: Number = 0  # datagrams that are lost
    duplicate: Number = 0  # datagrams that are delivered twice
    cut: Number = 0  # links that are cut
    reset: Number = 0  # connections that end with RST
    faults: Number = 0  # calls that fail because of [[faults]] without nth
    disk: Count = 8  # states of its disk with which a machine that crashed may start again

    def failures(self) -> dict[str, int]:
        """How many failures there may be in a run, by kind."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("actions", "disk")}


@dataclass(frozen=True, slots=True)
class TimeConfig:
    """[time]: how far the nodes' clocks are apart."""

    clock_error: Text = "free"  # a duration, or "free": any timer may fire, each node has a clock of its own


@dataclass(frozen=True, slots=True)
class NodeCheckConfig:
    """[check] of nodes: what judges a state that a run has reached, {state}."""

    after: Command | None = None  # after each action
    end: Command | None = None  # where a run may end
    progress: Command | None = None  # must pass at some time once failures have stopped
    env: Environment = field(default_factory=dict)
    timeout_s: Seconds = 10.0


@dataclass(frozen=True, slots=True)
class NodeStrategyConfig:
    """[strategy] of nodes: which orders of actions are run."""

    name: Annotated[str, choice(NODE_STRATEGIES)] = "hybrid"
    runs: Count = 1000  # random: how many
    deviations: Number = 2  # bounded-dpor: branches on the way of a run
    rounds: Count = 100  # hybrid: random runs from which the search begins again
    backtracks: Number = 100  # hybrid: branches in a round
    seed: Number = 1  # random, hybrid


@dataclass(frozen=True, slots=True)
class NodesConfig:
    """All that a file with [[node]] holds about them."""

    nodes: tuple[NodeConfig, ...]
    bounds: BoundsConfig
    clock_error_ns: int | None  # None: each node has a clock of its own
    check: NodeCheckConfig
    strategy: NodeStrategyConfig
    faults: tuple[NodeFault, ...] = ()

    def each(self) -> Iterator[tuple[str, NodeConfig]]:
        """Every node with its name, in the order of their numbers."""
        number = 0
        for node in self.nodes:
            for at in range(node.count):
                base = node.name or "n"
                yield (base if node.name and node.count == 1 else f"{base}{at + 1 if node.name else number}"), node
                number += 1

    def names(self) -> list[str]:
        return [name for name, _ in self.each()]

    def folders(self) -> list[str]:
        """How the nodes' folders are named."""
        return [node.folder.replace("{index}", str(number)) for number, (_, node) in enumerate(self.each())]


def _check(section: Table[NodeCheckConfig], name: str) -> Command | None:
    """One of the checks. Raises CrashcheckError."""
    command = section.command(name, (*_OF_CHECKS, *(("states",) if name in _STAYING else ())))
    if command is None or not command.holds("states"):
        return command
    if command.holds("state"):
        where = f"{section.path}: {section.label(name)}"
        hint = "With {states} the check reads a line for each state: its folder."
        raise CrashcheckError("config-placeholder", f"{where}: {{states}} and {{state}} exclude one another.", hint)
    return states_command(command)


def read_nodes(
    path: Path,
    document: Mapping[str, object],
    nodes: Sequence[Table[NodeConfig]],
    faults: Sequence[Table[NodeFault]],
    duration: Callable[[str], float],
) -> NodesConfig:
    """What a file with these [[node]] and [[faults]] tables describes. `duration`: seconds of a text.

    Raises CrashcheckError.
    """
    for name, why in _UNUSED.items():
        if name in document:
            raise CrashcheckError("config-nodes", f"{path}: [{name}] cannot be used beside [[node]].", f"{why}.")

    def section(name: str, kind: type[T]) -> Table[T]:
        return Table.of(path, name, document.get(name, {}), kind)

    values = document.get("check", {})
    if isinstance(values, dict) and "command" in values:
        hint = "`after` judges the state of the nodes after each action, `end` where a run may end."
        raise CrashcheckError("config-nodes", f"{path}: [check] command cannot be used beside [[node]].", hint)
    check, bounds, time = (
        section("check", NodeCheckConfig),
        section("bounds", BoundsConfig),
        section("time", TimeConfig),
    )
    strategy = section("strategy", NodeStrategyConfig)
    error = time.read().clock_error
    found = NodesConfig(
        tuple(each.read(command=each.required_command("command", _OF_NODES, _EXAMPLE)) for each in nodes),
        bounds.read(),
        None if error == "free" else 0 if _NO_TIME.fullmatch(error) else round(duration(error) * 10**9),
        check.read(**{name: _check(check, name) for name in (*_STAYING, "progress")}),
        strategy.read(),
        tuple(each.read() for each in faults),
    )
    if len(found.names()) > MOST_NODES:
        message = f"{path}: [[node]] describes {len(found.names())} nodes; the most is {MOST_NODES}."
        raise CrashcheckError("config-value", message)
    if twice := [name for name, count in Counter(found.names()).items() if count > 1]:
        raise CrashcheckError("config-value", f"{path}: two nodes are named {twice[0]!r}.", "Change one [[node]] name.")
    if twice := [name for name, count in Counter(found.folders()).items() if count > 1]:
        hint = 'Change one [[node]] folder, or write {index} in it, as in folder = "data{index}".'
        raise CrashcheckError("config-value", f"{path}: two nodes have the folder {twice[0]!r}.", hint)
    for fault, table in zip(found.faults, faults, strict=True):
        if fault.node and fault.node not in {node.name for node in found.nodes}:
            raise table.value_error("node", f" is {fault.node!r}, and no [[node]] has this name.", "Write its `name`.")
    chosen = any(not fault.nth for fault in found.faults)
    if chosen != bool(found.bounds.faults):
        hint = "A [[faults]] without nth and [bounds] faults need each other: which call fails, and how many in a run."
        raise bounds.value_error("faults", f" is {found.bounds.faults}, and {_CHOSEN[chosen]}.", hint)
    if found.bounds.crashes and not any(node.crash for node in found.nodes):
        raise bounds.value_error(
            "crashes", " is not 0, and no node may crash.", 'Add to a [[node]]: crash = ["process"]'
        )
    return found
