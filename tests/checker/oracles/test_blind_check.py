"""A check that passes on damaged files as it does on all crash states is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crashcheck.checker.results import BLIND
from support.command_line import run_crashcheck

NO_ZEROS = r"""sh -c "! grep -qaP '\x00' {pool}/a" """
SAME = """sh -c "test ! -s {pool}/a || grep -qx 1 {pool}/a" """


@pytest.mark.parametrize(
    ("check", "warned"),
    [
        pytest.param("true", True, id="it reads nothing"),
        pytest.param('sh -c "cat {pool}/* > /dev/null; exit 0"', True, id="it compares nothing"),
        pytest.param("grep -q 1 a.txt", True, id="it reads other files"),
        pytest.param(NO_ZEROS, False, id="it notices zeros"),
        pytest.param(SAME, False, id="it notices other bytes"),
    ],
)
def test_a_check_that_passes_whatever_the_files_hold_is_named(
    check: str, warned: bool, tmp_path: Path, environment: dict[str, str]
) -> None:
    report = run(tmp_path, environment, check, "printf 1 > {pool}/a; sync")
    assert report["run"]["stop_reason"] == "exhausted"
    assert report["run"]["warnings"] == [BLIND] * warned


def test_files_that_are_all_empty_or_gone_cannot_be_damaged(tmp_path: Path, environment: dict[str, str]) -> None:
    report = run(tmp_path, environment, "true", "printf 1 > {pool}/a; sync; : > {pool}/a; rm {pool}/a; : > {pool}/b")
    assert report["run"]["warnings"] == []


def run(folder: Path, environment: dict[str, str], check: str, workload: str) -> dict:
    (folder / "a.txt").write_text("1\n")
    (folder / "crashcheck.toml").write_text(
        f'[workload]\ncommand = "{workload}"\nrecorder = "syscalls"\n[pool]\nfiles = ["*"]\n'
        f"[check]\ncommand = '''{check}'''\n"
        '[model]\nname = "ext4"\n'
    )
    done = run_crashcheck("run", "--format", "json", cwd=folder, env=environment)
    return json.loads(done.stdout)
