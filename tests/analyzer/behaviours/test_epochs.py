"""Where an instance's updates end one task and begin the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.scripts import Script, described, site

A = site("M.a", ("M", "a", 0, 8), line=1)
B = site("M.b", ("M", "b", 8, 8), line=2)
C = site("M.c", ("M", "c", 64, 8), line=3)
D = site("N.d", ("N", "d", 0, 8), line=4)
E = site("N.e", ("N", "e", 8, 8), line=5)
F = site("N.f", ("N", "f", 64, 8), line=6)
N = 1024


def epochs(script: Script, type_: str = "M", model: str = "px86") -> list[tuple[int, ...]]:
    return [sites for name, _, _, sites in described(script.found(model)) if name == type_]


def test_the_epochs_of_figure_8(tmp_path: Path) -> None:
    """M.a, M.b, M.c, persisted; M.a; N.d and N.e, persisted; M.c: two criteria, three epochs."""
    script = Script(tmp_path, A, B, C, D, E)
    script.at(1, 0, delta=0)
    script.at(2, 8, delta=8)
    script.at(3, 64, delta=64)
    script.persist(0, 128)
    script.at(1, 0, delta=0)
    script.at(4, N, delta=0)
    script.at(5, N + 8, delta=8)
    script.persist(N, 16)
    script.at(3, 64, delta=64)
    assert epochs(script) == [(1, 2, 3), (1,), (3,)]
    assert epochs(script, "N") == [(4, 5)]


def test_a_field_repeated_before_the_rest_has_persisted_does_not_end_an_epoch(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C)
    script.at(1, 0, delta=0)
    script.at(3, 64, delta=64)
    script.persist(0)
    script.at(1, 0, delta=0)
    assert epochs(script) == [(1, 3, 1)]


def test_a_new_field_after_a_persist_does_not_end_an_epoch(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C)
    script.at(1, 0, delta=0)
    script.persist(0)
    script.at(2, 8, delta=8)
    assert epochs(script) == [(1, 2)]


def test_repeats_are_counted_from_the_start_of_the_epoch(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C)
    for number, offset in ((1, 0), (1, 0), (2, 8), (1, 0)):
        script.at(number, offset, delta=offset)
        script.persist(offset)
    assert epochs(script) == [(1,), (1, 2), (1,)]


def test_another_instance_that_has_not_persisted_ends_no_epoch(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C, D, E)
    script.at(1, 0, delta=0)
    script.at(4, N, delta=0)
    script.at(3, 64, delta=64)
    assert epochs(script) == [(1, 3)]


@pytest.mark.parametrize("many", [1, 300])  # beyond 64: all in one pass
def test_what_another_thread_persists_in_between_ends_no_epoch(tmp_path: Path, many: int) -> None:
    script = Script(tmp_path, A, B, C, D, E, size=1 << 20)
    script.at(1, 0, delta=0)
    with script.trace.thread(2):
        for number in range(many):
            script.at(4, N + 64 * number, delta=0)
            script.persist(N + 64 * number)
    script.at(3, 64, delta=64)
    assert epochs(script) == [(1, 3)]


@pytest.mark.parametrize("second", [1, 2])
def test_of_an_instance_that_two_threads_update_either_ends_the_epoch(tmp_path: Path, second: int) -> None:
    script = Script(tmp_path, A, B, C, D, E)
    script.at(1, 0, delta=0)
    with script.trace.thread(second):
        script.at(4, N, delta=0)
        script.persist(N)
    with script.trace.thread(2):
        script.at(3, 64, delta=64)
    assert epochs(script) == [(1,), (3,)]


def test_another_instance_must_have_persisted_as_a_whole(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C, D, E, F)
    script.at(6, N + 64, delta=64)  # left behind
    script.at(1, 0, delta=0)
    script.at(4, N, delta=0)
    script.persist(N)
    script.at(3, 64, delta=64)
    assert epochs(script) == [(1, 3)]


def test_another_instance_ends_an_epoch_however_much_is_between(tmp_path: Path) -> None:
    """Hundreds of updates that have not persisted follow the one that has."""
    for persists, expected in ((True, [(1,), (3,)]), (False, [(1, 3)])):
        script = Script(tmp_path, A, B, C, D, E, size=1 << 20)
        script.at(1, 0, delta=0)
        script.at(4, N, delta=0)
        if persists:
            script.persist(N)
        for number in range(300):
            script.at(4, 4096 + 64 * number, delta=0)
        script.at(3, 64, delta=64)
        script.trace.msync("f")
        assert epochs(script) == expected


def test_an_instance_updated_before_the_epoch_began_ends_no_epoch(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C, D, E)
    script.at(4, N, delta=0)
    script.persist(N)
    script.at(1, 0, delta=0)
    script.at(3, 64, delta=64)
    assert epochs(script) == [(1, 3)]


def test_what_the_update_itself_belongs_to_is_no_other_instance(tmp_path: Path) -> None:
    """The inner struct persists between two updates of the outer one, the second of which is in the inner one again."""
    inner = site("M.in.x", ("in", "x", 0, 8), ("M", "in", 128, 16), line=6)
    again = site("M.in.y", ("in", "y", 8, 8), ("M", "in", 128, 16), line=7)
    script = Script(tmp_path, A, inner, again)
    script.at(1, 0, delta=0)
    script.at(2, 128, delta=128)
    script.persist(128)
    script.at(3, 136, delta=136)
    assert epochs(script) == [(1, 2, 3)]
    assert epochs(script, "in") == [(2, 3)]


def test_a_sync_ends_an_epoch_as_a_fence_does(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C)
    script.at(1, 0, delta=0)
    script.at(2, 8, delta=8)
    script.trace.msync("f")
    script.at(1, 0, delta=0)
    assert epochs(script, model="page-cache") == [(1, 2), (1,)]


def test_one_update_of_many_lines_repeats_nothing(tmp_path: Path) -> None:
    whole = site("M", kind="copy", line=8)
    script = Script(tmp_path, A, B, C, whole)
    script.at(4, 0, size=72, delta=0)
    assert epochs(script) == [(4, 4)]
