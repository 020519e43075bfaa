"""--depth 2 of programs that are recorded by their system calls: what opens the files is crashed as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.command_line import run_crashcheck

PROGRAM = """
import os, sys

journal, accounts = (f"{sys.argv[2]}/{name}" for name in ("journal", "accounts"))
EMPTY, MOVED = b"A" * 4096 + b"A" * 4096, b"B" * 4096 + b"B" * 4096

def write(path, data, flags):
    fd = os.open(path, flags)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)

if sys.argv[1] == "setup":
    write(accounts, EMPTY, os.O_WRONLY | os.O_CREAT)
elif sys.argv[1] == "work":
    write(journal, MOVED, os.O_WRONLY | os.O_CREAT)
    write(accounts, MOVED, os.O_WRONLY)
    os.unlink(journal)
else:
    if os.path.exists(journal):
        with open(journal, "rb") as file:
            moved = file.read()
        if moved == MOVED:
            fd = os.open(accounts, os.O_WRONLY)
            os.write(fd, moved)
            SYNC
            os.close(fd)
        os.unlink(journal)
    if open(accounts, "rb").read() not in (EMPTY, MOVED):
        sys.exit("half of it was moved")
    FINALLY
"""
CONFIG = """
[setup]
command = "python3 -S bank.py setup {pool}"
[workload]
command = "python3 -S bank.py work {pool}"
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = "python3 -S bank.py check {pool}"
[model]
name = "ext4"
"""


def explored(
    folder: Path, environment: dict[str, str], sync: str, finally_: str = "pass", more: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any]]:
    (folder / "bank.py").write_text(PROGRAM.replace("SYNC", sync).replace("FINALLY", finally_), encoding="utf-8")
    (folder / "crashcheck.toml").write_text(CONFIG, encoding="utf-8")
    report = folder / "report.json"
    words = ("run", "--no-fixes", "--depth", "2", *more, "--format", f"json={report}")
    done = run_crashcheck(*words, cwd=folder, env=environment)
    return done.returncode, json.loads(report.read_text(encoding="utf-8"))


def test_a_recovery_that_removes_the_journal_before_its_data_are_synced_is_found_at_its_lines(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    code, report = explored(tmp_path, environment, "pass")
    (finding,) = report["findings"]
    assert (code, finding["kind"], finding["depth"]) == (1, "recovery-failure", 2)
    lines = PROGRAM.splitlines()
    at = [lines[finding[place]["line"] - 1].strip() for place in ("location", "other")]
    assert at == ["os.unlink(journal)", "os.write(fd, moved)"]
    assert finding["replay"].startswith("recovery:")


def test_a_recovery_that_syncs_its_data_first_is_clean(tmp_path: Path, environment: dict[str, str]) -> None:
    code, report = explored(tmp_path, environment, "os.fsync(fd)")
    assert (code, report["findings"], report["run"]["warnings"]) == (0, [], [])


def test_a_search_that_ends_before_all_recoveries_were_crashed_does_not_claim_all_states(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    code, report = explored(tmp_path, environment, "os.fsync(fd)", more=("--states", "24"))
    assert (code, report["run"]["states"]["feasible_exact"]) == (0, False)
    assert "feasible crash states checked" in report["run"]["summary"]
    assert " of at least " in report["run"]["summary"]
    assert report["run"]["states"]["feasible_note"].endswith("the recoveries were crashed")


def test_an_opening_that_destroys_the_files_is_one_warning(tmp_path: Path, environment: dict[str, str]) -> None:
    code, report = explored(tmp_path, environment, "os.fsync(fd)", "os.truncate(accounts, 5)")
    (warning,) = report["run"]["warnings"]
    assert (code, report["findings"]) == (0, [])
    assert "fails when it is run once more on what it left there" in warning
    assert "The first one prints `half of it was moved`. Replay: recovery:" in warning
