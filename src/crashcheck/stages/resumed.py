"""`crashcheck run --resume`: the last recording is searched again, if it is one of the same program and workload.

What that run's checks showed is taken over with it (exchange.py).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.kept.keys import content_of_file
from crashcheck.checker.store import FOLDER, Store
from crashcheck.checker.verdicts import prepare
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.record import Recording
from crashcheck.runtime.sparse import copy_file, copy_tree
from crashcheck.stages.exchange import RUNS, moment
from crashcheck.stages.recording import earlier_recording, modules, needs_loads
from crashcheck.wording import remark

_NOTED = "recorded.json"  # in a run's folder, once its recording is complete
_FOLDERS = ("first", "pool")
_FILES = ("addresses", "stdout", "stderr", "setup.stdout", "setup.stderr", prepare.OPERATIONS)


def note_recorded(config: Config, recording: Recording, trace: Trace) -> None:
    """Keep what a complete recording is of, for `resumed`."""
    programs = {path: content_of_file(Path(path)) for path in modules(trace, config.workload.command, config.folder)}
    new = recording.folder / f"{_NOTED}.new"
    new.write_text(json.dumps({"recorded": _recorded(config), "programs": programs}), encoding="utf-8")
    new.replace(recording.folder / _NOTED)


def resumed(config: Config, folder: Path) -> Recording | None:
    """A copy in `folder` of the last complete recording; None, and a remark, if there is none or another is needed."""
    found, why = _last(config)
    if found is None or why:
        remark(f"records again: {why}")
        return None
    when = moment(int((found / _NOTED).stat().st_mtime))
    remark(f"continues with the recording of {when}")
    if (found / RUNS).is_file():
        shutil.copy2(found / RUNS, folder / RUNS)
    return _copied(found, folder)


def handed_on(config: Config, folder: Path) -> Recording:
    """A copy in `folder` of the last complete recording. Raises CrashcheckError(shard-recording) if it is of no use."""
    found, why = _last(config)
    if found is None or why:
        raise CrashcheckError(
            "shard-recording",
            f"shards search a run that is recorded, and {why}.",
            "Run `crashcheck record`, with the same --model and --strategy, and pass on this folder with what it "
            f"built and its {FOLDER}.",
        )
    return _copied(found, folder)


def _last(config: Config) -> tuple[Path | None, str]:
    """The run with the last complete recording, and why a run needs another one; empty if it does not."""
    found = next((run for run in Store(config.folder).newest(config.path.name) if (run / _NOTED).is_file()), None)
    return found, "no run of this configuration has left a recording" if found is None else _why_another(config, found)


def _copied(found: Path, folder: Path) -> Recording:
    for name in _FOLDERS:
        copy_tree(found / name, folder / name)
    files = [found / name for name in _FILES] + sorted(found.glob("trace.cct*"))
    for file in files:
        if file.is_file():
            copy_file(file, folder / file.name)
    return earlier_recording(folder)


def _why_another(config: Config, found: Path) -> str:
    """Why a run needs another recording than that of `found`; empty if it does not."""
    try:
        noted = json.loads((found / _NOTED).read_text(encoding="utf-8"))
        if noted["recorded"] != _recorded(config):
            return "the configuration or the operations have changed"
        changed = [path for path, content in noted["programs"].items() if content_of_file(Path(path)) != content]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{found / _NOTED} cannot be read"
    return f"{min(changed)} has changed" if changed else ""


def _recorded(config: Config) -> str:
    """What decides what is recorded, besides programs and the files that they read."""
    operations = config.workload.operations_file
    parts = (
        *(config.build, config.setup, config.workload, config.pool, config.record, config.faults),
        *(config.check.descriptors, needs_loads(config)),
        content_of_file(config.folder / operations) if operations else "",
    )
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()
