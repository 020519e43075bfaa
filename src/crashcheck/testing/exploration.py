"""Search the crash states of a recorded call by crashcheck's own search, and show what fails."""

from __future__ import annotations

import contextlib
import io
import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck import pipeline
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.checker import policy
from crashcheck.checker.budget import OVERRUN, Meter, OutOfTime, within
from crashcheck.checker.execution.in_turn import CheckCall
from crashcheck.checker.execution.process import own_data_bytes
from crashcheck.checker.execution.python_check import ForkServer
from crashcheck.checker.execution.tasks import write_image
from crashcheck.checker.kept.shards import Exchange
from crashcheck.checker.replay import must_be_feasible
from crashcheck.checker.results import BLIND, Outcome, RunResult, StopReason
from crashcheck.checker.token import Token, digest
from crashcheck.config import Config, parse
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError
from crashcheck.models import FAMILIES
from crashcheck.reports.view.run_view import RunView, build_view
from crashcheck.reports.view.source_lines import read_sources
from crashcheck.runtime.sparse import copy_tree
from crashcheck.stages.executor_setup import CheckFunction
from crashcheck.stages.failing_states import LastFailures
from crashcheck.stages.phases import left_of
from crashcheck.stages.recording import RecordedRun, read_workload
from crashcheck.stages.run_summary import summarise
from crashcheck.stages.search_setup import budget_of
from crashcheck.testing.failure import CrashFound
from crashcheck.testing.recorded_call import RecordedCall
from crashcheck.testing.state import State

_MEMORY_MIB = 4096  # of data, more than the test's process has
_AFTER_FINDING = 200  # states that are checked after the newest finding: the test fails, and shows one
_OTHERS = 5  # findings that are named beside the one that is shown
_BLIND = (
    "the check also passes on the files filled with zeros, and on all their bits inverted: it may accept whatever a "
    "crash leaves"
)
_OF_THE_ORDER = "the call stacks of "  # a warning that changes which states are tested first, and nothing else
_MODELS = tuple(name for name, family in FAMILIES.items() if family.names)
_TOML = """\
[workload]
command = ["a function of a test"]
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = ["a function of a test"]
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A state that fails, and the error that shows it. `fails_again`: it ended by itself, so it may be run here."""

    state: State
    error: CrashFound
    fails_again: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """What came of a search: a failure or none, and what should be known all the same."""

    found: Found | None
    remark: str  # empty where all states passed


def config_of(model: str, timeout_s: float, states: int | None = None, seconds: float | None = None) -> Config:
    """As crashcheck.toml would ask for it; names of sources are shown relative to the working folder.

    Raises CrashcheckError(bad-option).
    """
    if model not in _MODELS:
        raise CrashcheckError("bad-option", f"{model!r} models no file system.", f"There are {', '.join(_MODELS)}.")
    if states is not None and states < 1:
        raise CrashcheckError("bad-option", f"{states} crash states are too few.", "Give a number above zero.")
    if seconds is not None and not 0 < seconds < math.inf:
        raise CrashcheckError("bad-option", f"{seconds:g} seconds are no budget.", "Give a number above zero.")
    config = parse(_TOML, Path.cwd() / "crashcheck.toml")
    memory_mib = (own_data_bytes() >> 20) + _MEMORY_MIB
    return replace(
        config,
        model=replace(config.model, name=model),
        check=replace(config.check, timeout_s=timeout_s, memory_mib=memory_mib),
        budget=replace(config.budget, seconds=seconds, states=states),
    )


def to_search(config: Config, read_s: float) -> Config:
    """With what a search may take of the seconds after its preparation took so many.

    What follows it takes about as long: that is kept for it, a tenth of the budget at most.
    """
    seconds = config.budget.seconds
    if seconds is None:
        return config
    left_s = max(0.0, seconds - read_s - min(read_s, seconds * OVERRUN))
    return replace(config, budget=replace(config.budget, seconds=left_s))


def called_state(call: RecordedCall, called: CheckCall) -> State:
    """In a run of the check: what it is given."""
    acked, printed = called.more
    return State.of(called.pool, call.done(Path(printed).read_bytes(), int(acked)))


