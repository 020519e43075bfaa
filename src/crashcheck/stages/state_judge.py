"""One check of nodes, on one folder of a state after another: by a worker process, which runs the command.

A command with `{states}` stays and is given the folders in turn. Its verdicts are confirmed as those of `{folders}`
are (checker/verdicts/copies.py): what fails, and samples of what passes. After the first of these samples it has to
reject the same files damaged, if a process of its own does: one that repeats its first answer is found out.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.process import Ended, Limits
from crashcheck.checker.execution.tasks import FINAL, Run
from crashcheck.checker.execution.worker import DURABLE, GivenFolder, Trouble, pool_of
from crashcheck.checker.execution.worker_pool import STOPPED_S
from crashcheck.checker.execution.worker_process import WorkerDied, WorkerProcess
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.results import Verdict
from crashcheck.checker.verdicts.copies import STATES, Confirming
from crashcheck.checker.verdicts.verdict_source import JudgedRun
from crashcheck.command import Command
from crashcheck.config.nodes import NodeCheckConfig
from crashcheck.errors import CrashcheckError
from crashcheck.masking import inherited_environment

LOG = "log.jsonl"  # in the folder of a state: the actions so far
_DAMAGED = 8  # samples after which damaged files are judged: of the first 128 states that pass
_INVERTED = bytes(range(255, -1, -1))
_FIRST = "first"  # an empty folder: a worker's images, which it does not use here, begin as copies of it


class StateJudge:
    """Judges states by a command. Its worker, with what it has started, is there until `close`."""

    def __init__(
        self, command: Command, check: NodeCheckConfig, project: Path, home: Path, index: int, *, stays: bool
    ) -> None:
        """`home`: of the workers' folders; `index`: of this one. `stays`: a command with `{states}` may stay.

        Raises CrashcheckError: check-not-started.
        """
        # constant
        env = {**inherited_environment(), **check.env}
        self._check = CheckCommand.find(command.with_values(project=str(project)), project, env.get("PATH"))
        first = home / _FIRST
        first.mkdir(exist_ok=True)
        self._worker = WorkerProcess(
            index, home, CheckSetup(self._check, project, first, home), Limits(timeout_s=check.timeout_s)
        )
        mark = {"CRASHCHECK_POOL": str(pool_of(self._worker.root, DURABLE))}  # what end_checks_of goes by
        self._env = {**env, **self._check.env, **mark}
        self._oracle = ExitStatus()
        # changing
        self._numbers = count()
        self._damaged = 0  # samples
        self._confirming = Confirming(STATES)
        self._confirming.used = stays and bool(command.folders_at)
        self._answer()

    @property
    def notes(self) -> tuple[str, ...]:
        """What kept a command with `{states}` from staying."""
        return self._confirming.notes

    def judge(self, state: Path) -> Verdict:
        """How the command judges the folder of a state, which is not needed any more. Raises CopiesDiffer."""
        judged = self._run(state, forks=self._confirming.used)
        self._confirming.heed(judged.run.ended)
        if not judged.run.ended.forked or not self._confirming.samples(judged):
            return judged.verdict
        rerun = partial(self._run, state)
        anew = self._confirming.compared(judged, rerun)
        if anew.verdict.passed and self._confirming.used and self._damaged < _DAMAGED:
            self._damaged += 1
            _damage(state)
            self._confirming.compared(rerun(forks=True), rerun)
        return anew.verdict

    def _run(self, state: Path, *, forks: bool) -> JudgedRun:
        argv = self._check.command.argv(state=str(state))
        self._worker.send(GivenFolder(next(self._numbers), argv, self._env, forks))
        ended, names = self._answer(), {str(state): "{state}"}
        assert ended is not None
        return JudgedRun(self._oracle.judge(ended, names), Run(FINAL, ended, names))

    def _answer(self) -> Ended | None:
        """The worker's next answer; the first one is None. Raises CrashcheckError."""
        while not self._worker.connection.poll(STOPPED_S):
            self._worker.continue_if_stopped()
        try:
            answer = self._worker.receive()
        except WorkerDied as died:
            hint = "If the system ran out of memory, lower --jobs."
            raise CrashcheckError("worker-died", f"{died} while it checked a state of the nodes", hint) from None
        if isinstance(answer, Trouble):
            hint = "Correct [check]." if answer.slug == "check-not-started" else ""
            raise CrashcheckError(answer.slug, f"a state of the nodes was not checked: {answer.text}", hint)
        return None if answer is None else answer[1]

    def close(self) -> None:
        """End the worker, and what it has started."""
        self._worker.close()
        self._worker.end()


def _damage(state: Path) -> None:
    """Invert what the nodes of a state have written and printed; the log stays."""
    for path in state.rglob("*"):
        if path.is_file() and not path.is_symlink() and path != state / LOG:
            data = path.read_bytes()
            path.chmod(0o600)
            path.write_bytes(data.translate(_INVERTED))
