"""Small programs with one mistake: the ranked search shows it within a tenth of the states."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.persistence import Options, build
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies import Ranked, strategy
from crashcheck.checker.strategies.plan import select_states
from support.examples_tried import examples
from support.random_runs import SETTINGS
from support.scripts import Script, site

ENTRY = 128
SITES = (
    site("entry.key", ("entry", "key", 0, 8), line=1),
    site("entry.value", ("entry", "value", 8, 8), line=2),
    site("entry.valid", ("entry", "valid", 64, 8), line=3),
    site("log.old", ("log", "old", 0, 8), line=4),
    site("log.on", ("log", "on", 64, 8), line=5),
    site("entry.value", ("entry", "value", 8, 8), line=6),
    site("log.on", ("log", "on", 64, 8), line=7),
)
LOG = 1 << 14
KIND = {
    "insert without a fence": "insert",
    "insert without a flush": "insert",
    "log without a fence": "update",
    "update before its log": "update",
}

Pair = tuple[int, int]  # events: the second must not have persisted without the first


class Program:
    """Inserts and updates of entries; `mistake` is made in every operation of its kind."""

    def __init__(self, folder: Path, mistake: str, operations: list[tuple[str, int]]) -> None:
        self.script = Script(folder, *SITES)
        self.mistake = mistake
        self.pairs: list[Pair] = []
        for ordinal, (what, slot) in enumerate(operations, 1):
            self.mark(begin=ordinal)
            (self.insert if what == "insert" else self.update)(slot * ENTRY)
            self.mark(end=ordinal)

    def mark(self, begin: int = 0, end: int = 0) -> None:
        if begin:
            self.script.trace.begin(begin)
        else:
            self.script.trace.end(end)

    def store(self, number: int, offset: int, delta: int) -> int:
        self.script.at(number, offset + delta, delta=delta)
        return len(self.script.trace.records) - 1

    def flush(self, offset: int) -> None:
        self.script.trace.clwb("f", offset)

    def fence(self) -> None:
        self.script.trace.sfence()

    def insert(self, at: int) -> None:
        key = self.store(1, at, 0)
        value = self.store(2, at, 8)
        if self.mistake != "insert without a flush":
            self.flush(at)
        if self.mistake != "insert without a fence":
            self.fence()
        valid = self.store(3, at, 64)
        self.flush(at + 64)
        self.fence()
        self.flush(at)
        self.fence()
        self.pairs += [(key, valid), (value, valid)]

    def update(self, at: int) -> None:
        old = self.store(4, LOG, 0)
        self.flush(LOG)
        if self.mistake != "log without a fence":
            self.fence()
        on = self.store(5, LOG, 64)
        self.flush(LOG + 64)
        if self.mistake != "update before its log":
            self.fence()
        value = self.store(6, at, 8)
        self.flush(at)
        self.fence()
        self.store(7, LOG, 64)
        self.flush(LOG + 64)
        self.fence()
        self.pairs += [(old, on), (on, value)]


def shows(space: StateSpace, state: CrashState, pairs: list[Pair]) -> set[Pair]:
    """The pairs of which a state holds the second and not the first."""
    graph = space.graph
    crash = int(space.points.event[state.point])
    lost = {int(graph.event[piece]) for piece in space.lost(state)}
    return {(first, second) for first, second in pairs if first in lost and second < crash and second not in lost}


def of_kind(pairs: list[Pair], program: Program) -> dict[Pair, tuple[int, int]]:
    sites = program.script.trace.trace().events["site"]
    return {pair: (int(sites[pair[0]]), int(sites[pair[1]])) for pair in pairs}


OPERATIONS = st.lists(st.tuples(st.sampled_from(["insert", "update"]), st.integers(0, 40)), min_size=40, max_size=50)


@pytest.mark.parametrize("mistake", [*KIND, "none"])
@settings(SETTINGS, max_examples=examples(4))
@given(operations=OPERATIONS)
def test_ranked_shows_every_culprit_pair_of_the_exhaustive_search_within_a_tenth_of_the_states(
    mistake: str, operations: list[tuple[str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder), mistake, operations)
        space = StateSpace(build(program.script.trace.trace(), "px86", Options()))
        kinds = of_kind(program.pairs, program)
        everything = list(select_states(space, strategy("exhaustive")))
        wanted = {kinds[pair] for state in everything for pair in shows(space, state, program.pairs)}
        assert bool(wanted) == any(what == KIND.get(mistake) for what, _ in operations)
        ranked = list(select_states(space, Ranked(program.script.facts)))
        soon = ranked[: len(everything) // 10]
        assert {kinds[pair] for state in soon for pair in shows(space, state, program.pairs)} == wanted
        assert set(ranked) == set(everything)
