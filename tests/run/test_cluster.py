"""`crashcheck run --executor dask://HOST:PORT`: the report of a cluster is that of one machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.command_line import run_crashcheck
from support.examples import BuiltExamples
from support.reports.timeless import timeless_report

EXAMPLE = "btree-split"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def crashcheck(built_example: BuiltExamples, tmp_path: Path, environment: dict[str, str]) -> Run:
    """Runs `crashcheck run` for one twin of the example."""
    folder = built_example(EXAMPLE)

    def run(twin: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return run_crashcheck("run", "-c", folder / f"{twin}.toml", *words, cwd=tmp_path, env=environment)

    return run


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster of two workers."""
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    from support.dask_processes import dask_processes

    with dask_processes(tmp_path / "dask", 2) as processes:
        yield f"dask://{processes.address}"


def test_a_cluster_gives_the_report_and_the_exit_code_of_one_machine(crashcheck: Run, cluster: str) -> None:
    for twin in ("buggy", "fixed"):
        alone = crashcheck(twin, "--no-explore", "--format", "json")
        done = crashcheck(twin, "--no-explore", "--format", "json", "--executor", cluster)
        assert timeless_report(done) == timeless_report(alone)
        assert done.returncode == alone.returncode == (twin == "buggy")
        assert "is not used" not in done.stderr


@pytest.mark.parametrize("words", [["--executor", "dask://127.0.0.1:1"], ["--resume"]])
def test_what_a_shard_cannot_be_combined_with_is_refused(
    words: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "crashcheck.toml").write_text(
        '[workload]\ncommand = "true"\n[pool]\nfiles = ["*"]\n[check]\ncommand = "true"\n[model]\nname = "px86"\n'
    )
    done = run_crashcheck("run", "--shard", "1/2", *words, cwd=tmp_path, env=environment)
    assert (done.returncode, "[bad-option] " in f"{done.stderr.replace(chr(10), ' ')} ") == (2, True), done.stderr


@pytest.mark.parametrize("wrong", ["127.0.0.1:8786", "dask://", "dask://host", "dask://host:", "ssh://host:1"])
def test_an_executor_is_an_address_of_dask(wrong: str, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "crashcheck.toml").write_text(
        '[workload]\ncommand = "true"\n[pool]\nfiles = ["*"]\n[check]\ncommand = "true"\n[model]\nname = "px86"\n'
    )
    done = run_crashcheck("run", "--executor", wrong, cwd=tmp_path, env=environment)
    assert (done.returncode, "[bad-option]" in done.stderr) == (2, True), done.stderr
