"""Run a workload under the recorder in its own pool folder: the trace, the first image and the final image."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from crashcheck.config.faults import Fault, arguments
from crashcheck.errors import CrashcheckError
from crashcheck.masking import inherited_environment
from crashcheck.runtime import validate, zygote
from crashcheck.runtime.build import AGENTS, JAVASCRIPT, RuntimeLibrary, build_runtime
from crashcheck.runtime.seal import seal
from crashcheck.runtime.sparse import copy_tree

_TAIL_BYTES = 2000
# Imported, not run as a script, which Python would compile at each start.
_SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); from supervise import main; sys.exit(main(int(sys.argv[2])))"
WITHOUT_URING = (
    " It was refused io_uring (ENOSYS), which is not followed: let it use other calls. "
    '[record] io_uring = "allow" permits it and gives up the verdict.'
)
_LEAST_ROOM_BYTES = 64 << 10  # if less is free, a full disk is why the workload failed


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended. At most one of `exit_code` and `signal` is set; neither is if its time ran out."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    seconds: float

    def text(self, timeout_s: float | None) -> str:
        """What to print: "exited with status 1"."""
        if self.timed_out:
            return f"was stopped after {timeout_s:g} s" if timeout_s is not None else "was stopped"
        if self.signal is not None:
            return f"was killed by signal {self.signal} ({signal.strsignal(self.signal)})"
        return f"exited with status {self.exit_code}"


class NthEvent(NamedTuple):
    """An event of one process, named by how many of its site there were. Unlike the event's number, this does not
    depend on what other threads do meanwhile."""

    unit: int  # its key
    site: int  # in the unit
    nth: int  # event of that site, from 1


class DigestsAt(NamedTuple):
    """Events just before which a digest is taken of what the watched files hold: one in so many, by their numbers."""

    one_in: int
    first: int = 0
    end: int = 2**63  # the first one that has none


@dataclass(frozen=True, slots=True)
class Workload:
    """A command to record, the files that it starts from, and what to record of it.

    `{pool}` in `command`, `setup` and the values of `env` and `setup_env` is replaced by the path of the pool folder.
    """

    command: Sequence[str]  # an argument vector
    patterns: Sequence[str]  # glob patterns of the watched files, relative to the pool folder ([pool] files)
    env: Mapping[str, str] = field(default_factory=dict)  # added to the environment of both commands
    cwd: Path | None = None  # where both commands run; None: the current folder
    timeout_s: float | None = None  # None: no limit
    setup: Sequence[str] | None = None  # runs first and is not recorded; the pool that it leaves is the first image
    setup_env: Mapping[str, str] = field(default_factory=dict)  # added to `env` for setup alone
    setup_timeout_s: float | None = None  # of setup; None: no limit
    first_image: Path | None = None  # a pool folder, copied to start from; None: an empty one
    addresses: Path | None = None  # of an earlier recording: its files are mapped at the same addresses again
    snapshot: int | NthEvent | None = None  # copy the watched files just before the first event of this number or a
    # higher one, or between that event and the next
    digests: DigestsAt | None = None  # take digests of what the watched files hold
    loads: bool = False  # record loads from watched files, too
    descriptors: tuple[int, ...] = ()  # that the command finds open; what it writes there is dropped
    recorder: str = "linked"  # "syscalls": from outside, of programs that crashcheck-cc did not build, too
    io_uring: str = "refuse"  # "allow": programs may use it, and what it does is not recorded
    faults: tuple[Fault, ...] = ()  # calls that fail, with recorder "syscalls"; how the command ends then is up to it
    must_succeed: bool = True  # an exit status other than 0 is an error; off to record a check
    must_update: bool = True  # a run that updates no watched file is an error; off to record a check


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run: the folder that `record` filled, and how the command ended."""

    folder: Path
    end: ProcessEnd

    @property
    def trace(self) -> Path:
        """The recorded events (trace_format.h)."""
        return self.folder / "trace.cct"

    @property
    def pool(self) -> Path:
        """The pool folder; its files are the final image."""
        return self.folder / "pool"

    @property
    def first(self) -> Path:
        """A copy of the pool folder as it was before the command: the first image."""
        return self.folder / "first"

    @property
    def stdout(self) -> Path:
        """What the command printed."""
        return self.folder / "stdout"

    @property
    def stderr(self) -> Path:
        """What the command printed to standard error."""
        return self.folder / "stderr"

    @property
    def addresses(self) -> Path:
        """A table of where each watched file was mapped."""
        return self.folder / "addresses"

    @property
    def snapshot(self) -> Path:
        """The watched files at `Workload.snapshot`."""
        return self.folder / "snapshot"


