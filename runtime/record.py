"""Runs a workload in a pool of its own under the recorder, and hands on the trace with the first and final image."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crashcheck.errors import CrashcheckError
from crashcheck.runtime import validate
from crashcheck.runtime.build import RuntimeLibrary, build_runtime
from crashcheck.runtime.sparse import copy_tree

_TAIL_BYTES = 2000
_SUPERVISOR = Path(__file__).resolve().parent / "supervise.py"
_LEAST_ROOM_BYTES = 64 << 10  # with less, a failure of the workload is the disk's


@dataclass(frozen=True, slots=True)
class Outcome:
    exit_code: int | None
    signal: int | None
    timed_out: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded run. Of `exit_code` and `signal` one is None; both are if its time ran out."""

    trace: Path
    pool: Path
    first: Path
    stdout: Path
    stderr: Path
    addresses: Path
    exit_code: int | None
    signal: int | None
    timed_out: bool
    seconds: float


def record(
    command: Sequence[str],
    pool_files: Sequence[str],
    work_dir: Path,
    *,
    setup: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    setup_timeout_s: float | None = None,
    cwd: Path | None = None,
    snapshot_seq: int | None = None,
    first_from: Path | None = None,
    addresses_from: Path | None = None,
    must_succeed: bool = True,
    must_update: bool = True,
    loads: bool = False,
    memory: str = "persistent",
    runtime: RuntimeLibrary | None = None,
) -> Recording:
    """Runs `command` under the recorder and returns where everything is.

    `work_dir` is made, and must not hold an earlier recording. In it: `pool`, where the workload runs
    and whose files remain as its final image; `first`, a copy of the whole pool after `setup` (which
    is not recorded); `trace.cct`, `stdout`, `stderr`, `addresses`; with `snapshot_seq` also
    `snapshot`: the watched files just before the first event of that number or a higher one.

    `{pool}` in `command`, `setup` and `env` stands for the pool folder. `pool_files` are the patterns of watched
    files. `first_from` starts from a copy of that pool instead of an empty one; `addresses_from` maps files where that
    table has them. `must_succeed` and `must_update` make an exit status other than 0 and a run without
    an update of a watched file errors; turn them off to record a check command. `loads` records reads of
    watched files as well, `memory="all"` also reads and writes of other memory.

    Raises CrashcheckError: `workload-failed`, `workload-timeout`, `setup-failed`, `record-disk-full`, `record-limit`,
    `hooks-version`, `not-instrumented`, `nothing-persistent`, and those of build_runtime.
    """
    library = runtime or build_runtime()
    work = work_dir.resolve()
    pool, first = work / "pool", work / "first"
    try:
        work.mkdir(parents=True, exist_ok=True)
        if first_from is None:
            pool.mkdir()
        else:
            copy_tree(first_from.resolve(), pool)
        if addresses_from is not None:
            shutil.copyfile(addresses_from, work / "addresses")
        else:
            (work / "addresses").touch(exist_ok=False)
        home = (cwd or Path.cwd()).resolve()
        with _preloadable(library.shared) as preload:
            base = _environment(preload, pool, pool_files, work, env)
            if setup is not None:
                _run_setup(setup, work, home, base, setup_timeout_s)
            copy_tree(pool, first)
            variables = base | _recording_variables(work, snapshot_seq, loads, memory)
            outcome = supervise(_fill(command, pool), work, home, variables, timeout_s, "stdout", "stderr")
    except OSError as error:
        raise _from_os(error, work) from error
    recording = Recording(
        trace=work / "trace.cct",
        pool=pool,
        first=first,
        stdout=work / "stdout",
        stderr=work / "stderr",
        addresses=work / "addresses",
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        timed_out=outcome.timed_out,
        seconds=outcome.seconds,
    )
    if must_succeed:
        _check_outcome(recording, command, timeout_s)
    validate.check_trace(recording, command, pool_files, home, must_update)
    return recording


@contextlib.contextmanager
def _preloadable(library: Path) -> Iterator[str]:
    """A name for the library that LD_PRELOAD can hold, which has no way to write a space or a colon."""
    if not set(" :\t\n$") & set(str(library)):
        yield str(library)
        return
    with tempfile.TemporaryDirectory(prefix="crashcheck-", dir="/tmp") as folder:
        link = Path(folder) / library.name
        link.symlink_to(library)
        yield str(link)


def _environment(
    preload: str, pool: Path, pool_files: Sequence[str], work: Path, extra: Mapping[str, str] | None
) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CRASHCHECK_")}
    variables.update({name: value.replace("{pool}", str(pool)) for name, value in (extra or {}).items()})
    parts = [part for part in (preload, variables.get("LD_PRELOAD", "")) if part not in ("", ".")]
    if parts:
        variables["LD_PRELOAD"] = ":".join(parts)
    variables["CRASHCHECK_POOL"] = str(pool)
    variables["CRASHCHECK_FILES"] = "\n".join(pool_files)
    variables["CRASHCHECK_ADDRESSES"] = str(work / "addresses")
    variables["CRASHCHECK_LEARN_ADDRESSES"] = "1"
    return variables


