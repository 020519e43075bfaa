"""How many partial orders and protocol states runs of nodes reach, by strategy (MODIST, figures 9 and 10).

A protocol state is what each node has sent and printed since it started, or that it is down, after an action of a run.
Nodes that differ in nothing else are in one state, in whatever order that was.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_args

from bench.measure import CannotMeasure, run, scratch
from bench.papers.curves import counts_over_runs
from bench.papers.markdown import table, terms
from bench.papers.parts import Part
from bench.programs import CHECKOUT
from crashcheck.checker.nodes.paths import path_of
from crashcheck.checker.nodes.runs import NodeRun, StateChecks, execute, execution_of
from crashcheck.checker.nodes.strategies import NodeStrategy, frontier_of
from crashcheck.config import parse
from crashcheck.runtime.nodes.actions import ActionKind
from crashcheck.stages.nodes import NodeSetup

STRATEGIES: tuple[NodeStrategy, ...] = get_args(NodeStrategy)
RUNS = {"two-phase commit": 400, "replicated log": 120}  # of each strategy, at most
COMMIT = CHECKOUT / "tests" / "run" / "nodes" / "commit.c"
PICTURE = "evaluation-orders.svg"
_SHOWN = (10, 100)  # runs, in the table, beside the last
_COMMIT = """
[[node]]
name = "coordinator"
command = "./commit {index} {peers} yyn"
ends = true
[[node]]
name = "participant"
command = "./commit {index} {peers} yyn"
count = 3
crash = ["process"]
ends = true
[bounds]
crashes = 1
"""
_CRASHES = (ActionKind.CRASH_PROCESS, ActionKind.CRASH_MACHINE)


class NodeState(NamedTuple):
    """What a node shows. `disk`: the name of what its machine's crash left; `sent`: receivers and data."""

    process: str = ""  # "up", "ended" or "down"; empty: it has not started
    disk: int = 0
    sent: frozenset[tuple[int, bytes]] = frozenset()
    printed: bytes = b""


@dataclass(frozen=True, slots=True)
class Reached:
    """What the runs of one strategy have reached after each of them. `ended`: no further run was left.

    `cut`: of these runs, those that sleep sets cut.
    """

    system: str
    strategy: str
    orders: tuple[int, ...]
    states: tuple[int, ...]
    cut: int
    ended: bool


def measure() -> Iterator[Reached]:
    """Both systems, with every strategy, on all cores: how long a run takes does not matter."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(_first_runs, *zip(*product(RUNS, STRATEGIES), strict=True))


def _first_runs(system: str, strategy: NodeStrategy) -> Reached:
    with scratch(100) as folder:
        return reached(system, strategy, setup_of(system, folder), RUNS[system])


def setup_of(system: str, folder: Path) -> NodeSetup:
    """The nodes of a system, in a project of its own in a folder."""
    project = folder / "project"
    if system == "two-phase commit":
        project.mkdir()
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise CannotMeasure("no C compiler was found")
        run([compiler, "-O2", COMMIT, "-o", project / "commit"])
        text = _COMMIT
    else:
        shutil.copytree(CHECKOUT / "examples" / "replicated-log", project)
        python = f"{shlex.quote(sys.executable)} -S -E"
        text = (project / "crashcheck.toml").read_text(encoding="utf-8").replace("python3", python)
    config = parse(text, project / "crashcheck.toml")
    assert config.nodes is not None
    states = folder / "states"
    states.mkdir()
    return NodeSetup(config, config.nodes, folder / "nodes", 1, states)


def reached(system: str, strategy: NodeStrategy, setup: NodeSetup, most: int) -> Reached:
    """Make the first runs of a strategy. Checks are left out: they change no run."""
    rules = replace(setup.rules(), checks=StateChecks())
    frontier = frontier_of(replace(setup.plan(), name=strategy, runs=most))
    orders, states = set[bytes](), set[tuple[NodeState, ...]]()
    counts: list[tuple[int, int]] = []
    cut = 0
    while (branches := frontier.round()) and len(counts) < most:
        for branch in branches[: most - len(counts)]:
            execution = execution_of(execute(setup.world(), path_of(branch), rules))
            frontier.ended(branch, execution)
            cut += execution.reached is None
            orders |= {execution.reached} if execution.reached is not None else set()
            states.update(states_of(execution.shows, len(rules.roles)))
            counts.append((len(orders), len(states)))
    by_orders, by_states = zip(*counts, strict=True)
    return Reached(system, strategy, by_orders, by_states, cut, not branches)


def states_of(run: NodeRun, nodes: int) -> Iterator[tuple[NodeState, ...]]:
    """The protocol states that a run passes through."""
    now = [NodeState()] * nodes
    for result in (*run.set_up, *run.results):
        action, node = result.action, result.action.node
        if action.kind in (ActionKind.START, ActionKind.RESTART):
            now[node] = NodeState("up", action.channel if action.kind is ActionKind.RESTART else 0)
        for message in result.sent:
            if message.data:
                sent = now[message.sender].sent | {(message.receiver, message.data)}
                now[message.sender] = now[message.sender]._replace(sent=sent)
        now[node] = now[node]._replace(printed=now[node].printed + result.wrote)
        if action.kind in _CRASHES:
            now[node] = NodeState("down")
        elif result.ended is not None:
            now[node] = now[node]._replace(process="ended")
        yield tuple(now)


def section(rows: Sequence[Reached]) -> Iterator[str]:
    """The picture and a table."""
    yield f"![Partial orders and protocol states over runs, one line for each strategy]({PICTURE})"
    yield ""
    shown = [
        (
            one.system,
            one.strategy,
            f"{len(one.orders):,}{' (all)' if one.ended and one.strategy != 'random' else ''}",
            f"{one.cut:,}",
            *(f"{at:,}" for at in _at(one.orders)),
            *(f"{at:,}" for at in _at(one.states)),
        )
        for one in rows
    ]
    after = (*(f"after {count}" for count in _SHOWN), "after all")
    header = (*(f"orders {text}" for text in after), *(f"states {text}" for text in after))
    yield from table(("system", "strategy", "runs", "cut", *header), shown)
    yield ""
    yield from terms(
        two_phase_commit="a coordinator and 3 participants in C, of which one votes no and one may crash",
        replicated_log="[the example](nodes.md#a-first-finding) with a power failure of the leader",
        runs="of the strategy, with its default options, up to a bound; *all*: it has no further run (`bounded-dpor` "
        "within its own bound)",
        cut="of these, runs that sleep sets cut: they reach no order of their own",
        orders="different partial orders of the runs so far (figure 9)",
        states="what each node has sent and printed since it started, or that it is down, after each action of the "
        "runs so far (figure 10). The check after each action judges the consistent cuts of a run as well, which are "
        "not counted here",
    )


def _at(counts: Sequence[int]) -> Iterator[int]:
    yield from (counts[min(step, len(counts)) - 1] for step in _SHOWN)
    yield counts[-1]


def pictures(rows: Sequence[Reached]) -> Mapping[str, str]:
    """The figure."""
    panels: dict[str, dict[str, Sequence[int]]] = {}
    for what in ("orders", "states"):
        for one in rows:
            noun = "partial orders" if what == "orders" else "protocol states"
            panels.setdefault(f"{one.system}: {noun}", {})[one.strategy] = getattr(one, what)
    return {PICTURE: counts_over_runs(panels)}


PART = Part(
    "partial_orders",
    "Partial orders and protocol states of nodes (MODIST, figures 9 and 10)",
    Reached,
    "a C compiler",
    measure,
    section,
    pictures,
)
