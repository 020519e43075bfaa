"""Verdicts on crash states: workers run the check (execution), and an oracle judges each run.

Neither calls the other: this module calls both. What an oracle needs run itself, it asks the same workers for
(references.py).
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.process import Ended, Limits, captured
from crashcheck.checker.execution.tasks import FINAL, FIRST, Run
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.images.real_files import RealFiles, write_real_image
from crashcheck.checker.images.transition import Content
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.results import Verdict
from crashcheck.checker.states.points import CrashPoint
from crashcheck.checker.states.space import CrashState
from crashcheck.runtime.exploration import TABLE, End, Explored, OpenGranule, read_table, write_table

_FLAKY = (
    "flaky: the check ended in two ways on the same image, from crashcheck_ready() on; runs from the beginning count"
)


class ForksDiffer(Exception):
    """The check ends otherwise if it continues at crashcheck_ready() than from the beginning; the text: how."""


class Executor:
    """Submit states, ask for verdicts. A context manager, as its workers are.

    Runs are judged in the order in which verdicts are asked for, not in that of their ends: verdicts do not depend on
    how many workers there are.
    """

    judges = False  # whether it judges a state when its verdict is asked for: then nothing is submitted ahead

    def __init__(
        self,
        content: Content,
        points: Sequence[CrashPoint],
        setup: CheckSetup,
        oracle: Oracle,
        *,
        limits: Limits | None = None,
        jobs: int = 1,
        stdout_bytes: int = 0,
        operations: int = 0,
        acknowledged: tuple[int, int] | None = None,
    ) -> None:
        """Take what WorkerPool takes, and the oracle."""
        # never change
        self.workers = WorkerPool(
            content,
            points,
            setup,
            limits=limits,
            jobs=jobs,
            stdout_bytes=stdout_bytes,
            operations=operations,
            acknowledged=acknowledged,
        )
        self._oracle = oracle
        self._content = content
        self._points = points
        self._always = acknowledged
        # change while states are executed
        self._short_s: float | None = None  # the limit of crash states, where it is less than what the limits allow
        self.executed = 0  # states whose verdicts were asked for
        self.judged_run: Run | None = None  # the last of these
        self._differing: Counter[str] = Counter()  # states that failed elsewhere and passed here, by place
        self._forks = False  # the check may continue at crashcheck_ready() instead of starting from the beginning
        self._asked: dict[int, tuple[CrashState, float | None]] = {}  # what may be forked, by ticket, with its limit
        self._forked_passes = 0
        self._fork_notes: dict[str, None] = {}  # what a report mentions of crashcheck_ready()

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

    # -- crash states

    def submit(self, state: CrashState) -> int:
        """Queue a state; `result` gives its verdict."""
        ticket = self._submit(state, self._short_s, forks=self._forks)
        if self._forks:
            self._asked[ticket] = state, self._short_s
        return ticket

    def submit_ended(self, run: Run) -> int:
        """As `submit`, of a run that has ended elsewhere."""
        return self.workers.submit_ended(run)

    def result(self, ticket: int, timeout_s: float | None = None) -> Verdict | None:
        """Wait for a verdict; each ticket once. None if it has not come in time (never without a time).

        CrashcheckError if a worker dies or an image cannot be written. ForksDiffer.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        left_s = timeout_s
        while (run := self.workers.poll(ticket, left_s)) is None:
            self._begin_what_judging_needs()
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
        self._begin_what_judging_needs()
        verdict = self._judged(run)
        if run.state is not None and not verdict.passed:  # what another machine shows must show here, too
            stages = self._oracle.stages(run.point)
            again = self.workers.submit(run.state, stages, urgent=True, timeout_s=self._short_s, doubted=run.place)
            return self.result(again, None if deadline is None else max(0.0, deadline - time.monotonic()))
        self.executed += 1
        if run.doubted and verdict.passed:
            self._differing[run.doubted] += 1
        asked = self._asked.pop(ticket, None)
        if run.ended.refused:
            self._note_refused(run.ended.refused)
        if asked is not None and run.ended.forked:
            verdict = self._confirmed(verdict, *asked)
        return verdict

    @property
    def notes(self) -> tuple[str, ...]:
        """What other machines have shown, and this one has not; what kept checks from waiting in crashcheck_ready()."""
        differing = tuple(
            f"{count:,} crash states failed on {place} and passed here, so they count as passed: the check is flaky, "
            "or that machine differs from this one"
            for place, count in sorted(self._differing.items())
        )
        return (*differing, *self._fork_notes)

    def run(self, state: CrashState, *, patient: bool = False, most_s: float | None = None) -> Verdict:
        """Execute one state now, before anything that waits; `patient`: with all the time that the limits allow.

        `most_s`: it times out after so many seconds, if not earlier.
        """
        timeout_s = None if patient else self._short_s
        if most_s is not None:
            timeout_s = min(most_s, self.workers.limits.timeout_s if timeout_s is None else timeout_s)
        return self._now(self._submit(state, timeout_s, urgent=True))

    def run_first(self) -> Verdict:
        """Execute the check on the image before the workload: nothing acknowledged, nothing printed."""
        return self._now(self.workers.submit_uncrashed(FIRST, self._oracle.stages(FIRST)))

    def run_final(self) -> Verdict:
        """Execute the check on the image after the workload, all acknowledged."""
        return self._now(self._submit_final(forks=False))

    # -- checks that call crashcheck_ready()

    def try_forking(self) -> Verdict:
        """As `run_final`; and if the check then ends as usual from crashcheck_ready() on, crash states begin there."""
        run = self.workers.ended(self._submit_final(forks=True))
        if run.ended.refused:
            self._note_refused(run.ended.refused)
        if run.ended.forked:
            anew = self.workers.ended(self._submit_final(forks=False))
            again = self.workers.ended(self._submit_final(forks=True))
            self._forks = again.ended.forked and _shown(run) == _shown(anew) == _shown(again)
            if not self._forks:
                self._note_refused(
                    "on the final image, the check ends otherwise or prints something else if it continues there: "
                    "nothing before the call may depend on the time, on the process, or on the files"
                )
            run = anew
        self._begin_what_judging_needs()
        self.executed += 1
        return self._judged(run)

    def _submit_final(self, *, forks: bool) -> int:
        return self.workers.submit_uncrashed(FINAL, self._oracle.stages(FINAL), forks=forks)

    def _note_refused(self, why: str) -> None:
        self._fork_notes[
            f"crashcheck_ready() was not used, and each run of the check started from the beginning: {why}"
        ] = None

    def _confirmed(self, verdict: Verdict, state: CrashState, timeout_s: float | None) -> Verdict:
        """The verdict on a state: by a run from the beginning if the one that continued fails, or is a sample."""
        if verdict.passed:
            self._forked_passes += 1
            if self._forked_passes & (self._forked_passes - 1):
                return verdict
        anew = self._rerun(state, timeout_s, forks=False)
        if anew.passed == verdict.passed:
            return anew
        # A check that is slow or flaky may end otherwise each time; one that depends on its past does so again.
        again = self._rerun(state, timeout_s, forks=True)
        if again.passed == verdict.passed and self._rerun(state, timeout_s, forks=False).passed == anew.passed:
            raise ForksDiffer(
                f"the check {_how(verdict)} where it continues at crashcheck_ready(), and {_how(anew)} from the "
                "beginning on the same files"
            )
        self._fork_notes[_FLAKY] = None
        return anew

    def _rerun(self, state: CrashState, timeout_s: float | None, *, forks: bool) -> Verdict:
        run = self.workers.ended(self._submit(state, timeout_s, urgent=True, forks=forks))
        self._begin_what_judging_needs()
        return self._judged(run)

    def run_on_files(self, real: RealFiles, point: int, acknowledged: tuple[int, int]) -> Verdict:
        """Execute the check on files that a second run really had, at a crash point of the first, with all the time.

        `acknowledged`: operations ended and bytes printed by then, if not fixed for all points. Files that are not
        watched are as before the run.
        """
        setup = self.workers.setup
        with tempfile.TemporaryDirectory(dir=self.home) as folder:
            files = Path(folder) / "files"
            setup = self.workers.setup
            write_real_image(setup.first, real.folder, files, setup.patterns)
            if self._always is None:
                setup = replace(setup, recorded_stdout=real.stdout, addresses=real.addresses)
            return self._run_on(files, setup, point, acknowledged)

    def run_changed(self, state: CrashState, change: Callable[[Path], None], most_s: float | None = None) -> Verdict:
        """Execute the check on a state's image after `change`, given its folder; with all the time, or `most_s`.

        No crash leaves that image: it shows only why the check fails.
        """
        with tempfile.TemporaryDirectory(dir=self.home) as folder:
            files = Path(folder) / "files"
            self.write_image(state, files)
            change(files)
            acknowledged = self.workers.tasks.acknowledged(state.point)
            return self._run_on(files, self.workers.setup, state.point, acknowledged, most_s)

    def _run_on(
        self, files: Path, setup: CheckSetup, point: int, acknowledged: tuple[int, int], most_s: float | None = None
    ) -> Verdict:
        """Execute the check on a folder as on the image of a crash point."""
        limits = self.workers.limits
        if most_s is not None:
            limits = replace(limits, timeout_s=min(most_s, limits.timeout_s))
        workers = WorkerPool(
            self._content,
            self._points,
            replace(setup, first=files),
            limits=limits,
            acknowledged=self._always or acknowledged,
        )
        with workers:
            run = workers.ended(workers.submit_uncrashed(FIRST, self._oracle.stages(point)))
        return self._oracle.judge(run.ended, run.names, point)

    @property
    def short_s(self) -> float | None:
        """The time limit of crash states, in seconds; None where it is that of the limits."""
        return self._short_s

    def set_timeout(self, seconds: float) -> None:
        """Let the check take that long on each crash state from now on, but no longer than the limits allow."""
        self._short_s = seconds if seconds < self.workers.limits.timeout_s else None

    def aside(self) -> AbstractContextManager[None]:
        """While a failing state is diagnosed, keep the worker that runs its relatives free of other states."""
        return self.workers.aside()

    @property
    def is_aside(self) -> bool:
        """Whether a failing state is being diagnosed."""
        return self.workers.is_aside

    def _submit(self, state: CrashState, timeout_s: float | None, *, urgent: bool = False, forks: bool = False) -> int:
        stages = self._oracle.stages(state.point)
        return self.workers.submit(state, stages, urgent=urgent, timeout_s=timeout_s, forks=forks)

    def _judged(self, run: Run) -> Verdict:
        self.judged_run = run
        return self._oracle.judge(run.ended, run.names, run.point)

    def _now(self, ticket: int) -> Verdict:
        verdict = self.result(ticket)
        assert verdict is not None
        return verdict

    def _begin_what_judging_needs(self) -> None:
        """Let the oracle see runs that have ended, before they are asked for: it may need other runs to judge them."""
        for run in self.workers.arrivals():
            self._oracle.arrived(run.ended, run.names, run.point)

    # -- images, and what a person can do with them

    def write_image(self, state: CrashState, folder: Path) -> None:
        """Write a state's image into `folder`, which must not exist."""
        self.workers.tasks.write_image(state, folder)

    def write_issued(self, from_point: int | None, to_point: int, folder: Path) -> None:
        """Move the image in `folder` from everything issued by one point to that by a later one; None: make it."""
        self.workers.tasks.write_issued(from_point, to_point, folder)

    def stages(self, point: int) -> tuple[bytes, ...]:
        """The files of operations that the check is given at a crash point, one run per file."""
        return self._oracle.stages(point)

    def context(self, point: int) -> bytes:
        """What a verdict at a crash point depends on besides its image: equal for equal expectations."""
        return self._oracle.context(point)

    def shown_command(self, state: CrashState, pool: str) -> str:
        """The check as a person would type it for an image of this state at `pool`."""
        return self._shown(state.point, pool)

    def shown_plain(self, pool: str, *, final: bool) -> str:
        """The check as a person would type it for an uncrashed image."""
        return self._shown(FINAL if final else FIRST, pool)

    def _shown(self, point: int, pool: str) -> str:
        operations = 0 if point == FIRST else self.workers.tasks.acknowledged(point)[0]
        return self.workers.setup.command.shown(pool, operations, "{stdout}")

    # -- explored runs

    def explore(
        self,
        point: int,
        granules: Sequence[OpenGranule],
        folder: Path,
        timeout_s: float,
        until_s: float | None = None,
    ) -> int | str:
        """Begin to run the check on the image in `folder`/pool with each combination of the granules' contents.

        Other files in `folder` may be overwritten. `explored` gives the result. A text: why no image can be explored.
        `until_s`: when its time is over at the latest, by the monotonic clock.
        """
        stages = self._oracle.stages(point)
        if len(stages) > 1:
            return "it runs more than once"
        setup, limits = self.workers.setup, self.workers.limits
        if limits.outputs != ("stdout",):
            return "more than its standard output is compared"
        acked, printed = self.workers.tasks.acknowledged(point)
        pool, stdout, ops, table = (folder / name for name in ("pool", "stdout", "ops", "table"))
        ops.write_bytes(b"".join(stages))
        recorded = setup.recorded_stdout
        stdout.write_bytes(recorded.read_bytes()[:printed] if printed and recorded is not None else b"")
        write_table(table, pool, granules, apart=limits.apart, memory_bytes=limits.memory_bytes)
        argv = setup.command.argv(str(pool), acked, str(stdout), str(ops) if stages else None)
        env = {**setup.environment(pool), TABLE: str(table)}
        return self.workers.submit_exploration(point, argv, env, timeout_s, until_s)

    def explored(self, begun: int | str, granules: int, folder: Path) -> Explored:
        """Wait for the result of what `explore` has begun, of so many granules; each once."""
        if isinstance(begun, str):
            return Explored((), 0, 0, begun, final=True)
        run = self.workers.ended(begun)
        return read_table(folder / "table", granules, timed_out=run.ended.timed_out)

    def judged(self, end: End, point: int, folder: Path) -> Verdict:
        """The verdict on an end of what was explored in `folder`."""
        names = {str(folder / name): "{" + name + "}" for name in ("pool", "stdout", "ops")}
        return self._oracle.judge(captured(end.status, end.output, self.workers.limits), names, point)


def _shown(run: Run) -> Ended:
    """How a run ended, without what differs each time."""
    return run.ended._replace(seconds=0.0, forked=False, refused="")


def _how(verdict: Verdict) -> str:
    return "passes" if verdict.passed else f"fails ({verdict.outcome.value})"
