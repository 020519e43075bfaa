"""`crashcheck run --resume` after `kill -9`: what passed is not run again, unless what it depends on has changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_crashcheck

CONFIG = """
[workload]
command = "for i in 1 2 3; do for j in 1 2; do printf $i >> {pool}/$j; done; done; printf 4 >> {pool}/1"
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = "./check.sh {pool}"
[model]
name = "posix"
[strategy]
explore = false
"""
# Counts its runs on crash states, and ends crashcheck before one of them.
CHECK = """#!/bin/sh
printf . >> runs
[ -s victim ] && [ $(stat -c %s runs) -gt ${MOST:-1000000} ] && kill -9 $(cat victim)
[ ! -e bug ] || [ ! -s $1/2 ] || [ -s $1/1 ]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "crashcheck.toml").write_text(CONFIG)
    (tmp_path / "check.sh").write_text(CHECK)
    (tmp_path / "check.sh").chmod(0o755)
    return tmp_path


WORDS = ("run", "--jobs", "1", "--no-fixes", "--format", "json")


def run(project: Path, environment: Mapping[str, str], *options: str) -> tuple[Any, str, int]:
    """The JSON report, what was printed, and how often the check was run."""
    (project / "runs").write_text("")
    done = run_crashcheck(*WORDS, *options, cwd=project, env=environment)
    return json.loads(done.stdout), done.stderr, os.stat(project / "runs").st_size


def run_that_is_killed(project: Path, environment: Mapping[str, str]) -> None:
    """A run that its check ends by SIGKILL, after MOST runs of the check."""
    (project / "runs").write_text("")
    code = "import os; open('victim', 'w').write(str(os.getpid())); from crashcheck.cli import main; main()"
    command = [sys.executable, "-c", code, *WORDS]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    (project / "victim").unlink()


def test_after_kill_9_a_batch_is_lost_at_most(project: Path, environment: dict[str, str]) -> None:
    report, _, whole = run(project, environment)
    states = report["run"]["states"]["executed"]
    assert states > 150
    # So late that more than one batch is there, whenever the runs of a batch were written because time had passed.
    killed = {**environment, "MOST": str(whole - 1)}
    run_that_is_killed(project, killed)
    resumed, printed, again = run(project, {**killed, "SHLVL": "7"}, "--resume")
    counts = resumed["run"]["states"]
    assert "continues with the recording of" in printed
    assert counts["reused"] >= 128
    assert counts["reused"] + counts["executed"] == states
    assert again == whole - counts["reused"]
    resumed, printed, again = run(project, environment, "--resume")  # without MOST, which the check sees
    assert "runs the check on all crash states again: the variable MOST changed since" in printed
    assert (resumed["run"]["states"]["reused"], again) == (0, whole)


def test_what_fails_is_run_again_and_reported_as_by_a_run_that_was_not_ended(
    project: Path, environment: dict[str, str]
) -> None:
    (project / "bug").touch()
    report, _, _ = run(project, environment)
    cut, _, _ = run(project, environment, "--states", "100")
    resumed, _, _ = run(project, environment, "--resume")
    assert [each["id"] for each in resumed["findings"]] == [each["id"] for each in report["findings"]] != []
    assert [each["states"] for each in resumed["findings"]] == [each["states"] for each in report["findings"]]
    passed = cut["run"]["states"]["executed"] - cut["run"]["states"]["failing"]
    assert 0 < resumed["run"]["states"]["reused"] <= passed  # what explaining has run is not noted


@pytest.mark.parametrize(
    ("change", "printed"),
    [
        ("check.sh", "the check, its settings, or crashcheck itself has changed"),
        ("LD_LIBRARY_PATH", "the variable LD_LIBRARY_PATH changed since"),
    ],
)
def test_after_a_change_of_what_the_check_is_or_sees_all_is_run_again(
    change: str, printed: str, project: Path, environment: dict[str, str]
) -> None:
    run(project, environment, "--states", "40")
    if change == "check.sh":
        (project / "check.sh").write_text(f"{CHECK}# changed\n")
        again = environment
    else:
        again = {**environment, change: "/nowhere"}
    resumed, lines, _ = run(project, again, "--resume", "--states", "10")
    assert f"crashcheck: runs the check on all crash states again: {printed}" in lines
    assert resumed["run"]["states"]["reused"] == 0


JUDGE = """#!/bin/sh
while read -r folder more; do echo "ok $folder"; done
"""


@pytest.mark.parametrize("command", ["./check.sh {folders}", "cat | env judge {folders}"])
def test_a_change_of_a_program_that_runs_the_check_makes_all_run_again(
    command: str, project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    judge = tmp_path / "bin" / "judge"
    judge.parent.mkdir()
    judge.write_text(JUDGE)
    judge.chmod(0o755)
    (project / "check.sh").write_text("#!/usr/bin/env judge\n")
    (project / "crashcheck.toml").write_text(CONFIG.replace("./check.sh {pool}", command))
    env = {**environment, "PATH": f"{judge.parent}:{environment['PATH']}"}
    run(project, env, "--states", "20")
    same, _, _ = run(project, env, "--resume", "--states", "10")
    assert same["run"]["states"]["reused"] > 0
    judge.write_text(f"{judge.read_text()}# changed\n")
    resumed, lines, _ = run(project, env, "--resume", "--states", "10")
    assert f"crashcheck: runs the check on all crash states again: the program {judge} changed since" in lines
    assert resumed["run"]["states"]["reused"] == 0
