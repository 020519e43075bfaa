"""Which updates are grouped how: by type in mapped files, by function in recorded system calls."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.behaviours import find_behaviours
from crashcheck.analyzer.behaviours.behaviour import find_typed_behaviours
from support.scripts import A, B, Script, space_of


def test_programs_that_map_files_are_grouped_by_type_as_ever(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B)
    for at in (0, 128):
        script.at(1, at, delta=0)
        script.persist(at)
        script.at(2, at + 8, delta=8)
        script.persist(at + 8)
    graph = space_of(script).graph
    found, typed = find_behaviours(graph, script.facts), find_typed_behaviours(graph, script.facts)
    assert (found.level, found.note) == (None, "")
    assert [found.behaviour(at) for at in range(len(found))] == [typed.behaviour(at) for at in range(len(typed))]
    assert {found.behaviour(at).type for at in range(len(found))} == {"pair"}
