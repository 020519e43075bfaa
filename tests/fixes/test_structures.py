"""The proposed edits mend the planted bugs of the structures: applied, built, recorded and explored anew."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from bench.recall import STRUCTURES, Bug, planted

# Enough for the ranked search to meet each of these bugs, in 200 operations; so many are explored anew as well.
STATES = 600
MENDABLE = [bug for bug in planted() if bug.kind in ("ordering", "unpersisted")]


@pytest.mark.slow
@pytest.mark.parametrize("bug", MENDABLE, ids=lambda bug: f"{bug.program}-{bug.number}")
def test_the_edit_mends_the_planted_bug(
    bug: Bug, tmp_path: Path, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "structures"
    shutil.copytree(STRUCTURES, folder, ignore=shutil.ignore_patterns("driver", ".crashcheck"))
    own = folder / bug.program
    built = {**environment, "BUG": str(bug.number)}

    def crashcheck(*words: str) -> tuple[int, str]:
        done = subprocess.run(["crashcheck", *words], cwd=own, env=built, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def explored(*words: str) -> tuple[int, list[dict], str]:
        code, told = crashcheck("run", "--states", str(STATES), "--format", "json=report.json", *words)
        return code, json.loads((own / "report.json").read_text())["findings"], told

    code, findings, told = explored()
    assert code == 1, told
    code, told = crashcheck("fix", "--apply")
    assert code == 0, told
    with capsys.disabled():
        for fix in (finding["fix"] for finding in findings):
            cost = f"{fix['extra_flushes']} flushes and {fix['extra_fences']} fences a run"
            print(f"\n{bug.program} {bug.number}, {bug.kind}: {fix['words']}; {cost}", end=" ")
    code, findings, told = explored("--no-fixes")
    assert (code, [finding["message"] for finding in findings]) == (0, []), told
