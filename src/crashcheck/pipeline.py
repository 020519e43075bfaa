"""A run, from crashcheck.toml to findings: build, record, read, model, search. The table of contents of crashcheck."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.change.code import NO_FACTS, ChangedCode
from crashcheck.change.diff import Diff, head_commit
from crashcheck.change.unreached import ELSEWHERE, NODES, StacksOfRuns, recorded_stacks, unreached
from crashcheck.checker.baseline import Known
from crashcheck.checker.budget import Counting, Left, Meter, OutOfTime, within
from crashcheck.checker.findings.counterpart import Signed
from crashcheck.checker.fixes import proposals
from crashcheck.checker.kept.runs_file import RunsFile, Share
from crashcheck.checker.kept.shards import Exchange
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.policy import judge, rules_of, sources_of
from crashcheck.checker.remote.remote_machines import Cluster
from crashcheck.checker.results import RunResult, StopReason
from crashcheck.checker.search.crash_states import SearchResult, nothing_checked
from crashcheck.checker.search.reopened import with_reopens
from crashcheck.checker.store import RunFolder
from crashcheck.checker.strategies.first import First
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import digest
from crashcheck.checker.verdicts import prepare
from crashcheck.checker.verdicts.copies import CopiesDiffer
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.kept_verdicts import stacked
from crashcheck.config import Config
from crashcheck.runtime.record import Recording
from crashcheck.stages import exchange, run_summary
from crashcheck.stages.executor_setup import CheckFunction, executed_by, executor_of
from crashcheck.stages.failing_states import LastFailures, failing_states, read_failing, write_failing
from crashcheck.stages.phases import OnProgress, TimedPhases, left_of
from crashcheck.stages.recording import (
    OnPhase,
    RecordedRun,
    built,
    read_workload,
    record_check_reads_in_budget,
    record_in,
)
from crashcheck.stages.recoveries import recovery_search_of, search_recoveries
from crashcheck.stages.resumed import handed_on, note_recorded, resumed
from crashcheck.stages.search_setup import budget_of, search_of, warned_of_blind_check, with_fixes
from crashcheck.stages.strategy_setup import InferOnce, early_states, strategy_of
from crashcheck.stages.uncrashed import check_uncrashed
from crashcheck.wording import remark


@dataclass(frozen=True, slots=True, eq=False)
class RunOptions:
    """How to run a configuration, besides what crashcheck.toml asks for."""

    jobs: int = 0  # checks at a time; 0: one for each core
    depth: int = 1  # 2: crash the recovery as well
    change: Diff | None = None  # states that it affects are tried first, and findings in it are marked
    baseline: Sequence[Known] | None = None  # findings in it are not new
    resume: bool = False  # search the recording of the last run, if it is one of the same program and workload
    shards: Sequence[Path] = ()  # files of shards that have searched it; then another recording is an error
    cluster: Cluster | None = None  # executes the crash states
    failing: Path | None = None  # the states that failed in the last run, tested first; it gets those of this run
    check: CheckFunction | None = None  # instead of the command that is configured
    after_finding: int | None = None  # states from the newest finding to the end of the search
    record: Callable[[Path], Recording] | None = None  # in a folder, instead of the workload that is configured
    on_progress: OnProgress = lambda phase, progress: None

    def on_phase(self, phase: str) -> None:
        self.on_progress(phase, None)

    @property
    def workers(self) -> int:
        return self.jobs or cores()


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run found, of which program, and the folder that keeps its recording for replays."""

    config: Config
    result: RunResult
    folder: Path


