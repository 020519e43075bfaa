"""What pieces make of words, against the same pieces written one after the other into a buffer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, WORD_BYTES
from crashcheck.checker.images import words
from crashcheck.checker.images.first_image import FirstImage
from crashcheck.checker.images.transition import Content
from crashcheck.checker.states.space import StateSpace
from support.random_programs import SETTINGS, memory_programs
from support.reference import First, Program
from support.tracing import TraceBuilder
from support.worlds import record

ROOM = 4096
Row = tuple[int, int, bytes, bytes]  # piece, number of a word, the word before the piece and after it


def written(graph: PersistenceGraph, first: First) -> list[Row]:
    """A row for each word of each piece of data, for files that are never cut."""
    bodies = {n: bytearray((first[f.path] or b"").ljust(ROOM, b"\0")) for n, f in graph.trace.files.items()}
    out = []
    for piece in np.flatnonzero(graph.kind == DATA).tolist():
        body = bodies[int(graph.file[piece])]
        before = bytes(body)
        for at, data in graph.runs(piece):
            body[at : at + len(data)] = data
        begin, end = int(graph.offset[piece]), int(graph.offset[piece] + graph.size[piece])
        for word in range(begin // WORD_BYTES, -(-end // WORD_BYTES)):
            place = slice(word * WORD_BYTES, (word + 1) * WORD_BYTES)
            out.append((piece, word, before[place], bytes(body[place])))
    return out


def without_cuts(program: Program) -> Program:
    return [step for step in program if step[1] not in ("unlink", "rename", "truncate", "create")]


@pytest.mark.parametrize("model", ["px86", "page-cache"])
def test_every_word_is_known_before_and_after_each_piece_however_few_are_hashed_at_once(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "_BATCH", 3)

    @settings(SETTINGS, max_examples=15)
    @given(memory_programs(names=True))
    def compare(case: tuple[First, Program]) -> None:
        first, program = case
        with tempfile.TemporaryDirectory() as folder:
            graph = build(record(Path(folder), first, without_cuts(program)).trace(), model)
            content = Content(StateSpace(graph), Path(folder, "first"))
            found = words.entries_of(graph, FirstImage(Path(folder, "first"), graph.trace.files))
            expected = written(graph, first)
            pieces = np.repeat(np.arange(len(graph)), np.diff(found.start)).tolist()
            texts = [[value.tobytes() for value in column] for column in (found.before, found.value)]
            assert [*zip(pieces, found.word.tolist(), *texts, strict=True)] == expected
            changed = {piece for piece, _, before, after in expected if before != after}
            data = graph.kind == DATA
            assert content.silent().tolist() == [data[piece] and piece not in changed for piece in range(len(graph))]

    compare()


def stores(folder: Path, values: list[int]) -> tuple[PersistenceGraph, Content]:
    """Stores of these values to one word, which holds 0 at first."""
    t = TraceBuilder(folder / "trace.cct")
    t.file("a", ROOM)
    for value in values:
        t.store("a", 0, 8, value)
    graph = build(t.trace(), "px86")
    return graph, Content(StateSpace(graph))


def test_two_losses_differ_exactly_if_they_leave_different_words(tmp_path: Path) -> None:
    _, content = stores(tmp_path, [1, 2, 1, 0, 2])
    left = [2, 0, 1, 2, 1, 0]  # without the last ones: none, one, two ...
    losses = [tuple(range(5 - many, 5)) for many in range(6)]
    for one, value in zip(losses, left, strict=True):
        for other, leaves in zip(losses, left, strict=True):
            assert (content.difference(one) == content.difference(other)) == (value == leaves)


def test_a_store_is_silent_if_it_stores_what_was_there(tmp_path: Path) -> None:
    _, content = stores(tmp_path, [0, 0, 1, 1, 1, 0])
    assert content.silent().tolist() == [True, True, False, True, True, False]


def test_nothing_is_written_beyond_the_end_of_a_file(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("a", ROOM)
    t.store("a", ROOM, 8, 1)
    space = StateSpace(build(t.trace(), "px86"))
    assert Content(space).issued(None, len(space.points) - 1) == ()


def test_equal_images_of_many_pieces_have_equal_fingerprints(tmp_path: Path) -> None:
    """Twenty of forty lines, as pieces that persisted by chance and as pieces that a fence made durable."""
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("a", ROOM)
    for line in range(40):
        t.store("a", 64 * line, 8, line + 1)
    for line in range(20):
        t.clwb("a", 64 * line)
    t.sfence()
    t.store("a", 64 * 40, 8, 1)
    space = StateSpace(build(t.trace(), "px86"))
    content = Content(space)
    fenced = content.fingerprint(space.keep(1, ()))
    assert content.fingerprint(space.keep(0, range(20))) == content.fingerprint(space.drop(0, range(20, 40))) == fenced
    assert content.fingerprint(space.keep(0, range(19))) != fenced
    assert content.fingerprint(space.drop(0, range(19, 40))) != fenced


def test_an_image_moves_by_all_that_became_durable_and_nothing_else(tmp_path: Path) -> None:
    """Three hundred lines: one was durable before, and one never is."""
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("a", 64 * 300)
    for line in range(300):
        t.store("a", 64 * line, 8, 1)
    t.clflush("a", 64 * 7)
    for line in range(300):
        if line != 100:
            t.clwb("a", 64 * line)
    t.sfence()
    t.end(1)
    space = StateSpace(build(t.trace(), "px86"))
    flushed, fenced = 1, len(space.points) - 1
    (patch,) = Content(space).durable(flushed, fenced)
    assert [offset // 64 for offset, _ in patch.writes] == [line for line in range(300) if line not in (7, 100)]
