"""A check that is a Python program calls crashcheck.testing.ready(), and continues there as a copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crashcheck.runtime.build import build_runtime
from crashcheck.testing import ready
from support.checked_worlds import World, two_stores, words

CHECK = """
import sys, threading
from crashcheck.testing import ready
open({starts!r}, "a").write(".")
{before}
acked = ready(int(sys.argv[2]))
data = open(sys.argv[1], "rb").read()
sys.exit(not (data[0] >= data[64] // 2 and acked == int({acked})))
"""


def world_of(tmp_path: Path, *, before: str = "", acked: str = "acked") -> World:
    (tmp_path / "check.py").write_text(CHECK.format(starts=str(tmp_path / "starts"), before=before, acked=acked))
    command = words([sys.executable, str(tmp_path / "check.py"), "{pool}/p", "{acked}"])
    return World(tmp_path / "world", command, two_stores, preload=build_runtime().shared)


def test_runs_continue_at_the_call(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    with world.executor() as executor:
        assert executor.try_copies().passed
        starts = (tmp_path / "starts").read_text()
        verdicts = [executor.result(executor.submit(world.space.full(0))) for _ in range(16)]
        assert all(verdict is not None and verdict.passed for verdict in verdicts)
        assert executor.notes == ()
        one_more_image, samples = 1, 5
        assert len((tmp_path / "starts").read_text()) == len(starts) + one_more_image + samples


def test_threads_keep_a_program_from_waiting_and_the_note_names_them(tmp_path: Path) -> None:
    thread = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    world = world_of(tmp_path, before=thread)
    with world.executor() as executor:
        assert executor.try_copies().passed
        (note,) = executor.notes
        assert note.endswith("the check has 2 threads there: call it before they start")


@pytest.mark.parametrize("acked", [0, 7])
def test_elsewhere_the_call_gives_its_number_back(acked: int) -> None:
    assert ready(acked) == acked
    code = f"from crashcheck.testing import ready; print(ready({acked}))"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"%d\n" % acked
