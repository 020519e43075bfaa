"""A recording of the workload: built, recorded, read and modelled."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from crashcheck import run_summary
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.invariants.check_reads import CheckReads
from crashcheck.analyzer.persistence import build as build_graph
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.completeness import Completeness
from crashcheck.analyzer.trace.completeness import check as check_completeness
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.check_recording import Unread, reads_of_check
from crashcheck.checker.findings.provenance import TraceProvenance
from crashcheck.checker.images.transition import Content
from crashcheck.checker.oracles import prepare
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.subject import Subject
from crashcheck.command import Command
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.record import Recording, record, tail


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A recording, read and modelled; `reads`: what the check reads after it, else `unread` says why not."""

    recording: Recording
    subject: Subject
    facts: ProgramFacts
    completeness: Completeness
    reads: CheckReads | None = None
    unread: Unread = field(default_factory=Unread)


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
            env={**os.environ, "PATH": path, **prepare.build_environment(config)},
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
    operations = prepare.keep_operations(config, work)
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
        loads=wants_loads(config) if loads is None else loads,
        memory=memory or config.record.memory,
    )


def load(config: Config, recording: Recording, program: Command | None = None) -> Loaded:
    """Read a recording's trace and the facts of the programs in it, and build the model's persistence graph."""
    trace = read_trace(recording.trace)
    command = program or config.workload.command
    facts = ProgramFacts.load(run_summary.modules(trace, command, config.folder))
    completeness = check_completeness(trace, recording.first, recording.pool)
    graph = build_graph(trace, config.model.name, Options(config.model.tear, config.model.files))
    space = StateSpace(graph)
    subject = Subject(
        trace,
        graph,
        space,
        Content(space, recording.first),
        TraceProvenance(trace, facts, config.folder),
        completeness.unexplained,
    )
    return Loaded(recording, subject, facts, completeness)


def with_reads(config: Config, loaded: Loaded, *, wanted: bool = False) -> Loaded:
    """The same with what the check reads on the final image, if `wanted` or if the strategy rests on likely invariants.

    That costs one run of the check; it tells what to look at first, and never what is a finding.
    """
    if not (wanted or wants_loads(config)):
        return loaded
    found = reads_of_check(config, loaded.recording, loaded.subject.trace)
    return replace(loaded, unread=found) if isinstance(found, Unread) else replace(loaded, reads=found)


def wants_loads(config: Config) -> bool:
    """Whether reads of the files are recorded: likely invariants rest on them."""
    return config.strategy.name in ("ranked", "witcher")