def recorder_options(library: RuntimeLibrary, faults: Sequence[Fault], *, io_uring: bool) -> list[str]:
    """What the recorder of system calls is asked for, whatever it records."""
    loaded = ["--javascript", str(JAVASCRIPT), "--java", str(library.java), "--python", str(AGENTS)]
    return [*arguments(faults), *["--io-uring"] * io_uring, *loaded]


def record(workload: Workload, folder: Path, *, runtime: RuntimeLibrary | None = None) -> Recording:
    """Run a workload's command under the recorder. `folder` is made, and must not hold an earlier recording.

    Raises CrashcheckError: `workload-failed`, `workload-timeout`, `setup-failed`, `setup-timeout`, `record-folder`,
    `record-failed`, `record-disk-full`, `record-limit`, `hooks-version`, `no-trace`, `not-instrumented`,
    `nothing-persistent`, `ptrace-not-permitted`, `fault-not-met`, `not-followed`, and those of build_runtime.
    """
    library = runtime or build_runtime()
    work = folder.resolve()
    home = (workload.cwd or Path.cwd()).resolve()
    try:
        _make_pool(workload, work)
        traces_calls = workload.recorder != "linked"
        with _preloadable(None if traces_calls else library.shared) as preload:
            environment = _environment(workload, work, preload)
            _set_up(workload, work, home, preload)
            copy_tree(work / "pool", work / "first")
            variables = _recording_variables(workload, work)
            command = _fill(workload.command, work / "pool")
            if traces_calls:
                options = recorder_options(library, workload.faults, io_uring=workload.io_uring == "allow")
                command = [str(library.syscalls), *options, str(work / "trace.cct"), str(work / "pool"), *command]
                environment["CRASHCHECK_MARKS"] = "calls"
                environment["CRASHCHECK_STORES"] = str(work / "trace.cct")
            else:
                environment |= variables
            names = (workload.timeout_s, "stdout", "stderr")
            end = supervise(command, work, home, environment, *names, descriptors=workload.descriptors)
            seal(work / "trace.cct")
    except OSError as error:
        raise from_os(error, work) from error
    recording = Recording(work, end)
    if traces_calls:
        validate.check_permitted(recording, workload.command)
    missed = validate.unmet_faults(recording, workload.faults)
    if workload.must_succeed and (missed or recording.end.timed_out or not workload.faults):
        _require_success(recording, workload)
    validate.check_faults(recording, missed)
    if traces_calls:
        validate.check_calls(recording, " ".join(workload.command), workload.must_update, recording.pool)
    else:
        validate.check_trace(recording, workload.command, workload.patterns, home, workload.must_update)
    return recording


def run_plain(workload: Workload, folder: Path) -> ProcessEnd:
    """Run a workload's command in a pool folder of its own, without a recorder.

    Raises CrashcheckError: `workload-failed`, `workload-timeout`, `setup-failed`, `setup-timeout`, `record-folder`,
    `record-disk-full`.
    """
    work = folder.resolve()
    home = (workload.cwd or Path.cwd()).resolve()
    try:
        _make_pool(workload, work)
        _set_up(workload, work, home, "")
        command, environment = _fill(workload.command, work / "pool"), _environment(workload, work, "")
        end = supervise(command, work, home, environment, workload.timeout_s, "stdout", "stderr")
    except OSError as error:
        raise from_os(error, work) from error
    if workload.must_succeed:
        _require_success(Recording(work, end), workload)
    return end


def _set_up(workload: Workload, work: Path, home: Path, preload: str) -> None:
    """Run the setup command, if there is one."""
    if workload.setup is not None:
        with_its_own = replace(workload, env={**workload.env, **workload.setup_env})
        variables = _environment(with_its_own, work, preload)
        _run_setup(workload.setup, work, home, variables, workload.setup_timeout_s)


def _make_pool(workload: Workload, work: Path) -> None:
    """Make the recording's folder with the pool to start from and the table of addresses."""
    work.mkdir(parents=True, exist_ok=True)
    if workload.first_image is None:
        (work / "pool").mkdir()
    else:
        copy_tree(workload.first_image.resolve(), work / "pool")
    if workload.addresses is not None:
        shutil.copyfile(workload.addresses, work / "addresses")
    else:
        (work / "addresses").touch(exist_ok=False)