def run(config: Config, options: RunOptions = RunOptions()) -> Ran:
    """Do what `config` asks. Ctrl-C during the search ends it with a partial result.

    Raises CrashcheckError if there is no result.
    """
    started = time.monotonic()
    timed = TimedPhases(options.on_progress)
    options = replace(options, on_progress=timed.at)
    with built(config, options.on_phase) as run_folder:
        if config.nodes is not None:
            result = _of_nodes(config, run_folder.path, options)
            if options.change is not None:
                result = ChangedCode(options.change, config.folder, NO_FACTS).mark(result)
            result = replace(result, seconds=time.monotonic() - started - run_folder.waited_s)
            return Ran(config, _judged(config, result, (), options, timed), run_folder.path)
        recording = _recording(config, run_folder.path, options)
        began = time.monotonic()  # the budget's seconds
        trace = _read(config, recording, run_folder, options.on_phase)
        if options.shards:
            exchanged = exchange.of_merge(config, recording, trace, options.change, options.shards)
        else:
            exchanged = exchange.of_run(config, recording, trace, options.change)
        result, sources = _searched(left_of(config, began), recording, trace, options, exchanged)
        seconds = time.monotonic() - started - run_folder.waited_s
        result = replace(result, seconds=seconds, trace=replace(result.trace, path=str(recording.trace)))
        return keep_fixes(Ran(config, _judged(config, result, sources, options, timed), run_folder.path))


def _of_nodes(config: Config, folder: Path, options: RunOptions) -> RunResult:
    """What runs of nodes show."""
    from crashcheck.stages.node_cluster import runs_on  # not above: other runs start a sixth faster
    from crashcheck.stages.nodes import search_nodes

    cluster = partial(runs_on, options.cluster) if options.cluster is not None else None
    made = StacksOfRuns(config.folder)
    recorded = made if options.change is not None and cluster is None else None
    result = search_nodes(config, folder, options.workers, options.on_progress, options.failing, cluster, recorded)
    if options.change is None:
        return result
    missed = (ELSEWHERE,) if cluster is not None else unreached(options.change, config.folder, made.stacks, NODES)
    return replace(result, unreached=missed)


def _judged(
    config: Config, result: RunResult, sources: Iterable[str], options: RunOptions, timed: TimedPhases
) -> RunResult:
    """A result with each finding marked as the baseline and suppressions have it, and with its phases."""
    policy = rules_of(config, sources, result)
    result = judge(result, policy.suppressions, options.baseline)
    return replace(result, warnings=(*result.warnings, *policy.warnings), phases=timed.phases())


def _recording(config: Config, folder: Path, options: RunOptions) -> Recording:
    """What is searched, in `folder`: made now, or a copy of the last run's."""
    if options.record is not None:
        options.on_phase("recording")
        return options.record(folder)
    if options.shards:
        return handed_on(config, folder)
    last = resumed(config, folder) if options.resume else None
    return last or record_in(config, folder, options.on_phase)


def record_only(config: Config) -> Path:
    """Build and record, for searches to come; the folder of the recording."""
    with built(config) as run_folder:
        _read(config, record_in(config, run_folder.path), run_folder, lambda phase: None)
        return run_folder.path


def run_shard(config: Config, share: Share, into: Path, options: RunOptions) -> tuple[RunsFile, StopReason]:
    """Search a share of the last recording: the file of what was executed, written to `into`, and why that ended."""
    with built(config, options.on_phase) as run_folder:
        recording = handed_on(config, run_folder.path)
        began = time.monotonic()  # the budget's seconds
        trace = _read(config, recording, run_folder, options.on_phase)
        exchanged = exchange.of_shard(config, recording, trace, options.change, share)
        options = replace(options, depth=1)  # recoveries are crashed where shards are merged
        why = StopReason.BUDGET_SECONDS
        with suppress(OutOfTime):
            config, recorded, changed = _modelled(left_of(config, began), recording, trace, options.change)
            found, _ = search(config, recorded, changed, options, exchanged, LastFailures(()))
            why = found.stop_reason
        exchange.hand_over(exchanged.noted, into)
    assert exchanged.noted is not None
    return exchanged.noted, why


