"""One run of a check command: started cheaply, bounded in time, memory, file size and output, leaving nobody behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crashcheck.checker.execution.capture import Capture, drain, file_capture
from crashcheck.checker.execution.check_command import Acked
from crashcheck.checker.execution.time_limit import RunClock, TimeLimit
from crashcheck.checker.execution.waiting import Gone, Offer, Waiting, WaitingProcesses
from crashcheck.command import descriptor
from crashcheck.runtime.supervise import become_subreaper, end_all, end_rest, own_children, turn_randomisation_off

# Python ignores these; a program expects them at their defaults.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)

_ERRORS_KEPT = 4096
_STARTING_BYTES = 64 << 20  # of data, more than it takes to start a child
_OURS = 64  # the least of our descriptors that a check's own may not replace


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run of the check may use; None: no limit of ours."""

    timeout_s: float = 10.0
    memory_bytes: int | None = None  # data: what it may write that no other process and no file has
    file_bytes: int | None = None  # size of any file it writes
    kept_bytes: int = 16 * 1024  # of its output, half from the beginning and half from the end
    output_bytes: int = 64 << 20  # after that much it is ended
    apart: bool = False  # standard error is kept apart from the output
    outputs: tuple[str, ...] = ("stdout",)  # those that are compared: "stderr", "fd 3", "{pool}/results.txt"

    @property
    def compared_apart(self) -> tuple[str, ...]:
        """The outputs that are compared, unless that is standard output alone."""
        return () if self.outputs == ("stdout",) else self.outputs

    def of_resources(self) -> tuple[tuple[int, int], ...]:
        """Each limit that the kernel enforces: which, and how much."""
        # Not address space: databases and runtimes reserve many times what they use, and map files.
        wanted = ((resource.RLIMIT_DATA, self.memory_bytes), (resource.RLIMIT_FSIZE, self.file_bytes))
        return tuple((which, value) for which, value in wanted if value is not None)


class ComparedOutput(NamedTuple):
    """What a run wrote to one of the outputs that are compared."""

    data: bytes
    truncated: bool
    digest: bytes
    total_bytes: int
    before_bytes: int = 0  # as of Ended

    @staticmethod
    def of(capture: Capture) -> ComparedOutput:
        return ComparedOutput(capture.bytes(), capture.truncated, capture.digest(), capture.total)


class Ended(NamedTuple):
    """How a run ended, before an oracle has judged it."""

    status: int  # as from wait(2)
    timed_out: bool
    limit: str  # "output" | "memory" | "file size", or ""
    output: bytes
    output_truncated: bool
    seconds: float
    digest: bytes = b""  # of the whole output, where it is truncated
    errors: bytes = b""  # standard error, if kept apart
    total_bytes: int = 0  # of output, kept or not
    stage: int = 0  # which run of several on one image this was
    before_bytes: int = 0  # of output, by the runs before it
    compared: tuple[ComparedOutput, ...] = ()  # what an oracle compares, where that is not the output alone
    forked: bool = False  # from a process that waited in crashcheck_ready()
    refused: str = ""  # why none waits there, although the check calls it

    def by_output(self) -> tuple[Ended, ...]:
        """The same run for each output that is compared, with that as its output."""
        return tuple(
            self._replace(
                output=each.data,
                output_truncated=each.truncated,
                digest=each.digest,
                total_bytes=each.total_bytes,
                before_bytes=each.before_bytes,
                compared=(),
            )
            for each in self.compared
        ) or (self,)


class CheckNotStarted(Exception):
    """The command could not be started; the text is the reason."""


class Abandoned(Exception):
    """Whoever asked for the run is gone; the check has been ended."""


@dataclass(frozen=True, slots=True, eq=False)
class RunOrder:
    """One run as it was asked for."""

    program: str
    argv: Sequence[str]
    env: Mapping[str, str]
    acked: Acked | None
    limit: TimeLimit
    streams: dict[int, Capture]  # of what it writes, by the descriptor that we read it from


@dataclass(slots=True)
class _Underway:
    """A run that has begun: as a child of its own, or as a copy of a process that waits, which it may also become."""

    pid: int
    pidfd: int
    offer: Offer | None  # to wait in crashcheck_ready(), if it was made one
    forked: bool
    refused: str = ""

    def continue_as(self, pid: int) -> None:
        """Continue as a copy, which is this process."""
        self.pid, self.forked = pid, True
        os.close(self.pidfd)
        self.pidfd = os.pidfd_open(pid)


