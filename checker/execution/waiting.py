"""Checks that wait at `crashcheck_ready()`: the rest of each of their runs is a copy of a process that is there.

As the deferred fork server of AFL. The first run with some words and some environment is started by exec; if it reaches
that call, and nothing that it has by then could make one run depend on another (`Offer.refusal`), it waits there for as
long as it is needed (`Waiting`), and that run and all later ones are forked from it. The C side and the messages:
runtime/explorer/ready.c.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from crashcheck.checker.execution.check_command import Acked
from crashcheck.checker.images.inotify import Watch
from crashcheck.runtime.supervise import own_children

VARIABLE = "CRASHCHECK_READY"
DESCRIPTOR = 64  # of the check, where it finds its end of the socket; no output of a check has such a number
_HERE = struct.Struct("<iII")  # runtime/explorer/ready.c, `struct here`
_ORDER = struct.Struct("<iiq")  # the same file, `struct order`
_PID = struct.Struct("<i")
_RUN, _FORK = ord("r"), ord("f")
_MOST = 4  # processes that wait in one worker
_SEEN = 10_000  # words of runs that are remembered
_STATELESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Gone(Exception):
    """The process that waited has ended, or does not answer."""


class Waiting:
    """A process that waits in `crashcheck_ready()`. `before`: what it had written, by the descriptor that we read."""

    def __init__(
        self,
        pid: int,
        requests: socket.socket,
        argv: Sequence[str],
        env: Mapping[str, str],
        before: Mapping[int, bytes],
        *,
        takes_acked: bool,
    ) -> None:
        """`takes_acked`: a copy gets the number for `{acked}`, in the place of which `argv` has these braces."""
        self.pid = pid
        self.before = before
        self._requests = requests
        self._argv = tuple(argv)
        self._takes_acked = takes_acked
        self._env = dict(env)

    def suits(self, argv: Sequence[str], env: Mapping[str, str], acked: Acked | None) -> bool:
        """Whether a new process that is started so would be what this one is, or what a copy of it becomes."""
        words = acked.words if acked is not None and self._takes_acked else tuple(argv)
        return self._argv == words and self._env == env

    def fork(self, timeout_s: float, acked: Acked | None) -> int:
        """A run, as a child of this process with a group of its own: its number. Raises Gone."""
        order = _ORDER.pack(_FORK, 0, 0) if acked is None else _ORDER.pack(_FORK, 1, acked.number)
        self._requests.settimeout(timeout_s)
        try:
            self._requests.send(order)
            answer = self._requests.recv(_PID.size)
        except OSError as error:
            raise Gone(f"it does not answer: {error.strerror or error}") from error
        pid = _PID.unpack(answer)[0] if len(answer) == _PID.size else 0
        if pid <= 0:
            raise Gone(f"it cannot be copied: {os.strerror(-pid)}" if pid else "it has ended")
        return int(pid)

    def end(self, spared: set[int]) -> None:
        """End the process, if `spared` shows that it has not been reaped."""
        self._requests.close()
        if self.pid in spared:
            spared.remove(self.pid)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Offer:
    """What a run is started with so that its process may become one that waits.

    `requests`: our end of the socket, where the process reports that it is there.
    """

    def __init__(self, root: Path, pool: str) -> None:
        """`root`: the folder of everything that differs between runs, `pool` with the image."""
        self._root = os.path.realpath(root)
        self._pool = os.path.relpath(pool, root)
        self._refused = ""
        self.takes_acked = False  # whether the process that reports itself asks for the number for `{acked}`
        self._watch: Watch | None = None
        try:
            self._watch = Watch(opens=True)
            self._watch.cover(root, [""])
            self._watch.cover(root, (os.path.relpath(folder, root) for folder, _, _ in os.walk(pool)))
            self._watch.changes()  # our own
        except OSError as error:
            self._refused = f"it is not known which files the check has opened before: {error.strerror}"
        self.requests, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**env, VARIABLE: f"{DESCRIPTOR}:{os.fstat(self._theirs.fileno()).st_ino}"}

    @property
    def action(self) -> tuple[int, int, int]:
        return (os.POSIX_SPAWN_DUP2, self._theirs.fileno(), DESCRIPTOR)

    def started(self) -> None:
        """The run has its end of the socket."""
        self._theirs.close()

    def refusal(self, pid: int, spared: set[int], outputs: Iterable[int]) -> str | None:
        """Why the process that reports itself cannot be copied, with what to do; "" if it can, None: none does.

        `pid`: the one that was started; `spared`: other children of ours; `outputs`: our descriptors of its outputs.
        """
        try:
            report = self.requests.recv(_HERE.size)
            if len(report) != _HERE.size:
                return None
            who, has_timer, takes_acked = _HERE.unpack(report)
            self.takes_acked = bool(takes_acked)
            if who != pid:
                self._refused = (
                    "a process that the check starts calls it: the check itself must (in a shell: exec CHECK)"
                )
            self._refused = (
                self._refused or self._opened() or _refused(pid, spared, outputs, self._root, has_timer=bool(has_timer))
            )
        except OSError as error:
            self._refused = f"the process cannot be examined: {error.strerror}"
        return self._refused

    def _opened(self) -> str:
        changes = self._watch.changes() if self._watch is not None else None
        if not changes:
            return ""
        names = sorted(name.replace(self._pool, "{pool}", 1) for name in changes.written)
        what = ", ".join(names[:3]) or "{pool}"
        return f"the check has opened files that differ between its runs ({what}): call it before"

    def run_on(self) -> None:
        """Let the process that has reported itself be the run."""
        with contextlib.suppress(OSError):
            self.requests.send(_ORDER.pack(_RUN, 0, 0))

    def close(self, *, accepted: bool = False) -> None:
        """`accepted`: the socket is kept by a `Waiting`."""
        self._theirs.close()
        if self._watch is not None:
            self._watch.close()
        if not accepted:
            self.requests.close()


class WaitingProcesses:
    """Those of one worker, the one used last at the end."""

    def __init__(self, root: Path) -> None:
        """`root`: as `Offer` has it."""
        self._root = root
        self._list: list[Waiting] = []
        self._seen: set[tuple[str, ...]] = set()  # words and pools of runs
        self._refused = False

    def find(self, argv: Sequence[str], env: Mapping[str, str], acked: Acked | None) -> Waiting | None:
        """The one that suits a run."""
        for at, each in enumerate(self._list):
            if each.suits(argv, env, acked):
                self._list.append(self._list.pop(at))
                return each
        return None

    def offer(self, argv: Sequence[str], pool: str) -> Offer | None:
        """What to start a run with that none suits; None: nothing, because its words are too rare, or none can wait."""
        if self._refused or resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= DESCRIPTOR:
            return None
        key = (pool, *argv)
        if len(self._list) >= _MOST and key not in self._seen:
            if len(self._seen) < _SEEN:
                self._seen.add(key)
            return None
        return Offer(self._root, pool)

    def add(self, one: Waiting, spared: set[int]) -> None:
        """Let one more wait, and the one end that was not used for longest, if there are too many."""
        self._list.append(one)
        spared.add(one.pid)
        if len(self._list) > _MOST:
            self.drop(self._list[0], spared)

    def drop(self, one: Waiting, spared: set[int]) -> None:
        """Let one end."""
        self._list.remove(one)
        one.end(spared)

    def refuse(self) -> None:
        """Make no more offers."""
        self._refused = True

    def prune(self, spared: set[int]) -> None:
        """Forget those that have ended: `spared` has lost them."""
        for one in [each for each in self._list if each.pid not in spared]:
            self.drop(one, spared)

    def close(self, spared: set[int]) -> None:
        for one in list(self._list):
            self.drop(one, spared)


def _refused(pid: int, spared: set[int], outputs: Iterable[int], root: str, *, has_timer: bool) -> str:
    proc = f"/proc/{pid}"
    threads = len(os.listdir(f"{proc}/task"))
    if threads > 1:
        return f"the check has {threads} threads there: call it before they start"
    if _text(f"{proc}/task/{pid}/children").split() or set(own_children() or ()) != {pid, *spared}:
        return "the check has started a process that still runs there: call it before"
    if has_timer or _text(f"{proc}/timers"):
        return "the check has set a timer, which a copy does not have: call it before"
    if f"{os.readlink(f'{proc}/cwd')}/".startswith(f"{root}/"):
        return "the current folder of the check is inside the image: call it before"
    known = {*_STATELESS, *(os.readlink(f"/proc/self/fd/{each}") for each in outputs)}
    for number in sorted(map(int, os.listdir(f"{proc}/fd"))):
        target = os.readlink(f"{proc}/fd/{number}")
        if number != DESCRIPTOR and target not in known and not _inherited(number, target):
            target = target.partition(":[")[0]  # a pipe or a socket, without its number
            return f"the check has {target} open there (descriptor {number}): close it, or call it before"
    for line in _text(f"{proc}/maps").splitlines():
        words = line.split(None, 5)
        path = words[5] if len(words) > 5 else "memory"
        if "w" in words[1] and words[1].endswith("s"):
            return f"the check shares {path} with other processes there: call it before it maps that"
    return ""


def _inherited(number: int, target: str) -> bool:
    """Whether every check has a descriptor from whoever started crashcheck, such as a terminal's or make's."""
    try:
        return os.get_inheritable(number) and os.readlink(f"/proc/self/fd/{number}") == target
    except OSError:
        return False


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
