"""The check's own run, recorded; and what it reads on the image that the workload left (docs/invariants.md)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from crashcheck import run_summary
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.invariants.check_reads import CheckReads, find_check_reads
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.checker.oracles import prepare
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.record import Recording, ending, record

FOLDER = "reads"  # in a recording's folder, while it lasts


@dataclass(frozen=True, slots=True, eq=False)
class Unread:
    """Why it is not known what the check reads. `failed`: it ran otherwise than a check of an uncrashed image does."""

    why: str = ""
    failed: bool = False

    @property
    def note(self) -> str:
        """For people; empty where nothing is amiss."""
        return f"the check's reads are no evidence for likely invariants: {self.why}" if self.why else ""


def recorded_check(
    config: Config,
    work: Path,
    *,
    acked: int,
    stdout: Path,
    operations: Path,
    image: Path,
    addresses: Path,
    loads: bool,
    memory: str = "persistent",
    snapshot_seq: int | None = None,
) -> Recording:
    """Run the check in `work` on a copy of `image`; it may fail, and need not update anything.

    `acked`, `stdout` and `operations` (a file) are what its command's placeholders stand for; the rest as `record` has
    it.
    """
    return record(
        config.check.command.argv(
            pool=str(work.resolve() / "pool"), acked=str(acked), stdout=str(stdout), ops=str(operations)
        ),
        config.pool.files,
        work,
        env=config.check.env,
        timeout_s=config.check.timeout_s,
        cwd=config.folder,
        snapshot_seq=snapshot_seq,
        first_from=image,
        addresses_from=addresses,
        must_succeed=False,
        must_update=False,
        loads=loads,
        memory=memory,
    )


def reads_of_check(config: Config, recording: Recording, trace: Trace) -> CheckReads | Unread:
    """What the check reads on the final image, or why that is not known.

    It must pass, within its time, as on an uncrashed image it does; with output equivalence the driver is given no
    operation: what operations read the workload shows. What it does to its copy of the image is thrown away.
    """
    work = recording.trace.parent / FOLDER
    none = work / prepare.OPERATIONS
    try:
        work.mkdir()
        none.touch()
        done = recorded_check(
            config,
            work,
            acked=run_summary.operations(trace),
            stdout=recording.stdout,
            operations=none,
            image=recording.pool,
            addresses=recording.addresses,
            loads=True,
            memory=config.record.memory,
        )
        if done.exit_code != 0:
            return Unread(f"with its reads recorded it {ending(done, config.check.timeout_s)}", failed=True)
        if not done.trace.exists():
            return Unread("the recorder does not run in it")
        return _read(config, done)
    except CrashcheckError as error:
        return Unread(error.message, failed=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _read(config: Config, done: Recording) -> CheckReads | Unread:
    trace = read_trace(done.trace)
    if not len(trace.loads) and prepare.is_equivalence(config):
        return Unread()  # there is nothing to recover
    if not len(trace.loads):
        return Unread("no code built with crashcheck-cc read the files through a mapping")
    facts = ProgramFacts.load(run_summary.modules(trace, config.check.command, config.folder))
    return find_check_reads(trace, facts)


__all__ = ["Unread", "reads_of_check", "recorded_check"]
