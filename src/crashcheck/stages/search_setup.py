"""What the pipeline gives to a search: the check and its limits, the strategy, crashes of the recovery, trying fixes.

`pipeline.search` calls it in that order; `crashcheck replay` and `crashcheck mutate` use the parts that they need.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from crashcheck.analyzer.behaviours import Behaviours, StaticSite
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.concurrency.predecessors import measure_deviance
from crashcheck.analyzer.invariants import Inferred, infer
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.change.code import ChangedCode
from crashcheck.checker.budget import Budget, DiskFull, Progress
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.worker_pool import FINAL
from crashcheck.checker.findings.call_chains import call_chains
from crashcheck.checker.fixes.missing_calls import missing_call
from crashcheck.checker.fixes.propose import FixProposer
from crashcheck.checker.fixes.source.source_edit import EditWriter
from crashcheck.checker.fixes.source.unit_compiles import UnitCompiles
from crashcheck.checker.images.real_files import RealFiles, Snapshot
from crashcheck.checker.kept.base import base_of
from crashcheck.checker.kept.shards import SharedRuns
from crashcheck.checker.kept.verdicts import KeptVerdicts
from crashcheck.checker.oracles import Oracle, prepare
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.oracles.image_judge import ImageJudge
from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.remote.remote_runs import Cluster, RemoteRuns
from crashcheck.checker.remote.shipment import shipment_of
from crashcheck.checker.results import Finding, StopReason, Verdict
from crashcheck.checker.search.crash_states import Search, SearchResult
from crashcheck.checker.search.recovery import Recovery, RecoverySearch
from crashcheck.checker.search.timeouts import timeout_for
from crashcheck.checker.strategies import Ranked, Strategy, strategy
from crashcheck.checker.strategies.plan import Infer, select_states
from crashcheck.checker.subject import Subject
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.interruption import KeepOn, always, interruptible
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.record import Recording, record
from crashcheck.source import SourceTree, repository_of
from crashcheck.stages.recording import OnPhase, RecordedRun, check_in, ended_operations, read_recording, record_again

_KEPT_BYTES = 16 * 1024  # of a check's output, to be shown in a report; output equivalence keeps more
_NO_RECOVERY = "--depth 2: the check updated no watched file of any crash image: there was no recovery to crash"
_EARLY = 1_000  # states of a long trace that are tested while its groups are being ranked, at most
_FIXES_MOST_S = 10.0  # for trying fixes, at most
_FIXES_SHARE = 0.2  # of the budget's seconds, at most


def executor_of(
    config: Config, run: RecordedRun, folder: Path, jobs: int, oracle: Oracle, kind: type[Executor] = Executor
) -> Executor:
    """Workers that run the check on crash states of a recorded run; their images are made below `folder`."""
    content, points = run.subject.content, run.subject.space.points
    setup = check_setup_of(config, run.recording, folder)
    if isinstance(oracle, SnapshotOracle):
        return ImageJudge(content, points, setup, oracle)
    return kind(
        content,
        points,
        setup,
        oracle,
        limits=limits_of(config),
        jobs=jobs,
        stdout_bytes=run.recording.stdout.stat().st_size,
        operations=ended_operations(run.subject.trace),
    )


def check_setup_of(config: Config, recording: Recording, folder: Path) -> CheckSetup:
    """What a worker needs to run the check; its images are made below `folder`."""
    runtime = build_runtime()
    return CheckSetup(
        command=CheckCommand.find(config.check.command, config.folder),
        folder=config.folder,
        first=recording.first,
        work=folder,
        recorded_stdout=recording.stdout,
        addresses=recording.addresses,
        patterns=config.pool.files,
        env=config.check.env,
        preload=runtime.shared,
        inputs=runtime.inputs if config.check.reuse else None,
    )


def limits_of(config: Config) -> Limits:
    """How much time, memory and output one run of the check may take."""
    compares = prepare.compares_outputs(config)
    return Limits(
        timeout_s=config.check.timeout_s,
        memory_bytes=config.check.memory_mib << 20 or None,
        file_bytes=config.check.file_mib << 20 or None,
        kept_bytes=prepare.KEPT_BYTES if compares else _KEPT_BYTES,
        apart=compares,
        outputs=config.check.outputs,
    )


def check_uncrashed(config: Config, run: RecordedRun, executor: Executor, *, forks: bool = False) -> None:
    """Run the check on the first and the final image, where it has to pass. Raises what `uncrashed` raises.

    `forks`: from then on, crash states may be run from crashcheck_ready() on.
    """
    recording = run.recording
    has_first = any(path.is_file() for path in recording.first.rglob("*"))
    with_first = config.check.first == "check" and has_first
    shown = (str(recording.pool), str(recording.first))
    uncrashed(executor, first=with_first, shown_pools=shown, trace_lacks=run.unaccounted, forks=forks)


@contextlib.contextmanager
def executed_by(cluster: Cluster, executor: Executor) -> Iterator[None]:
    """While this lasts, a cluster executes crash states. Raises CrashcheckError: bad-option, executor-unusable."""
    if isinstance(executor, ImageJudge):
        raise CrashcheckError(
            "bad-option",
            "--executor has nothing to execute: [check] oracle = 'snapshot' runs no check.",
            "Leave out --executor.",
        )

    def tell(line: str) -> None:
        print(f"crashcheck: {cluster.name}: {line}", file=sys.stderr, flush=True)

    pool = executor.workers
    remote = RemoteRuns(cluster, pool, shipment_of(pool.setup, pool.limits), executor.stages(FINAL), tell)
    try:
        remote.begin()
        pool.send_elsewhere(remote)
        yield
    finally:
        pool.send_elsewhere(None)
        remote.close()


def snapshots_of(config: Config, run: RecordedRun, folder: Path) -> Snapshot:
    """Copies of the real files at an event of the workload, taken while it is recorded again below `folder`."""

    def again(seq: int, into: Path) -> Recording:
        return record_again(config, run, into, seq)

    return snapshots_by(again, folder)


def snapshots_by(again: Callable[[int, Path], Recording], folder: Path) -> Snapshot:
    """Files copied at an event while `again` (event, folder) records once more; None if that fails or ends before."""
    taken: dict[int, RealFiles | None] = {}

    def snapshot(seq: int) -> RealFiles | None:
        if seq not in taken:
            taken[seq] = _real_files(again, seq, folder / f"snapshot-{seq}")
        return taken[seq]

    return snapshot


def _real_files(again: Callable[[int, Path], Recording], seq: int, folder: Path) -> RealFiles | None:
    try:
        recording = again(seq, folder)
        trace = read_trace(recording.trace)
    except CrashcheckError:
        return None
    if not recording.snapshot.is_dir():
        return None
    return RealFiles(recording.snapshot, trace, recording.stdout, recording.addresses)


def uncrashed(
    executor: Executor,
    *,
    first: bool,
    shown_pools: tuple[str, str] = ("{pool}", "{pool}"),
    trace_lacks: Callable[[], Sequence[str]] = tuple,
    forks: bool = False,
) -> None:
    """The final image, and the first one if asked, must pass before anything is crashed.

    `shown_pools`: folders with the final and the first image, for the command to try; `trace_lacks`: what the final
    image, which is made from the trace, lacks of what the workload left. Raises CrashcheckError
    check-rejects-final, trace-lacks-updates or check-rejects-first with the check's output.
    How long they take decides how long those of crash states may take.
    """
    slowest_s = 0.0
    for final, wanted, pool in ((True, True, shown_pools[0]), (False, first, shown_pools[1])):
        if not wanted:
            continue
        if final:
            verdict = executor.try_forking() if forks else executor.run_final()
        else:
            verdict = executor.run_first()
        slowest_s = max(slowest_s, verdict.seconds)
        if verdict.passed:
            continue
        what = "after the workload, with nothing crashed" if final else "before the workload"
        command = executor.shown_plain(pool, final=final)
        advice = "" if final else ' If that is as it should be, set [check] first = "skip".'
        if final and (lacks := trace_lacks()):
            raise CrashcheckError(
                "trace-lacks-updates",
                f"the check fails on the image that the trace gives, which is not what the workload left: "
                f"{_ended(verdict)}\n{_quoted(verdict.output)}\n" + "\n".join(f"  {line}" for line in lacks),
                "Record what wrote there: docs/limits.md lists what is not recorded.",
            )
        limit = ""
        if mapped := executor.workers.limits.memory_bytes:  # a database that reserves more passes by hand
            limit = f"Here it may map no more than {mapped >> 20} MiB: [check] memory_mib. "
        raise CrashcheckError(
            "check-rejects-final" if final else "check-rejects-first",
            f"the check fails on the image {what}: {_ended(verdict)}\n{_quoted(verdict.output)}",
            f"{limit}Try it yourself (on a copy, if it writes): {command}{advice}",
        )
    executor.set_timeout(timeout_for(slowest_s))


def _ended(verdict: Verdict) -> str:
    if verdict.signal is not None:
        return f"signal {verdict.signal} ({signal.Signals(verdict.signal).name})"
    if verdict.exit_code is not None:
        return f"exit status {verdict.exit_code}"
    return f"{verdict.outcome.value} after {verdict.seconds:.1f} s"


def _quoted(output: str) -> str:
    lines = output.rstrip().splitlines() or ["(it printed nothing)"]
    return "\n".join(f"  | {line}" for line in lines)


class InferOnce:
    """Infers the likely invariants of a graph when they are first asked for, and then returns the same ones.

    So the search for crash states and the trial of fixes share them.
    """

    def __init__(self, run: RecordedRun) -> None:
        self._reads = run.reads
        self._known: tuple[PersistenceGraph, Inferred] | None = None

    def __call__(self, found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        if self._known is None or self._known[0] is not found.graph:
            self._known = found.graph, infer(found, facts, reads=self._reads, keep_on=keep_on)
        return self._known[1]


def strategy_of(
    config: Config,
    run: RecordedRun,
    changed: ChangedCode | None = None,
    inferring: Infer | None = None,
    early: int = 0,
    on_ranking: Callable[[], None] = always,
) -> Strategy:
    """The configured strategy. `changed`: code whose states ranked tries first; `early`, `on_ranking`: as Ranked has
    them."""
    match config.strategy.name:
        case "bounded":
            return strategy("bounded", deviations=config.strategy.deviations)
        case "ranked":
            return ranked(run, changed, inferring, library_of(config, run.facts), early, on_ranking)
        case "pathfinder":
            return strategy("pathfinder", facts=run.facts)
        case "witcher":
            return strategy("witcher", facts=run.facts, infer=inferring or InferOnce(run))
        case name:
            return strategy(name)


def library_of(config: Config, facts: ProgramFacts) -> Callable[[StaticSite], bool] | None:
    """Which sites are a library's: in files outside the project's repository.

    None if [strategy] libraries = "equal", or no source that crashcheck-cc compiled is inside: then the project is the
    code that is outside.
    """
    root = repository_of(config.folder).root
    if config.strategy.libraries == "equal":
        return None
    inside = cache(lambda file: not SourceTree(root).relative(config.folder / file).startswith("/"))
    if not any(inside(unit.source) for unit in facts.units.values()):
        return None
    return lambda site: bool(site.file) and not inside(site.file)


def ranked(
    run: RecordedRun,
    changed: ChangedCode | None = None,
    inferring: Infer | None = None,
    library: Callable[[StaticSite], bool] | None = None,
    early: int = 0,
    on_ranking: Callable[[], None] = always,
) -> Ranked:
    """The ranked strategy."""
    holds_site = changed.holds_site if changed is not None else None
    return Ranked(run.facts, inferring or InferOnce(run), measure_deviance, holds_site, library, early, on_ranking)


def search_of(
    config: Config,
    run: RecordedRun,
    executor: Executor,
    strategy: Strategy,
    budget: Budget,
    jobs: int,
    *,
    folder: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    explore: bool | None = None,
    kept: KeptVerdicts | None = None,
    shared: SharedRuns | None = None,
) -> Search:
    """A search over a recorded run's crash states. `folder`: of the copies of real files, by default the run's own;
    `explore`: as Search has it, if not as configured; `kept`: of `kept_verdicts`; `shared`: as Search has it."""
    names = run.subject.graph.family.names
    return Search(
        run.subject,
        executor,
        strategy,
        budget,
        jobs=jobs,
        progress=progress,
        snapshot=None if names else snapshots_of(config, run, folder or run.folder),
        explore=not names and (config.strategy.explore if explore is None else explore),
        kept=kept,
        shared=shared,
    )


def kept_verdicts(config: Config, run: RecordedRun, executor: Executor, oracle: Oracle) -> KeptVerdicts | None:
    """The verdicts that earlier runs kept; None if not configured, or if the oracle needs no check."""
    setup = executor.workers.setup
    if setup.inputs is None or isinstance(oracle, SnapshotOracle):
        return None
    operations = run.recording.folder / prepare.OPERATIONS
    given = operations.read_bytes() if operations.is_file() else b""
    base = base_of(setup, executor.workers.limits, run.subject.trace, oracle.name, given)
    return KeptVerdicts(base, (run.recording.addresses,))


def budget_of(config: Config) -> Budget:
    """What a search may spend, of which a part is kept for fixes once something was found."""
    seconds = config.budget.seconds
    fixes_s = _FIXES_MOST_S if seconds is None else min(_FIXES_MOST_S, seconds * _FIXES_SHARE)
    return Budget(seconds, config.budget.states, fixes_s if config.report.fixes else 0.0)


def early_states(budget: Budget) -> int:
    """How many states are tested before the groups are ranked, at most: few, if the budget counts states."""
    return _EARLY if budget.states is None else min(_EARLY, budget.states // 8)


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

        def record_in(into: Path, snapshot_seq: int | None = None) -> Recording:
            addresses = run.recording.addresses
            check = check_in(
                *(config, into),
                image=image,
                addresses=addresses,
                acked=acked,
                stdout=printed,
                operations=no_operations,
            )
            return record(replace(check, snapshot_seq=snapshot_seq), into)

        recording = record_in(below / "run")
        if recording.end.exit_code != 0 or not recording.trace.exists():
            return None
        recovery = read_recording(config, recording, config.check.command)
        snapshot = snapshots_by(lambda seq, into: record_in(into, seq), below)
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


def with_fixes(
    config: Config,
    run: RecordedRun,
    executor: Executor,
    exploring: Search,
    found: SearchResult,
    strategy: Strategy,
    on_phase: OnPhase,
    read: set[str],
) -> SearchResult:
    """`found` with a fix for each finding where one was found. `strategy`: for the states of the edited trace; `read`
    gets the paths of the sources that compilers have read."""
    bugs = [bug for bug in exploring.register.bugs() if not bug.finding.uncertain]
    if not bugs or found.stop_reason in (StopReason.INTERRUPTED, StopReason.DISK_FULL):
        return found
    on_phase("trying fixes")
    subject = run.subject
    if subject.graph.family.names:
        missing = {bug.finding.id: missing_call(subject, bug.drafts[0].cause) for bug in bugs}
        return replace(found, findings=tuple(replace(one, fix=missing.get(one.id)) for one in found.findings))
    began, budget = time.monotonic(), budget_of(config)
    over_s = math.inf if budget.seconds is None else budget.seconds - found.seconds
    ends = began + max(0.0, min(budget.fixes_s, over_s))

    def left_s() -> float:
        return max(0.0, ends - time.monotonic())

    chain = call_chains(subject.trace, run.facts, SourceTree(config.folder).relative)
    compiles = UnitCompiles(run.facts, config.folder, left=left_s, read=read)
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
    # Ctrl-C, or a full disk, ends this early: the findings are reported all the same.
    with contextlib.suppress(KeyboardInterrupt, DiskFull), interruptible():
        for left, bug in zip(range(len(bugs), 0, -1), bugs, strict=True):
            proposed[bug.finding.id] = fixes.propose(bug, (ends - time.monotonic()) / left)
    return replace(
        found,
        findings=tuple(replace(finding, fix=proposed.get(finding.id)) for finding in found.findings),
        warnings=(*found.warnings, *(f"while fixes were tried, {note}" for note in fixes.notes)),
    )
