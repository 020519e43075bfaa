"""Searches of programs with many bugs at once: what is found in a minute where each run of the check takes 50 ms."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from bench import recall
from bench.measure import scratch
from bench.remember import Remembering
from bench.search import calibration, cpu_since
from crashcheck import pipeline
from crashcheck.checker.budget import Budget
from crashcheck.checker.results import Finding
from crashcheck.config import Config, override
from crashcheck.stages.recording import build, record_check_reads, record_run
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import early_states, strategy_of

OPERATIONS = 2_000
SECONDS = 60.0
# A busy loop before the driver opens its pool: as long as the runs of real checks.
_BURN = """#include <time.h>
__attribute__((constructor)) static void burn(void) {
    while (clock() < CLOCKS_PER_SEC / 20);
}
"""
# Hides the others: with it nearly every state fails, the driver fails without a crash, or another's code is left out.
HIDES = {
    "b-tree": {1, 2, 6, 7, 10, 11, 13},
    "bplus-tree": {8, 12, 13},
    "clht": {8, 10, 11},
    "crit-bit-tree": {3, 4, 6, 7, 9, 10},
    "extendible-hash": {5, 7, 8, 12},
    "level-hash": {4, 5, 10, 12, 13, 15},
    "radix-tree": {5, 10, 13},
    "red-black-tree": {6, 8, 9, 10},
}


def measure(repetitions: int) -> dict[str, object]:
    """One search of each structure, whatever `repetitions`: a minute each."""
    figures = {name: _measured(name, SECONDS) for name in HIDES}
    return {**figures, "calibration": calibration(), "load": round(os.getloadavg()[0], 1)}


def _measured(program: str, seconds: float) -> dict[str, object]:
    bugs = [bug for bug in recall.planted() if bug.program == program and bug.number not in (0, *HIDES[program])]
    with scratch(512) as folder:
        config = planted_together(bugs, folder)
        work = folder / "work"
        work.mkdir()
        build(config, work)
        run = record_check_reads(config, record_run(config, work))
        with recall.checking(config, run, work, Remembering) as executor:
            budget = Budget(seconds)
            began, cpu = time.monotonic(), cpu_since(executor)
            plan = strategy_of(config, run, early=early_states(budget))
            search = search_of(config, run, executor, plan, budget, folder=work, explore=False)
            found = search.run()
            took_s, (main, own, checks) = time.monotonic() - began, cpu()
            executor.settle()
    shown = distinct([_bugs_of(finding, bugs) for finding in found.findings])
    runs = found.states.executed + found.probes
    available_s = took_s * pipeline.cores()
    return {
        "bugs_planted": len(bugs),
        "bugs_found": len(shown),
        "found": " ".join(map(str, sorted(shown))),
        "findings": len(found.findings),
        "states": found.states.executed,
        "failing": found.states.failing,
        "seconds": round(took_s, 1),
        "seconds_to_first_state": round(found.first_state_s or -1.0, 3),
        "seconds_to_first_finding": round(min((one.seconds for one in found.discoveries), default=-1.0), 3),
        "share_of_runs_that_explain": round(found.probes / max(1, runs), 3),
        "share_of_busy_cores": round((main + own + checks) / available_s, 3),
        "share_of_main_process": round(main / available_s, 3),
    }


def planted_together(bugs: list[recall.Bug], folder: Path) -> Config:
    """A copy of a structure with several bugs planted in it, and a check that takes 50 ms."""
    config = recall.prepared(bugs[0], folder, OPERATIONS)
    (source,) = (path for path in config.folder.iterdir() if path.suffix in (".c", ".cpp"))
    numbers = {bug.number for bug in bugs}

    def planted(match: re.Match[str]) -> str:
        return str(int((int(match[2]) in numbers) is (match[1] == "==")))

    text = re.sub(r"\bBUG ([!=]=) (\d+)", planted, source.read_text(encoding="utf-8"))
    source.write_text(_BURN + text, encoding="utf-8")
    return override(config, explore=False)


def _bugs_of(finding: Finding, bugs: list[recall.Bug]) -> set[int]:
    """The bugs whose culprits a finding names; else those of its kind in a function that it names."""
    marked = {int(number) for place in finding.blamed for number in recall.marks_of(place.text)}
    functions = {place.function for place in finding.blamed}
    numbers = {bug.number for bug in bugs}
    return marked & numbers or {
        bug.number for bug in bugs if bug.function in functions and bug.kind == finding.kind.value
    }


def distinct(named: list[set[int]]) -> set[int]:
    """As many bugs as there are findings of them, one for each: some lines are the culprits of several bugs."""
    finding_of: dict[int, int] = {}

    def placed(finding: int, tried: set[int]) -> bool:
        for bug in sorted(named[finding] - tried):
            tried.add(bug)
            if bug not in finding_of or placed(finding_of[bug], tried):
                finding_of[bug] = finding
                return True
        return False

    for finding in range(len(named)):
        placed(finding, set())
    return set(finding_of)
