"""The proposed edits fix the planted bugs of the structures: applied, built, recorded and explored again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench.recall import Bug, _prepared, planted

from support.command_line import run_crashcheck

MENDABLE = [bug for bug in planted() if bug.kind in ("ordering", "unpersisted")]

# Operations, and states to execute, until a bug is found: nearly all are in the first.
EXTENTS = ((80, 300), (200, 1000))


@pytest.mark.slow
@pytest.mark.parametrize("bug", MENDABLE, ids=lambda bug: f"{bug.program}-{bug.number}")
def test_the_edit_fixes_the_planted_bug(
    bug: Bug, tmp_path: Path, environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    built = {**environment, "BUG": str(bug.number)}
    findings: list[dict[str, Any]] = []
    printed = ""
    for operations, states in EXTENTS:
        extent = tmp_path / str(operations)
        extent.mkdir()
        own = _prepared(bug, extent, operations).folder

        def crashcheck(*words: str, own: Path = own) -> tuple[int, str]:
            done = run_crashcheck(*words, cwd=own, env=built)
            return done.returncode, done.stdout + done.stderr

        def explored(*words: str, own: Path = own, states: int = states) -> tuple[list[dict[str, Any]], str]:
            _, printed = crashcheck("run", "--states", str(states), "--format", "json=report.json", *words)
            return json.loads((own / "report.json").read_text())["findings"], printed

        findings, printed = explored()
        if findings:
            break
    assert findings, printed
    code, printed = crashcheck("fix", "--apply")
    assert code == 0, printed
    with capsys.disabled():
        for fix in (finding["fix"] for finding in findings):
            cost = f"{fix['extra_flushes']} flushes and {fix['extra_fences']} fences a run"
            print(f"\n{bug.program} {bug.number}, {bug.kind}: {fix['words']}; {cost}", end=" ")
    edited = "".join(path.read_text() for path in own.glob("*.c*") if path.is_file())
    assert "_mm_" not in edited, "the structures have a flush and a fence of their own"
    left, printed = explored("--no-fixes")
    assert [finding["message"] for finding in left] == [], printed
