"""`--executor` on nodes: workers of a cluster make the runs, and the report is that of one machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.remote import host
from crashcheck.checker.results import RunResult
from crashcheck.config import load
from crashcheck.errors import CrashcheckError
from crashcheck.pipeline import RunOptions, run
from support import compilers
from support.cluster_of_folders import Machines
from support.command_line import run_crashcheck
from support.paths import ROOT
from support.reports.timeless import timeless_report

COMMIT = ROOT / "tests" / "run" / "nodes" / "commit.c"
NODES = """
[[node]]
name = "coordinator"
command = "{start} {{index}} {{peers}} yyn {option}"
ends = true
[[node]]
name = "participant"
command = "{start} {{index}} {{peers}} yyn {option}"
count = 3
ends = true
[strategy]
name = "dpor"
[budget]
states = 30
"""
Configure = Callable[..., Path]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("commit") / "commit"
    subprocess.run([*compilers.c_compiler(), "-O1", "-g", str(COMMIT), "-o", str(target)], check=True)
    return target


@pytest.fixture
def configured(tmp_path: Path, program: Path) -> Configure:
    """Writes a project with two-phase commit: its folder."""

    def write(option: str = "", start: str = "./commit") -> Path:
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        (folder / "commit").unlink(missing_ok=True)
        os.link(program, folder / "commit")
        (folder / "crashcheck.toml").write_text(NODES.format(option=option, start=start), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path / "machines")
    yield made
    for use in host._host.sessions.values():  # of machines that were lost
        use.session.close()
    host._host.sessions.clear()
    made.close()


def searched(folder: Path, machines: Machines | None) -> RunResult:
    """What is found, without times and what depends on the folder of a run."""
    result = run(load(folder, nodes=True), RunOptions(jobs=1, cluster=machines)).result
    return replace(result, seconds=0.0, phases=(), discoveries=())


def test_a_cluster_of_dask_gives_the_report_of_one_machine(configured: Configure, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    from support.dask_processes import dask_processes

    folder = configured("first")
    words = ("run", "-c", folder, "--format", "json")
    with dask_processes(tmp_path / "dask", 2) as processes:
        address = f"dask://{processes.address}"
        done = run_crashcheck(*words, "--executor", address, cwd=tmp_path, env=os.environ)
    alone = run_crashcheck(*words, cwd=tmp_path, env=os.environ)
    assert done.returncode == alone.returncode == 1, done.stderr
    assert timeless_report(done) == timeless_report(alone)
    assert "is not used" not in done.stderr


def test_runs_of_a_worker_that_is_lost_are_made_by_another_or_here(
    configured: Configure, machines: Machines, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = configured("first")
    expected = searched(folder, None)

    def lost(worker: str, function: str, before: int) -> bool:
        if function == "run" and before == {"a": 3, "b": 9}[worker]:
            del machines.there[worker]
            return False
        return True

    machines.on_call = lost
    assert searched(folder, machines) == expected
    printed = capfd.readouterr().err
    assert "machine a was lost: its runs are executed elsewhere" in printed
    assert "NO WORKER IS LEFT: runs are executed on this machine alone" in printed
    assert (machines.calls["a", "run"] > 3, machines.calls["b", "run"] > 9) == (True, True)


def test_a_worker_on_which_nodes_run_otherwise_is_refused(
    configured: Configure, machines: Machines, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file that no command names is not there."""
    folder = configured(start="sh {project}/start.sh")
    (folder / "start.sh").write_text('cd "${0%/*}" && exec ./commit $1 $2 $(cat votes)\n', encoding="utf-8")
    (folder / "votes").write_text("yyn", encoding="utf-8")
    with pytest.raises(CrashcheckError) as error:
        searched(folder, machines)
    assert error.value.slug == "executor-unusable"
    assert "the default run is not as it is here: it differs after 0 actions (2 of them)" in error.value.message
    assert (host._host.sessions, machines.calls["a", "run"]) == ({}, 0)
