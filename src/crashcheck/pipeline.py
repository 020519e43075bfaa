"""A run, from crashcheck.toml to findings: build, record, read, model, search. The table of contents of crashcheck."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import crashcheck
from crashcheck import run_summary
from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.concurrency.predecessors import measure_deviance
from crashcheck.analyzer.invariants import Inferred, infer
from crashcheck.analyzer.invariants.ranking import KeepOn
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.blind_spots import unexercised
from crashcheck.change import Touched
from crashcheck.check_setup import deeper_of, executor_of, snapshots_of
from crashcheck.checker.budget import Budget
from crashcheck.checker.execution.executor import DiskFull, Executor
from crashcheck.checker.findings.call_chains import call_chains
from crashcheck.checker.fixes import proposals
from crashcheck.checker.fixes.propose import Fixes
from crashcheck.checker.fixes.source_edit import Writer
from crashcheck.checker.oracles import prepare
from crashcheck.checker.policy import Known, judge
from crashcheck.checker.policy_files import rules
from crashcheck.checker.replay import Replayed, replay
from crashcheck.checker.results import RunResult, StopReason
from crashcheck.checker.search.crash_states import Progress, Search, SearchResult, uncrashed
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.store import RunFolder, Store
from crashcheck.checker.strategies import Ranked, Strategy, strategy
from crashcheck.checker.strategies.plan import Infer
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Token, digest
from crashcheck.config import Config
from crashcheck.diff import Diff
from crashcheck.interruption import interruptible
from crashcheck.recording import Loaded, build, load, record_workload, with_reads
from crashcheck.source import SourceTree

READS_SHARE = 0.5  # of the budget's seconds, for recording what the check reads, at most
FIXES_S = 10.0  # for trying fixes, at most
FIXES_SHARE = 0.2  # of the budget

OnProgress = Callable[[str, Progress | None], None]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run found, and the folder that keeps its recording for replays."""

    result: RunResult
    folder: Path


def run(
    config: Config,
    *,
    jobs: int = 0,
    depth: int = 1,
    change: Diff | None = None,
    baseline: Sequence[Known] | None = None,
    on_progress: OnProgress | None = None,
) -> Ran:
    """Do what `config` asks. `jobs`: checks at a time, 0 for one a core; `depth` 2: crash the recovery as well.

    What `change` touches is looked at and told first; findings that `baseline` knows are not new.

    Raises CrashcheckError where the job could not be done; Ctrl-C while searching ends with a partial result.
    """
    started = time.monotonic()
    tell = on_progress or (lambda phase, progress: None)
    store = Store(config.folder)
    run_folder = store.new_run()
    try:
        with store.programs() as programs:
            if config.build.command is not None:
                programs.alone(lambda: tell("waiting for another run in this folder", None))
                tell("building", None)
                build(config, run_folder.path)
            programs.together()
            tell("recording", None)
            recording = record_workload(config, run_folder.path)
            tell("analysing", None)
            loaded = load(config, recording)
            prepare.must_be_marked(config, loaded.facts)
            config, loaded = _reads_within_budget(config, loaded)
            run_folder.register(digest(loaded.subject.trace).hex(), run_folder.path)
            touched = Touched(change, config.folder, loaded.facts) if change is not None else None
            exploration, depth_warnings = search(config, loaded, run_folder, jobs or cores(), depth, tell, touched)
            result = summarise(config, loaded, exploration, depth_warnings, time.monotonic() - started)
            if touched is not None:
                result = touched.mark(result)
            found = rules(config, loaded.facts, result)
            result = judge(result, found.suppressions, baseline)
            proposals.save(proposals.of(result, config.folder), run_folder.path)
            return Ran(replace(result, warnings=(*result.warnings, *found.warnings)), run_folder.path)
    finally:
        run_folder.close()


def _reads_within_budget(config: Config, loaded: Loaded) -> tuple[Config, Loaded]:
    """With what the check reads, which tells the search where to look first; and the budget that is left after that."""
    seconds = config.budget.seconds
    if seconds is None:
        return config, with_reads(config, loaded)
    started = time.monotonic()
    limit_s = min(config.check.timeout_s, seconds * READS_SHARE)
    loaded = with_reads(replace(config, check=replace(config.check, timeout_s=limit_s)), loaded)
    left_s = max(0.0, seconds - (time.monotonic() - started))
    return replace(config, budget=replace(config.budget, seconds=left_s)), loaded


