"""The generator against brute force on random small programs, for each model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings

from crashcheck.analyzer.persistence import Options, build, px86
from crashcheck.checker.states.counting import count_states
from crashcheck.checker.states.space import StateSpace
from support import reference, reference_page_cache
from support.examples_tried import examples
from support.random_programs import SETTINGS, memory_programs, page_programs, with_syncs
from support.reference import First, Program
from support.worlds import World, apply, deviation, explore, explored, frozen, record


def check_laws(world: World) -> None:
    """What holds of every state space."""
    space, states = world.space, world.states
    feasible = count_states(space)
    assert feasible.exact
    assert feasible.value == len(states)
    assert len(set(states)) == len(states), "each state once"
    deviations = [deviation(space, state) for state in states]
    assert deviations == sorted(deviations)
    by_image: dict[Any, bytes] = {}
    by_print: dict[bytes, Any] = {}
    for state, image in zip(states, world.images, strict=True):
        mark = world.content.fingerprint(state)
        assert by_image.setdefault(image, mark) == mark, "equal images have equal fingerprints"
        assert by_print.setdefault(mark, image) == image, "equal fingerprints mean equal images"
        persisted, lost = space.persisted(state), space.lost(state)
        assert space.state(state.point, persisted) == state
        assert space.drop(state.point, lost) == state
        assert space.keep(state.point, persisted) == state
    issued: dict[int, dict[str, bytes | None]] = {}
    image_so_far, point_so_far = dict(world.first), None
    for point in range(len(space.points)):
        image_so_far = apply(dict(image_so_far), world.content.issued(point_so_far, point))
        issued[point], point_so_far = image_so_far, point
        assert frozen(image_so_far) == frozen(apply(dict(world.first), world.content.issued(None, point)))
    for state, image in zip(states, world.images, strict=True):
        if world.content.near_full(state):
            assert frozen(apply(dict(issued[state.point]), world.content.lost(state))) == image[0]
    final = frozen(apply(dict(world.first), world.content.final()))
    last = len(space.points) - 1
    assert by_image[(final, space.points[last].acked, space.points[last].stdout_bytes)] == world.content.fingerprint(
        space.full(last)
    )


def same_states(case: tuple[First, Program], model: str) -> None:
    first, program = case
    brute_force = {"px86": reference.px86, "eadr": reference.eadr}[model]
    with tempfile.TemporaryDirectory() as folder:
        world = explore(Path(folder), first, program, model)
        assert world.distinct == brute_force(first, program)
        check_laws(world)


def same_states_of_pages(case: tuple[First, Program], tear: int, files: str) -> None:
    first, program = case
    with tempfile.TemporaryDirectory() as folder:
        expected = reference_page_cache.page_cache(first, program, tear, files == "posix", limit=600)
        assume(expected is not None)
        trace, options = record(Path(folder), first, program).trace(), Options(tear, files)
        # One example may have 131,076 states that leave four images (what a removed file held): that takes minutes.
        assume(count_states(StateSpace(build(trace, "page-cache", options))).value <= 2000)
        world = explored(trace, Path(folder), first, "page-cache", options)
        assert world.distinct == expected
        check_laws(world)


@pytest.mark.hypothesis
@pytest.mark.parametrize("model", ["px86", "eadr"])
@pytest.mark.parametrize("names", [False, True], ids=["", "names change"])
def test_states_are_those_of_brute_force(model: str, names: bool) -> None:
    SETTINGS(given(memory_programs(names=names))(lambda case: same_states(case, model)))()


def in_new_files(case: tuple[First, Program]) -> tuple[First, Program]:
    """The program in files that are new, with each second store one of zeros."""
    program: Program = [(1, "truncate", file, 128) for file in case[0]]
    for number, step in enumerate(case[1]):
        zeros = step[1] == "store" and number % 2 == 0
        program.append((*step[:4], bytes(len(step[4])), *step[5:]) if zeros else step)
    return dict.fromkeys(case[0], b""), program


@pytest.mark.hypothesis
@pytest.mark.parametrize("names", [False, True], ids=["", "names change"])
def test_zeros_that_a_new_file_holds_anyway_change_no_state(names: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(px86, "_CLEARED_BYTES", 1)
    SETTINGS(given(memory_programs(names=names))(lambda case: same_states(in_new_files(case), "px86")))()


def test_a_new_file_that_is_cleared_and_then_filled_has_the_states_of_what_fills_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    filled = [(1, "store", "a", at, b"\1" * 8, False) for at in (0, 40_000)]
    cleared = (1, "store", "a", 0, bytes(1 << 16), False)
    begin = (1, "truncate", "a", 1 << 16)
    worlds = [
        explore(tmp_path_factory.mktemp("world"), {"a": b""}, [begin, *steps, *filled], "px86")
        for steps in ([], [cleared], [cleared, cleared])
    ]
    assert worlds[0].distinct == worlds[1].distinct == worlds[2].distinct
    assert len(worlds[1].distinct) == 5  # with the one in which the file is still empty


@pytest.mark.hypothesis
@pytest.mark.parametrize(("tear", "files"), [(0, "ext4"), (512, "ext4"), (4096, "posix")])
def test_page_cache_states_are_those_of_brute_force(tear: int, files: str) -> None:
    SETTINGS(given(page_programs())(lambda case: same_states_of_pages(case, tear, files)))()


@pytest.mark.hypothesis
@pytest.mark.parametrize(("tear", "files"), [(0, "ext4"), (512, "ext4"), (4096, "posix")])
def test_page_cache_states_are_those_of_brute_force_where_names_change(tear: int, files: str) -> None:
    few = settings(SETTINGS, max_examples=examples(10))
    few(given(page_programs(names=True))(lambda case: same_states_of_pages(case, tear, files)))()


def test_each_part_of_an_update_counts_in_its_fingerprint(tmp_path: Path) -> None:
    """The first part writes what is there already, so that only the second one tells the states apart."""
    program: Program = [(1, "stores", [("a", 0, bytes(8)), ("a", 16, b"new part")])]
    world = explore(tmp_path, {"a": bytes(4096)}, program, "page-cache")
    assert len(world.distinct) == 2
    check_laws(world)


@pytest.mark.parametrize("first_end", [100, 4096, 4312])
@pytest.mark.parametrize("sync", ["msync", "async"])
def test_a_mapped_log_that_grows_and_is_cut_again_keeps_every_record(tmp_path: Path, first_end: int, sync: str) -> None:
    """Grown by whole pages, stored to, cut to its data's end and synchronised, twice."""
    end = first_end
    steps: list[Any] = []
    for value in (1, 2):
        steps.append((1, "truncate", "a", 8192))
        steps.append((1, "store", "a", end, bytes([value]) * 24, False))
        end += 24
        steps.append((1, "truncate", "a", end))
        steps.append((1, "sync-call", (sync, "a", 0, 8192, False), 0))
        steps.append((1, "store", "a", 0, bytes([value]) * 8, False))
    steps += [(1, "truncate", "a", 8192), (1, "mark")]
    first: First = {"a": b"\7" * first_end}
    program = with_syncs(steps)
    world = explore(tmp_path, first, program, "page-cache")
    assert world.distinct == reference_page_cache.page_cache(first, program, 0, False)
    check_laws(world)


@SETTINGS
@given(memory_programs())
def test_what_was_issued_is_taken_back_word_by_word(program: tuple[First, Program]) -> None:
    first = program[0]
    with tempfile.TemporaryDirectory() as folder:
        world = explore(Path(folder), *program, "px86")
        images = []
        for point in range(len(world.space.points)):
            image: dict[str, bytes | None] = dict(first)
            for patch in world.content.issued(None, point):
                image = apply(image, (patch,))
            images.append(image)
        for later in range(len(images)):
            for earlier in range(later):
                back = world.content.taken_back(later, earlier)
                if back is not None:
                    assert frozen(apply(images[later], back)) == frozen(images[earlier])
