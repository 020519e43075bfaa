"""A worker process: owns images, turns them into the states it is sent, and runs the check on each.

One image follows what is durable at the crash points, another everything that was issued: each state is a few
patches away from one of them, however much is pending. A third stays as it was before the workload, for runs that
nothing crashes.

A copy of a process that has loaded neither numpy nor the trace (worker_start.py). It ends when its connection does, and
ends the check that is running then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.folders import FoldersRunner
from crashcheck.checker.execution.process import Abandoned, CheckNotStarted, Ended, Limits, Runner
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.images.image_folder import ImageFolder, Patches
from crashcheck.runtime import sparse, zygote

DURABLE, ISSUED, INITIAL = range(3)
_FOLDERS = ("durable", "issued_", "initial")  # paths of equal length
RunnerOf = Callable[[Limits, Path], Runner]  # of the check's limits and the folder where it runs
_FULL_BYTES = 64 * 1024  # less room than this after a failing check: it may have failed for want of it


class Task(NamedTuple):
    """One state for one worker: first the base moves, then the patches make the state."""

    ticket: int
    image: int  # DURABLE, ISSUED or INITIAL
    reset: bool  # start its base from the first image again
    advance: Patches
    patches: Patches
    acked: int
    stdout_bytes: int
    stages: tuple[bytes, ...] = ()  # files of operations for {ops}: one run per file, in this order, on the same image
    kept_bytes: int | None = None  # of the output, instead of the limits' value
    limit: TimeLimit | None = None  # of each run, instead of the limits' value
    forks: bool = False  # from a process that waits in crashcheck_ready(), if there is one


@dataclass(frozen=True, slots=True)
class Exploration:
    """One run of the check for many images, which it follows itself (checker/exploration)."""

    ticket: int
    argv: tuple[str, ...]
    env: dict[str, str]
    timeout_s: float
    until_s: float | None  # by the monotonic clock: its time is over then, however late it begins

    @property
    def left_s(self) -> float:
        """How long it may take if it begins now."""
        return self.timeout_s if self.until_s is None else max(0.0, min(self.timeout_s, self.until_s - monotonic()))


class GivenFolder(NamedTuple):
    """One run of the check on a folder that whoever asks has written."""

    ticket: int
    argv: Sequence[str]
    env: Mapping[str, str]
    forks: bool  # as one of several that a process which stays is given


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a task could not be done; `slug` as in docs/messages.md."""

    ticket: int
    slug: str
    text: str


def pool_of(root: Path, image: int) -> Path:
    """The folder that a check is given, in one of the images; all paths have the same length."""
    return root / _FOLDERS[image] / "pool"


