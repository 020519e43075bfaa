"""Crash states checked per CPU second of all processes: each check started by exec, or copied at crashcheck_ready()."""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any, cast

from bench.measure import Spread, interleaved, ratio, scratch
from bench.programs import HERE, compile_program
from bench.states import Content, Point, State
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.command import Command
from crashcheck.runtime.build import build_runtime

STARTED, COPIED = 100, 1000  # states; each power of two among the copies is started as well
WRITES = 4
IMAGE_BYTES = 1 << 20


def measure(repetitions: int) -> dict[str, object]:
    with scratch(20 * IMAGE_BYTES >> 20) as folder:
        program = compile_program("cc", "ready", folder / "ready")
        script = shutil.copy(HERE / "workloads" / "ready.py", folder)
        python = sys.executable, str(script)
        return {
            "c_that_maps": _measure(repetitions, folder / "c", (str(program),)),
            "python_with_json_sqlite3_struct": _measure(repetitions, folder / "python", python),
            "the_same_ended_by_os_exit": _measure(repetitions, folder / "at once", (*python, "--at-once")),
            "load": round(os.getloadavg()[0], 1),
        }


def _measure(repetitions: int, folder: Path, check: tuple[str, ...]) -> dict[str, object]:
    random_ = random.Random(1)
    content = Content(
        tuple(
            tuple(sorted((random_.randrange(IMAGE_BYTES // 8) * 8, random_.randbytes(8)) for _ in range(WRITES)))
            for _ in range(COPIED)
        )
    )
    first = folder / "first"
    first.mkdir(parents=True)
    (first / "image").write_bytes(random_.randbytes(IMAGE_BYTES))
    words = (*check, "{pool}")
    command = CheckCommand.find(Command(" ".join(words), words), folder)
    setup = CheckSetup(
        command, folder=folder, first=first, work=folder, preload=build_runtime().shared, patterns=("image",)
    )
    values = interleaved(
        repetitions,
        {
            "exec": lambda: STARTED / _cpu_s(content, setup, STARTED, copied=False),
            "crashcheck_ready()": lambda: COPIED / _cpu_s(content, setup, COPIED, copied=True),
        },
    )
    return {
        "states_per_cpu_second": {name: Spread.of(numbers).json() for name, numbers in values.items()},
        "ratio": ratio(values, "crashcheck_ready()", "exec").json(),
    }


def _cpu_s(content: Content, setup: CheckSetup, states: int, *, copied: bool) -> float:
    """CPU seconds of this process and its children, the start of one worker included."""
    began = sum(os.times()[:4])
    # An executor asks its content and its points for nothing but what Content and Point have.
    with Executor(WorkerPool(cast(Any, content), cast(Any, [Point()]), setup, jobs=1), ExitStatus()) as executor:
        passed = (executor.try_copies() if copied else executor.run_final()).passed
        tickets = [executor.submit(cast(Any, State(0, number))) for number in range(states)]
        verdicts = [executor.result(ticket) for ticket in tickets]
        assert passed
        assert all(verdict is not None and verdict.passed for verdict in verdicts)
        assert not executor.notes
    return sum(os.times()[:4]) - began