@contextlib.contextmanager
def _preloadable(library: Path | None) -> Iterator[str]:
    """A path of the library for LD_PRELOAD, in which a space or a colon cannot be escaped: a link if it has one."""
    if library is None:
        yield ""
        return
    if not set(" :\t\n$") & set(str(library)):
        yield str(library)
        return
    with tempfile.TemporaryDirectory(prefix="crashcheck-", dir="/tmp") as folder:
        link = Path(folder) / library.name
        link.symlink_to(library)
        yield str(link)


def _environment(workload: Workload, work: Path, preload: str) -> dict[str, str]:
    """What both commands find in their environment: what they inherit of ours, `env`, the recorder and its files."""
    pool = str(work / "pool")
    variables = inherited_environment("CRASHCHECK_")
    variables.update({name: value.replace("{pool}", pool) for name, value in workload.env.items()})
    parts = [part for part in (preload, variables.get("LD_PRELOAD", "")) if part not in ("", ".")]
    if parts:
        variables["LD_PRELOAD"] = ":".join(parts)
    variables["CRASHCHECK_POOL"] = pool
    variables["CRASHCHECK_FILES"] = "\n".join(workload.patterns)
    variables["CRASHCHECK_ADDRESSES"] = str(work / "addresses")
    variables["CRASHCHECK_LEARN_ADDRESSES"] = "1"
    return variables


def _recording_variables(workload: Workload, work: Path) -> dict[str, str]:
    """What switches the recorder on, which the setup command must not see."""
    state = os.stat(_create(work / "stdout"))
    variables = {
        "CRASHCHECK_TRACE": str(work / "trace.cct"),
        "CRASHCHECK_STDOUT": f"{state.st_dev}:{state.st_ino}",
    }
    if workload.snapshot is not None:
        if isinstance(workload.snapshot, NthEvent):
            variables["CRASHCHECK_SNAPSHOT_AFTER"] = " ".join(map(str, workload.snapshot))
        else:
            variables["CRASHCHECK_SNAPSHOT_SEQ"] = str(workload.snapshot)
        variables["CRASHCHECK_SNAPSHOT_DIR"] = str(work / "snapshot")
    if workload.digests is not None:
        variables["CRASHCHECK_DIGESTS"] = str(work / "trace.cct.digests")
        variables["CRASHCHECK_DIGESTS_AT"] = " ".join(map(str, workload.digests))
    if workload.loads:
        variables["CRASHCHECK_LOADS"] = "1"
    return variables


def _create(path: Path) -> Path:
    path.touch(exist_ok=False)
    return path


def _fill(command: Sequence[str], pool: Path) -> list[str]:
    return [word.replace("{pool}", str(pool)) for word in command]


