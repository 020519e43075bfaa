"""The proposed edit mends planted bugs of the structures: applied, built, recorded and explored anew."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

STRUCTURES = Path(__file__).resolve().parent.parent.parent / "examples" / "structures"

# Of each way to mend, bugs of kind ordering or unpersisted.
SAMPLE = [
    *(("level-hash", bug) for bug in (1, 3, 6, 8, 9, 11)),
    *(("clht", bug) for bug in (3, 4, 5, 6)),
    ("crit-bit-tree", 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bug"), SAMPLE)
def test_the_edit_mends_the_planted_bug(name: str, bug: int, tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "structures"
    shutil.copytree(STRUCTURES, folder, ignore=shutil.ignore_patterns("driver", ".crashcheck"))
    planted = {**environment, "BUG": str(bug)}

    def crashcheck(*words: str) -> tuple[int, str]:
        done = subprocess.run(["crashcheck", *words], cwd=folder / name, env=planted, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    budget = ("--budget", "60s", "--format", "json=report.json")
    code, told = crashcheck("run", *budget)
    assert code == 1, told
    code, told = crashcheck("fix", "--apply")
    assert code == 0, told
    code, told = crashcheck("run", "--no-fixes", *budget)
    report = json.loads((folder / name / "report.json").read_text())
    assert (code, [finding["message"] for finding in report["findings"]]) == (0, []), told
