"""Crashes of the recovery (`--depth 2`): the check is recorded on crash images, and what it updates is crashed, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from crashcheck.checker.budget import Budget, Progress
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.results import Finding
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.search.recovery import Recovery, RecoverySearch
from crashcheck.checker.strategies import Strategy
from crashcheck.checker.strategies.plan import select_states
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts import prepare
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.config import Config
from crashcheck.runtime.record import NthEvent, Recording, record
from crashcheck.stages.executor_setup import (
    check_setup_of,
    limits_of,
    snapshots_by,
)
from crashcheck.stages.recording import RecordedRun, check_in, read_recording

_NO_RECOVERY = "--depth 2: the check updated no watched file of any crash image: there was no recovery to crash"


def recovery_search_of(
    config: Config,
    run: RecordedRun,
    folder: Path,
    jobs: int,
    strategy: Strategy,
    oracle: Oracle,
    on_progress: Callable[[Progress], None] | None = None,
) -> RecoverySearch:
    """What records the check on a crash image, models that run, and searches its crash states.

    With output equivalence the driver gets an empty operations file: it recovers what it opens, and ends.
    """

    def record_check(image: Path, acked: int, stdout_bytes: int, below: Path) -> Recovery | None:
        printed = below / "printed"
        with run.recording.stdout.open("rb") as everything:
            printed.write_bytes(everything.read(stdout_bytes))
        no_operations = below / prepare.OPERATIONS
        no_operations.touch()

        def record_in(into: Path, snapshot: int | NthEvent | None = None) -> Recording:
            addresses = run.recording.addresses
            check = check_in(
                *(config, into),
                image=image,
                addresses=addresses,
                acked=acked,
                stdout=printed,
                operations=no_operations,
            )
            return record(replace(check, snapshot=snapshot), into)

        recording = record_in(below / "run")
        if recording.end.exit_code != 0 or not recording.trace.exists():
            return None
        recovery = read_recording(config, recording, config.check.command)
        snapshot = snapshots_by(lambda moment, into: record_in(into, moment), below)
        return Recovery(recovery.subject, recording.first, snapshot)

    return RecoverySearch(
        record_check,
        check_setup_of(config, run.recording, folder),
        partial(prepare.oracle_in_recovery, oracle),
        strategy,
        limits_of(config),
        jobs,
        progress=on_progress,
    )


def search_recoveries(
    recovery_search: RecoverySearch,
    subject: Subject,
    executor: Executor,
    strategy: Strategy,
    budget: Budget,
    found: SearchResult,
) -> tuple[SearchResult, tuple[str, ...]]:
    """Search recoveries of all crash images with what `found` left of the budget; both results as one, and warnings."""
    left = Budget(
        None if budget.seconds is None else max(0.0, budget.seconds - found.seconds),
        None if budget.states is None else max(0, budget.states - found.states.executed),
    )
    second = recovery_search.search(subject, executor, select_states(subject.space, strategy), left)
    idle = not second.states.feasible and not second.warnings
    return _merged(found, second), (_NO_RECOVERY,) if idle else ()


def _merged(first: SearchResult, second: SearchResult) -> SearchResult:
    """A search and the search below its states as one; a bug that both found is kept once."""
    return replace(
        first,
        stop_reason=second.stop_reason,
        states=first.states.plus(second.states),
        findings=(*first.findings, *_new(first.findings, second.findings)),
        uncertain=(*first.uncertain, *_new(first.uncertain, second.uncertain)),
        warnings=(*first.warnings, *second.warnings),
        probes=first.probes + second.probes,
        seconds=first.seconds + second.seconds,
        failing=(*first.failing, *second.failing),
    )


def _new(known: Sequence[Finding], found: Sequence[Finding]) -> list[Finding]:
    ids = {finding.id for finding in known}
    return [finding for finding in found if finding.id not in ids]