def search(
    config: Config,
    loaded: Loaded,
    run_folder: RunFolder,
    jobs: int,
    depth: int,
    tell: OnProgress,
    touched: Touched | None = None,
) -> tuple[SearchResult, tuple[str, ...]]:
    """Check the uncrashed images, then crash states until the strategy or the budget ends; then recoveries."""
    subject = loaded.subject
    inferring = _Inferring(loaded)
    plan = strategy_of(config, loaded, touched, inferring)
    budget = Budget(config.budget.seconds, config.budget.states)
    oracle = prepare.choose(config, subject, loaded.recording.trace.parent)
    with executor_of(config, loaded, run_folder.path, jobs, oracle) as executor:
        prepare.make_ready(oracle, executor, lambda phase: tell(phase, None))
        tell("checking the uncrashed images", None)
        recording = loaded.recording
        with_first = config.check.first == "check" and run_summary.has_files(recording.first)
        uncrashed(executor, first=with_first, shown_pools=(str(recording.pool), str(recording.first)))
        prepare.judge_boundaries(oracle, executor, subject, loaded.completeness)
        exploring = Search(
            subject,
            executor,
            plan,
            budget,
            jobs=jobs,
            progress=lambda progress: tell("checking", progress),
            snapshot=snapshots_of(config, loaded, run_folder.path),
        )
        first = exploring.run()
        if config.report.fixes:
            by = strategy_of(config, loaded, inferring=inferring)
            first = _with_fixes(config, loaded, executor, exploring, first, by, tell)
        if depth < 2:
            return first, oracle.notes
        if first.stop_reason is not StopReason.EXHAUSTED:
            return first, ("the budget ended before any recovery was crashed (--depth 2): raise it",)

        def tell_deeper(progress: Progress) -> None:
            tell("crashing the check", progress)

        deeper = deeper_of(config, loaded, run_folder.path, jobs, plan, oracle, tell_deeper)
        left = Budget(
            None if budget.seconds is None else max(0.0, budget.seconds - first.seconds),
            None if budget.states is None else max(0, budget.states - first.states.executed),
        )
        second = deeper.explore(subject, executor, _distinct(subject, plan), left)
        idle = ("--depth 2: the check updated no watched file of any crash image: there was no recovery to crash",)
        return run_summary.both(first, second), idle if not second.states.feasible and not second.warnings else ()


def _with_fixes(
    config: Config,
    loaded: Loaded,
    executor: Executor,
    exploring: Search,
    found: SearchResult,
    by: Strategy,
    tell: OnProgress,
) -> SearchResult:
    """What was found, with what would mend it; in a fifth of the budget, and 10 s at most."""
    bugs = [bug for bug in exploring.register.bugs() if not bug.finding.uncertain]
    if not bugs or found.stop_reason in (StopReason.INTERRUPTED, StopReason.DISK_FULL):
        return found
    tell("trying fixes", None)
    subject = loaded.subject
    chain = call_chains(subject.trace, loaded.facts, SourceTree(config.folder).relative)
    seconds = FIXES_S if config.budget.seconds is None else min(FIXES_S, config.budget.seconds * FIXES_SHARE)
    ends = time.monotonic() + seconds
    trying = Fixes(
        subject,
        executor,
        by,
        exploring.register,
        exploring.tried(),
        chain,
        Writer(subject, chain, config.folder).write,
        loaded.facts,
        left=lambda: max(0.0, ends - time.monotonic()),
    )
    proposed = {}
    with contextlib.suppress(KeyboardInterrupt, DiskFull), interruptible():  # what was found is told all the same
        for left, bug in zip(range(len(bugs), 0, -1), bugs, strict=True):
            proposed[bug.finding.id] = trying.propose(bug, (ends - time.monotonic()) / left)
    return replace(
        found,
        findings=tuple(replace(one, fix=proposed.get(one.id)) for one in found.findings),
        warnings=(*found.warnings, *(f"while fixes were tried, {note}" for note in trying.notes)),
    )


