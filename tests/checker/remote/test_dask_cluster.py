"""A search on workers of dask finds what one machine finds, also where processes of the cluster are killed."""

from __future__ import annotations

import os
import signal
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from crashcheck.checker.remote import dask_cluster, remote_runs
from crashcheck.checker.remote.dask_cluster import DaskCluster
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.strategies import Exhaustive
from crashcheck.errors import CrashcheckError
from crashcheck.stages.executor_setup import executed_by
from support.checked_worlds import LINES, World, without_times, world_of_lines
from support.dask_processes import dask_processes

pytestmark = pytest.mark.skipif(find_spec("distributed") is None, reason="dask.distributed is not installed")


@pytest.fixture
def world(tmp_path: Path, clauses: Path) -> World:
    claims = f"{64 * LINES}>{64 * LINES - 64}", f"{64 * LINES}>0"
    return world_of_lines(tmp_path / "w", clauses, *claims, rounds=1)


def search(world: World, cluster: DaskCluster | None) -> SearchResult:
    with world.executor() as executor:
        if cluster is None:
            return without_times(world.search(executor, strategy=Exhaustive()))
        with executed_by(cluster, executor):
            return without_times(world.search(executor, strategy=Exhaustive()))


@pytest.mark.parametrize("killed", ["a worker", "the scheduler"])
def test_a_search_on_a_cluster_finds_the_same_while_processes_are_killed(
    killed: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote_runs, "_MOST", 4)

    killed_ones: list[int] = []

    class Killing(DaskCluster):
        """The first states that it hands over are lost: who would run them is stopped before, and killed after."""

        def call(self, worker: str, function: str, *arguments: object) -> int:
            if function != "run" or killed_ones:
                return super().call(worker, function, *arguments)
            killed_ones.append(processes.workers[worker] if killed == "a worker" else processes.scheduler)
            os.kill(killed_ones[0], signal.SIGSTOP)
            number = super().call(worker, function, *arguments)
            os.kill(killed_ones[0], signal.SIGKILL)
            return number

    with dask_processes(tmp_path / "dask", 2) as processes, Killing(processes.address) as cluster:
        found = search(world, cluster)
    assert killed_ones
    assert found == search(world, None)
    assert found.findings
    printed = capfd.readouterr().err.splitlines()
    lost, none_left = 1 if killed == "a worker" else 2, killed != "a worker"
    assert [" was lost: " in line for line in printed] == [True] * lost + [False] * none_left, printed
    assert all(line.startswith("crashcheck: dask://127.0.0.1:") for line in printed), printed
    assert "NO WORKER IS LEFT" in printed[-1] or not none_left


def test_nobody_at_the_address_is_an_error_after_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 0.1)
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(CrashcheckError, match=f"no dask scheduler answers at {address}") as error:
            DaskCluster(address)
    assert error.value.slug == "executor-unreachable"


def test_a_scheduler_without_workers_is_an_error(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_WORKERS_S", 0.1)
    with (
        dask_processes(tmp_path / "dask", 0) as processes,
        DaskCluster(processes.address) as cluster,
        pytest.raises(CrashcheckError, match="can be used: it has none") as error,
    ):
        search(world, cluster)
    assert error.value.slug == "executor-unusable"


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(CrashcheckError) as error:
        DaskCluster("127.0.0.1:1")
    assert (error.value.slug, "crashcheck[dask]" in error.value.hint) == ("executor-missing", True)
