"""Getting a recording: build the program, record its workload and the check's own run, read the trace and model it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from crashcheck import ports
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.invariants.check_reads import CheckReads, find_check_reads
from crashcheck.analyzer.persistence import build as build_graph
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.completeness import Completeness, causes
from crashcheck.analyzer.trace.completeness import check as check_completeness
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.analyzer.trace.replay import check as check_replay
from crashcheck.checker.budget import OutOfTime, for_seconds
from crashcheck.checker.findings.provenance import TraceProvenance
from crashcheck.checker.images.folder_content import content_of
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.store import RunFolder, Store
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts import prepare
from crashcheck.command import Command
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.interruption import KeepOn, always
from crashcheck.masking import inherited_environment
from crashcheck.models import family_of
from crashcheck.runtime.build import build_runtime, is_built
from crashcheck.runtime.record import DigestsAt, NthEvent, ProcessEnd, Recording, Workload, record, supervise, tail
from crashcheck.runtime.trace_format import Kind, Recorder
from crashcheck.runtime.validate import read_notes
from crashcheck.source import SourceTree
from crashcheck.stages.phases import left_of
from crashcheck.wording import remark

READS_SHARE = 0.5  # of the budget's seconds: recording and analysing what the check reads takes no more than this
_MOST_UNSEEN = 8
_READS_FOLDER = "reads"  # in a recording's folder, while the check is recorded

OnPhase = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Unread:
    """Why it is not known what the check reads."""

    why: str = ""
    failed: bool = False  # the recorded check failed, although a check of an uncrashed image has to pass

    @property
    def note(self) -> str:
        """What to report; empty if nothing is wrong."""
        return f"the check's reads are no evidence for likely invariants: {self.why}" if self.why else ""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRun:
    """A recording, read and modelled: all that a search for failing crash states starts from."""

    recording: Recording
    subject: Subject
    facts: ProgramFacts  # of the program and its libraries that crashcheck-cc built
    find_completeness: Callable[[], Completeness]  # finds it when it is first called
    reads: CheckReads | None = None  # what the check reads on the final image; None: not known
    unread: Unread = field(default_factory=Unread)  # why `reads` is None

    @property
    def folder(self) -> Path:
        return self.recording.folder

    @property
    def completeness(self) -> Completeness:
        """How much of what changed in the files the trace accounts for."""
        return self.find_completeness()

    def unaccounted(self) -> tuple[str, ...]:
        """What the trace does not account for, a line for each file."""
        return causes(self.subject.trace, self.completeness, read_notes(self.recording.trace))


@contextmanager
def built(
    config: Config, on_phase: OnPhase = lambda phase: None, environment: Mapping[str, str] | None = None
) -> Iterator[RunFolder]:
    """A new run folder, with the program built by [build]. No other run of the project builds until the end.

    `environment` is added to that of the build.

    Raises CrashcheckError: work-folder, build-failed.
    """
    store = Store(config.folder)
    run_folder = store.new_run(config.path.name)
    try:
        with store.programs() as programs:

            def on_wait() -> None:
                on_phase("waiting for another run in this folder")
                remark(f"waiting for another run in {store.folder}")

            if config.build.command is not None:
                run_folder.waited_s += programs.alone(on_wait)
                on_phase("building")
                build(config, run_folder.path, environment)
            run_folder.waited_s += programs.together(on_wait)
            yield run_folder
    finally:
        run_folder.close()


def build(config: Config, folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run the [build] command; its output goes to a log in `folder`. Raises CrashcheckError build-failed."""
    assert config.build.command is not None
    log = folder / "build.log"
    # crashcheck-cc is installed beside the Python that runs us, even if that environment is not activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    try:
        end = supervise(
            config.build.command.argv(pool=str(folder / "pool")),
            folder,
            config.folder,
            {**inherited_environment(), "PATH": path, **prepare.build_environment(config), **(environment or {})},
            None,
            log.name,
            log.name,
            keeps=True,
        )
    except OSError as error:
        raise CrashcheckError("build-failed", f"the build command could not be run: {error}.") from error
    if end.exit_code != 0:
        printed = tail(log)
        # A source that gcc accepts may be one that clang refuses.
        clang = (
            " crashcheck-cc is clang, and accepts what clang accepts."
            if re.search(r"^\d.* errors? generated\.$", printed, re.M)
            else ""
        )
        raise CrashcheckError(
            "build-failed",
            f"the build command {end.text(None)}: {config.build.command.text}{printed}",
            f"Run it by hand in {config.folder}.{clang}",
        )


