"""The generator against brute force on random small programs, for each model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.persistence import Options
from support import reference
from support.reference import First, Program
from support.worlds import World, apply, explore, frozen

SETTINGS = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def _data(size: int, value: int) -> bytes:
    return bytes((value + i) % 4 for i in range(size)) if size > 1 else bytes([value % 4])


@st.composite
def _syncs(draw: Any, files: list[str], ranges: list[tuple[int, int]], kinds: list[str]) -> Any:
    kind = draw(st.sampled_from(kinds))
    file = None if kind in ("sync", "dirsync") else draw(st.sampled_from(files))
    offset, size = draw(st.sampled_from(ranges)) if kind in ("msync", "osync", "odsync") else (0, 0)
    return kind, file, offset, size, draw(st.sampled_from([False, False, False, True]))


def _place(steps: list[Any]) -> Program:
    """Syncs become a begin and an end, with up to two of the following steps in between."""
    program: Program = []
    open_: list[tuple[int, Any]] = []
    for number, step in enumerate(steps):
        thread = step[0]
        if step[1] == "sync-call":
            kind, file, offset, size, failed = step[2]
            program.append((thread, "begin", kind, file, offset, size, number, failed))
            open_.append((step[3], (thread, "end", number)))
        else:
            program.append(step)
        program += [end for left, end in open_ if left <= 0]
        open_ = [(left - 1, end) for left, end in open_ if left > 0]
    return program + [end for _, end in open_]


@st.composite
def memory_programs(draw: Any) -> tuple[First, Program]:
    thread = st.integers(1, 2)
    file = st.sampled_from(["a", "a", "b"])
    offset = st.sampled_from([0, 4, 8, 16, 60, 64, 72])
    size = st.sampled_from([1, 4, 8, 8, 12, 16])
    value = st.integers(0, 3)
    store = st.tuples(
        thread, st.just("store"), file, offset, st.builds(_data, size, value), st.sampled_from([False, False, True])
    )
    write = st.tuples(thread, st.just("write"), file, offset, st.builds(_data, size, value))
    flush = st.tuples(
        thread,
        st.sampled_from(["clwb", "clwb", "clflush"]),
        file,
        st.sampled_from([0, 64]),
        st.sampled_from([1, 8, 65]),
    )
    fence = st.tuples(thread, st.just("fence"))
    mark = st.tuples(thread, st.sampled_from(["mark", "opmark"]))
    truncate = st.tuples(thread, st.just("truncate"), file, st.sampled_from([0, 6, 64, 128]))
    sync = st.tuples(
        thread,
        st.just("sync-call"),
        _syncs(["a", "b"], [(0, 64), (64, 8)], ["msync", "fsync", "sync", "async", "osync", "dirsync"]),
        st.integers(0, 2),
    )
    kinds = st.one_of(store, store, store, flush, flush, fence, mark, write, truncate, sync)
    steps = draw(st.lists(kinds, min_size=1, max_size=9))
    program = _place(steps)
    total = 0
    kept: Program = []
    for step in program:
        if step[1] in ("store", "write"):
            total += len(step[4]) // 8 + 1
            if total > 11:
                continue
        kept.append(step)
    first: First = {"a": bytes(range(80)), "b": bytes(80)}
    return first, kept


@st.composite
def page_programs(draw: Any) -> tuple[First, Program]:
    thread = st.integers(1, 2)
    file = st.sampled_from(["a", "a", "n"])
    offset = st.sampled_from([0, 8, 510, 4090, 4096, 8192, 12280])
    size = st.sampled_from([1, 4, 8, 12])
    value = st.integers(0, 3)
    store = st.tuples(thread, st.just("store"), file, offset, st.builds(_data, size, value), st.just(False))
    write = st.tuples(thread, st.just("write"), file, offset, st.builds(_data, size, value))
    truncate = st.tuples(thread, st.just("truncate"), file, st.sampled_from([0, 100, 4096, 5000, 9000, 13000]))
    mark = st.tuples(thread, st.sampled_from(["mark", "opmark"]))
    fence = st.one_of(
        st.tuples(thread, st.just("fence")), st.tuples(thread, st.just("clflush"), file, st.just(0), st.just(8))
    )
    sync = st.tuples(
        thread,
        st.just("sync-call"),
        _syncs(
            ["a", "n"],
            [(0, 64), (4096, 4096), (4090, 8)],
            ["msync", "fsync", "fdatasync", "sync", "async", "osync", "odsync", "dirsync"],
        ),
        st.integers(0, 2),
    )
    kinds = st.one_of(store, store, write, write, truncate, mark, fence, sync, sync)
    steps = draw(st.lists(kinds, min_size=1, max_size=8))
    new = draw(st.booleans())
    first: First = {"a": bytes(range(1, 200)) * 30, "n": None if new else b"\7" * 4200}
    program = _place(steps)
    if new:
        program.insert(0, (1, "create", "n"))
    return first, program


def check_laws(world: World) -> None:
    """What holds of every state space."""
    space, states = world.space, world.states
    feasible = space.count()
    assert feasible.exact
    assert feasible.value == len(states)
    assert len(set(states)) == len(states), "each state once"
    deviations = [space.deviation(state) for state in states]
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


@SETTINGS
@given(memory_programs())
def test_px86_states_are_those_of_brute_force(case: tuple[First, Program]) -> None:
    first, program = case
    with tempfile.TemporaryDirectory() as folder:
        world = explore(Path(folder), first, program, "px86")
        assert world.distinct == reference.px86(first, program)
        check_laws(world)


@SETTINGS
@given(memory_programs())
def test_eadr_states_are_those_of_brute_force(case: tuple[First, Program]) -> None:
    first, program = case
    with tempfile.TemporaryDirectory() as folder:
        world = explore(Path(folder), first, program, "eadr")
        assert world.distinct == reference.eadr(first, program)
        check_laws(world)


@pytest.mark.parametrize(("tear", "files"), [(0, "ext4"), (512, "ext4"), (4096, "posix")])
def test_page_cache_states_are_those_of_brute_force(tear: int, files: str) -> None:
    @SETTINGS
    @given(page_programs())
    def compare(case: tuple[First, Program]) -> None:
        first, program = case
        with tempfile.TemporaryDirectory() as folder:
            expected = reference.page_cache(first, program, tear, files == "posix", limit=600)
            assume(expected is not None)
            world = explore(Path(folder), first, program, "page-cache", Options(tear, files))
            assert world.distinct == expected
            check_laws(world)

    compare()


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
    program = _place(steps)
    world = explore(tmp_path, first, program, "page-cache")
    assert world.distinct == reference.page_cache(first, program, 0, False)
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
