"""CPU of all processes after recording, of runs that exhaust their states: with `--reuse` against without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.measure import CannotMeasure, scratch
from crashcheck.runtime.build import build_runtime

ROOT = Path(__file__).resolve().parent.parent
PROGRAM, OPERATIONS, CHANGED = "red-black-tree", 40, 3  # the changed function is that of this planted bug
_RUN = """
import json, os, sys
from crashcheck.cli import main
from crashcheck.reports.progress import LiveProgress
update, began = LiveProgress.update, None
def cpu():
    return sum(os.times()[:4])
def noted(self, phase, progress):
    global began
    if phase == "analysing" and began is None:
        began = cpu()
    update(self, phase, progress)
LiveProgress.update = noted
main(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump(cpu() - began, file)
"""


def measure(repetitions: int) -> dict[str, object]:
    """Once, whatever `repetitions`: what is compared is a second run."""
    with scratch(512) as folder:
        project = folder / "structures"
        shutil.copytree(ROOT / "examples" / "structures", project, ignore=shutil.ignore_patterns(".crashcheck"))
        operations = project / PROGRAM / "operations.txt"
        operations.write_text("".join(operations.read_text().splitlines(keepends=True)[:OPERATIONS]))
        without, states = _cpu(project, "--no-reuse")
        first, _ = _cpu(project, "--reuse")
        second, _ = _cpu(project, "--reuse")
        makefile = project / "Makefile"
        makefile.write_text(makefile.read_text().replace("BUG ?= 0", f"BUG ?= {CHANGED}"))
        changed, now = _cpu(project, "--reuse")
        changed_without, _ = _cpu(project, "--no-reuse")
        return {
            "program": f"{PROGRAM}, {OPERATIONS} operations",
            "states_executed_and_explored_without_reuse": states["executed"] + states["explored"],
            "cpu_seconds_after_recording_without_reuse": round(without, 2),
            "first_run_with_reuse_against_without": round(first / without, 3),
            "second_run_nothing_changed_against_without": round(second / without, 3),
            "second_run_one_function_changed_against_the_same_without": round(changed / changed_without, 3),
            "states_reused_after_the_change": now["reused"],
            "load": round(os.getloadavg()[0], 1),
        }


def _cpu(project: Path, *options: str) -> tuple[float, dict[str, int]]:
    """CPU seconds after recording, and the counts of states."""
    cache, report, seconds = (project.parent / name for name in ("cache", "report.json", "seconds"))
    if not cache.exists():
        built = build_runtime().shared.parent
        cache.mkdir()
        (cache / built.name).symlink_to(built)
    command = [sys.executable, "-c", _RUN, str(seconds), "run", "-c", str(project / PROGRAM / "crashcheck.toml")]
    done = subprocess.run(
        [*command, "--no-fixes", "--format", f"json={report}", *options],
        env={**os.environ, "CRASHCHECK_CACHE": str(cache), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise CannotMeasure(done.stderr[-2000:])
    run = json.loads(report.read_text())["run"]
    if run["stop_reason"] != "exhausted":
        raise CannotMeasure(f"the search ended by {run['stop_reason']}")
    return float(json.loads(seconds.read_text())), dict(run["states"])
