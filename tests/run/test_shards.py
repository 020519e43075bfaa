"""`crashcheck record`, `run --shard` and `merge`: the report of several machines is that of one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import run_crashcheck
from support.examples import BuiltExamples
from support.reports.timeless import timeless_report

EXAMPLE = "btree-split"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def crashcheck(built_example: BuiltExamples, tmp_path: Path, environment: dict[str, str]) -> Run:
    """Runs a subcommand for one twin of the example; files of shards are left in `tmp_path`."""
    folder = built_example(EXAMPLE)

    def run(subcommand: str, twin: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return run_crashcheck(subcommand, "-c", folder / f"{twin}.toml", *words, cwd=tmp_path, env=environment)

    return run


def shard(crashcheck: Run, twin: str, share: str, *words: str) -> None:
    done = crashcheck("run", twin, "--shard", share, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"shard {share}: ")


@pytest.mark.parametrize(("twin", "of"), [("buggy", 3), ("fixed", 2)])
def test_merged_shards_give_the_report_and_the_exit_code_of_one_run_also_without_one_that_was_killed(
    twin: str, of: int, crashcheck: Run, tmp_path: Path
) -> None:
    alone = crashcheck("run", twin, "--format", "json")
    assert crashcheck("record", twin).returncode == 0
    files = []
    for index in range(1, of + 1):
        shard(crashcheck, twin, f"{index}/{of}")
        files.append(tmp_path / f"shard-{index}-of-{of}.crashcheck")
    merged = crashcheck("merge", twin, "--format", "json", *files)
    assert timeless_report(merged) == timeless_report(alone)
    assert merged.returncode == alone.returncode == (twin == "buggy")
    assert timeless_report(merged)["run"]["states"]["explored"] > 0
    assert "is missing" not in merged.stderr
    merged = crashcheck("merge", twin, "--format", "json", *files[1:])
    assert timeless_report(merged) == timeless_report(alone)
    assert f"shard 1/{of} is missing: its crash states are executed here" in merged.stderr


def test_a_policy_is_applied_where_shards_are_merged(crashcheck: Run, tmp_path: Path) -> None:
    crashcheck("record", "buggy")
    shard(crashcheck, "buggy", "1/1")
    file, known = tmp_path / "shard-1-of-1.crashcheck", tmp_path / "known.json"
    assert crashcheck("merge", "buggy", file, "--baseline", known, "--update-baseline").returncode == 0
    assert crashcheck("merge", "buggy", file, "--baseline", known).returncode == 0
    assert crashcheck("merge", "buggy", file).returncode == 1


def test_shards_of_another_recording_check_or_search_are_refused(
    crashcheck: Run, tmp_path: Path, built_example: BuiltExamples
) -> None:
    crashcheck("record", "fixed")
    shard(crashcheck, "fixed", "1/1", "--states", "5")
    file = tmp_path / "shard-1-of-1.crashcheck"

    def refused(twin: str, *words: str) -> str:
        done = crashcheck("merge", twin, file, *words)
        assert (done.returncode, "[shards-differ]" in done.stderr) == (2, True), done.stderr
        return done.stderr

    assert "is of another search" in refused("fixed", "--model", "eadr")
    check = built_example(EXAMPLE) / "check.cpp"
    content = check.read_text()
    check.write_text(f"{content}int added;\n")
    try:
        assert "was made with another check" in refused("fixed")
    finally:
        check.write_text(content)
    crashcheck("record", "buggy")
    assert "is of another recording" in refused("buggy")


def test_a_shard_needs_a_recording_and_a_number(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "crashcheck.toml").write_text(
        '[workload]\ncommand = "true"\n[pool]\nfiles = ["*"]\n[check]\ncommand = "true"\n[model]\nname = "px86"\n'
    )
    done = run_crashcheck("run", "--shard", "1/2", cwd=tmp_path, env=environment)
    assert (done.returncode, "[shard-recording]" in done.stderr) == (2, True), done.stderr
    for wrong in ("0/2", "3/2", "1", "1/", "a/b", "1/2/3"):
        done = run_crashcheck("run", "--shard", wrong, cwd=tmp_path, env=environment)
        assert "[bad-option]" in done.stderr
