"""The check on crash states of a recording: what runs it, and how its own run is recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from crashcheck import run_summary
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.check_recording import recorded_check
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.executor import Executor
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.findings.register import Snapshot
from crashcheck.checker.oracles import Oracle, prepare
from crashcheck.checker.search.crash_states import Progress
from crashcheck.checker.search.recovery import Recovery, RecoverySearch
from crashcheck.checker.strategies import Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import digest
from crashcheck.config import Config
from crashcheck.recording import Loaded, load, record_workload, wants_loads
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.record import Recording


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
        operations=run_summary.operations(trace),
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


def deeper_of(
    config: Config,
    loaded: Loaded,
    work: Path,
    jobs: int,
    plan: Strategy,
    oracle: Oracle,
    progress: Callable[[Progress], None] | None,
) -> RecoverySearch:
    """How the check's own run on a crash image is recorded and modelled.

    With output equivalence the driver is given no operation: it recovers what it opens, and ends.
    """

    def record_check(image: Path, acked: int, stdout_bytes: int, folder: Path) -> Recovery | None:
        told = folder / "told"
        with loaded.recording.stdout.open("rb") as everything:
            told.write_bytes(everything.read(stdout_bytes))
        none = folder / prepare.OPERATIONS
        none.touch()

        def record_in(work: Path, seq: int | None = None) -> Recording:
            return recorded_check(
                config,
                work,
                acked=acked,
                stdout=told,
                operations=none,
                image=image,
                addresses=loaded.recording.addresses,
                loads=wants_loads(config),
                snapshot_seq=seq,
            )

        recording = record_in(folder / "run")
        if recording.exit_code != 0 or not recording.trace.exists():
            return None
        below = load(config, recording, config.check.command)
        snapshot = _recorded_again(lambda seq, again: record_in(again, seq), below.subject, folder)
        return Recovery(below.subject, recording.first, snapshot)

    return RecoverySearch(
        record_check,
        _check_setup(config, loaded.recording, work),
        partial(prepare.in_recovery, oracle),
        plan,
        _limits(config),
        jobs,
        progress=progress,
    )


def _limits(config: Config) -> Limits:
    return Limits(
        timeout_s=config.check.timeout_s,
        memory_bytes=config.check.memory_mib << 20 or None,
        file_bytes=config.check.file_mib << 20 or None,
        kept_bytes=prepare.KEPT_BYTES if prepare.is_equivalence(config) else 16 * 1024,
        apart=prepare.is_equivalence(config),
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
