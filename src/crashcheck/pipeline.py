"""A run, from crashcheck.toml to findings: build, record, read, model, search. The table of contents of crashcheck."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import crashcheck
from crashcheck import evidence, oracles, proposals
from crashcheck.analyzer.invariants import infer
from crashcheck.analyzer.invariants.predecessors import deviance
from crashcheck.analyzer.invariants.reads import CheckReads
from crashcheck.analyzer.ir.facts import ProgramFacts
from crashcheck.analyzer.persistence import build as build_graph
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.completeness import Completeness
from crashcheck.analyzer.trace.completeness import check as check_completeness
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.check_reads import reads_of_check
from crashcheck.checker.budget import Budget
from crashcheck.checker.command import CheckCommand, CheckSetup
from crashcheck.checker.content import Content
from crashcheck.checker.depth import Deeper, Recovery
from crashcheck.checker.executor import DiskFull, Executor
from crashcheck.checker.explore import Exploration, Exploring, Progress, uncrashed
from crashcheck.checker.findings import Snapshot
from crashcheck.checker.fixes import Fixes
from crashcheck.checker.mutation import source_chain
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.places import TracePlaces
from crashcheck.checker.policy import Known, judge
from crashcheck.checker.process import Limits
from crashcheck.checker.replay import Replayed, replay
from crashcheck.checker.result import RunResult, StopReason
from crashcheck.checker.states import CrashState, StateSpace
from crashcheck.checker.store import RunFolder, Store
from crashcheck.checker.strategies import Ranked, Strategy, strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.tokens import Token, digest
from crashcheck.command import Command
from crashcheck.config import Config
from crashcheck.diff import Diff
from crashcheck.edits import Writer
from crashcheck.errors import CrashcheckError
from crashcheck.interruption import interruptible
from crashcheck.policy_files import rules
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.record import Recording, record, tail
from crashcheck.source import SourceTree
from crashcheck.touched import Touched
from crashcheck.unexercised import unexercised

FIXES_S = 10.0  # for trying fixes, at most
FIXES_SHARE = 0.2  # of the budget

OnProgress = Callable[[str, Progress | None], None]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run found, and the folder that keeps its recording for replays."""

    result: RunResult
    folder: Path


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A recording, read and modelled; `reads`: what the check reads after it, else `without_reads` may say why not."""

    recording: Recording
    subject: Subject
    facts: ProgramFacts
    completeness: Completeness
    reads: CheckReads | None = None
    without_reads: str = ""


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
            oracles.must_be_marked(config, loaded.facts)
            loaded = with_reads(config, loaded)
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


def build(config: Config, work: Path) -> None:
    """Run [build] command; its output is shown only if it fails."""
    assert config.build.command is not None
    log = work / "build.log"
    # crashcheck-cc stands beside the Python that runs us, whether or not that environment is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with log.open("wb") as output:
        done = subprocess.run(
            config.build.command.argv(pool=str(work / "pool")),
            cwd=config.folder,
            env={**os.environ, "PATH": path, **oracles.build_environment(config)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise CrashcheckError(
            "build-failed",
            f"the build command exited with status {done.returncode}: {config.build.command.text}{tail(log)}",
            f"Run it by hand in {config.folder}.",
        )


def record_workload(
    config: Config,
    work: Path,
    *,
    snapshot_seq: int | None = None,
    first_from: Path | None = None,
    addresses_from: Path | None = None,
    run: int = 1,
    loads: bool | None = None,
    memory: str | None = None,
    must_succeed: bool = True,
    must_update: bool = True,
) -> Recording:
    """Run [setup] and [workload] in a pool folder below `work`.

    `run` is what {run} stands for; `memory` is [record] memory if None, `loads` what the strategy needs; the rest as
    `record` has it.
    """
    setup = config.setup.command if first_from is None else None
    # Filled in here, where a shell command's quoting is known, and not by the recorder.
    pool = str(work.resolve() / "pool")
    operations = oracles.keep_operations(config, work)
    more = {} if operations is None else {"ops": str(operations.resolve())}
    return record(
        config.workload.command.argv(pool=pool, run=str(run), **more),
        config.pool.files,
        work,
        setup=setup.argv(pool=pool) if setup is not None else None,
        env=config.workload.env,
        timeout_s=config.workload.timeout_s,
        setup_timeout_s=config.workload.timeout_s,
        cwd=config.folder,
        snapshot_seq=snapshot_seq,
        first_from=first_from,
        addresses_from=addresses_from,
        must_succeed=must_succeed,
        must_update=must_update,
        loads=_wants_loads(config) if loads is None else loads,
        memory=memory or config.record.memory,
    )


def load(config: Config, recording: Recording, program: Command | None = None) -> Loaded:
    """Read a recording's trace and the facts of the programs in it, and build the model's persistence graph."""
    trace = read_trace(recording.trace)
    command = program or config.workload.command
    facts = ProgramFacts.load(evidence.modules(trace, command, config.folder))
    completeness = check_completeness(trace, recording.first, recording.pool)
    graph = build_graph(trace, config.model.name, Options(config.model.tear, config.model.files))
    space = StateSpace(graph)
    subject = Subject(
        trace,
        graph,
        space,
        Content(space, recording.first),
        TracePlaces(trace, facts, config.folder),
        completeness.unexplained,
    )
    return Loaded(recording, subject, facts, completeness)


def with_reads(config: Config, loaded: Loaded, *, wanted: bool = False) -> Loaded:
    """The same with what the check reads on the final image, if `wanted` or if the strategy rests on likely invariants.

    That costs one run of the check; it tells what to look at first, and never what is a finding.
    """
    if not (wanted or _wants_loads(config)):
        return loaded
    reads, why = reads_of_check(config, loaded.recording, loaded.subject.trace)
    return replace(loaded, reads=reads, without_reads=why)


def search(
    config: Config,
    loaded: Loaded,
    run_folder: RunFolder,
    jobs: int,
    depth: int,
    tell: OnProgress,
    touched: Touched | None = None,
) -> tuple[Exploration, tuple[str, ...]]:
    """Check the uncrashed images, then crash states until the strategy or the budget ends; then recoveries."""
    subject = loaded.subject
    plan = strategy_of(config, loaded, touched)
    budget = Budget(config.budget.seconds, config.budget.states)
    oracle = oracles.choose(config, subject, loaded.recording.trace.parent)
    with executor_of(config, loaded, run_folder.path, jobs, oracle) as executor:
        oracles.make_ready(oracle, executor, lambda phase: tell(phase, None))
        tell("checking the uncrashed images", None)
        recording = loaded.recording
        with_first = config.check.first == "check" and evidence.has_files(recording.first)
        uncrashed(executor, first=with_first, shown_pools=(str(recording.pool), str(recording.first)))
        oracles.judge_boundaries(oracle, executor, subject, loaded.completeness)
        exploring = Exploring(
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
            first = _with_fixes(config, loaded, executor, exploring, first, tell)
        if depth < 2:
            return first, oracle.notes
        if first.stop_reason is not StopReason.EXHAUSTED:
            return first, ("the budget ended before any recovery was crashed (--depth 2): raise it",)

        def tell_deeper(progress: Progress) -> None:
            tell("crashing the check", progress)

        deeper = _deeper(config, loaded, run_folder.path, jobs, plan, oracle, tell_deeper)
        left = Budget(
            None if budget.seconds is None else max(0.0, budget.seconds - first.seconds),
            None if budget.states is None else max(0, budget.states - first.states.executed),
        )
        second = deeper.explore(subject, executor, _distinct(subject, plan), left)
        idle = ("--depth 2: the check updated no watched file of any crash image: there was no recovery to crash",)
        return evidence.both(first, second), idle if not second.states.feasible and not second.warnings else ()


def _with_fixes(
    config: Config, loaded: Loaded, executor: Executor, exploring: Exploring, found: Exploration, tell: OnProgress
) -> Exploration:
    """What was found, with what would mend it; in a fifth of the budget, and 10 s at most."""
    bugs = [bug for bug in exploring.register.bugs() if not bug.finding.uncertain]
    if not bugs or found.stop_reason in (StopReason.INTERRUPTED, StopReason.DISK_FULL):
        return found
    tell("trying fixes", None)
    subject = loaded.subject
    chain = source_chain(subject.trace, loaded.facts, SourceTree(config.folder).relative)
    trying = Fixes(
        subject,
        executor,
        strategy_of(config, loaded),
        exploring.register,
        exploring.tried(),
        chain,
        Writer(subject, chain, config.folder).write,
        loaded.facts,
    )
    seconds = FIXES_S if config.budget.seconds is None else min(FIXES_S, config.budget.seconds * FIXES_SHARE)
    ends = time.monotonic() + seconds
    proposed = {}
    with contextlib.suppress(KeyboardInterrupt, DiskFull), interruptible():  # what was found is told all the same
        for left, bug in zip(range(len(bugs), 0, -1), bugs, strict=True):
            proposed[bug.finding.id] = trying.propose(bug, (ends - time.monotonic()) / left)
    return replace(found, findings=tuple(replace(one, fix=proposed.get(one.id)) for one in found.findings))


def summarise(
    config: Config, loaded: Loaded, exploration: Exploration, warnings: Sequence[str], seconds: float
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
        trace=evidence.trace_summary(loaded.subject.trace, loaded.completeness),
        findings=exploration.findings,
        uncertain=exploration.uncertain,
        not_instrumented=evidence.not_instrumented(facts, loaded.subject.trace, config.workload.command, config.folder),
        warnings=(
            *evidence.recording_warnings(facts, loaded.recording),
            *filter(None, (loaded.without_reads,)),
            *exploration.warnings,
            *warnings,
        ),
        seconds=seconds,
        version=crashcheck.__version__,
        groups=exploration.groups,
        notes=(evidence.performance_notes(loaded.subject, facts, config.folder) if config.report.notes else ()),
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
    loaded = load(wanted, evidence.recording_in(folder))
    image.parent.mkdir(parents=True, exist_ok=True)
    work = image.with_name(image.name + ".work")
    work.mkdir()
    oracle = oracles.choose(wanted, loaded.subject, loaded.recording.trace.parent)
    with executor_of(wanted, loaded, work, 1, oracle) as executor:
        oracles.run_by(oracle, executor)
        deeper = _deeper(wanted, loaded, work, 1, strategy_of(wanted, loaded), oracle, None)
        replayed = replay(token, loaded.subject, executor, image, deeper)
        return replace(replayed, operations=b"".join(oracle.stages(token.levels[0].state.point)))


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def strategy_of(config: Config, loaded: Loaded, touched: Touched | None = None) -> Strategy:
    """The strategy that [strategy] names, with what a recording tells it, and what was changed."""
    if config.strategy.name == "bounded":
        return strategy("bounded", deviations=config.strategy.deviations)
    if config.strategy.name == "ranked":
        return ranked(loaded, touched)
    if config.strategy.name == "pathfinder":
        return strategy("pathfinder", facts=loaded.facts)
    if config.strategy.name == "witcher":
        return strategy("witcher", facts=loaded.facts, infer=partial(infer, reads=loaded.reads))
    return strategy(config.strategy.name)


def _wants_loads(config: Config) -> bool:
    """Whether reads of the files are recorded: likely invariants rest on them."""
    return config.strategy.name in ("ranked", "witcher")


def ranked(loaded: Loaded, touched: Touched | None = None) -> Ranked:
    """The ranked search with all that a recording tells."""
    return Ranked(
        loaded.facts, partial(infer, reads=loaded.reads), deviance, touched.site if touched is not None else None
    )


def _limits(config: Config) -> Limits:
    return Limits(
        timeout_s=config.check.timeout_s,
        memory_bytes=config.check.memory_mib << 20 or None,
        file_bytes=config.check.file_mib << 20 or None,
        kept_bytes=oracles.KEPT_BYTES if oracles.is_equivalence(config) else 16 * 1024,
        apart=oracles.is_equivalence(config),
    )


def _check_setup(config: Config, recording: Recording, work: Path) -> CheckSetup:
    return CheckSetup(
        command=CheckCommand.find(config.check.command, config.folder),
        folder=config.folder,
        first=recording.first,
        work=work,
        recorded_stdout=recording.stdout,
        addresses=recording.addresses,
        patterns=config.pool.files,
        env=config.check.env,
        preload=build_runtime().shared,
    )


def executor_of(
    config: Config, loaded: Loaded, work: Path, jobs: int, oracle: Oracle, kind: type[Executor] = Executor
) -> Executor:
    """Workers that run the check on crash states of a recording; their images lie below `work`."""
    trace = loaded.subject.trace
    return kind(
        loaded.subject.content,
        loaded.subject.space.points,
        _check_setup(config, loaded.recording, work),
        oracle,
        limits=_limits(config),
        jobs=jobs,
        stdout_bytes=loaded.recording.stdout.stat().st_size,
        operations=evidence.operations(trace),
    )


def snapshots_of(config: Config, loaded: Loaded, work: Path) -> Snapshot:
    """Real files at an event of the workload."""

    def again(seq: int, folder: Path) -> Recording:
        return record_workload(
            config,
            folder,
            snapshot_seq=seq,
            first_from=loaded.recording.first,
            addresses_from=loaded.recording.addresses,
        )

    return _recorded_again(again, loaded.subject, work)


def _recorded_again(again: Callable[[int, Path], Recording], subject: Subject, work: Path) -> Snapshot:
    """Files copied at an event while `again` (event, folder) records once more; None if that run did something else."""
    taken: dict[int, Path | None] = {}
    own = digest(subject.trace)

    def snapshot(seq: int) -> Path | None:
        if seq not in taken:
            folder = work / f"snapshot-{seq}"
            same = digest(read_trace(again(seq, folder).trace)) == own
            taken[seq] = folder / "snapshot" if same and (folder / "snapshot").is_dir() else None
        return taken[seq]

    return snapshot


def _deeper(
    config: Config,
    loaded: Loaded,
    work: Path,
    jobs: int,
    plan: Strategy,
    oracle: Oracle,
    progress: Callable[[Progress], None] | None,
) -> Deeper:
    """How the check's own run on a crash image is recorded and modelled.

    With output equivalence the driver is given no operation: it recovers what it opens, and ends.
    """

    def record_check(image: Path, acked: int, stdout_bytes: int, folder: Path) -> Recovery | None:
        told = folder / "told"
        with loaded.recording.stdout.open("rb") as everything:
            told.write_bytes(everything.read(stdout_bytes))
        none = folder / oracles.OPERATIONS
        none.touch()

        def record_in(work: Path, seq: int | None = None) -> Recording:
            return record(
                config.check.command.argv(
                    pool=str(work.resolve() / "pool"), acked=str(acked), stdout=str(told), ops=str(none)
                ),
                config.pool.files,
                work,
                env=config.check.env,
                timeout_s=config.check.timeout_s,
                cwd=config.folder,
                snapshot_seq=seq,
                first_from=image,
                addresses_from=loaded.recording.addresses,
                must_succeed=False,
                must_update=False,
                loads=_wants_loads(config),
            )

        recording = record_in(folder / "run")
        if recording.exit_code != 0 or not recording.trace.exists():
            return None
        below = load(config, recording, config.check.command)
        snapshot = _recorded_again(lambda seq, again: record_in(again, seq), below.subject, folder)
        return Recovery(below.subject, recording.first, snapshot)

    return Deeper(
        record_check,
        _check_setup(config, loaded.recording, work),
        partial(oracles.in_recovery, oracle),
        plan,
        _limits(config),
        jobs,
        progress=progress,
    )


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