def _read(config: Config, recording: Recording, run_folder: RunFolder, on_phase: OnPhase) -> Trace:
    """The trace of a recording, which later runs and replays find from now on."""
    on_phase("analysing")
    trace = read_trace(recording.trace)
    note_recorded(config, recording, trace)
    run_folder.register(digest(trace).hex(), run_folder.path)
    return trace


def _modelled(
    config: Config, recording: Recording, trace: Trace, change: Diff | None
) -> tuple[Config, RecordedRun, ChangedCode | None]:
    """Raises OutOfTime where the budget ends meanwhile."""
    began = time.monotonic()
    recorded = read_workload(config, recording, trace, within(Meter(budget_of(config)).left))
    config, recorded = record_check_reads_in_budget(left_of(config, began), recorded)
    return config, recorded, ChangedCode(change, config.folder, recorded.facts) if change is not None else None


def _searched(
    config: Config, recording: Recording, trace: Trace, options: RunOptions, exchanged: Exchange
) -> tuple[RunResult, list[str]]:
    """Model a recording and search it: the result, and sources in which suppressions may be, as findings name them."""
    try:
        config, recorded, changed = _modelled(config, recording, trace, options.change)
    except OutOfTime:
        return run_summary.not_modelled(config, trace), []
    failures = LastFailures(read_failing(options.failing).states if options.failing is not None else ())
    found, warnings = search(config, recorded, changed, options, exchanged, failures)
    result = run_summary.summarise(config, recorded, found, warnings)
    if changed is not None and options.depth < 2:
        result = replace(result, unreached=changed.unrecorded(trace))
    if options.change is not None and options.depth < 2 and not recorded.facts.units:
        stacks = recorded_stacks(recorded.subject.trace, recorded.subject.provenance, config.folder)
        result = replace(result, unreached=unreached(options.change, config.folder, stacks))
    if changed is not None:
        result = changed.mark(result)
    if options.failing is not None:
        result = replace(result, again=failures.again)
        _keep_failing(options.failing, config, recorded, result, failures)
    return result, sources_of(config.folder, recorded.facts)


def _keep_failing(path: Path, config: Config, run: RecordedRun, result: RunResult, failures: LastFailures) -> None:
    """Write the states that fail now, and those of earlier runs that were not tested."""
    found = result.all_findings
    now = failing_states(found, Signed(run.subject), head_commit(config.folder)) if found else []
    write_failing(path, (*now, *failures.untested))


def keep_fixes(ran: Ran) -> Ran:
    """Keep the suggested fixes for `crashcheck fix`; where that is not possible, a warning of the result names why."""
    try:
        proposals.save(proposals.of(ran.result, ran.config.folder), ran.folder)
    except OSError as error:
        note = f"the suggested fixes were not kept for `crashcheck fix`: {error.strerror}"
        return replace(ran, result=replace(ran.result, warnings=(*ran.result.warnings, note)))
    return ran


def search(
    config: Config,
    recorded: RecordedRun,
    changed: ChangedCode | None,
    options: RunOptions,
    exchanged: Exchange,
    failures: LastFailures,
) -> tuple[SearchResult, tuple[str, ...]]:
    """Check the uncrashed images, then crash states until the strategy or the budget ends; try fixes; crash recoveries.

    If a copy of the check at crashcheck_ready() ends otherwise than the check does from the beginning, all of this is
    done again without copies.
    Returns what was found, and warnings.
    """
    began = time.monotonic()
    merging = len(exchanged.known) and not exchanged.known.since
    forks = exchanged.share is None and not merging and options.cluster is None
    try:
        return _search(config, recorded, changed, options, exchanged, failures, forks=forks)
    except CopiesDiffer as difference:
        note = f"{difference.again}: {difference}"
        remark(note)
        left = left_of(config, began)
        found, warnings = _search(left, recorded, changed, options, exchanged.anew(), failures, forks=False)
        return found, (note, *warnings)


