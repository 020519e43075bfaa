"""What the ranked search of a b-tree run costs beside its checks, and how images move between crash points."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench import recall
from bench.measure import Spread, interleaved, ratio, scratch
from crashcheck.checker.budget import Budget, Progress
from crashcheck.checker.images.transition import Content
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import early_states, strategy_of

OPERATIONS = 2_000
STATES = 400
_MOVES = 8  # between crash points that are spread over the run
_SORTED = 1 << 21


def measure(repetitions: int) -> dict[str, object]:
    bug = next(bug for bug in recall.planted() if bug.program == "b-tree" and not bug.number)
    with scratch(512) as folder, recall.ready(bug, folder, OPERATIONS) as (config, run, executor):
        searched = _searched(config, run, executor, folder)
        content = run.subject.content
        ways: dict[str, Callable[[], float]] = {
            "by words": lambda: _cpu_of(lambda: _move(content)),
            "piece by piece": lambda: _cpu_of(lambda: _move(_piece_by_piece(content))),
        }
        values = interleaved(repetitions, ways)
    return {
        "events": len(run.subject.trace.events),
        **searched,
        "cpu_seconds_to_move_images": {name: Spread.of(numbers).json() for name, numbers in values.items()},
        "piece_by_piece_to_by_words": ratio(values, "piece by piece", "by words").json(),
        "calibration": calibration(),
    }


def calibration() -> dict[str, object]:
    """How fast this machine is now."""
    return {"spawns_per_second": _spawns(), "sorts_of_2_million_per_second": _sorts()}


def _searched(config: Any, run: Any, executor: Any, folder: Path) -> dict[str, object]:
    """CPU of this process and of the workers, without the checks that they ran, until STATES were executed."""
    budget = Budget(states=STATES)
    first: list[float] = []

    def watch(progress: Progress) -> None:
        if progress.executed and not first:
            first.append(time.process_time() - began)

    began, cpu = time.process_time(), cpu_since(executor)
    strategy = strategy_of(config, run, early=early_states(budget))
    search = search_of(config, run, executor, strategy, budget, progress=watch, explore=False)
    executed = search.run().states.executed
    main, own, checks = cpu()
    return {
        "states": executed,
        "cpu_seconds_to_first_state": round(first[0], 3),
        "cpu_ms_per_state": {
            "main process, ranking included": round(main / executed * 1e3, 3),
            "workers": round(own / executed * 1e3, 3),
            "checks": round(checks / executed * 1e3, 3),
        },
        "share_beside_checks": round((main + own) / (main + own + checks), 3),
    }


def cpu_since(executor: Any) -> Callable[[], tuple[float, float, float]]:
    """Gives the CPU seconds from now on of this process, of the workers, and of the checks that have ended."""
    workers = [worker.pid for worker in executor.workers._workers]
    before, began = [_cpu_of_process(pid) for pid in workers], time.process_time()

    def spent() -> tuple[float, float, float]:
        main, after = time.process_time() - began, [_cpu_of_process(pid) for pid in workers]
        own, checks = (sum(now[n] - then[n] for now, then in zip(after, before, strict=True)) for n in (0, 1))
        return main, own, checks

    return spent


def _cpu_of_process(pid: int) -> tuple[float, float]:
    """Seconds of a process itself, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / tick, (int(fields[13]) + int(fields[14])) / tick


def _cpu_of(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _move(content: Content) -> None:
    points = np.linspace(0, len(content.space.points) - 1, _MOVES + 1).astype(int).tolist()
    for early, late in pairwise(points):
        content.durable(early, late)


def _piece_by_piece(content: Content) -> Content:
    """The same content with each file moved as one that is ever cut."""
    other = Content(content.space)
    for file in other._files.values():
        file.ever_cut = True
    return other


def _spawns() -> float:
    began, count = resource.getrusage(resource.RUSAGE_CHILDREN), 100
    for _ in range(count):
        subprocess.run(["/bin/true"], check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(count / max(1e-9, ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime))


def _sorts() -> float:
    numbers = np.random.default_rng(1).integers(0, 1 << 60, _SORTED)
    return round(1 / _cpu_of(lambda: np.sort(numbers).sum()), 2)
