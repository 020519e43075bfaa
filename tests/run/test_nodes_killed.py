"""crashcheck is killed at any moment of a run of nodes: nothing of it continues, and the next run removes its files."""

from __future__ import annotations

import multiprocessing
import os
import select
import subprocess
from pathlib import Path
from random import Random

import pytest

from crashcheck.cli import main
from support import compilers

SOURCE = Path(__file__).parent / "nodes" / "commit.c"
MARK = "KILLED_RUN_OF_NODES"
NODES = f"""
[[node]]
name = "coordinator"
command = "./commit {{index}} {{peers}} yynyn stay"
env = {{ {MARK} = "1" }}
[[node]]
name = "participant"
command = "./commit {{index}} {{peers}} yynyn stay"
count = 5
crash = ["process"]
env = {{ {MARK} = "1" }}
[bounds]
crashes = 2
[strategy]
name = "random"
runs = 100000
"""
MOMENTS = 50


def processes_of_run() -> set[int]:
    """All that have the mark in their environment: crashcheck, its controllers, the nodes and what they are in."""
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if MARK.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.add(int(entry))
        except OSError:
            continue  # it has ended
    return found


def wait_for(pid: int, seconds: float) -> None:
    """Until a process has ended, or the time is over."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([descriptor], [], [], seconds)
    os.close(descriptor)


def _run(folder: str, *options: str) -> None:
    os.chdir(folder)
    os.environ[MARK] = "1"
    main(["run", "--jobs", "2", *options])


@pytest.mark.slow
def test_nothing_is_left_of_a_run_that_is_killed_at_any_moment(tmp_path: Path) -> None:
    command = [*compilers.c_compiler(), "-O1", str(SOURCE), "-o", str(tmp_path / "commit")]
    subprocess.run(command, check=True)
    (tmp_path / "crashcheck.toml").write_text(NODES)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["crashcheck.pipeline", "crashcheck.cli.run", "crashcheck.stages.nodes", __name__])
    random, alive = Random(1), 0
    for _ in range(MOMENTS):
        process = context.Process(target=_run, args=(str(tmp_path),))
        process.start()
        assert process.pid is not None
        process.join(random.uniform(0, 2))
        alive += bool(processes_of_run())
        process.kill()
        process.join()
        for pid in processes_of_run():
            wait_for(pid, 10)
        assert processes_of_run() == set()
    assert alive  # some moments were within a run of nodes
    last = context.Process(target=_run, args=(str(tmp_path), "--states", "2"))
    last.start()
    last.join()
    left = [path for path in (tmp_path / ".crashcheck").glob("*/*") if path.is_dir()]
    assert [path for path in left if path.name == "nodes" or "state" in path.name] == []
