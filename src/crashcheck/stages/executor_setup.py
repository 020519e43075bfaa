"""What runs the checks of a search: their command, limits and environment, worker processes, machines of a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from crashcheck.analyzer.trace.digests import Digests
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.python_check import WORDS, ForkServer
from crashcheck.checker.execution.tasks import FINAL, write_image
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.execution.worker_start import start_worker
from crashcheck.checker.exploration.runs import writers_to_outputs
from crashcheck.checker.findings.prefix_proof import DigestedRun, RunDigested
from crashcheck.checker.images.real_files import RealFiles, Snapshot
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.remote.remote_machines import Cluster
from crashcheck.checker.remote.remote_runs import RemoteRuns
from crashcheck.checker.remote.shipment import shipment_of
from crashcheck.checker.verdicts import prepare
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.image_judge import ImageJudge
from crashcheck.command import Command
from crashcheck.config import TRIED, Config
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.record import DigestsAt, NthEvent, Recording
from crashcheck.stages.recording import RecordedRun, ended_operations, read_recording, record_again
from crashcheck.wording import remark

RecordAgain = Callable[[int | NthEvent, Path], Recording]  # a moment to copy the files at, and a folder to record in


class CheckFunction(NamedTuple):
    """A check that is a function of a test: the process of which workers are copies, and the name of the function."""

    server: ForkServer
    shown: str


_KEPT_BYTES = 16 * 1024  # of a check's output, to be shown in a report; output equivalence keeps more


def executor_of(
    config: Config,
    run: RecordedRun,
    folder: Path,
    jobs: int,
    oracle: Oracle,
    kind: type[Executor] = Executor,
    function: CheckFunction | None = None,
) -> Executor:
    """Workers that run the check on crash states of a recorded run; their images are made below `folder`.

    `function`: is called instead of the check's command.
    """
    content, points = run.subject.content, run.subject.space.points
    setup = check_setup_of(config, run.recording, folder, function)
    if isinstance(oracle, SnapshotOracle):
        return ImageJudge(WorkerPool(content, points, setup), oracle)
    workers = WorkerPool(
        content,
        points,
        setup,
        limits=limits_of(config),
        jobs=jobs,
        stdout_bytes=run.recording.stdout.stat().st_size,
        operations=ended_operations(run.subject.trace),
        start=start_worker if function is None else function.server.start,
    )
    executor = kind(workers, oracle)
    if isinstance(oracle, OutputEquivalence):
        oracle.references.count_writers = cache(partial(_writers_of, oracle, executor, config.check.timeout_s))
    return executor


def _writers_of(oracle: OutputEquivalence, executor: Executor, timeout_s: float) -> tuple[int, ...] | None:
    operations = oracle.operations.text(range(1, len(oracle.operations) + 1))
    return writers_to_outputs(executor, operations, timeout_s)


def check_setup_of(
    config: Config, recording: Recording, folder: Path, function: CheckFunction | None = None
) -> CheckSetup:
    """What a worker needs to run the check; its images are made below `folder`."""
    if function is None:
        command = CheckCommand.find(config.check.command, config.folder)
    else:
        command = CheckCommand(Command(function.shown, WORDS), "", function=function.shown)
    runtime = build_runtime()
    tried = config.folder / TRIED
    return CheckSetup(
        command=command,
        folder=config.folder,
        first=recording.first,
        work=folder,
        source=tried.resolve() if tried.is_dir() else None,
        recorded_stdout=recording.stdout,
        addresses=recording.addresses,
        patterns=config.pool.files,
        env={**config.check.env, **config.dax},
        preload=runtime.shared,
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
        remark(f"{cluster.name}: {line}")

    pool = executor.workers
    remote = RemoteRuns(cluster, pool, shipment_of(pool.setup, pool.limits), executor.oracle.stages(FINAL), tell)
    try:
        remote.begin()
        pool.send_elsewhere(remote)
        yield
    finally:
        pool.send_elsewhere(None)
        remote.close()


def snapshots_of(config: Config, run: RecordedRun, folder: Path) -> Snapshot:
    """Copies of the real files at an event of the workload, taken while it is recorded again below `folder`."""

    def again(moment: int | NthEvent, into: Path) -> Recording:
        return record_again(config, run, into, moment)

    return snapshots_by(again, folder)


def snapshots_by(again: RecordAgain, folder: Path) -> Snapshot:
    """Files copied at an event while `again` (event, folder) records once more; None if that fails or ends before."""
    taken: dict[int | NthEvent, RealFiles | None] = {}

    def snapshot(moment: int | NthEvent) -> RealFiles | None:
        if moment not in taken:
            taken[moment] = _real_files(again, moment, folder / f"snapshot-{len(taken) + 1}")
        return taken[moment]

    return snapshot


def digested_runs_of(config: Config, run: RecordedRun, folder: Path) -> RunDigested:
    """Records the workload again below `folder`, with digests at some events; None if that fails."""

    numbers = count(1)

    def digested(at: DigestsAt) -> DigestedRun | None:
        try:
            recording = record_again(config, run, folder / f"digests-{next(numbers)}", at)
            subject = read_recording(config, recording).subject
        except CrashcheckError:
            return None
        write = partial(write_image, subject.content, recording.first)
        digests = Digests.read(recording.trace, config.pool.files)
        return DigestedRun(subject, digests, write, recording.stdout, recording.addresses)

    return digested


def _real_files(again: RecordAgain, moment: int | NthEvent, folder: Path) -> RealFiles | None:
    try:
        recording = again(moment, folder)
        trace = read_trace(recording.trace)
    except CrashcheckError:
        return None
    if not recording.snapshot.is_dir():
        return None
    return RealFiles(recording.snapshot, trace, recording.stdout, recording.addresses)