def _search(
    config: Config,
    recorded: RecordedRun,
    changed: ChangedCode | None,
    options: RunOptions,
    exchanged: Exchange,
    failures: LastFailures,
    *,
    forks: bool,
) -> tuple[SearchResult, tuple[str, ...]]:
    """As `search`. `forks`: the check may be copied at crashcheck_ready(). Raises CopiesDiffer."""
    subject, jobs, on_phase = recorded.subject, options.workers, options.on_phase
    began, meter = time.monotonic(), Meter(budget_of(config))
    left, until_report = meter.left, within(meter.reporting_left)

    def ended_while(what: str) -> SearchResult:
        why = f"the time budget ended while {what}: raise it"
        nothing = nothing_checked(subject, StopReason.BUDGET_SECONDS, until_report)
        return replace(nothing, warnings=(why,))

    try:
        reading = Counting(partial(options.on_progress, "reading the versions of files"), within(left))
        oracle = prepare.choose_oracle(config, subject, recorded.folder, reading)
    except OutOfTime:
        return ended_while(f"the versions of files were read, after {reading.text}"), ()
    warnings: tuple[str, ...] = ()
    with executor_of(config, recorded, recorded.folder, jobs, oracle, function=options.check) as executor:
        try:
            _check_uncrashed(config, recorded, oracle, executor, on_phase, forks, left)
        except OutOfTime:
            found = ended_while("the check ran on the uncrashed images")
            return _with_reopens(config, subject, oracle, found), oracle.notes
        config = left_of(config, began)
        budget = replace(budget_of(config), after_finding=options.after_finding)
        inferring, early = InferOnce(recorded), early_states(budget)
        strategy = strategy_of(config, recorded, changed, inferring, early, partial(on_phase, "ranking"))
        failed_before = failures.states(subject)
        strategy = First(failed_before, strategy) if failed_before else strategy
        on_state = partial(options.on_progress, "checking")
        with nullcontext() if options.cluster is None else executed_by(options.cluster, executor):
            source = stacked(executor, exchanged)
            exploring = search_of(config, recorded, source, strategy, budget, progress=on_state)
            exploring.register.keeps_merged = changed is not None
            found = exploring.run()
        passed = exploring.tried().passed
        failures.searched(
            (*found.findings, *found.uncertain), lambda state: subject.content.fingerprint(state) in passed
        )
        found = warned_of_blind_check(executor, oracle, subject, found, meter.explaining_left)
        if config.report.fixes:
            unchanged = strategy_of(config, recorded, inferring=inferring)
            found = with_fixes(config, recorded, executor, exploring, found, unchanged, on_phase)
        if options.depth >= 2 and found.stop_reason is not StopReason.EXHAUSTED:
            warnings = ("the budget ended before any recovery was crashed (--depth 2): raise it",)
        elif options.depth >= 2:
            on_state = partial(options.on_progress, "crashing the check")
            recoveries = recovery_search_of(config, recorded, recorded.folder, jobs, strategy, oracle, on_state)
            found, warnings = search_recoveries(recoveries, subject, executor, strategy, budget, found)
    return _with_reopens(config, subject, oracle, found), (*oracle.notes, *warnings)


def _with_reopens(config: Config, subject: Subject, oracle: Oracle, found: SearchResult) -> SearchResult:
    return with_reopens(found, oracle, subject, config.check.command, config.workload.operations_file)


def _check_uncrashed(
    config: Config,
    recorded: RecordedRun,
    oracle: Oracle,
    executor: Executor,
    on_phase: Callable[[str], None],
    forks: bool,
    left: Left,
) -> None:
    """Run the check where nothing was lost, and prepare the oracle; print remarks."""
    prepare.prepare_oracle(oracle, executor, on_phase)
    on_phase("checking the uncrashed images")
    check_uncrashed(config, recorded, executor, forks=forks, left=left)
    prepare.check_operation_boundaries(oracle, executor, recorded.subject, recorded.find_completeness)
    for text in prepare.remarks(oracle, executor, recorded.subject):
        remark(text)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))