def record_run(
    config: Config, folder: Path, on_phase: OnPhase = lambda phase: None, *, loads: bool | None = None
) -> RecordedRun:
    """Record the workload in `folder`, read the recording and model it. `loads`: None if the strategy decides.

    Raises CrashcheckError: operations-not-found, and those of recording and of reading a trace.
    """
    recording = record_in(config, folder, on_phase, loads=loads)
    on_phase("analysing")
    return read_workload(config, recording, read_trace(recording.trace))


def record_in(
    config: Config, folder: Path, on_phase: OnPhase = lambda phase: None, *, loads: bool | None = None
) -> Recording:
    """As `record_run`, but only record."""
    prepare_recorder(on_phase)
    on_phase("recording")
    workload = workload_in(config, folder)
    return record_workload(config, workload if loads is None else replace(workload, loads=loads), folder)


def prepare_recorder(on_phase: OnPhase) -> None:
    """Compile the recorder if it is not there yet: once, for some time. Where it cannot be, recording has a message."""
    with suppress(CrashcheckError):
        if not is_built():
            on_phase("compiling the recorder (only this time)")
            build_runtime()


def read_workload(config: Config, recording: Recording, trace: Trace, keep_on: KeepOn = always) -> RecordedRun:
    """Model the recording of a workload. Raises CrashcheckError(operations-not-found), and what `keep_on` raises."""
    run = read_recording(config, recording, trace=trace, keep_on=keep_on)
    prepare.require_marked_operations(config, run.facts)
    return run


def workload_in(config: Config, folder: Path, number: int = 1) -> Workload:
    """What [setup], [workload], [pool] and [record] ask for, with the pool in `folder`. `number` replaces {run}."""
    # Filled in here, where a shell command's quoting is known, and not by the recorder.
    pool = str(folder.resolve() / "pool")
    setup = config.setup.command
    return Workload(
        config.workload.command.argv(
            pool=pool,
            run=str(number),
            ops=str(folder.resolve() / prepare.OPERATIONS),
            **ports.of(config.workload.command),
        ),
        config.pool.files,
        env={**config.workload.env, **config.dax},
        cwd=config.folder,
        timeout_s=config.workload.timeout_s,
        setup=setup.argv(pool=pool) if setup is not None else None,
        setup_env={**config.setup.env, **config.dax},
        setup_timeout_s=config.setup.timeout_s,
        loads=needs_loads(config),
        io_uring=config.record.io_uring,
        descriptors=config.check.descriptors,
        recorder=config.workload.recorder,
        faults=config.faults,
    )


def record_workload(config: Config, workload: Workload, folder: Path) -> Recording:
    """Record a workload of `workload_in`, with a copy of its operations file in `folder`.

    Raises CrashcheckError: operations-file, and those of runtime.record.
    """
    prepare.copy_operations(config, folder)
    try:
        return record(workload, folder)
    except CrashcheckError as error:
        unseen = _unseen_assembly(config, folder) if error.slug == "nothing-persistent" else ()
        if not unseen:
            raise
        lines = [*unseen[:_MOST_UNSEEN], *([f"and {len(unseen) - _MOST_UNSEEN} more"] * (len(unseen) > _MOST_UNSEEN))]
        listed = "".join(f"\n  - {line}" for line in lines)
        raise CrashcheckError(
            error.slug,
            f"{error.message}\n  assembly that is not understood may have written unseen:{listed}",
            error.hint,
        ) from error