def _run_setup(
    setup: Sequence[str], work: Path, home: Path, variables: Mapping[str, str], timeout_s: float | None
) -> None:
    end = supervise(_fill(setup, work / "pool"), work, home, variables, timeout_s, "setup.stdout", "setup.stderr")
    printed = _shown(work / "setup.stderr", work / "setup.stdout")
    if end.timed_out:
        message = f"the setup command {end.text(timeout_s)}: {' '.join(setup)}{printed}"
        raise CrashcheckError("setup-timeout", message, "Raise [setup] timeout_s.")
    if end.exit_code != 0:
        raise CrashcheckError(
            "setup-failed",
            f"the setup command {end.text(timeout_s)}: {' '.join(setup)}{printed}",
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
    *,
    keeps: bool = False,
    descriptors: Sequence[int] = (),
) -> ProcessEnd:
    """Run a command until it ends or its time is over, and end all of its descendants.

    They are ended with this process too, whatever ends it. `keeps`: if the command ends by itself, what it left running
    continues. `descriptors`: the command finds them open, and what it writes there is dropped. `stdout` and `stderr`
    are names of files in `work`, which are appended to. Raises OSError if it could not be run.
    """
    result, result_of_supervisor = os.pipe()
    order = {
        "command": list(command),
        "folder": str(home),
        "env": dict(variables),
        "timeout_s": timeout_s,
        "parent": os.getpid(),
        "keeps": keeps,
        "descriptors": list(descriptors),
    }
    with open(result, "rb") as answer, open(work / stdout, "ab") as out, open(work / stderr, "ab") as err:
        orders_of_supervisor, orders = os.pipe()
        with open(orders, "wb") as written:
            try:
                supervisor = _started(orders_of_supervisor, out.fileno(), err.fileno(), result_of_supervisor)
            finally:
                os.close(orders_of_supervisor)
                os.close(result_of_supervisor)
            try:
                with contextlib.suppress(BrokenPipeError), written:
                    written.write(marshal.dumps(order))
                _wait_for(supervisor)
            except BaseException:
                with contextlib.suppress(ChildProcessError):  # it was waited for, and its number may be another's
                    os.waitid(os.P_PID, supervisor, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                    os.kill(supervisor, signal.SIGTERM)
                    os.kill(supervisor, signal.SIGCONT)
                    os.waitpid(supervisor, 0)
                raise
        end = answer.read()
    if not end:
        raise OSError(f"the supervisor of the workload ended early{tail(work / stderr)}")
    return ProcessEnd(**marshal.loads(end))


def _started(orders: int, out: int, err: int, result: int) -> int:
    """Start a supervisor, with these descriptors; its process number."""
    pid = zygote.copy(zygote.SUPERVISOR, orders, out, err, result)
    if pid:
        return pid
    plain = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    words = [sys.executable, "-I", "-S", "-c", _SUPERVISOR, str(Path(__file__).resolve().parent), str(result)]
    process = subprocess.Popen(words, stdin=orders, stdout=out, stderr=err, env=plain, pass_fds=(result,))
    process.returncode = 0  # it is waited for by its number
    return process.pid


def _wait_for(supervisor: int) -> None:
    """Wait for its end. What it runs may have stopped it (`kill -STOP $PPID`), and its clock with it: it continues."""
    while continue_if_stopped(supervisor, wait=True):
        pass
    os.waitpid(supervisor, 0)


def continue_if_stopped(pid: int, *, wait: bool = False) -> bool:
    """Let a child continue if a signal has stopped it; whether one had. `wait`: until it is stopped or has ended."""
    now = 0 if wait else os.WNOHANG
    state = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT | now)
    if state is None or state.si_code != os.CLD_STOPPED:
        return False
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG)
    os.kill(pid, signal.SIGCONT)
    return True


def _require_success(recording: Recording, workload: Workload) -> None:
    """Raise a CrashcheckError if the command failed: workload-timeout, record-disk-full or workload-failed."""
    how, command = recording.end.text(workload.timeout_s), " ".join(workload.command)
    if recording.end.timed_out:
        raise CrashcheckError(
            "workload-timeout",
            f"the workload {how}: {command}{_shown(recording.stderr, recording.stdout)}",
            "Use a smaller workload, or raise [workload] timeout_s.",
        )
    if recording.end.exit_code != 0:
        room = os.statvfs(recording.pool)
        if room.f_bavail * room.f_frsize < _LEAST_ROOM_BYTES:
            raise CrashcheckError(
                "record-disk-full",
                f"the workload {how}, and there is no room left in {recording.pool}" + tail(recording.stderr),
                "Free disk space, or use a smaller workload.",
            )
        raise CrashcheckError(
            "workload-failed",
            f"the workload {how}: {command}{_shown(recording.stderr, recording.stdout)}{_moved(recording.trace)}",
            "It must exit with status 0 when nothing crashes; run it by hand in a pool folder "
            + ("that is empty." if workload.setup is None else "on which the [setup] command has run.")
            + (WITHOUT_URING if ("io_uring", "refused") in validate.read_notes(recording.trace) else ""),
        )


def _moved(trace: Path) -> str:
    """The files that the program asked to be mapped elsewhere, each on a line of its own."""
    moved = [text for reason, text in validate.read_notes(trace) if reason == "moved"]
    return "".join(
        f"\n  mapped elsewhere, as that was not free or [setup] mapped the file there: {text}" for text in moved
    )


def _shown(stderr: Path, stdout: Path) -> str:
    """The last lines that explain a failure: many programs print their errors to standard output."""
    return tail(stderr) or tail(stdout)


def tail(path: Path) -> str:
    """The last lines that a command printed, after a line break; empty if it printed nothing."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return f"\n{text}" if text else ""


def from_os(error: OSError, work: Path) -> CrashcheckError:
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
