"""Checks that continue at crashcheck_ready(), as copies of a process that waits there, and how they are confirmed.

The same holds of checks that one process makes of one state after another: functions of a test, and commands that are
given folders, of crash states or of states of nodes (execution/in_turn.py). Only runs from the beginning count in the
end: those of all copies that fail, and of ever fewer of those that pass.

1. A copy that fails is no finding, unless a run from the beginning fails on the same state.
2. Passes are compared with runs from the beginning: the first ones, then each after twice as many, at last each
   _SAMPLED-th.
3. A process that stays has to reject, after a state that it accepted, damaged files that a run from the beginning
   rejects: one that repeats its first answer is found out before the search.
4. Where both ways end differently twice, nothing of copies counts: CopiesDiffer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import DAMAGED, FINAL, Run
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.results import Verdict
from crashcheck.checker.verdicts.verdict_source import JudgedRun

if TYPE_CHECKING:
    from crashcheck.checker.states.space import CrashState
    from crashcheck.checker.verdicts.executor import Executor


class CopyWords(NamedTuple):
    """What reports call runs that do not begin from the beginning."""

    refused: str  # what was not done for all states, and is not at all now
    differs: str  # why, where both ways end differently on the final image
    where: str  # "the check fails WHERE"
    flaky: str
    again: str  # what was done with all that had been found, where both ways end differently
    alone: str = "from the beginning"
    stays: bool = True  # one process answers about several states
    prints: bool = True  # what it prints about the same state is the same


READY = CopyWords(
    "crashcheck_ready() was not used, and each run of the check started from the beginning",
    "on the final image, the check ends otherwise or prints something else if it continues there: nothing before the "
    "call may depend on the time, on the process, or on the files",
    "where it continues at crashcheck_ready()",
    "flaky: the check ended in two ways on the same image, from crashcheck_ready() on; runs from the beginning count",
    "nothing counts of what was tested from crashcheck_ready() on, and all was tested again",
    stays=False,
)
CALLED_IN_TURN = CopyWords(
    "each run of the check was given a process of its own",
    "on the final image, or on that with all that was written inverted, the check ends otherwise or prints something "
    "else when it is called a second time in one process: it keeps something from call to call",
    "in a process that has checked other states",
    "flaky: the check ended in two ways on the same state; runs in a process of their own count",
    "nothing counts of what one process tested, and each state was tested again in a process of its own",
)
FOLDERS = CopyWords(
    "each run of the check was given one folder, in a process of its own, in spite of {folders}",
    "on the final image, or on that with all that was written inverted, the check answers otherwise after other "
    "folders: it keeps something from one folder to the next",
    "after other folders",
    "flaky: the check ended in two ways on the same files, alone and after other folders; runs with one folder count",
    "nothing counts of what was answered after other folders, and each state was tested again in a process of its own",
    alone="in a process of its own",
    prints=False,
)
STATES = FOLDERS._replace(
    refused="each state was judged by a process of its own, in spite of {states}",
    where="after other states",
    flaky="flaky: the check ended in two ways on the same state, alone and after others; runs with one state count",
    again="nothing counts of what was answered after other states, and each was judged again in a process of its own",
)
_SAMPLED = 128  # a run from the beginning that takes 100 times as long costs as much again as what it confirms


class CopiesDiffer(Exception):
    """The check ends otherwise if it does not run from the beginning; the text: how. `again`: what is done then."""

    def __init__(self, how: str, again: str) -> None:
        super().__init__(how)
        self.again = again


class Confirming:
    """Whether checks run in copies, and how their verdicts are confirmed."""

    def __init__(self, words: CopyWords) -> None:
        self.used = False
        self._words = words
        self._passes = 0  # of copies
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What kept checks from being run in copies."""
        return tuple(self._notes)

    def samples(self, judged: JudgedRun) -> bool:
        """Whether the verdict of a copy has to be confirmed. Each is asked about once."""
        if not judged.verdict.passed:
            return True
        self._passes += 1
        return not self._passes & (self._passes - 1) or not self._passes % _SAMPLED

    def compared(self, judged: JudgedRun, rerun: Callable[..., JudgedRun]) -> JudgedRun:
        """The run from the beginning on the state that a copy was run on. `rerun`: runs it again; `forks`: in a copy.

        Raises CopiesDiffer.
        """
        passed = judged.verdict.passed
        anew = rerun(forks=False)
        if anew.verdict.passed == passed:
            return anew
        # A check that is slow or flaky may end otherwise each time; one that depends on its past does so again.
        again = rerun(forks=True).verdict.passed
        if again == passed and rerun(forks=False).verdict.passed != passed:
            raise CopiesDiffer(
                f"the check {_how(judged.verdict)} {self._words.where}, and {_how(anew.verdict)} "
                f"{self._words.alone} on the same files",
                self._words.again,
            )
        self._notes[self._words.flaky] = None
        return anew

    def heed(self, ended: Ended) -> None:
        """Take note of why a run could not be a copy, or must be the last one."""
        self._note_refused(ended.refused)
        if ended.forked and ended.refused:
            self.used = False

    def _note_refused(self, why: str) -> None:
        if why:
            self._notes[f"{self._words.refused}: {why}"] = None


