"""Representative testing of recorded system calls."""

from __future__ import annotations

import sys
from pathlib import Path

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.reader import read
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies import Ranked
from crashcheck.checker.strategies.pathfinder import Pathfinder
from crashcheck.checker.strategies.representative import Representative
from crashcheck.runtime.record import Workload, record

SCRIPT = "import os, sys; open(sys.argv[1], 'w').write('x'); [print(i, flush=True) for i in range(20)]"


def space_of(folder: Path, *command: str) -> StateSpace:
    recording = record(Workload(command, ["*"], timeout_s=60.0, recorder="syscalls"), folder)
    return StateSpace(build(read(recording.trace), "ext4", Options()))


def test_what_is_never_synced_is_tested_at_few_later_acknowledgements(tmp_path: Path) -> None:
    space = space_of(tmp_path / "run", "/bin/sh", "-c", "echo x > {pool}/f; for i in $(seq 20); do echo $i; done")
    plan = Pathfinder().plan(space)
    states = list(plan.choices())
    assert plan.notes == ()
    canonical = CanonicalStates(space)
    for planned in plan.groups:
        later = Representative(canonical, planned.ranked.group.representative).later
        assert [int(space.points.event[point]) for point in later] == sorted(
            {int(space.points.event[p]) for p in later}
        )
        assert len(later) == 5  # of 19: the 1st, 2nd, 4th, 8th, 16th
    assert len({choice.state for choice in states}) == len(states)


def test_searches_report_that_stacks_show_nothing(tmp_path: Path) -> None:
    space = space_of(tmp_path / "run", sys.executable, "-c", SCRIPT, "{pool}/f")
    for strategy in (Pathfinder(), Ranked()):
        plan = strategy.plan(space)
        list(plan.choices())
        assert [note for note in plan.notes if "do not show what it does" in note] == list(plan.notes)
