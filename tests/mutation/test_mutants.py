"""Mutants of small traces, against brute force and against programs that were really changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from crashcheck import pipeline
from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.trace.format import FenceKind, Kind
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.mutation import Change, Exposure, Mutant, What, mutants, persists, source_chain
from crashcheck.checker.result import Location
from crashcheck.config import load
from crashcheck.source import SourceTree
from states.test_against_reference import SETTINGS, memory_programs, page_programs
from support.reference import First, Program
from support.tracing import TraceBuilder
from support.worlds import explored, record

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "output-equivalence"


def place(line: int, function: str = "f") -> Location:
    return Location("a.c", line, 1, function, "", ())


def alone(row: int) -> tuple[Location, ...]:
    """Every event has a place of its own."""
    return (place(row),)


def told(mutant: Mutant) -> tuple[What, Change, int]:
    return mutant.persist.what, mutant.change, mutant.persist.location.line


def kinds(trace: Trace) -> list[Kind]:
    return [Kind(kind) for kind in trace.events["kind"].tolist() if kind != Kind.FILE_DEF]


@pytest.fixture
def builder(tmp_path: Path) -> TraceBuilder:
    out = TraceBuilder(tmp_path / "t.cct")
    out.file("a", 4096)
    return out


def test_each_flush_fence_and_sync_is_deleted_once(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.sfence()
    builder.msync("a")
    trace = builder.trace()
    deleted = [m for m in mutants(trace, persists(trace, alone)) if m.change is Change.DELETED]
    assert [(told(m)[0], kinds(m.trace)) for m in deleted] == [
        (What.FLUSH, [Kind.STORE, Kind.FENCE, Kind.SYNC_BEGIN, Kind.SYNC_END]),
        (What.FENCE, [Kind.STORE, Kind.FLUSH, Kind.SYNC_BEGIN, Kind.SYNC_END]),
        (What.SYNC, [Kind.STORE, Kind.FLUSH, Kind.FENCE]),
    ]


def test_a_fence_of_a_locked_instruction_is_left_alone(builder: TraceBuilder) -> None:
    builder.locked_store("a", 0, 8, 1)
    builder.fence(FenceKind.MFENCE)
    trace = builder.trace()
    assert [kinds(mutant.trace) for mutant in mutants(trace, persists(trace, alone))] == [[Kind.FENCE, Kind.STORE]]


def test_a_move_goes_past_one_fence_over_its_flushes_or_past_one_update(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.sfence()
    builder.msync("a")
    builder.store("a", 64, 8, 1)
    trace = builder.trace()
    moved = {m.persist.what: m.trace for m in mutants(trace, persists(trace, alone)) if m.change is Change.MOVED}
    sync = [Kind.SYNC_BEGIN, Kind.SYNC_END]
    assert kinds(moved[What.FLUSH]) == [Kind.STORE, Kind.FENCE, Kind.FLUSH, *sync, Kind.STORE]
    assert kinds(moved[What.FENCE]) == [Kind.STORE, Kind.FENCE, Kind.FLUSH, *sync, Kind.STORE]
    assert kinds(moved[What.SYNC]) == [Kind.STORE, Kind.FLUSH, Kind.FENCE, Kind.STORE, *sync]
    assert build(moved[What.SYNC], "page-cache").durable_from.tolist() == [7, 7]


def test_nothing_moves_past_the_end_of_its_operation(builder: TraceBuilder) -> None:
    builder.begin(1)
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.end(1)
    builder.sfence()
    trace = builder.trace()
    assert [told(m)[:2] for m in mutants(trace, persists(trace, alone))] == [
        (What.FLUSH, Change.DELETED),
        (What.FENCE, Change.DELETED),
    ]


def test_other_threads_events_are_no_obstacle_and_are_not_moved(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    with builder.thread(2):
        builder.sfence()
    builder.sfence()
    trace = builder.trace()
    (moved,) = [m.trace for m in mutants(trace, persists(trace, alone)) if told(m)[:2] == (What.FLUSH, Change.MOVED)]
    assert kinds(moved) == [Kind.STORE, Kind.FENCE, Kind.FENCE, Kind.FLUSH]
    assert moved.events["thread"].tolist()[-3:] == [2, 1, 1]


def test_helpers_that_only_flush_and_fence_are_told_apart_by_their_callers(builder: TraceBuilder) -> None:
    for _ in range(2):
        builder.store("a", 0, 8, 1)
        builder.clwb("a", 0)
        builder.sfence()
    chains = {
        Kind.STORE: [(place(1, "put"), place(9, "main"))] * 2,
        Kind.FLUSH: [
            (place(20, "flush"), place(21, "persist"), place(line, "put"), place(9, "main")) for line in (2, 3)
        ],
        Kind.FENCE: [(place(22, "persist"), place(line, "put"), place(9, "main")) for line in (2, 3)],
    }
    trace = builder.trace()

    def chain(row: int) -> tuple[Location, ...]:
        kind = Kind(int(trace.events["kind"][row]))
        return chains[kind][int((trace.events["kind"][:row] == kind).sum())]

    assert [(p.what, p.location.function, p.location.line) for p in persists(trace, chain)] == [
        (What.FENCE, "put", 2),
        (What.FLUSH, "put", 2),
        (What.FENCE, "put", 3),
        (What.FLUSH, "put", 3),
    ]


def test_a_second_flush_of_a_line_before_the_fence_is_equivalent(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.clwb("a", 0)
    builder.sfence()
    builder.store("a", 64, 8, 1)
    trace = builder.trace()
    original = build(trace, "px86")
    fates = [
        Exposure(original, build(mutant.trace, "px86")).equivalent
        for mutant in mutants(trace, persists(trace, alone))
        if mutant.change is Change.DELETED
    ]
    assert fates == [True, True, False]


def states_agree(first: First, program: Program, model: str) -> None:
    """What Exposure says of each mutant is so, by going through all states of both."""
    with tempfile.TemporaryDirectory() as folder:
        trace = record(Path(folder), first, program).trace()
        whole = explored(trace, Path(folder), first, model)
        for mutant in mutants(trace, persists(trace, alone)):
            world = explored(mutant.trace, Path(folder), first, model)
            exposure = Exposure(whole.space.graph, world.space.graph)
            for state, image in zip(world.states, world.images, strict=True):
                assert exposure.holds(world.space, state) or image in whole.distinct
            aimed = list(exposure.states(world.space))
            assert all(exposure.holds(world.space, state) for state in aimed)
            if exposure.equivalent:
                assert not aimed
                assert world.distinct <= whole.distinct


@SETTINGS
@given(memory_programs())
def test_a_state_that_loses_nothing_exposed_is_one_of_the_original(program: tuple[First, Program]) -> None:
    states_agree(*program, "px86")


@SETTINGS
@given(page_programs())
def test_the_same_holds_of_pages(program: tuple[First, Program]) -> None:
    states_agree(*program, "page-cache")


CHANGES: dict[tuple[What, Change, str], Callable[[str], str]] = {
    (What.FENCE, Change.DELETED, "insert"): lambda text: text.replace(
        "value);\n    fence();\n    commit(bucket, b", "value);\n    commit(bucket, b"
    ),
    (What.FLUSH, Change.DELETED, "commit"): lambda text: text.replace(
        "    flush(&bucket->used, sizeof bucket->used);\n", ""
    ),
    (What.FLUSH, Change.MOVED, "commit"): lambda text: text.replace(
        "    flush(&bucket->used, sizeof bucket->used);\n    fence();\n",
        "    fence();\n    flush(&bucket->used, sizeof bucket->used);\n",
    ),
}


def recorded(folder: Path, work: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> pipeline.Loaded:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = load(folder / "fixed.toml")
    work.mkdir()
    subprocess.run(["crashcheck-cc", "-O1", "-g", "-o", "fixed", "fixed.c"], cwd=folder, env=environment, check=True)
    return pipeline.load(config, pipeline.record_workload(config, work))


def what_happened(trace: Trace) -> list[tuple[Any, ...]]:
    """Updates, order and marks, without the numbers of sites, which differ between programs."""
    wanted = range(Kind.STORE, Kind.MARK_END + 1)
    rows = [row for row, kind in enumerate(trace.events["kind"].tolist()) if kind in wanted]
    names = ("kind", "thread", "file", "offset", "size", "flags", "aux")
    return [(*(int(trace.events[name][row]) for name in names), trace.data(row)) for row in rows]


def test_a_mutants_trace_is_that_of_the_program_that_was_really_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("buggy", "fixed", ".crashcheck"))
    source = (folder / "fixed.c").read_text(encoding="utf-8")
    loaded = recorded(folder, tmp_path / "original", monkeypatch, environment)
    trace = loaded.subject.trace
    chain = source_chain(trace, loaded.facts, SourceTree(folder).relative)
    made = {(*told(m)[:2], m.persist.location.function): m.trace for m in mutants(trace, persists(trace, chain))}
    for number, (key, change) in enumerate(CHANGES.items()):
        changed = change(source)
        assert changed != source
        (folder / "fixed.c").write_text(changed, encoding="utf-8")
        really = recorded(folder, tmp_path / f"changed{number}", monkeypatch, environment).subject.trace
        assert what_happened(really) == what_happened(made[key])
        assert what_happened(really) != what_happened(trace)


def run(folder: Path, environment: dict[str, str], *options: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    report = folder / "mutants.json"
    command = ["crashcheck", "mutate", "-c", "fixed.toml", "--json", str(report), *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done, json.loads(report.read_text(encoding="utf-8")) if report.exists() else None


@pytest.fixture
def example(tmp_path: Path) -> Path:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("buggy", "fixed", ".crashcheck"))
    return folder


def test_every_mutant_of_the_example_is_noticed(example: Path, environment: dict[str, str]) -> None:
    done, report = run(example, environment)
    assert done.returncode == 0, done.stderr
    assert report["summary"] == {"found": 10, "equivalent": 0, "harmless": 0, "survived": 0}
    assert done.stdout.splitlines()[-1] == "10 mutants: 10 found  (strategy ranked, model px86)"


def test_a_check_that_looks_at_nothing_lets_every_mutant_pass(example: Path, environment: dict[str, str]) -> None:
    config = example / "fixed.toml"
    text = config.read_text(encoding="utf-8").replace('"output-equivalence"', '"exit-status"')
    config.write_text(text.replace('command = "./fixed {pool}/table.pm {ops}"\noracle', 'command = "true"\noracle'))
    done, report = run(example, environment, "--no-moves", "--at", "fixed.c:39")
    assert done.returncode == 1, done.stderr
    assert [(mutant["words"], mutant["fate"]) for mutant in report["mutants"]] == [("fence deleted", "harmless")]


def test_a_program_that_fails_as_it_is_is_refused(example: Path, environment: dict[str, str]) -> None:
    shutil.copy(example / "buggy.c", example / "fixed.c")
    done, _ = run(example, environment)
    assert done.returncode == 2
    assert "[mutate-not-clean]" in done.stderr