def summarise(
    config: Config, loaded: Loaded, exploration: SearchResult, warnings: Sequence[str], seconds: float
) -> RunResult:
    """Everything that the reports need."""
    facts = loaded.facts
    return RunResult(
        config_path=str(config.path),
        model=config.model.name + (f" tear={config.model.tear}" if config.model.tear else ""),
        strategy=config.strategy.name
        + (f" deviations={config.strategy.deviations}" if config.strategy.name == "bounded" else ""),
        stop_reason=exploration.stop_reason,
        states=exploration.states,
        trace=run_summary.trace_summary(loaded.subject.trace, loaded.completeness),
        findings=exploration.findings,
        uncertain=exploration.uncertain,
        not_instrumented=run_summary.not_instrumented(
            facts,
            loaded.subject.trace,
            config.workload.command,
            config.folder,
            unexplained=loaded.completeness.unexplained_bytes > 0,
        ),
        warnings=(
            *run_summary.recording_warnings(facts, loaded.recording),
            *((loaded.unread.note,) if loaded.unread.failed else ()),
            *exploration.warnings,
            *warnings,
        ),
        seconds=seconds,
        version=crashcheck.__version__,
        groups=exploration.groups,
        notes=(run_summary.performance_notes(loaded.subject, facts, config.folder) if config.report.notes else ()),
        unexercised=unexercised(loaded.subject.trace, facts, config.folder),
    )


def replay_token(config: Config, text: str, image: Path) -> Replayed:
    """Write the image of a finding's token to `image`, which must not exist, and run the check on a copy of it.

    Raises CrashcheckError: token-malformed, token-other-trace, replay-no-recording and others.
    """
    token = Token.parse(text)
    wanted = replace(
        config, model=replace(config.model, name=token.model, tear=token.options.tear, files=token.options.files)
    )
    folder = Store(config.folder).find(token.levels[0].digest.hex())
    loaded = load(wanted, run_summary.recording_in(folder))
    image.parent.mkdir(parents=True, exist_ok=True)
    work = image.with_name(image.name + ".work")
    work.mkdir()
    oracle = prepare.choose(wanted, loaded.subject, loaded.recording.trace.parent)
    with executor_of(wanted, loaded, work, 1, oracle) as executor:
        prepare.run_by(oracle, executor)
        deeper = deeper_of(wanted, loaded, work, 1, strategy_of(wanted, loaded), oracle, None)
        replayed = replay(token, loaded.subject, executor, image, deeper)
        return replace(replayed, operations=b"".join(oracle.stages(token.levels[0].state.point)))


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


class _Inferring:
    """Likely invariants, inferred once of the same graph: those of the search serve its fixes as well."""

    def __init__(self, loaded: Loaded) -> None:
        self._reads = loaded.reads
        self._known: tuple[PersistenceGraph, Inferred] | None = None

    def __call__(self, found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        if self._known is None or self._known[0] is not found.graph:
            self._known = found.graph, infer(found, facts, reads=self._reads, keep_on=keep_on)
        return self._known[1]


def strategy_of(
    config: Config, loaded: Loaded, touched: Touched | None = None, inferring: Infer | None = None
) -> Strategy:
    """The strategy that [strategy] names, with what a recording tells it, and what was changed."""
    if config.strategy.name == "bounded":
        return strategy("bounded", deviations=config.strategy.deviations)
    if config.strategy.name == "ranked":
        return ranked(loaded, touched, inferring)
    if config.strategy.name == "pathfinder":
        return strategy("pathfinder", facts=loaded.facts)
    if config.strategy.name == "witcher":
        return strategy("witcher", facts=loaded.facts, infer=inferring or _Inferring(loaded))
    return strategy(config.strategy.name)


def ranked(loaded: Loaded, touched: Touched | None = None, inferring: Infer | None = None) -> Ranked:
    """The ranked search with all that a recording tells."""
    changed = touched.site if touched is not None else None
    return Ranked(loaded.facts, inferring or _Inferring(loaded), measure_deviance, changed)


def _distinct(subject: Subject, plan: Strategy) -> Iterator[CrashState]:
    """Each crash image once, in the strategy's order."""
    seen: set[bytes] = set()
    for state in subject.space.states(plan):
        fingerprint = subject.content.fingerprint(state)
        if fingerprint not in seen:
            seen.add(fingerprint)
            yield state


__all__ = [
    "Loaded",
    "Ran",
    "build",
    "executor_of",
    "load",
    "record_workload",
    "replay_token",
    "run",
    "search",
    "snapshots_of",
    "strategy_of",
    "summarise",
    "with_reads",
]
