"""What is noted of flushes, fences and syncs, by litmus and against brute force."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.redundant_persists import Redundancy, find_redundant_persists
from crashcheck.runtime.trace_format import FenceKind, FlushKind, StoreFlag
from support.command_line import run_crashcheck
from support.examples import build_only_what_was_edited
from support.paths import EXAMPLES
from support.random_programs import SETTINGS, memory_programs
from support.reference import First, Program
from support.tracing import TraceBuilder
from support.worlds import record

EXAMPLE = EXAMPLES / "output-equivalence"


@pytest.fixture
def t(tmp_path: Path) -> TraceBuilder:
    out = TraceBuilder(tmp_path / "t.cct")
    out.file("a", 4096)
    return out


def noted(t: TraceBuilder, model: str = "px86") -> list[tuple[Redundancy, int, int]]:
    return [(w.waste, w.count, w.total) for w in find_redundant_persists(build(t.trace(), model))]


def test_a_flush_and_a_fence_that_are_needed_are_not_noted(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.clwb("a", 0)
    t.sfence()
    assert noted(t) == []


def test_a_flush_of_a_line_that_nothing_was_stored_to_is_of_a_clean_line(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.clwb("a", 64)
    assert noted(t) == [(Redundancy.CLEAN_FLUSH, 1, 1)]


def test_a_flush_after_the_fence_is_of_a_clean_line_and_the_fence_after_it_is_empty(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.clwb("a", 0)
    t.sfence()
    t.clwb("a", 0)
    t.sfence()
    assert noted(t) == [(Redundancy.CLEAN_FLUSH, 1, 2), (Redundancy.EMPTY_FENCE, 1, 2)]


def test_a_second_flush_before_the_fence_is_repeated_unless_the_line_was_stored_to_again(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.clwb("a", 0)
    t.clwb("a", 0)
    t.store("a", 8, 8, 1)
    t.clwb("a", 0)
    t.sfence()
    assert noted(t) == [(Redundancy.REPEATED_FLUSH, 1, 3)]


@pytest.mark.parametrize("flags", [0, StoreFlag.NT])
def test_a_new_file_that_is_cleared_and_persisted_wastes_nothing(flags: int, tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("a", 0)
    t.truncate("a", 1 << 16)
    t.store("a", 0, 1 << 16, bytes(1 << 16), flags)
    if not flags:
        t.flush(FlushKind.CLWB, "a", 0, 1 << 16)
    t.sfence()
    assert noted(t) == []


def test_another_threads_flush_of_the_line_is_no_repetition(t: TraceBuilder) -> None:
    """Its fence may be earlier."""
    t.store("a", 0, 8, 1)
    t.clwb("a", 0)
    with t.thread(2):
        t.clwb("a", 0)
        t.sfence()
    assert noted(t) == []


def test_each_line_of_a_flush_counts(t: TraceBuilder) -> None:
    t.store("a", 64, 8, 1)
    t.clwb("a", 0, 256)
    t.sfence()
    assert noted(t) == [(Redundancy.CLEAN_FLUSH, 3, 4)]


def test_a_fence_for_non_temporal_stores_is_needed_and_a_flush_of_their_line_is_not(t: TraceBuilder) -> None:
    t.nt_store("a", 0, 8, 1)
    t.clwb("a", 0)
    t.sfence()
    assert noted(t) == [(Redundancy.CLEAN_FLUSH, 1, 1)]


def test_a_fence_after_a_clflush_of_a_dirty_line_is_not_noted(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.clflush("a", 0)
    t.sfence()
    t.sfence()
    assert noted(t) == [(Redundancy.EMPTY_FENCE, 1, 2)]


@pytest.mark.parametrize("kind", [FenceKind.LOCKED, FenceKind.MFENCE])
def test_fences_that_order_more_than_persists_are_not_noted(t: TraceBuilder, kind: FenceKind) -> None:
    t.fence(kind)
    assert noted(t) == []


def test_sites_are_counted_apart(t: TraceBuilder) -> None:
    t.site = 1
    t.sfence()
    t.site = 2
    t.sfence()
    assert noted(t) == [(Redundancy.EMPTY_FENCE, 1, 1), (Redundancy.EMPTY_FENCE, 1, 1)]


def test_a_sync_with_nothing_to_write_back_is_noted_of_pages_alone(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.msync("a")
    t.msync("a")
    t.msync("a", failed=True)
    assert noted(t, "page-cache") == [(Redundancy.EMPTY_SYNC, 1, 2)]
    assert noted(t) == []
    assert noted(t, "eadr") == []


@SETTINGS
@given(memory_programs())
def test_what_is_noted_can_go_without_a_change(program: tuple[First, Program]) -> None:
    """Each update persists at the same event if a redundant flush or fence is left out."""
    with tempfile.TemporaryDirectory() as folder:
        builder = record(Path(folder), *program)
        for number, (_, _, fields) in enumerate(builder.records):
            fields["site"] = number + 1
        trace = builder.trace()
        graph = build(trace, "px86")
        for each in find_redundant_persists(graph):
            if each.count < each.total:
                continue  # of a flush of several lines
            kept = np.ones(len(trace.events), dtype=np.bool_)
            kept[each.event] = False
            without = build(dataclasses.replace(trace, events=trace.events[kept]), "px86")
            rows = np.flatnonzero(kept)
            back = np.concatenate([rows, np.array([len(trace.events)])])
            finite = without.durable_from < 1 << 62
            moved = without.durable_from.copy()
            moved[finite] = back[without.durable_from[finite] - 1] + 1
            assert moved.tolist() == graph.durable_from.tolist()


def test_notes_are_shown_on_demand(tmp_path: Path, environment: dict[str, str]) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "e", ignore=shutil.ignore_patterns("buggy", "fixed", ".crashcheck"))
    build_only_what_was_edited(tmp_path / "e")
    source = tmp_path / "e" / "fixed.c"
    text = source.read_text(encoding="utf-8")
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "write_entry(&bucket" in row) + 1
    source.write_text(
        text.replace("value);\n    fence();", "value);\n    fence(); flush(bucket, 8); fence();", 1), encoding="utf-8"
    )
    found = []
    for options in (["--notes"], []):
        report = tmp_path / "report.json"
        words = [
            "run",
            "-c",
            "fixed.toml",
            *options,
            "--format",
            "terminal",
            "--format",
            f"json={report}",
        ]
        done = run_crashcheck(*words, cwd=tmp_path / "e", env=environment)
        assert done.returncode == 0, done.stderr
        found.append((json.loads(report.read_text(encoding="utf-8"))["run"]["notes"], "note: " in done.stdout))
    wasted = [(note["waste"], note["location"]["line"], note["count"] == note["total"]) for note in found[0][0]]
    assert wasted == [("clean-flush", line, True), ("empty-fence", line, True)]
    assert found[0][1]
    assert found[1] == ([], False)