class Worker:
    """Executes tasks; see `main` for its life."""

    def __init__(self, setup: CheckSetup, runner: Runner, root: Path) -> None:
        self._setup = setup
        self._root = root
        self._runner = runner
        self._runner.wait_below(root)
        self._images: dict[int, ImageFolder] = {}
        self._image_of(DURABLE)
        self._stdout = str(root / "stdout")
        self._ops = str(root / "ops")
        self._stdout_is: tuple[int, ...] = ()
        self._env = {image: setup.environment(pool_of(root, image)) for image in (DURABLE, ISSUED, INITIAL)}
        self._show_stdout(0)

    def run(self, task: Task | Exploration | GivenFolder, abandon_fd: int) -> Ended:
        if isinstance(task, GivenFolder):
            program = self._setup.command.program
            return self._runner.run(program, task.argv, task.env, abandon_fd, forks=task.forks)
        if isinstance(task, Exploration):
            return self._runner.run(
                self._setup.command.program,
                task.argv,
                task.env,
                abandon_fd,
                limit=TimeLimit(task.left_s, stops=False),
                pool=task.env["CRASHCHECK_POOL"],
                limits_itself=True,
            )
        image = self._image_of(task.image)
        if task.reset:
            image.reset()
        image.advance(task.advance)
        image.apply(task.patches)
        self._show_stdout(task.stdout_bytes)
        ended = self._run_stages(task, str(image.pool), abandon_fd)
        if ended.status != 0:
            room = os.statvfs(self._root)
            if room.f_bavail * room.f_frsize < _FULL_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        image.restore()
        return ended

    def _run_stages(self, task: Task, pool: str, abandon_fd: int) -> Ended:
        """The last stage's end, or that of the first one that fails."""
        command, env = self._setup.command, self._env[task.image]
        argv = command.argv(pool, task.acked, self._stdout, self._ops if task.stages else None)

        def run(kept_bytes: int | None) -> Ended:
            return self._runner.run(
                *(command.program, argv, env, abandon_fd, kept_bytes, task.limit, pool),
                forks=task.forks,
                acked=command.acked_of(argv, task.acked),
            )

        if not task.stages:
            return run(None)
        before: tuple[int, ...] = (0,)
        for number, operations in enumerate(task.stages):
            _write_anew(self._ops, operations)
            ended = run(task.kept_bytes)
            before = before if number else (0,) * len(ended.by_output())
            compared = zip(ended.compared, before, strict=False)
            ended = ended._replace(
                stage=number,
                before_bytes=before[0],
                compared=tuple(each._replace(before_bytes=size) for each, size in compared),
            )
            if ended.status != 0 or ended.timed_out or ended.limit:
                break
            before = tuple(size + each.total_bytes for size, each in zip(before, ended.by_output(), strict=True))
        return ended

    def close(self) -> None:
        """End what is there for several runs."""
        self._runner.close()

    def _image_of(self, image: int) -> ImageFolder:
        if image not in self._images:
            root = pool_of(self._root, image).parent
            root.mkdir()
            self._images[image] = ImageFolder(self._setup.first, root)
        return self._images[image]

    def _show_stdout(self, size: int) -> None:
        """Make the file for {stdout} hold what had been printed by then."""
        if self._stdout_is and self._stdout_is == (size, *self._identity()):
            return
        data = b""
        if size and self._setup.recorded_stdout is not None:
            with self._setup.recorded_stdout.open("rb") as file:
                data = file.read(size)
        _write_anew(self._stdout, data)
        self._stdout_is = (size, *self._identity())

    def _identity(self) -> tuple[int, ...]:
        try:
            status = os.lstat(self._stdout)
        except FileNotFoundError:
            return ()
        return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def serve(number: int) -> None:
    """Be a zygote of workers."""
    zygote.serve(number, {zygote.WORKER: main})


def main(fd: int, runner_of: RunnerOf = Runner) -> None:
    """Receive (setup, limits, root, environment), answer, then do tasks until the connection ends."""
    own = os.getpid()
    os.set_inheritable(fd, False)  # no business of the checks
    connection = Connection(fd)
    try:
        setup, limits, root, environment = connection.recv()
    except (EOFError, ConnectionResetError):  # a run that is interrupted ends before it sends anything
        return
    os.environ.clear()
    os.environ.update(environment)
    if setup.command.command.folders_at:
        runner_of = FoldersRunner
    try:
        worker = Worker(setup, runner_of(limits, setup.folder), root)
    except OSError as error:
        connection.send(_trouble(-1, error, root))
        return
    connection.send(None)
    try:
        while True:
            task = pickle.loads(connection.recv_bytes())
            try:
                connection.send_bytes(pickle.dumps((task.ticket, worker.run(task, fd)), pickle.HIGHEST_PROTOCOL))
            except CheckNotStarted as error:
                connection.send(Trouble(task.ticket, "check-not-started", str(error)))
            except OSError as error:
                connection.send(_trouble(task.ticket, error, root))
                return
    except (EOFError, Abandoned, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        if os.getpid() == own:  # else a copy leaves, which is the check (python_check.py)
            worker.close()
            shutil.rmtree(root, ignore_errors=True)


def _write_anew(path: str, data: bytes) -> None:
    """Make a new file: a check may have kept the one before, or made it something else."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        sparse.write_all(fd, data, 0)
    finally:
        os.close(fd)


def _trouble(ticket: int, error: OSError, root: Path) -> Trouble:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    where = f"{error.filename or root}: {error.strerror}"
    return Trouble(ticket, "disk-full-checking" if full else "image-not-written", where)
