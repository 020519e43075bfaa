"""Persistence graphs: what orders which two pieces, why, and from when each is durable."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.persistence import Options, build
from crashcheck.analyzer.persistence.graph import NEVER, PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, EXISTS, SIZE, _steps_one_by_one, size_steps
from crashcheck.analyzer.persistence.sync_intervals import find_syncs
from crashcheck.runtime.trace_format import Kind, SyncKind
from support.tracing import CallsBuilder, TraceBuilder

Edges = dict[tuple[int, int], str]
B = 4096


@pytest.fixture
def t(tmp_path: Path) -> TraceBuilder:
    return TraceBuilder(tmp_path / "trace.cct")


@pytest.mark.parametrize("seed", range(20))
def test_sizes_of_files_that_are_written_and_cut_are_those_of_one_step_after_another(
    seed: int, t: TraceBuilder
) -> None:
    chance = random.Random(seed)
    for name in "abc":
        t.file(name, chance.randrange(3) * B)
    for _ in range(chance.randrange(60)):
        name = chance.choice("abc")
        if chance.random() < 0.3:
            t.truncate(name, chance.randrange(4 * B))
        else:
            t.write(name, chance.randrange(3 * B), bytes(chance.randrange(1, B)))
    trace = t.trace()
    rows = np.flatnonzero(np.isin(trace.events["kind"], (Kind.WRITE, Kind.TRUNCATE)))
    assert [*zip(*size_steps(trace), strict=True)] == _steps_one_by_one(trace, rows)


def test_parts_of_extensions_and_their_sizes_are_those_found_one_by_one(t: TraceBuilder) -> None:
    for name in "ab":
        t.file(name, 0)
    for at in range(6):
        t.write("ab"[at % 2], at * 3 * B + at, bytes(5))
    graph = build(t.trace(), "page-cache")
    ids = np.flatnonzero(np.concatenate([graph.kind == SIZE, np.ones(int(graph.parts.sum()), dtype=np.bool_)]))
    assert len(ids) > int((graph.kind == SIZE).sum())
    assert graph.wholes(ids).tolist() == [graph.whole(id_) for id_ in ids.tolist()]
    assert graph.sizes_after(ids).tolist() == [graph.size_after(id_) for id_ in ids.tolist()]


def after(graph: PersistenceGraph, kind: Kind) -> int:
    """The event after the last one of this kind."""
    return int(np.flatnonzero(graph.trace.events["kind"] == kind)[-1]) + 1


def three_pages(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.store("a", 64, 8, 1)
    t.fsync("a")
    t.store("a", B, 8, 1)


def one_line(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.clwb("a", 0)
    t.sfence()
    t.store("a", 8, 8, 1)
    t.store("a", 16, 8, 1)


def grown(t: TraceBuilder) -> None:
    t.truncate("a", 2 * B)
    t.store("a", 0, 8, 1)


def two_lines(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.store("a", 64, 8, 1)


@pytest.mark.parametrize(
    ("model", "tear", "program", "edges"),
    [
        ("page-cache", 0, three_pages, {(0, 1): "same page", (0, 2): "sync", (1, 2): "sync"}),
        ("page-cache", 512, three_pages, {(0, 1): "same sector", (0, 2): "sync", (1, 2): "sync"}),
        ("px86", 0, one_line, {(0, 1): "same line", (1, 2): "same line"}),
        ("px86", 0, grown, {(0, 1): "durable at once"}),
        ("eadr", 0, two_lines, {(0, 1): "visible before"}),
    ],
)
def test_the_picture_has_the_fewest_orders_and_the_reason_of_each(
    model: str, tear: int, program: Callable[[TraceBuilder], None], edges: Edges, t: TraceBuilder
) -> None:
    t.file("a", B)
    program(t)
    graph = build(t.trace(), model, Options(tear))
    assert graph.order(range(len(graph)))[1] == edges


def appended_twice(t: CallsBuilder) -> None:
    t.append("g", 0, bytes(B))
    t.append("g", B, bytes(B))
    t.move("g", "f")


def cut_and_renamed(t: CallsBuilder) -> None:
    t.truncate("g", 0)
    t.move("g", "f")


@pytest.mark.parametrize(
    ("program", "first", "edges"),
    [
        (appended_twice, b"", {(0, 2): "same size", (4, 5): "same size"}),  # 1 and 3 are data
        (cut_and_renamed, bytes(8), {(0, 1): "same size", (1, 2): "same size"}),
    ],
)
def test_the_picture_of_a_journal_orders_the_sizes_of_a_file_and_the_changes_of_one_call(
    program: Callable[[CallsBuilder], None], first: bytes, edges: Edges, tmp_path: Path
) -> None:
    t = CallsBuilder(tmp_path / "trace.cct", {"f": b"", "g": first})
    program(t)
    graph = build(t.trace(), "ext4")
    assert graph.order(range(len(graph)))[1] == edges
    assert (graph.old_size[graph.kind != SIZE] == -1).all()


def test_what_a_file_brings_from_outside_is_there_at_once_block_by_block(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t.open("f")
    t.event(Kind.CONTENT, file=t.files["f"], data=bytes(B + 8))
    graph = build(t.trace(), "ext4")
    data = graph.kind == DATA
    assert [*zip(graph.offset[data].tolist(), graph.size[data].tolist(), strict=True)] == [(0, B), (B, 8)]
    assert (graph.durable_from[data] == after(graph, Kind.CONTENT)).all()


def test_the_sizes_of_a_file_before_one_that_is_durable_leave_no_states(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct", {"f": b""})
    t.append("f", 0, bytes(B))
    t.truncate("f", 0)
    t.open("g")
    t.fsync("g")
    graph = build(t.trace(), "ext4")
    assert (graph.durable_from[graph.kind == SIZE] == after(graph, Kind.SYNC_END)).all()


def test_each_part_of_an_extension_is_partial_and_nothing_else_is(t: TraceBuilder) -> None:
    t.file("a", B)
    t.truncate("a", 4 * B)
    t.store("a", 0, 8, 1)
    graph = build(t.trace(), "page-cache")
    shown = [(piece.kind, piece.partial, piece.whole, piece.offset) for piece in map(graph.piece, range(4))]
    assert shown == [
        ("size", False, 0, 4 * B),
        ("data", False, 1, 0),
        ("size", True, 0, 2 * B),
        ("size", True, 0, 3 * B),
    ]


@pytest.mark.parametrize("files", ["ext4", "posix"])
def test_a_new_file_is_durable_just_after_the_sync_that_keeps_its_name(files: str, t: TraceBuilder) -> None:
    t.create("a")
    t.fsync("a")
    if files == "posix":
        t.dirsync()
    graph = build(t.trace(), "page-cache", Options(files=files))
    assert graph.durable_from[graph.kind == EXISTS].tolist() == [after(graph, Kind.SYNC_END)]


@pytest.mark.parametrize(("files", "others"), [("ext4", {("b", "size"), ("d", "exists")}), ("posix", set())])
def test_a_removal_makes_durable_all_that_its_file_held_and_what_its_journal_held(
    files: str, others: set[tuple[str, str]], t: TraceBuilder
) -> None:
    """Just after it. Not what a write left of other files, which delayed allocation keeps out of the journal."""
    for name in "abc":
        t.file(name, B)
    t.store("a", 0, 8, 1)
    t.truncate("b", 2 * B)
    t.store("b", 0, 8, 1)
    t.write("c", B, bytes(8))
    t.create("d")
    t.unlink("a")
    graph = build(t.trace(), "page-cache", Options(files=files))
    rows = np.flatnonzero(graph.durable_from == after(graph, Kind.UNLINK)).tolist()
    durable = [(graph.path(row), graph.piece(row).kind) for row in rows]
    assert sorted(durable) == sorted({("a", "data"), ("a", "size"), ("a", "exists"), *others})
    assert (np.delete(graph.durable_from, rows) == NEVER).all()


def test_nothing_survives_that_a_file_without_a_name_is_given(t: TraceBuilder) -> None:
    t.file("a", B)
    t.unlink("a")
    t.store("a", 0, 8, 1)
    t.truncate("a", 2 * B)
    graph = build(t.trace(), "page-cache")
    assert graph.kind.tolist() == [SIZE, EXISTS]
    assert (graph.event == after(graph, Kind.UNLINK) - 1).all()


def test_of_two_renames_to_one_name_at_once_each_brings_its_own_content_and_size(t: TraceBuilder) -> None:
    for name in "abc":
        t.file(name, B)
    t.store("b", 0, 8, 1)
    t.event(Kind.CONTENT, file=t.files["b"], data=bytes(8))
    with t.thread(2):
        t.rename("c", "b", bytes(24))
    t.event(Kind.RENAME, file=t.files["b"], aux=t.files["a"], offset=8)
    trace = t.trace()
    second, first = np.flatnonzero(trace.events["kind"] == Kind.RENAME).tolist()
    brought = [step for old, new in ((B, 24), (24, 8)) for step in ((SIZE, old, 0), (EXISTS, 0, 0), (SIZE, 0, new))]
    steps = size_steps(trace)
    mine = steps.file == t.files["b"]
    assert [*zip(steps.kind[mine], steps.old[mine], steps.new[mine], strict=True)] == brought
    graph = build(trace, "page-cache")
    data = graph.kind == DATA
    assert [*zip(graph.event[data].tolist(), graph.size[data].tolist(), strict=True)][1:] == [(second, 24), (first, 8)]


def test_a_sync_of_an_unknown_file_or_without_its_begin_covers_nothing(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.sync(SyncKind.FSYNC)
    for begin in (0, t.seq + 100):
        t.event(Kind.SYNC_END, aux=SyncKind.SYNC, payload=begin)
    graph = build(t.trace(), "page-cache")
    assert find_syncs(graph.trace) == []
    assert (graph.durable_from[graph.kind == DATA] == NEVER).all()
