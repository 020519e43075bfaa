"""Images move between crash points, forward and back, by words; a file that is ever cut, piece by piece."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from crashcheck.analyzer.persistence import Options, build
from crashcheck.analyzer.persistence.pieces import SIZE
from crashcheck.checker.images.piecewise import FilePatch, Piecewise
from crashcheck.checker.images.transition import Content
from crashcheck.checker.states.space import StateSpace
from support.examples_tried import examples
from support.random_programs import SETTINGS, memory_programs, page_programs
from support.reference import First, Program
from support.worlds import apply, explore, frozen, record

Image = dict[str, bytes | None]


def growing(first: First, program: Program) -> Program:
    """The program without removals, and with each truncation at least as long as the file is then."""
    size = {file: len(content) for file, content in first.items() if content is not None}
    out: Program = []
    for step in program:
        if step[1] in ("unlink", "rename") or (step[1] == "create" and step[2] in size):
            continue
        if step[1] == "create":
            size[step[2]] = 0
        if step[1] == "truncate":
            step = (*step[:3], max(step[3], size[step[2]]))
            size[step[2]] = step[3]
        elif step[1] == "write":
            size[step[2]] = max(size[step[2]], step[3] + len(step[4]))
        out.append(step)
    return out


def piece_by_piece(content: Content) -> Content:
    """The same content with each file treated as one that is ever cut."""
    other = Content(content.space, None)
    other.first = content.first
    other._piecewise = Piecewise(content.graph, content.first)
    for file in other._files.values():
        file.ever_cut = True
    return other


def writes(patches: tuple[FilePatch, ...], image: Image) -> Any:
    return frozen(apply(image, patches))


def check_moves(first: First, program: Program, model: str, options: Options | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = StateSpace(build(record(Path(folder), first, program).trace(), model, options))
        check_content(dict(first), Content(space, Path(folder, "first")))


def check_content(first: Image, content: Content) -> None:
    reference, space = piece_by_piece(content), content.space
    points = range(len(space.points))
    for forward, back in (("durable", "durable_back"), ("issued", "taken_back")):
        images: list[Image] = []
        for point in points:
            images.append(apply(dict(first), getattr(reference, forward)(None, point)))
            assert writes(getattr(content, forward)(None, point), dict(first)) == frozen(images[point])
        for late in points:
            for early in range(late):
                moved = getattr(content, forward)(early, late)
                assert writes(moved, images[early]) == frozen(images[late])
                undone = getattr(content, back)(late, early)
                if undone is None:
                    assert any(file.ever_cut and file.watched.existed for file in content._files.values())
                else:
                    assert writes(undone, images[late]) == frozen(images[early])
                for patch in (*moved, *(undone or ())):
                    assert {type(patch.size), *(type(offset) for offset, _ in patch.writes)} == {int}
    for point in points:
        assert content.durable(point, point) == content.issued(point, point) == (), "nothing is written again"
        durable = apply(dict(first), reference.durable(None, point))
        pending = [(piece,) for piece in space.pending(point)]
        states = [space.full(point), *(make(point, piece) for piece in pending for make in (space.keep, space.drop))]
        for state in states:
            assert writes(content.patches(state), durable) == writes(reference.patches(state), durable)


@pytest.mark.parametrize("model", ["px86", "eadr"])
@pytest.mark.parametrize("grows", [True, False])
def test_images_in_memory_move_exactly_between_any_two_crash_points(model: str, grows: bool) -> None:
    @settings(SETTINGS, max_examples=examples(15))
    @given(memory_programs(names=True))
    def compare(case: tuple[First, Program]) -> None:
        first, program = case
        check_moves(first, growing(*case) if grows else program, model)

    compare()


@pytest.mark.parametrize("tear", [0, 512])
@pytest.mark.parametrize("grows", [True, False])
def test_images_of_pages_move_exactly_between_any_two_crash_points(tear: int, grows: bool) -> None:
    @settings(SETTINGS, max_examples=examples(15))
    @given(page_programs(names=True))
    def compare(case: tuple[First, Program]) -> None:
        first, program = case
        check_moves(first, growing(*case) if grows else program, "page-cache", Options(tear, "posix"))

    compare()


def test_a_file_that_only_grows_is_never_moved_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes stored beyond the end, with others of the same word below it, show when the file has grown."""
    program: Program = [
        (1, "store", "a", 6, b"hidden", False),
        (1, "store", "a", 4, b"xy", False),
        (1, "truncate", "a", 16),
        (1, "mark"),
    ]
    monkeypatch.delattr(Piecewise, "transition")
    monkeypatch.delattr(Piecewise, "issued")
    world = explore(tmp_path, {"a": b"\1" * 6}, program, "eadr")
    grown: Image = {"a": b"\1" * 4 + b"xyhidden" + bytes(4)}
    last = len(world.space.points) - 1
    assert apply({"a": b"\1" * 6}, world.content.durable(None, last)) == grown


@pytest.mark.parametrize("many", [1, 40])
def test_a_state_is_near_to_everything_issued_if_it_lost_a_few_bytes_and_no_size(many: int, tmp_path: Path) -> None:
    program: Program = [(1, "store", "a", 4096 * page, b"\1" * 8, False) for page in range(3 * many)]
    program.append((1, "write", "b", 0, b"\1" * 8))
    first: First = {"a": bytes(4096 * 3 * many), "b": b""}
    space = StateSpace(build(record(tmp_path, first, program).trace(), "page-cache"))
    content, few = Content(space, tmp_path / "first"), range(many)
    (size,) = np.flatnonzero(space.graph.kind == SIZE).tolist()
    assert content.near_full(space.drop(0, few))
    assert not content.near_full(space.drop(0, (*few, size)))
    assert not content.near_full(space.keep(0, few))


def test_a_file_that_grows_keeps_what_overwrote_the_word_before_its_old_end(tmp_path: Path) -> None:
    first: First = {"a": b""}
    program: Program = [
        (1, "write", "a", 0, b"\1" * 20),
        (1, "begin", "fsync", "a", 0, 0, 1, False),
        (1, "end", 1),
        (1, "write", "a", 15, b"\2"),
        (1, "begin", "fsync", "a", 0, 0, 2, False),
        (1, "end", 2),
        (1, "write", "a", 20, b"\3" * 4),
        (
            1,
            "mark",
        ),
    ]
    world = explore(tmp_path, first, program, "page-cache")
    last = {dict(image)["a"] for image, acked, _ in world.images if acked}
    assert last == {b"\1" * 15 + b"\2" + b"\1" * 4 + tail for tail in (b"", b"\0" * 4, b"\3" * 4)}
