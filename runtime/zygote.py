"""A zygote: a process that has loaded what others need, and of which those are copies.

Starting Python and importing takes most of the life of a supervisor, and of a worker before its first task. A copy is
made in a thousandth of a second, and is a child of whoever asks for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping

from crashcheck.runtime import supervise
from crashcheck.runtime.copied_process import fork

_SYS_CLONE, _CLONE_PARENT = 56, 0x8000  # of x86-64 Linux: as fork, but the child is one of our parent's
_MOST_DESCRIPTORS = 4
SUPERVISOR = "supervisor"  # what a copy may become, with the descriptors of `supervise.copied`
WORKER = "worker"  # with the descriptor of its connection

Become = Callable[..., object]  # what a copy calls with its descriptors, before it ends


class Channel:
    """Our end of the channel to a zygote (`serve`)."""

    def __init__(self) -> None:
        self._channel, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._owner = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Not in a copy of the process that made it."""
        return self._owner == os.getpid()

    def copy(self, what: str, *descriptors: int) -> int | None:
        """The process number of a copy that has become `what`, with these descriptors as its own.

        0 if this system does not let it be copied, None if the zygote has ended.
        """
        try:
            with self._lock:
                socket.send_fds(self._channel, [what.encode()], descriptors)
                answer = self._channel.recv(64)
        except OSError:
            return None
        except BaseException:
            self._channel.close()  # else the answer would be read as that to the next request
            raise
        return int(answer) if answer else None

    def close(self) -> None:
        """The zygote ends."""
        self._channel.close()


def serve(number: int, roles: Mapping[str, Become]) -> None:
    """Copy this process for each request that arrives at a socket, until that is closed.

    Answers each time with the copy's process number, 0 if the system refuses.
    """
    os.set_inheritable(number, False)
    gc.enable()
    gc.freeze()  # copies share this memory for as long as nobody looks for garbage in it
    with socket.socket(fileno=number) as channel:
        while True:
            what, descriptors, _, _ = socket.recv_fds(channel, 64, _MOST_DESCRIPTORS)
            if not descriptors:
                return
            try:
                pid = _fork_sibling()
            except OSError:
                pid = 0
            else:
                if pid == 0:
                    channel.close()
                    os.setsid()  # Ctrl-C is for whoever asked for us
                    roles[what.decode()](*descriptors)
                    os._exit(0)  # nothing is left to write
            for descriptor in descriptors:
                os.close(descriptor)
            with contextlib.suppress(BrokenPipeError):  # who asked was interrupted, and asks no more
                channel.send(str(pid).encode())


def _fork_sibling() -> int:
    """Fork a child of our parent, which waits for it; 0 in the child. Raises OSError."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid: int = python.syscall(_SYS_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("clone with CLONE_PARENT failed")
    return pid


class Zygote(Channel):
    """A copy of this process as it is now, which must have one thread; made by its main thread, which outlives it."""

    def __init__(self, roles: Mapping[str, Become]) -> None:
        super().__init__()
        self._pid = fork()
        if self._pid:
            self.theirs.close()
            return
        try:
            os.setsid()  # Ctrl-C is for our parent
            for each in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(each) is not signal.SIG_IGN:
                    signal.signal(each, signal.SIG_DFL)
            number = self.theirs.detach()
            os.closerange(3, number)
            os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            os.close(nothing)
            serve(number, roles)
        except BaseException:
            os.write(2, traceback.format_exc().encode())  # what sys.stderr wrote to may be closed
        finally:
            os._exit(0)

    def close(self) -> None:
        if self.is_ours:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)  # a copy of this process may have our end, too
            os.waitpid(self._pid, 0)
        super().close()


_zygote: Zygote | None = None


@contextlib.contextmanager
def forked(worker: Become) -> Iterator[None]:
    """Until the end of the context, supervisors and workers are copies of this process as it is now.

    `worker`: what a worker calls. For the start of a command, before threads are started and numpy is loaded.
    """
    global _zygote
    before, _zygote = _zygote, Zygote({SUPERVISOR: supervise.copied, WORKER: worker})
    try:
        yield
    finally:
        _zygote.close()
        _zygote = before


def copy(what: str, *descriptors: int) -> int | None:
    """As `Channel.copy`, of the zygote that is there; None if there is none."""
    return _zygote.copy(what, *descriptors) if _zygote is not None and _zygote.is_ours else None
