"""The TCP port of this process's servers on 127.0.0.1, `{port}` in a command: no two workers have the same one."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

from crashcheck.command import Command
from crashcheck.errors import CrashcheckError

# Below the ports that Linux gives to outgoing connections (from 32768 on): nothing takes one of these by chance.
FIRST, LAST = 20000, 32767

_ours: dict[int, int] = {}  # process id → its port; a child of fork is another process
_locks: list[int] = []  # descriptors of locks, held until the process ends


def of(command: Command) -> dict[str, str]:
    """The value of `{port}`, if a command holds it."""
    return {"port": str(own_port())} if command.holds("port") else {}


def own_port() -> int:
    """This process's port, the same each time as long as nobody else listens there. CrashcheckError no-port."""
    port = _ours.get(os.getpid())
    if port is None or not _free(port):
        port = _ours[os.getpid()] = _claim()
    return port


def _claim() -> int:
    """A port that no other process of crashcheck has claimed and that is not in use."""
    folder = Path(tempfile.gettempdir()) / f"crashcheck-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for port in range(FIRST, LAST + 1):
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        if _free(port):
            _locks.append(lock)
            return port
        os.close(lock)
    raise CrashcheckError(
        "no-port",
        f"no port from {FIRST} to {LAST} of 127.0.0.1 is free for {{port}}.",
        "End what listens there, or fewer runs of crashcheck at a time.",
    )


def _free(port: int) -> bool:
    """Whether a server could listen there, as servers do: connections that ended recently do not matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
