"""What a run of the check writes, to a descriptor or to a file: its beginning, its end, and a hash of it all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat


class Capture:
    """The beginning and the end of an output of any length."""

    def __init__(self, kept: int) -> None:
        self._half = kept // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._hash: hashlib.blake2b | None = None  # of everything, once that is more than what is kept
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._hash is None and self.total > 2 * self._half:
            self._hash = hashlib.blake2b(self._head + self._tail, digest_size=16)
        if self._hash is not None:
            self._hash.update(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail = (self._tail + data)[-self._half :]

    @property
    def truncated(self) -> bool:
        return self.total > len(self._head) + len(self._tail)

    def digest(self) -> bytes:
        """Of everything, where it is truncated."""
        return b"" if self._hash is None else self._hash.digest()

    def bytes(self) -> bytes:
        return bytes(self._head + (b"\n[...]\n" if self.truncated else b"") + self._tail)


def file_capture(path: str, kept: int) -> Capture:
    """What a regular file holds; of anything else, and of no file, nothing."""
    capture = Capture(kept)
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while stat.S_ISREG(os.fstat(fd).st_mode) and (data := os.read(fd, 1 << 20)):
                capture.add(data)
        finally:
            os.close(fd)
    return capture


def drain(fd: int, capture: Capture, *, once: bool = False) -> int:
    """Read what has arrived, or one block of it; how many bytes have arrived in all."""
    while True:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return capture.total
        capture.add(data)
        if once or not data:
            return capture.total
