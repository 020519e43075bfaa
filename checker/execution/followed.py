"""Runs that are followed: what each depended on besides the folder of its images, listed by runtime/inputs."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from signal import Signals

_LIST_BYTES = 1 << 18
_HEADER = struct.Struct("<IIi")  # runtime/include/inputs/inputs.h, `struct list`
_NUMBER = struct.Struct("<I")
_PID = struct.Struct("<i")
_EXPLORER = b"o/proc/self/pagemap"  # what runtime/explorer reads in a check, to find changed memory
_OURS = 64  # descriptors from this one on are none of a check's own


class Follower:
    """The process that starts followed runs, for a process that waits for them. `pid`: its number."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        work: Path,
        actions: Sequence[tuple[int, int, int]],
        signals: Iterable[Signals],
    ) -> None:
        """`actions`, `signals`: as of a run that is not followed; its runs inherit what it has."""
        place = work / "inputs"
        with place.open("wb") as file:
            file.truncate(_LIST_BYTES)
        with place.open("r+b") as file:
            self._list = mmap.mmap(file.fileno(), _LIST_BYTES)
        self._requests, theirs = socket.socketpair()
        with theirs:
            number = fcntl.fcntl(theirs, fcntl.F_DUPFD, _OURS)
        try:
            self.pid = os.posix_spawn(
                program,
                [str(program), str(place), str(folder), str(number)],
                {},
                file_actions=list(actions),
                setpgroup=0,
                setsigmask=[],
                setsigdef=list(signals),
            )
        finally:
            os.close(number)

    def start(self, program: str, argv: Sequence[str], env: Mapping[str, str]) -> int:
        """Start a run, as a child of this process with a group of its own: its number. Raises OSError."""
        texts = [program, *argv, *(f"{name}={value}" for name, value in env.items())]
        body = _NUMBER.pack(len(argv)) + b"".join(os.fsencode(text) + b"\0" for text in texts)
        self._requests.sendall(_NUMBER.pack(len(body)) + body)
        answer = self._requests.recv(_PID.size, socket.MSG_WAITALL)
        if len(answer) != _PID.size:
            raise OSError(0, "the process that follows the check has ended")
        (pid,) = _PID.unpack(answer)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return int(pid)

    @property
    def error(self) -> int:
        """Why the last run could not execute its program; 0: it did."""
        return int(_HEADER.unpack_from(self._list)[2])

    def inputs(self) -> bytes | None:
        """What the last run depended on, as records; None if it could not be followed."""
        used, follows, _ = _HEADER.unpack_from(self._list)
        return self._list[_HEADER.size : _HEADER.size + used] if follows else None

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        os.waitpid(self.pid, 0)


def without_own(records: bytes | None) -> bytes | None:
    """What an explored run depended on, as records, without what the explorer reads itself."""
    if records is None:
        return None
    return b"".join(record + b"\0" for record in records.split(b"\0")[:-1] if record != _EXPLORER)
