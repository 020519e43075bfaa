"""Checks that continue at crashcheck_ready(), as copies of a process that waits there, and how they are confirmed.

The same holds of functions of a test that one process calls for one state after another (execution/python_check.py).
Only runs from the beginning count in the end: those of all copies that fail, and of ever fewer of those that pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import FINAL, Run
from crashcheck.checker.oracles.verdict_source import JudgedRun
from crashcheck.checker.results import Verdict

if TYPE_CHECKING:
    from crashcheck.checker.oracles.executor import Executor
    from crashcheck.checker.states.space import CrashState


class CopyWords(NamedTuple):
    """What reports call runs that do not begin from the beginning."""

    refused: str  # what was not done for all states, and is not at all now
    differs: str  # why, where both ways end differently on the final image
    where: str  # "the check fails WHERE"
    flaky: str
    again: str  # what was done with all that had been found, where both ways end differently


READY = CopyWords(
    "crashcheck_ready() was not used, and each run of the check started from the beginning",
    "on the final image, the check ends otherwise or prints something else if it continues there: nothing before the "
    "call may depend on the time, on the process, or on the files",
    "where it continues at crashcheck_ready()",
    "flaky: the check ended in two ways on the same image, from crashcheck_ready() on; runs from the beginning count",
    "nothing counts of what was tested from crashcheck_ready() on, and all was tested again",
)
CALLED_IN_TURN = CopyWords(
    "each run of the check was given a process of its own",
    "on the final image, the check ends otherwise or prints something else when it is called a second time in one "
    "process: it keeps something from call to call",
    "in a process that has checked other states",
    "flaky: the check ended in two ways on the same state; runs in a process of their own count",
    "nothing counts of what one process tested, and each state was tested again in a process of its own",
)


class CopiesDiffer(Exception):
    """The check ends otherwise if it does not run from the beginning; the text: how. `again`: what is done then."""

    def __init__(self, how: str, again: str) -> None:
        super().__init__(how)
        self.again = again


class Copies:
    """Whether the crash states of one search are run in copies, and how their verdicts are confirmed."""

    def __init__(self, words: CopyWords) -> None:
        self.used = False
        self._words = words
        self._passes = 0  # of copies
        self._asked: dict[int, tuple[CrashState, float | None]] = {}  # by ticket, with the time limit
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What kept checks from waiting in crashcheck_ready()."""
        return tuple(self._notes)

    def try_on_final(self, executor: Executor, timeout_s: float | None = None) -> Run:
        """A run on the image after the workload. If copies end there as it does, crash states are run in copies."""
        run = _final(executor, forks=True, timeout_s=timeout_s)
        self._note_refused(run.ended.refused)
        if not run.ended.forked:
            return run
        anew, again = _final(executor, forks=False), _final(executor, forks=True)
        self.used = again.ended.forked and _shown(run) == _shown(anew) == _shown(again)
        if not self.used:
            self._note_refused(self._words.differs)
        return anew

    def asked(self, ticket: int, state: CrashState, timeout_s: float | None) -> None:
        """Take note of a state that may be run in a copy."""
        if self.used:
            self._asked[ticket] = state, timeout_s

    def confirmed(self, executor: Executor, ticket: int, judged: JudgedRun) -> JudgedRun:
        """The verdict on a state: by a run from the beginning if a copy was run that fails, or is a sample.

        Raises CopiesDiffer.
        """
        self._note_refused(judged.run.ended.refused)
        asked = self._asked.pop(ticket, None)
        if asked is None or not judged.run.ended.forked:
            return judged
        passed = judged.verdict.passed
        if passed:
            self._passes += 1
            if self._passes & (self._passes - 1):
                return judged
        anew = executor.rerun(*asked, forks=False)
        if anew.verdict.passed == passed:
            return anew
        # A check that is slow or flaky may end otherwise each time; one that depends on its past does so again.
        again = executor.rerun(*asked, forks=True).verdict.passed
        if again == passed and executor.rerun(*asked, forks=False).verdict.passed != passed:
            raise CopiesDiffer(
                f"the check {_how(judged.verdict)} {self._words.where}, and {_how(anew.verdict)} from the beginning on "
                "the same files",
                self._words.again,
            )
        self._notes[self._words.flaky] = None
        return anew

    def _note_refused(self, why: str) -> None:
        if why:
            self._notes[f"{self._words.refused}: {why}"] = None


def _final(executor: Executor, *, forks: bool, timeout_s: float | None = None) -> Run:
    stages = executor.oracle.stages(FINAL)
    return executor.workers.ended(executor.workers.submit_uncrashed(FINAL, stages, forks=forks, timeout_s=timeout_s))


def _shown(run: Run) -> Ended:
    """How a run ended, without what differs each time."""
    return run.ended._replace(seconds=0.0, forked=False, refused="")


def _how(verdict: Verdict) -> str:
    return "passes" if verdict.passed else f"fails ({verdict.outcome.value})"
