"""Supervisors and workers of a command are copies of it as it was when it began, where a copy can be made."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashcheck.checker.execution import worker
from crashcheck.runtime import zygote
from crashcheck.runtime.record import supervise
from support.checked_worlds import World, two_stores, words


@pytest.fixture
def forked() -> Iterator[zygote.Zygote]:
    with zygote.forked(worker.main):
        assert zygote._zygote is not None
        yield zygote._zygote


def printed(tmp_path: Path, script: str) -> str:
    """What a supervised command prints."""
    end = supervise(["sh", "-c", script], tmp_path, tmp_path, os.environ, None, "stdout", "stderr")
    assert (end.exit_code, (tmp_path / "stderr").read_text()) == (0, "")
    return (tmp_path / "stdout").read_text()


OF_PARENT = "tr '\\0' ' ' < /proc/$PPID/cmdline; ps=$(cat /proc/$PPID/stat); ps=${ps##*) }; set -- $ps; echo; echo $2"


def test_a_supervisor_is_a_copy_of_the_command_and_its_child(tmp_path: Path, forked: zygote.Zygote) -> None:
    ours = Path("/proc/self/cmdline").read_text().replace("\0", " ")
    assert printed(tmp_path, OF_PARENT).splitlines() == [ours, str(os.getpid())]


def test_a_worker_is_a_copy_of_the_command(tmp_path: Path, forked: zygote.Zygote) -> None:
    world = World(tmp_path / "world", words(f"{OF_PARENT}; exit 1"), two_stores)
    with world.executor() as executor:
        shown = executor.run(world.space.full(0)).output.splitlines()
    assert shown == [Path("/proc/self/cmdline").read_text().replace("\0", " "), str(os.getpid())]


def test_where_the_zygote_was_killed_both_start_by_themselves(tmp_path: Path, forked: zygote.Zygote) -> None:
    os.kill(forked._pid, signal.SIGKILL)
    assert "supervise" in printed(tmp_path, OF_PARENT)
    world = World(tmp_path / "world", words("echo fine; exit 1"), two_stores)
    with world.executor() as executor:
        assert executor.run(world.space.full(0)).output == "fine\n"


def test_where_the_system_refuses_to_copy_it_a_supervisor_starts_by_itself(
    tmp_path: Path, forked: zygote.Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "copy", lambda *words: 0)
    assert "supervise" in printed(tmp_path, OF_PARENT)


def test_a_zygote_and_its_copies_have_none_of_our_files_open(tmp_path: Path) -> None:
    with open(tmp_path / "ours", "w") as file:
        os.set_inheritable(file.fileno(), True)
        with zygote.forked(worker.main):
            assert zygote._zygote is not None
            assert str(tmp_path / "ours") not in printed(tmp_path, "ls -l /proc/self/fd /proc/$PPID/fd")
            opened = Path(f"/proc/{zygote._zygote._pid}/fd").iterdir()
            assert str(tmp_path / "ours") not in map(os.readlink, opened)


def test_at_the_end_of_the_context_the_zygote_has_ended() -> None:
    with zygote.forked(worker.main):
        assert zygote._zygote is not None
        pid = zygote._zygote._pid
    assert not Path(f"/proc/{pid}").exists()
    assert zygote.copy(zygote.WORKER, 0) is None


def test_a_request_that_is_interrupted_leaves_no_answer_for_the_next_and_no_message(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        """The channel, whose answer is not read for Ctrl-C."""

        def __init__(self, channel: object) -> None:
            self._channel = channel

        def __getattr__(self, name: str) -> object:
            return getattr(self._channel, name)

        def recv(self, size: int) -> bytes:
            raise KeyboardInterrupt

    with zygote.forked(worker.main):
        forked = zygote._zygote
        assert forked is not None
        monkeypatch.setattr(forked, "_channel", Interrupted(forked._channel))
        ends = os.pipe()
        os.kill(forked._pid, signal.SIGSTOP)
        with pytest.raises(KeyboardInterrupt):
            zygote.copy(zygote.WORKER, ends[0])
        os.kill(forked._pid, signal.SIGCONT)
        monkeypatch.undo()
        assert zygote.copy(zygote.WORKER, ends[0]) is None
    assert capfd.readouterr().err == ""
    for end in ends:
        os.close(end)
