"""What the workload leaves out is listed by function: those that can store to types seen in the files, and did not."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.compile.facts import ProgramFacts, Site, TypeStep, UnitFacts
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.results import Unexercised
from crashcheck.stages.run_summary import find_blind_spots
from support.tracing import TraceBuilder

TOKENS, KEY, COUNT = TypeStep("bucket", "tokens", 0, 1), TypeStep("bucket", "key", 8, 8), TypeStep("stats", "n", 0, 8)
ANONYMOUS = TypeStep("(anonymous)", "key", 0, 8)


def store(function: str, line: int, *steps: TypeStep, file: str = "table.c", column: int = 3) -> Site:
    return Site("store", (SourcePosition(file, line, column, function),), "x", steps)


def unexercised(folder: Path, sites: tuple[Site, ...], *stored: tuple[int, ...]) -> tuple[Unexercised, ...]:
    """`stored`: for each store in the files the indices of its site and of the calls above it."""
    t = TraceBuilder(folder / "t.cct")
    t.file("p", size=4096)
    base = t.unit(7, len(sites), "/bin/a")
    for site, *calls in stored:
        t.stack = 0
        for call in reversed(calls):
            t.stack = t.stack_def(t.stack, base + call)
        t.site = base + site
        t.store("p", 0, 8, 1)
    trace: Trace = t.trace()
    unit = UnitFacts(str(folder / "table.c"), str(folder), "clang", "llvmlite", sites, key=7)
    return find_blind_spots(trace, ProgramFacts({7: unit}, (), ()), folder)


def test_a_resize_that_no_operation_reached_is_listed_with_its_first_store(tmp_path: Path) -> None:
    sites = (
        store("insert", 20, TOKENS),
        store("expand", 41, KEY),
        store("expand", 40, TOKENS),
        store("shrink", 60, KEY),
    )
    assert unexercised(tmp_path, sites, (0,)) == (
        Unexercised("expand", "table.c", 40, 2),
        Unexercised("shrink", "table.c", 60, 1),
    )


def test_a_function_that_calls_what_updates_the_files_is_exercised(tmp_path: Path) -> None:
    call = Site("call", (SourcePosition("table.c", 30, 3, "insert"),), callee="set")
    sites = (store("set", 20, TOKENS), call, store("insert", 31, KEY))
    assert unexercised(tmp_path, sites, (0, 1)) == ()
    assert [one.function for one in unexercised(tmp_path, sites, (0,))] == ["insert"]


def test_stores_to_types_that_no_file_holds_or_that_are_unknown_are_not_listed(tmp_path: Path) -> None:
    sites = (store("insert", 20, TOKENS), store("count", 50, COUNT), store("fill", 55))
    assert unexercised(tmp_path, sites, (0,)) == ()


def test_an_anonymous_part_counts_as_the_type_that_holds_it(tmp_path: Path) -> None:
    sites = (
        store("insert", 20, ANONYMOUS, TOKENS),
        store("count", 50, ANONYMOUS, COUNT),
        store("move", 60, ANONYMOUS, KEY),
    )
    assert [one.function for one in unexercised(tmp_path, sites, (0,))] == ["move"]


def test_files_of_the_system_and_calls_are_not_listed(tmp_path: Path) -> None:
    call = Site("call", (SourcePosition("table.c", 70, 3, "drop"),), callee="free")
    sites = (store("insert", 20, TOKENS), store("swap", 9, TOKENS, file="/usr/include/c++/12/bits/move.h"), call)
    assert unexercised(tmp_path, sites, (0,)) == ()
