"""A program that its build left as it was, although a source or a header had changed, is named: it was not tested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts, Site, SourcePosition, UnitFacts
from crashcheck.source import SourceTree
from crashcheck.stages.run_summary import older_than_sources
from support.tracing import TraceBuilder


@pytest.mark.parametrize(
    ("times", "named"),
    [
        ({"tree.h": 10, "store.c": 11, "store": 20}, ""),
        ({"tree.h": 30, "store.c": 11, "store": 20}, "store is older than tree.h:"),
        ({"tree.h": 30, "store.c": 31, "store": 20}, "store is older than store.c, tree.h:"),
        ({"tree.h": 50, "store.c": 11, "store": 20}, ""),  # written during the search
        ({"store.c": 11, "store": 20}, ""),
        ({"tree.h": 30, "store.c": 11}, ""),
    ],
    ids=["compiled-last", "header-later", "both-later", "after-the-recording", "header-gone", "program-gone"],
)
def test_a_program_that_is_older_than_its_sources_when_it_is_recorded_is_named(
    tmp_path: Path, times: dict[str, int], named: str
) -> None:
    sites = tuple(Site("store", (SourcePosition(file, 1, 1, "put"),)) for file in ("store.c", "./tree.h", "/usr/a.h"))
    unit = UnitFacts(str(tmp_path / "store.c"), str(tmp_path), "clang", "llvmlite", sites, key=7)
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("p")
    t.unit(7, 3, str(tmp_path / "store"))
    t.store("p", 0, 8, 1)
    trace = t.trace()
    for name, seconds in {**times, "trace.cct": 40}.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (seconds, seconds))
    warnings = older_than_sources(ProgramFacts({7: unit}, (), ()), trace, SourceTree(tmp_path))
    assert [text.partition(" what was")[0] for text in warnings] == ([named] if named else [])