class Copies(Confirming):
    """Those of the crash states of one search."""

    def __init__(self, words: CopyWords) -> None:
        super().__init__(words)
        self._asked: dict[int, tuple[CrashState, TimeLimit | None]] = {}  # by ticket, with the time limit

    def try_on_final(self, executor: Executor, limit: TimeLimit | None = None) -> Run:
        """A run on the image after the workload. If copies end there as it does, crash states are run in copies."""
        run = _final(executor, forks=True, limit=limit)
        self._note_refused(run.ended.refused)
        if not run.ended.forked:
            return run
        anew, again = _final(executor, forks=False), _final(executor, forks=True)
        self.used = again.ended.forked and self._shown(run) == self._shown(anew) == self._shown(again)
        if self.used and self._words.stays and _passed(anew):
            self.used = self._notices_damage(executor, anew)
        if not self.used:
            self._note_refused(self._words.differs)
        return anew

    def _notices_damage(self, executor: Executor, passed: Run) -> bool:
        """Whether a process that has passed `passed` ends on damaged files as one of its own does, and then passes."""
        limit = TimeLimit(max(1.0, 4 * passed.ended.seconds))
        anew, after = (_on(DAMAGED, executor, forks=forks, limit=limit) for forks in (False, True))
        known = not anew.ended.timed_out and not after.ended.timed_out
        if known and _passed(anew) != _passed(after):
            return False
        return self._shown(_final(executor, forks=True)) == self._shown(passed)

    def _shown(self, run: Run) -> Ended:
        """How a run ended, without what differs each time."""
        same = run.ended._replace(seconds=0.0, forked=False, refused="")
        return (
            same if self._words.prints else same._replace(output=b"", total_bytes=0, output_truncated=False, digest=b"")
        )

    def asked(self, ticket: int, state: CrashState, limit: TimeLimit | None) -> None:
        """Take note of a state that may be run in a copy."""
        if self.used:
            self._asked[ticket] = state, limit

    def confirmed(self, executor: Executor, ticket: int, judged: JudgedRun) -> JudgedRun:
        """The verdict on a state: by a run from the beginning if a copy was run that fails, or is a sample.

        Raises CopiesDiffer.
        """
        self.heed(judged.run.ended)
        asked = self._asked.pop(ticket, None)
        if asked is None or not judged.run.ended.forked or not self.samples(judged):
            return judged
        return self.compared(judged, partial(executor.rerun, *asked))


def _final(executor: Executor, *, forks: bool, limit: TimeLimit | None = None) -> Run:
    return _on(FINAL, executor, forks=forks, limit=limit)


def _on(point: int, executor: Executor, *, forks: bool, limit: TimeLimit | None) -> Run:
    stages = executor.oracle.stages(FINAL)
    return executor.workers.ended(executor.workers.submit_uncrashed(point, stages, forks=forks, limit=limit))


def _passed(run: Run) -> bool:
    return run.ended.status == 0 and not run.ended.timed_out and not run.ended.limit


def _how(verdict: Verdict) -> str:
    return "passes" if verdict.passed else f"fails ({verdict.outcome.value})"
