"""Changes of names without the data before them: which states show them, and how early the search tests these."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.pieces import DATA, NAME
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies import Ranked
from crashcheck.checker.strategies.replaced import states_of_names
from support.folders import Program, Recorded
from support.tracing import CallsBuilder

RENAMES = 20


def folders(tmp: Path, program: Program, first: dict[str, bytes | None]) -> list[dict[str, bytes | None]]:
    run = Recorded(tmp, program, first, "ext4")
    return [run.folder(state) for state in states_of_names(CanonicalStates(run.space))]


def test_a_replacement_survives_without_its_data_and_is_first(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("new")
        t.write("new", 0, b"1")
        t.move("new", "fresh")
        t.open("tmp")
        t.write("tmp", 0, b"22")
        t.move("tmp", "f")

    assert folders(tmp_path, program, {"f": b"old"}) == [
        {"f": bytes(2), "fresh": b"1"},
        {"f": b"22", "fresh": b""},
    ]


def test_a_removal_survives_without_the_data_of_all_files(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.append("log", 0, b"1")
        t.open("copy")
        t.write("copy", 0, b"old")
        t.remove("f")

    assert folders(tmp_path, program, {"f": b"old", "log": b""}) == [{"copy": b"", "log": b""}]


def test_a_synced_replacement_needs_no_state(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("tmp")
        t.write("tmp", 0, b"new")
        t.fsync("tmp")
        t.move("tmp", "f")

    assert folders(tmp_path, program, {"f": b"old"}) == []


def test_each_replacement_among_many_writes_is_tested_within_hundreds_of_states(tmp_path: Path) -> None:
    """All by one site, as of a program whose stacks show nothing, among files that are never synced."""
    names = [f"f{number}" for number in range(RENAMES)]
    t = CallsBuilder(tmp_path / "t.cct", {"log": b"", **dict.fromkeys(names, b"old")})
    for number, name in enumerate(names):
        for page in range(4):
            t.append("log", 4096 * (4 * number + page), bytes([1]) * 4096)
        t.open("tmp")
        t.write("tmp", 0, b"new %d" % number)
        t.move("tmp", name)
        t.output(number + 1)
    space = StateSpace(build(t.trace(), "ext4"))
    untried = {piece for piece in range(len(space.graph)) if is_replacement(space, piece)}
    assert len(untried) == RENAMES
    for choice in islice(Ranked().plan(space).choices(), 10 * RENAMES):
        untried -= {piece for piece in untried if shows(space, choice.state, piece)}
    assert not untried


def is_replacement(space: StateSpace, piece: int) -> bool:
    graph = space.graph
    return graph.kind[piece] == NAME and len(graph.names.changes[int(graph.offset[piece])].entries) == 2


def shows(space: StateSpace, state: CrashState, piece: int) -> bool:
    """Whether the state has a rename, and lacks the bytes that were written to its file."""
    graph = space.graph
    if space.points.event[state.point] <= graph.event[piece] or piece in space.lost(state):
        return False
    inode = next(inode for _, inode in graph.names.changes[int(graph.offset[piece])].entries if inode)
    data = {row for row in graph.pieces_of(inode).tolist() if graph.kind[row] == DATA}
    return data <= set(space.lost(state))