def _unseen_assembly(config: Config, folder: Path) -> tuple[str, ...]:
    """The assembly of a recorded program that was not understood, each with its place, in order."""
    trace = read_trace(folder / "trace.cct")
    if trace.recorder == Recorder.SYSCALLS:
        return ()
    tree, units = (
        SourceTree(config.folder),
        ProgramFacts.load(modules(trace, config.workload.command, config.folder)).units,
    )
    found = {
        (tree.relative(one.position.file), one.position.line, one.text.strip())
        for unit in units.values()
        for one in unit.not_understood
    }
    return tuple(f"{file}:{line}: {text}" for file, line, text in sorted(found))


def record_again(config: Config, run: RecordedRun, folder: Path, at: int | NthEvent | DigestsAt) -> Recording:
    """Record the same workload once more from the same first image, for a copy or digests of the files at events."""
    workload = replace(
        workload_in(config, folder),
        setup=None,
        first_image=run.recording.first,
        addresses=run.recording.addresses,
        snapshot=None if isinstance(at, DigestsAt) else at,
        digests=at if isinstance(at, DigestsAt) else None,
    )
    return record_workload(config, workload, folder)


def check_in(
    config: Config, folder: Path, *, image: Path, addresses: Path, acked: int, stdout: Path, operations: Path
) -> Workload:
    """The check as a command to record in `folder` on a copy of `image`; it may fail, and need not update anything.

    `acked`, `stdout` and `operations` (a file) replace the placeholders of its command.
    """
    return Workload(
        config.check.command.argv(
            pool=str(folder.resolve() / "pool"),
            acked=str(acked),
            stdout=str(stdout),
            ops=str(operations),
            **ports.of(config.check.command),
        ),
        config.pool.files,
        env={**config.check.env, **config.dax},
        cwd=config.folder,
        timeout_s=config.check.timeout_s,
        first_image=image,
        addresses=addresses,
        loads=needs_loads(config),
        descriptors=config.check.descriptors,
        must_succeed=False,
        must_update=False,
        recorder=config.workload.recorder,
    )


def earlier_recording(folder: Path) -> Recording:
    """The recording that an earlier run kept in `folder`; its workload succeeded."""
    return Recording(folder, ProcessEnd(exit_code=0, signal=None, timed_out=False, seconds=0.0))


def read_recording(
    config: Config,
    recording: Recording,
    program: Command | None = None,
    *,
    trace: Trace | None = None,
    keep_on: KeepOn = always,
) -> RecordedRun:
    """Read a recording's trace and program facts, and build the model's persistence graph.

    `program`: the command that was recorded, if it is not the workload's; `trace`: if it has been read already;
    `keep_on`: called between steps, which take a second for 10^5 files or 10^6 calls.
    """
    trace = read_trace(recording.trace) if trace is None else trace
    keep_on()
    facts = ProgramFacts.load(modules(trace, program or config.workload.command, config.folder))
    check = check_replay if trace.recorder == Recorder.SYSCALLS else check_completeness
    # of a million events it takes half a second, and no crash state waits for it
    completeness = cache(partial(check, trace, recording.first, recording.pool))
    keep_on()
    graph = build_graph(trace, config.model.name, Options(config.model.tear, config.model.files, config.model.amplify))
    keep_on()
    space = StateSpace(graph, config.check.acknowledged == "exit")
    content = content_of(space, recording.first)
    keep_on()
    subject = Subject(
        trace,
        graph,
        space,
        content,
        TraceProvenance(trace, facts, config.folder),
        lambda: completeness().unexplained,
    )
    return RecordedRun(recording, subject, facts, completeness)


