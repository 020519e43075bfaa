"""What a search takes from other searches of its recording, and where it leaves its own runs of the check for others.

Three searches do so: a shard, the search that merges shards, and one that may be resumed (`run --resume`). Verdicts of
the search that is resumed count if the check, the libraries that it loads and the environment are as they were then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from crashcheck.analyzer.trace.content import content_digest
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.change.diff import Diff
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.kept.keys import SearchKey, content_of_file, content_of_folder, digest_of, sources
from crashcheck.checker.kept.runs_file import Batch, Header, RunsFile, Share, read_runs_file
from crashcheck.checker.kept.shards import ALONE, Exchange, KnownRuns, merged
from crashcheck.checker.remote.libraries import NotListed, libraries
from crashcheck.checker.token import digest
from crashcheck.command import Command
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.record import Recording
from crashcheck.stages.executor_setup import check_setup_of
from crashcheck.wording import remark

RUNS = "runs.crashcheck"  # in a run's folder


def moment(seconds: int) -> str:
    """As reports show it. `seconds` of the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def of_shard(config: Config, recording: Recording, trace: Trace, change: Diff | None, share: Share) -> Exchange:
    """A shard's; its file is in the folder of the run."""
    key = _key_of_shards(config, recording, trace, change)
    return Exchange(share=share, noted=RunsFile(recording.folder / RUNS, Header(key, share)))


def of_merge(
    config: Config, recording: Recording, trace: Trace, change: Diff | None, shards: Sequence[Path]
) -> Exchange:
    """The runs of all shards; prints remarks. Raises CrashcheckError: shard-unreadable, shards-differ."""
    known, remarks = merged(shards, _key_of_shards(config, recording, trace, change))
    for text in remarks:
        remark(text)
    return Exchange(known)


def of_run(config: Config, recording: Recording, trace: Trace, change: Diff | None) -> Exchange:
    """Of a search that may be resumed, and that takes over what the file in its folder holds, if it resumes one."""
    if config.check.oracle == "snapshot":  # it runs no check
        return ALONE
    path = recording.folder / RUNS
    surroundings = _surroundings(check_setup_of(config, recording, recording.folder))
    header = Header(SearchKey(digest(trace), *_decides(config, change)), None, surroundings)
    known = _earlier(path, header)
    since = moment(int(path.stat().st_mtime)) if known is not None else ""
    return Exchange(KnownRuns([known] if known is not None else (), since), noted=RunsFile(path, header, known))


def hand_over(noted: RunsFile | None, path: Path) -> None:
    """Copy a shard's file to where the user wants it. Raises CrashcheckError(report-unwritable)."""
    assert noted is not None
    try:
        if noted.why:
            raise CrashcheckError("report-unwritable", f"{noted.why}.")
        new = path.with_name(f"{path.name}.new")
        shutil.copyfile(noted.path, new)
        new.replace(path)
    except OSError as error:
        raise CrashcheckError("report-unwritable", f"{path} cannot be written: {error.strerror}.") from error


def _earlier(path: Path, header: Header) -> Batch | None:
    """What the search before has noted, if that still counts; else a remark is printed."""
    if not path.is_file():
        return None
    try:
        earlier = read_runs_file(path)
    except CrashcheckError as error:
        remark(f"runs the check on all crash states again: {error.message}")
        return None
    why = _changed(earlier.header, header)
    if why:
        remark(f"runs the check on all crash states again: {why}")
        return None
    return earlier.all


def _changed(then: Header, now: Header) -> str:
    """Why runs of an earlier search do not count now; empty if they do."""
    if then.key.check != now.key.check:
        return "the check, its settings, or crashcheck itself has changed"
    if (then.key.recording, then.share) != (now.key.recording, now.share):
        return "they are of another recording"
    names = sorted(then.surroundings.keys() | now.surroundings.keys())
    changed = [name for name in names if then.surroundings.get(name) != now.surroundings.get(name)]
    if not changed:
        return ""
    more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
    return f"{', '.join(changed[:3])}{more} changed since"


def _key_of_shards(config: Config, recording: Recording, trace: Trace, change: Diff | None) -> SearchKey:
    """What the shards of a search share, on whatever machines they run."""
    recorded = (content_digest(trace).hex(), *content_of_folder(recording.first), content_of_file(recording.stdout))
    return SearchKey(digest_of(recorded), *_decides(config, change))


def _decides(config: Config, change: Diff | None) -> tuple[bytes, bytes]:
    """What decides how a run of the check ends, and which states are searched."""
    command = config.check.command
    own = command.words[command.folders_at :]  # not where crashcheck is installed, which is another place elsewhere
    named = sorted(filter(Path.is_file, (config.folder / word for word in command.named())))
    check = replace(config.check, command=Command(command.text, own))
    checked = (
        *(
            sources(),
            repr((check, config.pool)),
            content_of_file(Path(CheckCommand.find(command, config.folder).own_program)),
        ),
        *map(content_of_file, named),
    )
    searched = (repr(config.model), repr(config.strategy), repr(change))
    return digest_of(checked), digest_of(searched)


def _surroundings(setup: CheckSetup) -> dict[str, str]:
    """Digests of the check's programs and their libraries, of its environment, and of the machine, by what they are."""
    found: dict[str, str] = {}
    environment = setup.steady()
    for program in setup.command.programs(setup.folder, environment.get("PATH")):
        found[f"the program {program}"] = content_of_file(Path(program))
        with contextlib.suppress(NotListed):
            for name, path in libraries(Path(program), environment).items():
                found[f"the library {name} of {program}"] = content_of_file(path)
    for name, value in environment.items():
        found[f"the variable {name}"] = hashlib.sha256(os.fsencode(value)).hexdigest()  # it may be a secret
    system = os.uname()
    found["the kernel"] = digest_of((system.sysname, system.release, system.machine)).hex()
    found["the user"] = digest_of((repr((os.getuid(), os.getgid(), sorted(os.getgroups()))),)).hex()
    return found
