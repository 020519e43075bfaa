"""Workers are copies of one process: they start quickly, as if each had been started by itself."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from crashcheck.checker.execution import worker, worker_start
from crashcheck.runtime import zygote
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


def test_where_the_system_refuses_to_copy_it_a_worker_starts_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_start._Original, "copy", lambda self, *words: 0)
    world = World(tmp_path / "world", words("echo fine; exit 1"), two_stores)
    assert output(world) == "fine\n"


def test_a_process_that_cannot_be_copied_answers_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise OSError

    monkeypatch.setattr(zygote, "_fork_sibling", refused)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        socket.send_fds(ours, [b"worker"], [ours.fileno()])
        ours.shutdown(socket.SHUT_WR)
        worker.serve(theirs.detach())
        assert ours.recv(64) == b"0"


def test_a_worker_whose_run_ends_before_it_sends_anything_ends_without_an_error() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    worker.main(theirs.detach())