def modules(trace: Trace, command: Command, folder: Path) -> tuple[str, ...]:
    """Paths of the executables and shared libraries whose facts the trace may need, each once."""
    found = [unit.module_path for unit in trace.units]
    for kind in (Kind.EXEC, Kind.DLOPEN):
        for index in np.flatnonzero(trace.events["kind"] == kind).tolist():
            found.append(trace.data(index).decode("utf-8", "surrogateescape"))
    program = _program(command, folder)
    if program:
        found.append(program)
    return tuple(dict.fromkeys(path for path in found if path and Path(path).is_file()))


def _program(command: Command, folder: Path) -> str:
    if command.shell:
        return ""
    word = command.words[0]
    return str(folder / word) if "/" in word else shutil.which(word) or ""


def ended_operations(trace: Trace) -> int:
    """How many marked operations ended."""
    return int((trace.events["kind"] == Kind.MARK_END).sum())


def needs_loads(config: Config) -> bool:
    """Whether the strategy uses likely invariants, which are inferred from recorded loads of the files."""
    return config.strategy.name in ("ranked", "witcher") and not family_of(config.model.name).names


def record_check_reads(
    config: Config, run: RecordedRun, *, wanted: bool = False, keep_on: KeepOn = always
) -> RecordedRun:
    """`run` with what the check reads on the final image, if `wanted` or if the strategy uses likely invariants.

    That costs one run of the check. It changes which states are tried first, and never what is a finding.
    """
    if not (wanted or needs_loads(config)):
        return run
    found = _reads_of_check(config, run, keep_on)
    return replace(run, unread=found) if isinstance(found, Unread) else replace(run, reads=found)


def record_check_reads_in_budget(config: Config, run: RecordedRun) -> tuple[Config, RecordedRun]:
    """As `record_check_reads`, in at most READS_SHARE of the budget; and `config` with the budget that is left."""
    seconds = config.budget.seconds
    if seconds is None:
        return config, record_check_reads(config, run)
    started = time.monotonic()
    limit_s = min(config.check.timeout_s, seconds * READS_SHARE)
    limited = replace(config, check=replace(config.check, timeout_s=limit_s))
    run = record_check_reads(limited, run, keep_on=for_seconds(seconds * READS_SHARE, time.monotonic))
    return left_of(config, started), run


def _reads_of_check(config: Config, run: RecordedRun, keep_on: KeepOn) -> CheckReads | Unread:
    """What the check reads on the final image, or why that is not known.

    It must pass within its time, as it does on an uncrashed image. With output equivalence the driver gets an empty
    operations file: what operations read, the workload shows. What the check does to its copy of the image is dropped.
    """
    folder = run.folder / _READS_FOLDER
    no_operations = folder / prepare.OPERATIONS
    try:
        folder.mkdir()
        no_operations.touch()
        check = check_in(
            config,
            folder,
            image=run.recording.pool,
            addresses=run.recording.addresses,
            acked=ended_operations(run.subject.trace),
            stdout=run.recording.stdout,
            operations=no_operations,
        )
        done = record(replace(check, loads=True), folder)
        if done.end.exit_code != 0:
            return Unread(f"with its reads recorded it {done.end.text(config.check.timeout_s)}", failed=True)
        if not done.trace.exists():
            return Unread("the recorder does not run in it")
        return _check_reads(config, done, keep_on)
    except OutOfTime:
        return Unread("to analyse them would have taken more than half of the budget's seconds")
    except CrashcheckError as error:
        return Unread(error.message, failed=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_reads(config: Config, recording: Recording, keep_on: KeepOn) -> CheckReads | Unread:
    trace = read_trace(recording.trace)
    if not len(trace.loads) and prepare.compares_outputs(config):
        return Unread()  # there is nothing to recover
    if not len(trace.loads):
        return Unread("no code built with crashcheck-cc read the files through a mapping")
    facts = ProgramFacts.load(modules(trace, config.check.command, config.folder))
    return find_check_reads(trace, facts, keep_on=keep_on)
