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


@pytest.mark.parametrize(("check", "warned"), [("true", True), ("grep -qx 1 {pool}/d/e/a", False)])
def test_files_in_any_folder_are_damaged(check: str, warned: bool, tmp_path: Path, environment: dict[str, str]) -> None:
    workload = "mkdir -p {pool}/d/e; cp a.txt {pool}/d/e/a; sync"
    report = run(tmp_path, environment, f"test ! -s {{pool}}/d/e/a || {check}", workload)
    assert report["run"]["warnings"] == [BLIND] * warned


def test_a_check_that_reads_only_what_the_workload_leaves_alone_is_named(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    report = run(tmp_path, environment, "grep -qx 1 {pool}/old", "printf 1 > {pool}/a; sync", "cp a.txt {pool}/old")
    assert report["run"]["warnings"] == [BLIND]


def test_a_file_with_two_names_is_inverted_once(tmp_path: Path, environment: dict[str, str]) -> None:
    only_zeros = r"""sh -c "cat {pool}/a 2> /dev/null | tr -d '0\000' | cmp -s - /dev/null" """
    report = run(tmp_path, environment, only_zeros, "printf 0 > {pool}/a; ln {pool}/a {pool}/b; sync")
    assert report["run"]["warnings"] == []


def test_files_that_are_all_empty_or_gone_cannot_be_damaged(tmp_path: Path, environment: dict[str, str]) -> None:
    report = run(tmp_path, environment, "true", "printf 1 > {pool}/a; sync; : > {pool}/a; rm {pool}/a; : > {pool}/b")
    assert report["run"]["warnings"] == []


def run(folder: Path, environment: dict[str, str], check: str, workload: str, setup: str = "true") -> dict:
    (folder / "a.txt").write_text("1\n")
    (folder / "crashcheck.toml").write_text(
        f'[setup]\ncommand = "{setup}"\n[workload]\ncommand = "{workload}"\nrecorder = "syscalls"\n'
        '[pool]\nfiles = ["*"]\n'
        f"[check]\ncommand = '''{check}'''\n"
        '[model]\nname = "ext4"\n'
    )
    done = run_crashcheck("run", "--no-fixes", "--format", "json", cwd=folder, env=environment)
    return json.loads(done.stdout)
