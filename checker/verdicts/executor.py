"""Verdicts on crash states: workers run the check (execution), and an oracle judges each run.

Neither calls the other: this module calls both. What an oracle needs run itself, it asks the same workers for
(references.py).
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.tasks import FINAL, FIRST, Run, Tasks
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.results import Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.verdicts.copies import CALLED_IN_TURN, FOLDERS, READY, Copies
from crashcheck.checker.verdicts.verdict_source import Asked, Awaited, JudgedRun, VerdictSource

_AHEAD = 4  # states submitted ahead for each worker


class Executor(VerdictSource):
    """Submit states, ask for verdicts. A context manager, as its workers are.

    Runs are judged in the order in which verdicts are asked for, not in that of their ends: verdicts do not depend on
    how many workers there are.
    """

    def __init__(self, workers: WorkerPool, oracle: Oracle) -> None:
        # never change
        self.workers = workers
        self.oracle = oracle
        # change while states are executed
        self._short: TimeLimit | None = None  # the limit of crash states, where it is less than what the limits allow
        self.executed = 0  # states whose verdicts were asked for
        self._differing: Counter[str] = Counter()  # states that failed elsewhere and passed here, by place
        check = workers.setup.command
        self._copies = Copies(CALLED_IN_TURN if check.function else FOLDERS if check.command.folders_at else READY)

    def __enter__(self) -> Executor:
        self.workers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and remove the images. May be called twice."""
        self.workers.close()

    @property
    def home(self) -> Path:
        """The folder of the images."""
        return self.workers.home

    # -- as the lowest of several sources

    @property
    def executor(self) -> Executor:
        return self

    @property
    def ahead(self) -> int:
        return max(_AHEAD * self.workers.jobs, self.workers.ahead)

    def ask(self, asked: Asked) -> Awaited[Verdict]:
        ticket = self.submit(asked.state)
        return lambda left_s: self.result(ticket, left_s)

    # -- crash states

    def submit(self, state: CrashState) -> int:
        """Queue a state; `result` gives its verdict."""
        ticket = self._submit(state, self._short, forks=self._copies.used)
        self._copies.asked(ticket, state, self._short)
        return ticket

    def result(self, ticket: int, timeout_s: float | None = None) -> Verdict | None:
        """The verdict of `judged`."""
        judged = self.judged(ticket, timeout_s)
        return None if judged is None else judged.verdict

    def judged(self, ticket: int, timeout_s: float | None = None) -> JudgedRun | None:
        """Wait for a verdict; each ticket once. None if it has not come in time (never without a time).

        CrashcheckError if a worker dies or an image cannot be written. CopiesDiffer.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        left_s = timeout_s
        while (run := self.workers.poll(ticket, left_s)) is None:
            self._begin_what_judging_needs()
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
        self._begin_what_judging_needs()
        judged = self._judged(run)
        if run.state is not None and not judged.verdict.passed:  # what another machine shows must show here, too
            stages = self.oracle.stages(run.point)
            again = self.workers.submit(run.state, stages, urgent=True, limit=self._short, doubted=run.place)
            return self.judged(again, None if deadline is None else max(0.0, deadline - time.monotonic()))
        self.executed += 1
        if run.doubted and judged.verdict.passed:
            self._differing[run.doubted] += 1
        return self._copies.confirmed(self, ticket, judged)

    @property
    def notes(self) -> tuple[str, ...]:
        """What other machines have shown, and this one has not; what kept checks from waiting in crashcheck_ready()."""
        differing = tuple(
            f"{count:,} crash states failed on {place} and passed here, so they count as passed: the check is flaky, "
            "or that machine differs from this one"
            for place, count in sorted(self._differing.items())
        )
        return (*differing, *self._copies.notes)

    def run(self, state: CrashState, *, patient: bool = False, most_s: float | None = None) -> Verdict:
        """Execute one state now, before anything that waits; `patient`: with all the time that the limits allow.

        `most_s`: it times out after so many seconds, if not earlier.
        """
        return self.now(self.submit_now(state, patient=patient, most_s=most_s))

    def submit_now(self, state: CrashState, *, patient: bool = False, most_s: float | None = None) -> int:
        """As `run`, but only queue the state, before anything that waits; `now` gives its verdict."""
        return self._submit(state, self._at_most(most_s, None if patient else self._short), urgent=True)

    def submit_likely(self, state: CrashState, *, most_s: float | None = None) -> int:
        """As `submit_now`, for a state that will probably be asked for: `now` or `drop` it."""
        return self._submit(state, self._at_most(most_s, self._short), likely=True)

    def drop(self, ticket: int) -> None:
        """The verdict of a likely state is not needed."""
        self.workers.drop(ticket)

    @property
    def begins_likely(self) -> bool:
        """Whether states that are likely to be asked for are worth being begun: there is a worker for them."""
        return self.workers.jobs > 1

    def now(self, ticket: int) -> Verdict:
        """Wait for a verdict, however long it takes."""
        verdict = self.result(ticket)
        assert verdict is not None
        return verdict

    def _at_most(self, most_s: float | None, limit: TimeLimit | None = None) -> TimeLimit | None:
        """A limit for one run (None: the configured one) that is no longer than `most_s`."""
        if most_s is None:
            return limit
        limit = TimeLimit(self.workers.limits.timeout_s) if limit is None else limit
        return limit._replace(wall_s=min(most_s, limit.wall_s))

    def run_first(self, most_s: float | None = None) -> Verdict:
        """Execute the check on the image before the workload: nothing acknowledged, nothing printed."""
        stages, limit = self.oracle.stages(FIRST), self._at_most(most_s)
        return self.now(self.workers.submit_uncrashed(FIRST, stages, limit=limit))

    def run_final(self, most_s: float | None = None) -> Verdict:
        """Execute the check on the image after the workload, all acknowledged."""
        stages, limit = self.oracle.stages(FINAL), self._at_most(most_s)
        return self.now(self.workers.submit_uncrashed(FINAL, stages, limit=limit))

    def try_copies(self, most_s: float | None = None) -> Verdict:
        """As `run_final`; and if the check then ends as usual from crashcheck_ready() on, crash states begin there."""
        run = self._copies.try_on_final(self, self._at_most(most_s))
        self._begin_what_judging_needs()
        self.executed += 1
        return self._judged(run).verdict

    def rerun(self, state: CrashState, limit: TimeLimit | None, *, forks: bool) -> JudgedRun:
        """Execute a state now, in a copy or from the beginning, whether or not it was executed before."""
        run = self.workers.ended(self._submit(state, limit, urgent=True, forks=forks))
        self._begin_what_judging_needs()
        return self._judged(run)

    def run_on(
        self, files: Path, setup: CheckSetup, point: int, acknowledged: tuple[int, int], most_s: float | None = None
    ) -> Verdict:
        """Execute the check on a folder as on the image of a crash point."""
        limits = self.workers.limits
        if most_s is not None:
            limits = replace(limits, timeout_s=min(most_s, limits.timeout_s))
        with self.workers.beside(replace(setup, first=files), limits, acknowledged) as workers:
            run = workers.ended(workers.submit_uncrashed(FIRST, self.oracle.stages(point)))
        return self.oracle.judge(run.ended, run.names, point)

    @property
    def short(self) -> TimeLimit | None:
        """The time limit of crash states; None where it is that of the limits."""
        return self._short

    def set_timeout(self, limit: TimeLimit) -> None:
        """Let the check take that long on each crash state from now on, but no longer than the limits allow."""
        self._short = limit if limit.wall_s < self.workers.limits.timeout_s else None

    def aside(self) -> AbstractContextManager[None]:
        """While a failing state is diagnosed, keep the worker that runs its relatives free of other states."""
        return self.workers.aside()

    @property
    def is_aside(self) -> bool:
        """Whether a failing state is being diagnosed."""
        return self.workers.is_aside

    def _submit(
        self,
        state: CrashState,
        limit: TimeLimit | None,
        *,
        urgent: bool = False,
        likely: bool = False,
        forks: bool = False,
    ) -> int:
        stages = self.oracle.stages(state.point)
        return self.workers.submit(state, stages, urgent=urgent, likely=likely, limit=limit, forks=forks)

    def _judged(self, run: Run) -> JudgedRun:
        return JudgedRun(self.oracle.judge(run.ended, run.names, run.point), run)

    def _begin_what_judging_needs(self) -> None:
        """Let the oracle see runs that have ended, before they are asked for: it may need other runs to judge them."""
        for run in self.workers.arrivals():
            self.oracle.arrived(run.ended, run.names, run.point)

    # -- images, and what a person can do with them

    @property
    def images(self) -> Tasks:
        """Writes the images of states, and knows what was acknowledged at each crash point."""
        return self.workers.tasks

    def shown(self, point: int, pool: str) -> str:
        """The check as a person would type it for an image of a crash point, FIRST or FINAL, at `pool`."""
        operations = 0 if point == FIRST else self.images.acknowledged(point)[0]
        setup = self.workers.setup
        printed = "/dev/null" if point == FIRST else str(setup.recorded_stdout or "{stdout}")
        return setup.command.shown(pool, operations, printed)
