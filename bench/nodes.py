"""What the control of nodes costs: microseconds a call, runs a second, and our share of the processors' time.

The cost of a call is measured on a clock in memory that another processor writes: what nodes read as the time is ours.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.measure import CannotMeasure, Spread, run, scratch
from crashcheck.runtime.nodes.actions import Action, ActionKind
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld

CALLS, WARM, ROOM = 20_000, 1_000, 1 << 20
KINDS = ("clock", "read", "option", "output")
RUNS = 300  # of two-phase commit
_BENCH = Path(__file__).resolve().parent
_COMMIT = _BENCH.parent / "tests" / "run" / "nodes" / "commit.c"
_NODES = """
[[node]]
command = "./commit {index} {peers} yyy stay"
count = 4
[strategy]
name = "random"
runs = %d
[budget]
seconds = 600
"""


def measure(repetitions: int) -> dict[str, object]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotMeasure("no C compiler was found")
    with scratch(100) as folder:
        for source in (_BENCH / "workloads" / "node_calls.c", _COMMIT):
            run([compiler, "-O2", source, "-o", folder / source.stem])
        return {
            "microseconds_a_call": _calls_of_all_kinds(repetitions, folder),
            "runs_of_two_phase_commit": {f"jobs_{jobs}": _runs(repetitions, folder, jobs) for jobs in (1, 2)},
            "share_of_processor_time": _share(repetitions, folder),
        }


def _calls_of_all_kinds(repetitions: int, folder: Path) -> dict[str, object]:
    """One processor for the nodes, and another one for the clock."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return {"not_measured": "there is one processor only"}
    try:
        os.sched_setaffinity(0, allowed[:1])
        return {kind: _calls(repetitions, folder, kind, allowed[-1]) for kind in KINDS}
    except CannotMeasure as error:
        return {"not_measured": str(error)}
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def _ticking(folder: Path, processor: int) -> Iterator[Path]:
    """A file whose first 8 bytes are the time."""
    shared = folder / "shared"
    shared.write_bytes(bytes(ROOM))
    with subprocess.Popen([folder / "node_calls", shared, "tick"]) as ticker:
        os.sched_setaffinity(ticker.pid, [processor])
        try:
            yield shared
        finally:
            ticker.kill()
    shared.unlink()


def _calls(repetitions: int, folder: Path, kind: str, processor: int) -> dict[str, object]:
    """Median and 99 % of all calls of a run, each repetition by itself."""
    medians, slowest = [], []
    for _ in range(repetitions):
        with _ticking(folder, processor) as shared:
            words = (str(folder / "node_calls"), str(shared), kind, str(CALLS))
            with _world(folder, [words]) as world:
                world.take(Action(ActionKind.START, 0))
            taken = sorted(struct.unpack_from(f"<{CALLS}Q", shared.read_bytes(), 8)[WARM:])
        if taken[len(taken) // 20] == 0:  # fewer, as when the clock is interrupted once, change neither figure
            raise CannotMeasure("other programs kept the clock's processor busy: the time did not change during a call")
        medians.append(taken[len(taken) // 2] / 1000)
        slowest.append(taken[len(taken) * 99 // 100] / 1000)
    return {"median": Spread.of(medians).json(), "percent_99": Spread.of(slowest).json(), "calls": CALLS - WARM}


@contextmanager
def _world(folder: Path, commands: Sequence[tuple[str, ...]]) -> Iterator[NodeWorld]:
    place = folder / "world"
    world = NodeWorld([NodeCommand(words) for words in commands], place)
    try:
        yield world
    finally:
        world.close()
        shutil.rmtree(place)


def _runs(repetitions: int, folder: Path, jobs: int) -> dict[str, object]:
    """Runs a second of four nodes, with the search and without a check."""
    (folder / "crashcheck.toml").write_text(_NODES % RUNS, encoding="ascii")
    report = folder / "report.json"
    speeds = []
    for _ in range(repetitions):
        command = [sys.executable, "-m", "crashcheck", "run", "--jobs", str(jobs), "--format", f"json={report}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise CannotMeasure(done.stderr[-500:])
        found = json.loads(report.read_text(encoding="utf-8"))["run"]
        states = found["states"]
        speeds.append((states["executed"] + states["pruned"]) / found["phases"][-1]["seconds"])
    return {"runs_a_second": Spread.of(speeds).json(), "runs": RUNS}


def _share(repetitions: int, folder: Path) -> dict[str, object]:
    """Of the processor time of one run of four nodes: what the nodes took, the controller, and Python."""
    shares: dict[str, list[float]] = {"nodes": [], "controller": [], "python": []}
    words = [(str(folder / "commit"), str(n), "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4", "yyy", "stay") for n in range(4)]
    for _ in range(repetitions):
        began = time.process_time()
        with _world(folder, words) as world:
            while usual := [each for each in world.enabled() if each.kind in _USUAL]:
                world.take(usual[0])
            controller = world.controller_pid
            spent = {
                "controller": _on_processor(controller),
                "nodes": sum(map(_on_processor, _below(controller))),
                "python": time.process_time() - began,
            }
        for name, seconds in spent.items():
            shares[name].append(seconds / sum(spent.values()))
    return {name: Spread.of(values).json() for name, values in shares.items()}


_USUAL = (ActionKind.START, ActionKind.CONNECT, ActionKind.DELIVER, ActionKind.TIMER)


def _on_processor(pid: int) -> float:
    """Seconds that a process with one thread has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def _below(pid: int) -> Iterator[int]:
    """All processes below one."""
    with suppress(FileNotFoundError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            yield int(child)
            yield from _below(int(child))