def explore(
    config: Config,
    call: RecordedCall,
    server: ForkServer,
    kept: Callable[[], Path],
    again: Callable[[str], str],
    jobs: int,
) -> Outlook:
    """Search the crash states of a call. `kept`: makes a folder for the one that fails; `again`: how to see it again.

    Raises CrashcheckError: those of a search, and crashes-no-verdict.
    """
    began = time.monotonic()
    trace = read_trace(call.recording.trace)
    check = CheckFunction(server, "the check of the test")
    options = pipeline.RunOptions(jobs, check=check, after_finding=_AFTER_FINDING)
    try:
        recorded = read_workload(config, call.recording, trace, within(Meter(budget_of(left_of(config, began))).left))
        recorded.find_completeness()  # is kept: after the search there is no time for it
        config = to_search(config, time.monotonic() - began)
        with contextlib.redirect_stderr(io.StringIO()):  # its remarks are among the warnings
            found, warnings = pipeline.search(config, recorded, None, options, Exchange(), LastFailures(()))
    except CrashcheckError as error:
        raise _of_test(error, call) from None
    except OutOfTime:
        raise _no_verdict("The time ended before it was known which states a crash can leave.") from None
    if found.stop_reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt  # of the whole test run
    result = summarise(config, recorded, found, warnings)
    view = build_view(result, read_sources(result, config.folder))
    code = policy.exit_code(result)
    if code == EXIT_FINDINGS:
        return Outlook(_found(recorded, call, result, view, kept(), again), "")
    if code != EXIT_CLEAN:
        raise _no_verdict(f"{view.headline}: {view.scope or view.counted}")
    notes = [_BLIND if note == BLIND else note for note in result.warnings]
    notes = [note for note in notes if not note.startswith(_OF_THE_ORDER)]
    whole = found.stop_reason is StopReason.EXHAUSTED
    return Outlook(None, "; ".join([*([] if whole else [view.counted]), *notes]))


def _no_verdict(why: str) -> CrashcheckError:
    hint = "Where a budget ended too early, raise --crash-seconds or --crash-states (of unittest: crash_seconds, ...)."
    return CrashcheckError("crashes-no-verdict", why, hint)


def _found(
    run: RecordedRun, call: RecordedCall, result: RunResult, view: RunView, kept: Path, again: Callable[[str], str]
) -> Found:
    finding, *others = policy.in_order(result.findings)
    shown = next(each for each in view.findings if each.id == finding.id)
    state = write_state(run, call, Token.parse(finding.replay), kept / "state")
    sentence, *rows = _in_words_of_the_call(
        call.name,
        (
            finding.message,
            f"when   {shown.evidence.occasion} {shown.evidence.summary}",
            *(f"  {row}" for row in shown.evidence.rows),
            *(f"note   {note}" for note in shown.notes),
            *([f"fix    {shown.fix.words}"] if shown.fix is not None else []),
            *(f"also   {other.message}" for other in others[:_OTHERS]),
        ),
    )
    rows += [
        *([f"also   {len(others) - _OTHERS} other findings"] if len(others) > _OTHERS else []),
        f"found  {view.counted}, model {finding.model}",
        f"state  {state}",
        f"again  {again(finding.replay)}",
    ]
    error = CrashFound(sentence, "\n".join(rows))
    verdict = finding.evidence.verdict
    error.cause = "".join(f"  | {line}\n" for line in (shown.output or (shown.outcome,)))
    return Found(state, error, verdict.outcome is Outcome.FAIL)


def _of_test(error: CrashcheckError, call: RecordedCall) -> CrashcheckError:
    """An error of the search with what to do in a test."""
    hints = {
        "check-rejects-first": f"Before {call.name} does anything, the files are those of `start`, and "
        "state.done.returned is False: the check has to accept that.",
        "check-rejects-final": f"After {call.name} has returned, with nothing lost: the check has to accept that.",
    }
    return CrashcheckError(error.slug, error.message, hints.get(error.slug, error.hint))


def _in_words_of_the_call(name: str, texts: Iterable[str]) -> tuple[str, ...]:
    """A finding's texts, in which the call is "operation 1"."""
    words = {
        "operation 1 had ended": f"`{name}` had returned",
        "; 0 operations acknowledged": "",
        "; 1 operation acknowledged": f"; `{name}` had returned",
        ", in operation 1": "",
        "operation 1 ends": f"`{name}` returns",
        "operation 1 begins": f"{name} is called",
        "operation 1 is acknowledged": f"{name} returns",
        "operation 1 acknowledged": f"{name} returns",
    }
    pattern = re.compile("|".join(map(re.escape, words)))
    return tuple(pattern.sub(lambda found: words[found[0]], text) for text in texts)


def write_state(run: RecordedRun, call: RecordedCall, token: Token, folder: Path) -> State:
    """The state of a token, in a new folder. Raises CrashcheckError: token-no-state."""
    subject, crash = run.subject, token.for_trace(run.subject.trace)
    must_be_feasible(subject, crash)
    write_image(subject.content, run.recording.first, crash, folder)
    point = subject.space.points[crash.point]
    printed = run.recording.stdout.read_bytes()[: int(point.stdout_bytes)]
    return State.of(folder, call.done(printed, int(point.acked)))


def chosen_state(call: RecordedCall, token: Token, folder: Path) -> State | None:
    """The state of a token in a new folder; None if the token is of another recording."""
    trace = read_trace(call.recording.trace)
    if digest(trace) != token.levels[0].digest:
        return None
    config = config_of(token.model, timeout_s=1.0)
    run = read_workload(config, call.recording, trace)
    return write_state(run, call, token, folder)


def final_state(call: RecordedCall, folder: Path) -> State:
    """What the function left, with nothing lost."""
    copy_tree(call.recording.pool, folder)
    return State.of(folder, call.done(call.recording.stdout.read_bytes(), 1))
