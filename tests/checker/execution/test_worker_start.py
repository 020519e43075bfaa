"""Workers are copies of one process: they start quickly, as if each had been started by itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from crashcheck.checker.execution import worker_start
from support.checked_worlds import World, two_stores, words


def output(world: World) -> str:
    with world.executor() as executor:
        return executor.run(world.space.full(0)).output


def test_the_next_workers_are_copies_of_the_same_process(tmp_path: Path) -> None:
    world = World(tmp_path / "world", words("true; true"), two_stores)
    output(world)
    before = worker_start._original
    output(world)
    assert before is not None
    assert worker_start._original is before


def test_a_worker_has_the_environment_that_we_have_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "world", words("echo $FIRST $SECOND; exit 1"), two_stores)
    monkeypatch.setenv("FIRST", "one")
    assert output(world) == "one\n"
    monkeypatch.delenv("FIRST")
    monkeypatch.setenv("SECOND", "two")
    assert output(world) == "two\n"


def test_a_worker_is_our_child_in_a_session_of_its_own(tmp_path: Path) -> None:
    text = "ps=$(cat /proc/$PPID/stat); ps=${ps##*) }; set -- $ps; echo $2 $(($4 == PPID)); exit 1"
    world = World(tmp_path / "world", words(text), two_stores)
    assert output(world) == f"{os.getpid()} 1\n"


def test_where_the_process_was_killed_another_one_takes_its_place(tmp_path: Path) -> None:
    world = World(tmp_path / "world", words("echo fine; exit 1"), two_stores)
    output(world)
    original = worker_start._original
    assert original is not None
    os.kill(original._process.pid, signal.SIGKILL)
    assert output(world) == "fine\n"
    assert worker_start._original is not original