def _recording_variables(work: Path, snapshot_seq: int | None, loads: bool, memory: str) -> dict[str, str]:
    state = os.stat(_create(work / "stdout"))
    variables = {
        "CRASHCHECK_TRACE": str(work / "trace.cct"),
        "CRASHCHECK_STDOUT": f"{state.st_dev}:{state.st_ino}",
    }
    if snapshot_seq is not None:
        variables["CRASHCHECK_SNAPSHOT_SEQ"] = str(snapshot_seq)
        variables["CRASHCHECK_SNAPSHOT_DIR"] = str(work / "snapshot")
    if loads:
        variables["CRASHCHECK_LOADS"] = "1"
    if memory == "all":
        variables["CRASHCHECK_MEMORY"] = memory
    return variables


def _create(path: Path) -> Path:
    path.touch(exist_ok=False)
    return path


def _fill(command: Sequence[str], pool: Path) -> list[str]:
    return [word.replace("{pool}", str(pool)) for word in command]


def _run_setup(
    setup: Sequence[str], work: Path, home: Path, variables: Mapping[str, str], timeout_s: float | None
) -> None:
    outcome = supervise(_fill(setup, work / "pool"), work, home, variables, timeout_s, "setup.stdout", "setup.stderr")
    if outcome.exit_code != 0:
        raise CrashcheckError(
            "setup-failed",
            f"the setup command {_ending(outcome, timeout_s)}: {' '.join(setup)}{tail(work / 'setup.stderr')}",
            "Run it by hand; it must exit with status 0.",
        )


def supervise(
    command: Sequence[str],
    work: Path,
    home: Path,
    variables: Mapping[str, str],
    timeout_s: float | None,
    stdout: str,
    stderr: str,
) -> Outcome:
    """Runs the command to its end, or its time's, and leaves none of its descendants."""
    result, result_of_supervisor = os.pipe()
    order = {
        "command": list(command),
        "env": dict(variables),
        "timeout_s": timeout_s,
        "result": result_of_supervisor,
    }
    plain = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    with open(result, encoding="utf-8") as told, open(work / stdout, "ab") as out, open(work / stderr, "ab") as err:
        try:
            supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SUPERVISOR)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=home,
                env=plain,
                pass_fds=(result_of_supervisor,),
            )
        finally:
            os.close(result_of_supervisor)
        try:
            supervisor.communicate(json.dumps(order).encode())
        except BaseException:
            supervisor.terminate()
            supervisor.wait()
            raise
        outcome = told.read()
    if not outcome:
        raise OSError(f"the supervisor of the workload ended early{tail(work / stderr)}")
    return Outcome(**json.loads(outcome))


def ending(recording: Recording, timeout_s: float | None) -> str:
    """How a run ended: "exited with status 1"."""
    return _ending(Outcome(recording.exit_code, recording.signal, recording.timed_out, recording.seconds), timeout_s)


def _check_outcome(recording: Recording, command: Sequence[str], timeout_s: float | None) -> None:
    how = ending(recording, timeout_s)
    if recording.timed_out:
        raise CrashcheckError(
            "workload-timeout",
            f"the workload {how}: {' '.join(command)}{tail(recording.stderr)}",
            "Give it less to do, or raise [workload] timeout_s.",
        )
    if recording.exit_code != 0:
        room = os.statvfs(recording.pool)
        if room.f_bavail * room.f_frsize < _LEAST_ROOM_BYTES:
            raise CrashcheckError(
                "record-disk-full",
                f"the workload {how}, and there is no room left in {recording.pool}" + tail(recording.stderr),
                "Make room, or give the workload less to do.",
            )
        raise CrashcheckError(
            "workload-failed",
            f"the workload {how}: {' '.join(command)}{tail(recording.stderr)}",
            "It must exit with status 0 when nothing crashes; run it by hand in an empty pool folder.",
        )


def _ending(outcome: Outcome, timeout_s: float | None) -> str:
    if outcome.timed_out:
        return f"was stopped after {timeout_s:g} s" if timeout_s is not None else "was stopped"
    if outcome.signal is not None:
        return f"was killed by signal {outcome.signal} ({signal.strsignal(outcome.signal)})"
    return f"exited with status {outcome.exit_code}"


def tail(path: Path) -> str:
    """The end of what a command printed, on lines of its own; empty if it printed nothing."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return f"\n{text}" if text else ""


def _from_os(error: OSError, work: Path) -> CrashcheckError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CrashcheckError(
            "record-disk-full", f"no space left while recording in {work}", "Make room, or choose another folder."
        )
    if isinstance(error, FileExistsError):
        return CrashcheckError(
            "record-folder",
            f"{error.filename} exists: {work} holds an earlier recording",
            "Give each run its own folder.",
        )
    return CrashcheckError("record-failed", f"recording in {work}: {error}", "Check that the folder can be written.")
