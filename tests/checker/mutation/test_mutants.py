"""Mutants of small traces, against brute force and against programs that were really changed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.findings.call_chains import call_chains
from crashcheck.checker.images.transition import Content
from crashcheck.checker.mutation.common_space import CommonSpace
from crashcheck.checker.mutation.mutant_states import MutantStates
from crashcheck.checker.mutation.mutants import Change, What, mutants, persists, without_persists
from crashcheck.checker.results import Location
from crashcheck.checker.states.space import StateSpace
from crashcheck.config import load
from crashcheck.runtime.trace_format import FenceKind, Kind
from crashcheck.source import SourceTree
from crashcheck.stages.recording import RecordedRun, record_run
from support.command_line import run_crashcheck
from support.paths import ROOT
from support.tracing import TraceBuilder

from .mutant_worlds import alone, described, place

EXAMPLE = ROOT / "examples" / "output-equivalence"


def kinds(trace: Trace) -> list[Kind]:
    return [Kind(kind) for kind in trace.events["kind"].tolist() if kind != Kind.FILE_DEF]


def test_each_flush_fence_and_sync_is_deleted_once(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.sfence()
    builder.msync("a")
    trace = builder.trace()
    deleted = [m for m in mutants(trace, persists(trace, alone)) if m.change is Change.DELETED]
    assert [(described(m)[0], kinds(m.trace)) for m in deleted] == [
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
    assert [described(m)[:2] for m in mutants(trace, persists(trace, alone))] == [
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
    (moved,) = [
        m.trace for m in mutants(trace, persists(trace, alone)) if described(m)[:2] == (What.FLUSH, Change.MOVED)
    ]
    assert kinds(moved) == [Kind.STORE, Kind.FENCE, Kind.FENCE, Kind.FLUSH]
    assert moved.events["thread"].tolist()[-3:] == [2, 1, 1]


def test_helpers_that_only_flush_and_fence_are_distinguished_by_their_callers(builder: TraceBuilder) -> None:
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


def test_what_only_resizes_a_file_is_no_helper_that_only_flushes_and_fences(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.site = 1
    builder.truncate("a", 8192)
    builder.msync("a")
    trace = builder.trace()

    def chain(row: int) -> tuple[Location, ...]:
        put = place(2, "put")
        return (put,) if trace.events["kind"][row] == Kind.STORE else (place(9, "grow"), put)

    (grown,) = persists(trace, chain)
    assert (grown.what, grown.location.function) == (What.SYNC, "grow")


def test_a_second_flush_of_a_line_before_the_fence_is_equivalent(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.clwb("a", 0)
    builder.clwb("a", 0)
    builder.sfence()
    builder.store("a", 64, 8, 1)
    trace = builder.trace()
    original = build(trace, "px86")
    space = StateSpace(build(without_persists(trace), "px86"))
    common = CommonSpace(space, Content(space))
    fates = [
        MutantStates(common, original, build(mutant.trace, "px86")).count(0).value == 0
        for mutant in mutants(trace, persists(trace, alone))
        if mutant.change is Change.DELETED
    ]
    assert fates == [True, True, False]


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


def recorded(folder: Path, work: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> RecordedRun:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = load(folder / "fixed.toml")
    work.mkdir()
    subprocess.run(["crashcheck-cc", "-O1", "-g", "-o", "fixed", "fixed.c"], cwd=folder, env=environment, check=True)
    return record_run(config, work)


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
    original = recorded(folder, tmp_path / "original", monkeypatch, environment)
    trace = original.subject.trace
    chain = call_chains(trace, original.facts, SourceTree(folder).relative)
    made = {(*described(m)[:2], m.persist.location.function): m.trace for m in mutants(trace, persists(trace, chain))}
    for number, (key, change) in enumerate(CHANGES.items()):
        changed = change(source)
        assert changed != source
        (folder / "fixed.c").write_text(changed, encoding="utf-8")
        really = recorded(folder, tmp_path / f"changed{number}", monkeypatch, environment).subject.trace
        assert what_happened(really) == what_happened(made[key])
        assert what_happened(really) != what_happened(trace)


def run(folder: Path, environment: dict[str, str], *options: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    report = folder / "mutants.json"
    words = ["mutate", "-c", "fixed.toml", "--json", str(report), *options]
    done = run_crashcheck(*words, cwd=folder, env=environment)
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


@pytest.fixture
def blind(example: Path) -> Path:
    """The example with a check that reads nothing."""
    config = example / "fixed.toml"
    text = config.read_text(encoding="utf-8").replace('"output-equivalence"', '"exit-status"')
    config.write_text(text.replace('command = "./fixed {pool}/table.pm {ops}"\noracle', 'command = "true"\noracle'))
    return example


def test_a_check_that_reads_nothing_lets_every_mutant_pass(blind: Path, environment: dict[str, str]) -> None:
    done, report = run(blind, environment, "--no-moves", "--at", "fixed.c:39")
    assert done.returncode == 1, done.stderr
    (mutant,) = report["mutants"]
    assert (mutant["words"], mutant["fate"]) == ("fence deleted", "harmless")
    assert 0 < mutant["states"] <= mutant["new_states"]
    assert f"all {mutant['states']} new crash states pass" in done.stdout


def test_what_a_budget_leaves_out_has_survived(blind: Path, environment: dict[str, str]) -> None:
    place = ("--no-moves", "--at", "fixed.c:39")
    _, whole = run(blind, environment, *place)
    done, report = run(blind, environment, *place, "--states", "1")
    assert done.returncode == 1, done.stderr
    (mutant,) = report["mutants"]
    assert mutant["fate"] == "survived"
    assert mutant["states"] < whole["mutants"][0]["states"]
    assert mutant["new_states"] == whole["mutants"][0]["new_states"]


def test_a_program_that_fails_as_it_is_is_refused(example: Path, environment: dict[str, str]) -> None:
    shutil.copy(example / "buggy.c", example / "fixed.c")
    done, _ = run(example, environment)
    assert done.returncode == 2
    assert "[mutate-not-clean]" in done.stderr