class Runner:
    """Runs commands one after another in this process, which becomes a child subreaper.

    Only the main thread of a process of our own may hold one: it reaps *every* child. Each command
    is started with posix_spawn in its own process group, with stdin from /dev/null. After it ends,
    or has been ended, its group is killed before the leader is reaped (so that the number cannot
    have been reused), and then whatever was re-parented to us, until there is nobody left: a
    grandchild that called setsid is caught that way.
    """

    def __init__(self, limits: Limits, folder: Path) -> None:
        """`folder`: where commands run. Turns address space randomisation and core dumps off for all children."""
        self.limits = limits
        self._waiting: WaitingProcesses | None = None
        self._spared: set[int] = set()  # our children that are there for several runs
        os.chdir(folder)
        become_subreaper()
        turn_randomisation_off()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        self._read_errors, self._write_errors = os.pipe2(os.O_CLOEXEC)
        self._more = {  # by the number that the check finds them under: ours are above all of those
            number: tuple(_raised(fd) for fd in os.pipe2(os.O_CLOEXEC))
            for number in map(descriptor, limits.outputs)
            if number is not None and number > 2
        }
        for fd in (self._read, self._read_errors, *(read for read, _ in self._more.values())):
            os.set_blocking(fd, False)

    def run(
        self,
        program: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        abandon_fd: int | None = None,
        kept_bytes: int | None = None,
        limit: TimeLimit | None = None,
        pool: str = "",
        *,
        limits_itself: bool = False,
        forks: bool = False,
        acked: Acked | None = None,
    ) -> Ended:
        """Run `program`, a path, to its end, or until `abandon_fd` hangs up. Raises CheckNotStarted, Abandoned.

        `kept_bytes`, `limit`: instead of those of the limits. `pool`: where {pool} is, in the limits' outputs.
        `limits_itself`: its memory, and its files.
        `forks`: from a process that waits in crashcheck_ready(), if there is one, where `wait_below` was called.
        `acked`: what of `argv` such a process need not have in common with this run.
        """
        kept = self.limits.kept_bytes if kept_bytes is None else kept_bytes
        streams, files = self._streams(kept), self._output_files(pool)
        limit = TimeLimit(self.limits.timeout_s) if limit is None else limit
        order = RunOrder(program, argv, env, acked, limit, streams)
        if forks and (ended := self._in_turn(order, abandon_fd)) is not None:
            return ended
        waiting = self._waiting if forks else None
        offer: Offer | None = None
        started = time.monotonic()
        pid = self._forked(waiting, order)
        forked = bool(pid)
        if not forked:
            started = time.monotonic()  # again, in case that there was one, which did not answer
            offer = None if waiting is None else waiting.offer(argv, pool)
            wanted = () if limits_itself else self.limits.of_resources()
            pid = limited(wanted, partial(self._start, program, argv, env, offer))
        run = _Underway(pid, os.pidfd_open(pid), offer, forked)
        try:
            reason = self._wait_through_ready(run, waiting, order, abandon_fd, started)
        finally:
            if offer is not None:
                offer.close(accepted=run.forked)
            status, usage = end_all(run.pid, self._spared)
            os.close(run.pidfd)
            if waiting is not None:
                waiting.prune(self._spared)
        seconds = time.monotonic() - started
        for fd, capture in streams.items():
            drain(fd, capture)
        if reason == "abandoned":
            raise Abandoned
        hit = "output" if reason == "output" else self._limit_hit(status, usage.ru_maxrss * 1024)
        output = streams[self._read]
        errors = streams[self._read_errors].bytes()[-_ERRORS_KEPT:] if self.limits.apart else b""
        return Ended(
            status,
            reason == "time",
            hit,
            output.bytes(),
            output.truncated,
            seconds,
            output.digest(),
            errors,
            output.total,
            compared=self._compared(streams, files, kept),
            forked=run.forked,
            refused=run.refused,
        )

    def _in_turn(self, order: RunOrder, abandon_fd: int | None) -> Ended | None:
        """A run in a process that does one after another, where a subclass has such processes."""
        return None

    def _streams(self, kept: int) -> dict[int, Capture]:
        """What a run writes to its descriptors, by those that we read it from; so much of each is kept."""
        streams = {fd: Capture(kept) for fd in (self._read, *(read for read, _ in self._more.values()))}
        if self.limits.apart:
            streams[self._read_errors] = Capture(kept if "stderr" in self.limits.outputs else _ERRORS_KEPT)
        return streams

    def _output_files(self, pool: str) -> dict[str, str]:
        """The paths of the outputs that are files; what earlier runs wrote to them is removed."""
        files = {name: name.replace("{pool}", pool, 1) for name in self.limits.outputs if descriptor(name) is None}
        for path in files.values():
            with contextlib.suppress(OSError):
                os.unlink(path)
        return files

    def _compared(
        self, streams: Mapping[int, Capture], files: Mapping[str, str], kept: int
    ) -> tuple[ComparedOutput, ...]:
        """The outputs that an oracle compares, if that is not standard output alone."""
        return tuple(
            ComparedOutput.of(file_capture(files[name], kept) if name in files else streams[self._end_of(name)])
            for name in self.limits.compared_apart
        )

    def _wait_through_ready(
        self,
        run: _Underway,
        waiting: WaitingProcesses | None,
        order: RunOrder,
        abandon_fd: int | None,
        started: float,
    ) -> str:
        """Wait for the end of a run, as `_wait`. Where it waits in crashcheck_ready(), it continues as a copy."""
        offer = run.offer
        ready_fd = None if offer is None else offer.requests.fileno()
        clock = RunClock(run.pid, order.limit, started, self._spared)
        while (reason := self._wait(run.pidfd, abandon_fd, order.streams, clock, ready_fd)) == "ready":
            assert offer is not None
            assert waiting is not None
            answer = self._answered(offer, waiting, run.pid, order)
            if isinstance(answer, int):
                run.continue_as(answer)
                clock = RunClock(run.pid, order.limit, started, self._spared)
            elif answer:
                run.refused = answer
                waiting.refuse()
            if run.forked or not answer:
                offer = ready_fd = None
        return reason

    def wait_below(self, root: Path) -> None:
        """From now on, let checks wait in crashcheck_ready(); `root`: the folder of all that differs between runs."""
        if own_children() is not None:  # else they could not be distinguished from what a check leaves behind
            self._waiting = WaitingProcesses(root)

    def _forked(self, waiting: WaitingProcesses | None, order: RunOrder) -> int:
        """Start a run from a process that waits: its number, 0 if there is none."""
        one = None if waiting is None else waiting.find(order.argv, order.env, order.acked)
        if waiting is None or one is None:
            return 0
        try:
            pid = one.fork(order.limit.wall_s, order.acked)
        except Gone:
            waiting.drop(one, self._spared)
            end_rest(self._spared)  # it may have been copied after all, too late
            return 0
        for fd, data in one.before.items():
            order.streams[fd].add(data)
        return pid

    def _answered(self, offer: Offer, waiting: WaitingProcesses, pid: int, order: RunOrder) -> int | str:
        """Answer a process in crashcheck_ready(): the number of the run, if it is a copy of that process.

        Else why it is not; "" if nobody was there.
        """
        streams, acked = order.streams, order.acked
        for fd, capture in streams.items():
            drain(fd, capture)
        outputs = (self._write, self._write_errors, *(write for _, write in self._more.values()))
        refusal = offer.refusal(pid, self._spared, outputs)
        if refusal is None:
            return ""
        if not refusal and any(capture.truncated for capture in streams.values()):
            refusal = "the check has printed more than is kept of its output: call it before"
        if not refusal:
            before = {fd: capture.bytes() for fd, capture in streams.items()}
            words = acked.words if acked is not None and offer.takes_acked else order.argv
            one = Waiting(pid, offer.requests, words, order.env, before, takes_acked=offer.takes_acked)
            try:
                run = one.fork(order.limit.wall_s, acked)
            except Gone as gone:
                refusal = f"{gone}"
            else:
                waiting.add(one, self._spared)
                return run
        offer.run_on()
        return refusal

    def _end_of(self, output: str) -> int:
        """Where we read what the check writes to one of its descriptors."""
        number = descriptor(output)
        if number is None or number > 2:
            return self._more[number or 0][0]
        return self._read if number == 1 else self._read_errors

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.close(self._spared)
        pipes = [fd for ends in self._more.values() for fd in ends]
        for fd in (self._null, self._read, self._write, self._read_errors, self._write_errors, *pipes):
            os.close(fd)

    def _start(self, program: str, argv: Sequence[str], env: Mapping[str, str], offer: Offer | None) -> int:
        if offer is None:
            return spawn(program, argv, env, self._actions())
        try:
            return spawn(program, argv, offer.environment(env), [*self._actions(), offer.action])
        finally:
            offer.started()

    def _actions(self) -> list[tuple[int, int, int]]:
        """The descriptors of a command."""
        return [
            (os.POSIX_SPAWN_DUP2, self._null, 0),
            (os.POSIX_SPAWN_DUP2, self._write, 1),
            (os.POSIX_SPAWN_DUP2, self._write_errors if self.limits.apart else self._write, 2),
            *((os.POSIX_SPAWN_DUP2, write, number) for number, (_, write) in self._more.items()),
        ]

    def _wait(
        self,
        pidfd: int,
        abandon_fd: int | None,
        streams: dict[int, Capture],
        clock: RunClock,
        ready_fd: int | None = None,
    ) -> str:
        poll = select.poll()
        if ready_fd is not None:
            poll.register(ready_fd, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        for stream in streams:
            poll.register(stream, select.POLLIN)
        if abandon_fd is not None:
            poll.register(abandon_fd, 0)  # hang-up only
        check_s = clock.next_check_s()
        while True:
            left_s = clock.left_s()
            events = poll.poll(min(left_s, check_s) * 1000 + 1)
            for fd, event in events:
                if fd == pidfd:
                    return "ended"
                if fd == ready_fd:
                    return "ready"
                if fd == abandon_fd and event & (select.POLLHUP | select.POLLERR):
                    return "abandoned"
                if fd in streams and drain(fd, streams[fd], once=True) > self.limits.output_bytes:
                    return "output"
            if not left_s or (not events and clock.will_not_end()):  # we may have been stopped: after the poll
                return "time"
            check_s = check_s if events else clock.next_check_s()

    def _limit_hit(self, status: int, peak_bytes: int) -> str:
        if status == 0:
            return ""
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ:
            return "file size"
        limit = self.limits.memory_bytes
        # A failed allocation is not reported to the parent. The peak is: a failing run that had filled most of what
        # it may have in earnest met the limit. The kernel starts the count of a spawned child at its parent's
        # own peak, so a peak that is no higher than ours proves nothing.
        if limit is not None and peak_bytes >= limit * 3 // 4 and peak_bytes > _own_peak():
            return "memory"
        return ""


def spawn(program: str, argv: Sequence[str], env: Mapping[str, str], actions: Sequence[tuple[int, int, int]]) -> int:
    """Start a command in a group of its own, `actions`: with these descriptors. Raises CheckNotStarted."""
    try:
        return os.posix_spawn(
            program,
            list(argv),
            env,
            file_actions=actions,
            setpgroup=0,
            setsigmask=[],
            setsigdef=_DEFAULT_SIGNALS,
        )
    except OSError as error:
        raise CheckNotStarted(f"{program}: {error.strerror}") from error


def limited(wanted: Sequence[tuple[int, int]], start: Callable[[], int]) -> int:
    """Start a child with limits of its own."""
    with _inherited(wanted):
        pid = start()
        # The child is in its dynamic loader at most: it was allowed nothing yet that a limit would refuse.
        for which, value in wanted:
            _limit(pid, which, value)
    return pid


def captured(status: int, output: bytes, compared: Sequence[bytes], limits: Limits) -> Ended:
    """How a run ended that somebody else has followed. `compared`: what it wrote to `limits.compared_apart`."""
    capture, *more = (Capture(limits.kept_bytes) for _ in (output, *compared))
    for each, data in zip((capture, *more), (output, *compared), strict=True):
        each.add(data)
    return Ended(
        *(status, False, "", capture.bytes(), capture.truncated, 0.0, capture.digest()),
        total_bytes=capture.total,
        compared=tuple(ComparedOutput.of(each) for each in more),
    )


def _raised(fd: int) -> int:
    """The descriptor under a number that no check is given one by."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OURS)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _inherited(wanted: Sequence[tuple[int, int]]) -> Iterator[None]:
    """Take limits ourselves while a child is started, as root: it may drop its rights before `_limit` is allowed to."""
    before: list[tuple[int, tuple[int, int]]] = []
    try:
        for which, value in wanted if os.geteuid() == 0 else ():
            if which != resource.RLIMIT_DATA or own_data_bytes() + _STARTING_BYTES < value:
                before.append((which, resource.getrlimit(which)))
                _limit(0, which, value)
        yield
    finally:
        for which, limits in before:
            resource.setrlimit(which, limits)


def _limit(pid: int, which: int, value: int) -> None:
    """Limit a process, 0: ourselves. One that has ended or has dropped its rights already is left as it is."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        _, hard = resource.prlimit(pid, which)
        soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, which, (soft, hard))


def own_data_bytes() -> int:
    """What this process has of what RLIMIT_DATA limits, and its stacks."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def _own_peak() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
