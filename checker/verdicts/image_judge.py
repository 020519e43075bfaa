"""Verdicts by an oracle that judges a crash image itself, without running a check."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.verdicts.executor import Executor

_SHOWN = "compare {pool} with the files that the command leaves"


class ImageJudge(Executor):
    """An executor that runs nothing: it asks the oracle about the state itself."""

    ahead = 0  # it judges a state when its verdict is asked for
    begins_likely = False

    def __init__(self, workers: WorkerPool, oracle: SnapshotOracle) -> None:
        """Take what Executor takes; the workers are never started."""
        super().__init__(workers, oracle)
        self._judge = oracle
        self._waiting: dict[int, CrashState] = {}
        self._next_ticket = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> ImageJudge:
        self._folder = tempfile.TemporaryDirectory(dir=self.workers.setup.work, prefix="images-")
        return self

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def home(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name)

    def submit(self, state: CrashState) -> int:
        self._next_ticket += 1
        self._waiting[self._next_ticket] = state
        return self._next_ticket

    def result(self, ticket: int, timeout_s: float | None = None) -> Verdict | None:
        self.executed += 1
        return self._judge.judge_state(self._waiting.pop(ticket))

    def submit_now(self, state: CrashState, *, patient: bool = False, most_s: float | None = None) -> int:
        return self.submit(state)

    def run_first(self, most_s: float | None = None) -> Verdict:
        return _PASSED

    def run_final(self, most_s: float | None = None) -> Verdict:
        return _PASSED

    def try_copies(self, most_s: float | None = None) -> Verdict:
        return _PASSED

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def shown(self, point: int, pool: str) -> str:
        return _SHOWN.replace("{pool}", pool)


_PASSED = Verdict(Outcome.PASS, 0, None, "", False, 0.0)
