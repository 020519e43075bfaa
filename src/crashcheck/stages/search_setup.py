"""A search and what it may spend: its budget, the verdicts that are kept, the time for trying fixes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from crashcheck.checker.budget import BrokenOff, Budget, Left, OutOfTime, Progress
from crashcheck.checker.findings.call_chains import call_chains
from crashcheck.checker.findings.prefix_proof import NO_SECOND_RUNS, SecondRuns
from crashcheck.checker.fixes.missing_calls import missing_call
from crashcheck.checker.fixes.propose import FixProposer
from crashcheck.checker.fixes.source.source_edit import EditWriter
from crashcheck.checker.fixes.source.unit_compiles import UnitCompiles
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.results import Finding, Fix
from crashcheck.checker.search.crash_states import Search, SearchResult
from crashcheck.checker.strategies import Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts.blind_check import blind_check
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.verdict_source import VerdictSource
from crashcheck.config import Config
from crashcheck.interruption import interruptible
from crashcheck.source import SourceTree
from crashcheck.stages.executor_setup import digested_runs_of, snapshots_of
from crashcheck.stages.recording import OnPhase, RecordedRun

_FIXES_MOST_S = 10.0  # for trying fixes, at most
_FIXES_SHARE = 0.2  # of the budget's seconds, at most
_NOT_DAMAGED = "the time ended before the check was tried on damaged files: it may accept them"
_NO_FIX = "the time for trying fixes ended: for {} of the {} findings none was tried"


def search_of(
    config: Config,
    run: RecordedRun,
    source: VerdictSource,
    strategy: Strategy,
    budget: Budget,
    *,
    folder: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    explore: bool | None = None,
) -> Search:
    """A search over a recorded run's crash states. `folder`: of the copies of real files, by default the run's own;
    `explore`: as Search has it, if not as configured."""
    names, into = run.subject.graph.family.names, folder or run.folder
    second_runs = SecondRuns(snapshots_of(config, run, into), digested_runs_of(config, run, into))
    return Search(
        run.subject,
        source,
        strategy,
        budget,
        progress=progress,
        second_runs=NO_SECOND_RUNS if names else second_runs,
        explore=not names and (config.strategy.explore if explore is None else explore),
    )


def budget_of(config: Config) -> Budget:
    """What a search may spend, of which a part is kept for fixes once something was found."""
    seconds = config.budget.seconds
    fixes_s = _FIXES_MOST_S if seconds is None else min(_FIXES_MOST_S, seconds * _FIXES_SHARE)
    return Budget(seconds, config.budget.states, fixes_s if config.report.fixes else 0.0)


def warned_of_blind_check(
    executor: Executor, oracle: Oracle, subject: Subject, found: SearchResult, left: Left
) -> SearchResult:
    """`found` with a warning if the check passed on all crash states, and passes on damaged files, too.

    `left`: the time for that; a warning where it was too little.
    """
    cut_short = found.stop_reason.broken_off
    if found.states.failing or cut_short or not isinstance(oracle, ExitStatus):
        return found
    warnings: tuple[str, ...] = ()
    with contextlib.suppress(KeyboardInterrupt, BrokenOff), interruptible():
        try:
            warnings = blind_check(executor, subject, left)
        except OutOfTime:
            warnings = (_NOT_DAMAGED,)
    return replace(found, warnings=(*found.warnings, *warnings))


def with_fixes(
    config: Config,
    run: RecordedRun,
    executor: Executor,
    exploring: Search,
    found: SearchResult,
    strategy: Strategy,
    on_phase: OnPhase,
) -> SearchResult:
    """`found` with a fix for each finding where one was found. `strategy`: for the states of the edited trace."""
    bugs = [bug for bug in exploring.register.bugs() if not bug.finding.uncertain]
    if not bugs or found.stop_reason.broken_off:
        return found
    on_phase("trying fixes")
    subject = run.subject
    if subject.graph.family.names:
        calls = {bug.finding.id: [missing_call(subject, draft.cause) for draft in bug.drafts] for bug in bugs}
        return replace(found, findings=tuple(_with_calls(one, calls.get(one.id, [])) for one in found.findings))
    began, budget = time.monotonic(), budget_of(config)
    over_s = math.inf if budget.seconds is None else budget.seconds - found.seconds
    ends = began + max(0.0, min(budget.fixes_s, over_s))

    def left_s() -> float:
        return max(0.0, ends - time.monotonic())

    chain = call_chains(subject.trace, run.facts, SourceTree(config.folder).relative)
    compiles = UnitCompiles(run.facts, config.folder, left=left_s)
    writer = EditWriter(subject, chain, config.folder, compiles.why_not)
    fixes = FixProposer(
        subject,
        executor,
        strategy,
        exploring.register,
        exploring.tried(),
        chain,
        writer.write,
        run.facts,
        left=left_s,
        compiled=writer.compiled,
    )
    proposed = {}
    # Ctrl-C, a full disk or a lost worker ends this early: the findings are reported all the same.
    with contextlib.suppress(KeyboardInterrupt, BrokenOff), interruptible():
        for left, bug in zip(range(len(bugs), 0, -1), bugs, strict=True):
            if time.monotonic() > ends:
                break
            proposed[bug.finding.id] = fixes.propose(bug, (ends - time.monotonic()) / left)
    return replace(
        found,
        findings=tuple(replace(finding, fix=proposed.get(finding.id)) for finding in found.findings),
        warnings=(
            *found.warnings,
            *(f"while fixes were tried, {note}" for note in fixes.notes),
            *((_NO_FIX.format(len(bugs) - len(proposed), len(bugs)),) if len(proposed) < len(bugs) else ()),
        ),
    )


def _with_calls(finding: Finding, calls: Sequence[Fix]) -> Finding:
    """A finding with its missing call, and with their own what was merged in it: `--base` may list that apart."""
    if not calls:
        return finding
    merged = tuple(replace(part, fix=fix) for part, fix in zip(finding.merged, calls[1:], strict=False))
    return replace(finding, fix=calls[0], merged=merged)
