"""Which findings a change touches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts, Site, SourcePosition, UnitFacts
from crashcheck.change.code import ChangedCode
from crashcheck.change.diff import Removal, parse
from crashcheck.checker.evidence import ScheduleStep
from support.reports.runs import LEVEL_HASH, VALID, VALUE, at, step, with_fields
from support.tracing import TraceBuilder

HELPER = "src/pm.h"
DELETED = f"--- a/{HELPER}\n+++ b/{HELPER}\n@@ -3,3 +3,2 @@\n {{\n     flush(at);\n-    fence();\n"
ADDED = f"--- a/{HELPER}\n+++ b/{HELPER}\n@@ -3,2 +3,3 @@\n {{\n+    count++;\n     flush(at);\n"
LOST = replace(step(10, "store", "lost", "value", 42, 2688, 8, VALUE), role="other")
KEPT = replace(step(14, "store", "persisted", "valid", 40, 2560, 1, VALID), role="location")


def flush(granule: int) -> ScheduleStep:
    return step(12, "flush", "", "clwb", granule, 64 * granule, 64, at(4, function="persist", file=HELPER))


def changed(diff: str, folder: Path) -> ChangedCode:
    place = SourcePosition(str(folder / HELPER), 4, 5, "persist")
    unit = UnitFacts(str(folder / "src/level_hash.c"), str(folder), "clang", "llvmlite", (Site("flush", (place,)),))
    return ChangedCode(parse(diff), folder, ProgramFacts({1: unit}, (), ()))


@pytest.mark.parametrize(
    ("diff", "steps", "touched"),
    [
        (DELETED, (LOST, flush(42), KEPT), True),
        (DELETED, (LOST, flush(40), KEPT), False),  # it flushes something else
        (DELETED, (LOST, KEPT, flush(42)), False),  # after the other store it cannot be missed before it
        (DELETED, (flush(42), LOST, KEPT), False),
        (ADDED, (LOST, flush(42), KEPT), False),  # nothing was deleted
    ],
)
def test_a_finding_is_touched_where_its_flush_is_in_a_function_that_lost_a_line(
    tmp_path: Path, diff: str, steps: tuple[ScheduleStep, ...], touched: bool
) -> None:
    finding = with_fields(LEVEL_HASH, schedule=steps)
    assert changed(diff, tmp_path).holds_finding(finding) is touched


MOVED = """--- a/store.c
+++ b/store.c
@@ -1,8 +1,8 @@
-1
-2
-3
-4
-5
-6
-7
-8
+a
+b
+c
+d
+e
+f
+g
+h
"""


def test_functions_of_a_change_that_update_files_and_are_not_run_are_named(tmp_path: Path) -> None:
    """Without the name of `repair` a pull request is green although nothing of it was tested."""

    def site(kind: str, function: str, line: int, callee: str = "") -> Site:
        return Site(kind, (SourcePosition("store.c", line, 1, function),), callee=callee)

    sites = (
        site("store", "put", 1),
        site("call", "add", 2, "put"),
        site("call", "replace", 3, "put"),  # calls what updates files
        site("flush", "repair", 4),
        site("store", "count", 5),  # of memory that is no file's
        site("call", "count", 6, "print"),
        site("fence", "inlined", 7),
        site("flush", "unchanged", 9),
    )
    unit = UnitFacts("store.c", str(tmp_path), "clang", "llvmlite", sites)
    t = TraceBuilder(tmp_path / "t.cct")
    base = t.unit(7, len(sites), "/bin/a")
    t.file("data", 4096)
    t.site, t.stack = base, t.stack_def(0, base + 1)
    t.store("data", 0, 8, 1)
    facts = ProgramFacts({7: unit}, (), ())
    (warning,) = ChangedCode(parse(MOVED), tmp_path, facts).unrecorded(t.trace())
    assert warning == (
        "The workload updates no file by `inlined` (store.c), `repair` (store.c), `replace` (store.c), "
        "which the change touches: no crash there was tested (--depth 2 tests those in recoveries)."
    )
    t.site, t.stack = base + 3, t.stack_def(t.stack_def(0, base + 2), base + 6)
    t.store("data", 8, 8, 1)
    assert ChangedCode(parse(MOVED), tmp_path, facts).unrecorded(t.trace()) == ()


def test_a_diff_names_what_it_deletes_and_what_is_in_its_place() -> None:
    text = "--- a/x.c\n+++ b/x.c\n@@ -7,5 +7,3 @@\n a\n-b\n-c\n d\n-e\n+f\n"
    assert parse(text).files["x.c"].removals == (
        Removal({8: "b", 9: "c"}, 8, frozenset()),
        Removal({11: "e"}, 9, frozenset({9})),
    )
