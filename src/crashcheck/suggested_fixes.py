"""FixProposer for what a search found: proposed and tried on the recorded run, within a share of the budget."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from crashcheck.checker.budget import DiskFull
from crashcheck.checker.findings.call_chains import call_chains
from crashcheck.checker.fixes.propose import FixProposer
from crashcheck.checker.fixes.source_edit import EditWriter
from crashcheck.checker.fixes.unit_compiles import UnitCompiles
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.results import StopReason
from crashcheck.checker.search.crash_states import Search, SearchResult
from crashcheck.checker.strategies import Strategy
from crashcheck.config import Config
from crashcheck.interruption import interruptible
from crashcheck.recording import OnPhase, RecordedRun
from crashcheck.source import SourceTree

MOST_S = 10.0  # for trying fixes, at most
BUDGET_SHARE = 0.2  # of the budget's seconds, at most


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
    if not bugs or found.stop_reason in (StopReason.INTERRUPTED, StopReason.DISK_FULL):
        return found
    on_phase("trying fixes")
    subject = run.subject
    chain = call_chains(subject.trace, run.facts, SourceTree(config.folder).relative)
    seconds = MOST_S if config.budget.seconds is None else min(MOST_S, config.budget.seconds * BUDGET_SHARE)
    ends = time.monotonic() + seconds
    writer = EditWriter(subject, chain, config.folder, UnitCompiles(run.facts, config.folder).why_not)
    fixes = FixProposer(
        subject,
        executor,
        strategy,
        exploring.register,
        exploring.tried(),
        chain,
        writer.write,
        run.facts,
        left=lambda: max(0.0, ends - time.monotonic()),
        compiled=writer.compiled,
    )
    proposed = {}
    # Ctrl-C, or a full disk, ends this early: the findings are reported all the same.
    with contextlib.suppress(KeyboardInterrupt, DiskFull), interruptible():
        for left, bug in zip(range(len(bugs), 0, -1), bugs, strict=True):
            proposed[bug.finding.id] = fixes.propose(bug, (ends - time.monotonic()) / left)
    return replace(
        found,
        findings=tuple(replace(finding, fix=proposed.get(finding.id)) for finding in found.findings),
        warnings=(*found.warnings, *(f"while fixes were tried, {note}" for note in fixes.notes)),
    )
