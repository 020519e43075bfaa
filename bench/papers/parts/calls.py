"""Stores that write files by system calls: how many states each way selects, and how many it runs until a bug.

ALICE (Pillai et al., OSDI 2014) applies to a trace: each prefix of its updates, also within a call, and each prefix
without one of its updates, where the model of the file system allows that. Those are its states here, of our traces and
under our models; its own models of file systems are others.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from bench.measure import CannotMeasure, scratch
from bench.papers.markdown import scientific, table, terms
from bench.papers.parts import Part
from bench.programs import CHECKOUT
from bench.remember import Remembering
from crashcheck import pipeline
from crashcheck.checker.budget import Budget
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.counting import count_states
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.plan import NOTHING, Decided, Listed, select_states
from crashcheck.checker.verdicts import prepare
from crashcheck.config import load, override
from crashcheck.stages.executor_setup import executor_of
from crashcheck.stages.recording import RecordedRun, record_run
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import strategy_of

STATES = 150  # of each search
MODELS = ("ext4", "posix")
STRATEGIES = ("ranked", "pathfinder", "exhaustive", "alice")
MOST_STATES = 100_000  # of a way that are counted one by one
_SOURCES = CHECKOUT / "tests" / "real" / "calls"
_PYTHON = f"{shlex.quote(sys.executable)} -I -S"
_DUMB = "import dbm.dumb; d = dbm.dumb.open('{pool}/s', 'c')"


@dataclass(frozen=True, slots=True)
class Store:
    """A program, and a check that asks for all that it printed. `source`: in tests/real/calls, to be compiled."""

    name: str
    workload: str
    check: str
    source: str = ""
    library: str = ""
    needs: str = ""  # a command


STORES = (
    Store(
        "LevelDB, 20 synced puts",
        "{program} {pool} put 20",
        "{program} {pool} get {stdout}",
        "leveldb.cc",
        "leveldb",
    ),
    Store(
        "LMDB, 10 transactions in a new environment",
        "{program} {pool} put 10",
        "{program} {pool} get {stdout}",
        "lmdb.c",
        "lmdb",
    ),
    Store(
        "redis, 5 commands, appendfsync always",
        f"{_SOURCES}/redis.sh put {{pool}}",
        f"{_SOURCES}/redis.sh get {{pool}} {{stdout}}",
        needs="redis-server",
    ),
    Store(
        "Python's dbm.dumb, 5 entries, closed",
        f'{_PYTHON} -c "{_DUMB}; [d.update({{str(i): str(i)}}) for i in range(5)]; d.close(); print(5)"',
        f'test ! -s {{stdout}} || {_PYTHON} -c "{_DUMB}; assert len(d) == 5 and all(d[k] == k for k in d.keys())"',
    ),
)


@dataclass(frozen=True, slots=True)
class Way:
    """What a strategy does. `selects`: states, at most MOST_STATES of which are counted; `runs`: executed in the end.

    `first`: states until the first finding, `findings`: their messages, with the states until each.
    """

    selects: int
    runs: int
    first: int | None
    findings: dict[str, int]


@dataclass(frozen=True, slots=True)
class Searched:
    """One store under one model."""

    store: str
    model: str
    calls: int
    feasible: str
    ways: dict[str, Way]


class Alice:
    """The states of ALICE, in the order of the trace."""

    name = "alice"

    def plan(self, space: StateSpace, left: object = None, decided: Decided = NOTHING) -> Listed:
        """As a strategy has it."""
        return Listed(alice_states(space))


def alice_states(space: StateSpace) -> Iterator[CrashState]:
    """Each prefix of the updates, and each prefix without one of them, where the order allows it; each state once."""
    canonical, seen = CanonicalStates(space), set[CrashState]()
    before = 0
    for point in range(len(space.points)):
        pending, issued = space.pending(point), space.issued(point)
        ends = range(issued, before, -1) if issued > before else range(issued, issued - 1, -1)
        for end in reversed(ends):  # what is issued from there on is lost
            beyond = frozenset(piece for piece in pending if piece >= end)
            for one in (None, *(piece for piece in pending if piece < end)):
                lost = beyond if one is None else beyond | {one}
                state = space.drop(point, lost)
                if frozenset(space.lost(state)) == lost and (named := canonical.first(state)) not in seen:
                    seen.add(named)
                    yield named
        before = issued


def measure() -> Iterator[Searched]:
    """Every store that is installed, under each model."""
    for store in STORES:
        for model in MODELS:
            with scratch(256) as folder:
                try:
                    yield measured(store, model, folder)
                except CannotMeasure as missing:
                    print(f"{store.name}: {missing}")


def measured(store: Store, model: str, folder: Path, states: int = STATES) -> Searched:
    """One store, recorded once, searched in each way. Raises CannotMeasure where it is not installed."""
    config = load(_prepared(store, model, folder, states))
    work = folder / "work"
    work.mkdir()
    run, jobs = record_run(config, work), pipeline.cores()
    oracle = prepare.choose_oracle(config, run.subject, run.folder)
    space, ways = run.subject.space, {}
    with executor_of(config, run, work, jobs, oracle, Remembering) as executor:
        assert isinstance(executor, Remembering)
        prepare.prepare_oracle(oracle, executor, lambda phase: None)
        for name in STRATEGIES:
            strategy = Alice() if name == "alice" else strategy_of(override(config, strategy=name), run)
            selects = sum(1 for _ in islice(select_states(space, strategy), MOST_STATES))
            found = search_of(
                *(config, run, executor, strategy, Budget(None, states)), folder=work, explore=False
            ).run()
            executor.settle()
            known = {finding.id: finding.message for finding in found.findings}
            firsts = {known[each.finding]: each.states for each in found.discoveries if each.finding in known}
            first = min(firsts.values(), default=None)
            ways[name] = Way(selects, found.states.executed, first, dict(sorted(firsts.items())))
    return Searched(store.name, model, _calls(run), str(count_states(space).value), ways)


def _calls(run: RecordedRun) -> int:
    """System calls that changed the folder."""
    return len(np.unique(run.subject.space.graph.event))


def _prepared(store: Store, model: str, folder: Path, states: int) -> Path:
    """A folder with the configuration, and the program in it."""
    if store.needs and shutil.which(store.needs) is None:
        raise CannotMeasure(f"{store.needs} is not installed")
    program = folder / "program"
    if store.source:
        compiler = "g++" if store.source.endswith(".cc") else "gcc"
        words = [compiler, "-O1", str(_SOURCES / store.source), "-o", str(program), f"-l{store.library}"]
        if subprocess.run(words, capture_output=True).returncode != 0:
            raise CannotMeasure(f"{store.library} is not installed")

    def shell(text: str) -> str:
        return json.dumps(["/bin/sh", "-c", text.replace("{program}", str(program))])

    (folder / "crashcheck.toml").write_text(
        f'[workload]\ncommand = {shell(store.workload)}\nrecorder = "syscalls"\n[pool]\nfiles = ["*"]\n'
        f'[check]\ncommand = {shell(store.check)}\n[model]\nname = "{model}"\n[budget]\nstates = {states}\n'
    )
    return folder


def section(rows: Sequence[Searched]) -> Iterator[str]:
    """One row for each store and model: the states, and for each way how soon and how many bugs it found."""
    shown = []
    for one in rows:
        cells = [one.store, one.model, str(one.calls), scientific(int(one.feasible))]
        cells += [_at_most(one.ways[name].selects) for name in ("pathfinder", "alice")]
        cells += [_found(one.ways[name]) for name in STRATEGIES]
        shown.append(cells)
    header = ("store", "model", "calls", "feasible", "representatives", "ALICE's", *STRATEGIES)
    yield from table(header, shown)
    yield ""
    yield (
        "Each store has a check that asks for all that it printed "
        "([what was found](found.md#programs-recorded-by-their-system-calls)); "
        f"each search ran {STATES} states, or all that its strategy selects."
    )
    yield ""
    yield from terms(
        calls="that changed the folder",
        **{
            "ALICE's": "each prefix of the updates, also within a call, and each prefix without one update, where the "
            "model allows it, as its paper describes; of our traces and under our models of file systems"
        },
        last_columns="states until the first bug · the number of different bugs",
    )


def _found(way: Way) -> str:
    return "–" if way.first is None else f"{way.first} · {len(_bugs(way.findings))}"


def _bugs(findings: Iterable[str]) -> set[str]:
    """What was found: findings that differ in sizes and places alone are one."""
    return {
        re.sub(r"\d+ (bytes) at offset 0x[0-9a-f]+|(size) \d+", lambda found: found[1] or found[2], message)
        for message in findings
    }


def _at_most(states: int) -> str:
    return f"≥ {states:,}" if states == MOST_STATES else f"{states:,}"


PART = Part(
    "calls",
    "Stores that write by system calls (Pathfinder, table 3; C3; ALICE)",
    Searched,
    "the libraries of LevelDB and LMDB, and redis",
    measure,
    section,
)
