"""Runs of a program that observes its own threads: `crashcheck learn` and `crashcheck guard`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from crashcheck.analyzer.compile.driver.toolchain import THREADS
from crashcheck.analyzer.concurrency.observations import Log, read_log
from crashcheck.config import Config
from crashcheck.runtime.record import ProcessEnd, run_plain
from crashcheck.stages.recording import built, workload_in

OPTIONS = "CRASHCHECK_GUARD"

# (number of the run, whether it must succeed) → its log, None if the program wrote none, and how it ended
Run = Callable[[int, bool], tuple[Log | None, ProcessEnd]]


@contextmanager
def threaded_runs(config: Config, threads: str, perturb_after: int | None = None) -> Iterator[Run]:
    """Build for `threads` (a value of CRASHCHECK_THREADS), and give the function that runs the workload once.

    `perturb_after`: training holds threads up at places that it chooses by this number plus the run's; None: nowhere.

    Raises CrashcheckError: those of `built`, `run_plain` and `read_log`.
    """
    with built(config, environment={THREADS: threads}) as run_folder:

        def run(number: int, must_succeed: bool) -> tuple[Log | None, ProcessEnd]:
            work = run_folder.path / f"threads-{number}"
            path = work.resolve() / "threads.log"
            workload = workload_in(config, work, number)
            chosen = workload.env.get(OPTIONS, "")
            perturbed = f"perturb={perturb_after + number}" if perturb_after is not None else ""
            options = ",".join(option for option in (chosen, perturbed, f"log={path}") if option)
            workload = replace(workload, must_succeed=must_succeed, env={**workload.env, OPTIONS: options})
            try:
                end = run_plain(workload, work)
                return read_log(path) if path.exists() else None, end
            finally:
                shutil.rmtree(work, ignore_errors=True)

        yield run
