"""Events of the trace that is made of what strace printed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.strace.folder import Inode, Place
from crashcheck.runtime.strace.lines import Call
from crashcheck.runtime.strace.trace_writer import TraceWriter
from crashcheck.runtime.trace_format import Kind, OutputKind

_NUMBERS = {
    "write": 1, "open": 2, "mmap": 9, "ioctl": 16, "pwrite64": 18, "writev": 20, "sendfile": 40,
    "sendto": 44, "sendmsg": 46, "fsync": 74, "fdatasync": 75, "truncate": 76, "ftruncate": 77, "rename": 82,
    "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "mknod": 133,
    "sync": 162, "io_submit": 209, "openat": 257, "mkdirat": 258, "mknodat": 259, "unlinkat": 263,
    "renameat": 264, "linkat": 265, "symlinkat": 266, "splice": 275, "sync_file_range": 277,
    "fallocate": 285, "pwritev": 296, "syncfs": 306, "sendmmsg": 307, "renameat2": 316,
    "copy_file_range": 326, "pwritev2": 328, "io_uring_setup": 425, "openat2": 437, "pidfd_getfd": 438,
}  # fmt: skip


class Events:
    """Writes what calls did. `process_of`: of each thread its process."""

    def __init__(self, out: TraceWriter, process_of: Callable[[int], int], standard: dict[bytes, OutputKind]) -> None:
        self.out = out
        self._process_of = process_of
        self._standard = standard
        self.private: set[bytes] = set()  # pipes and sockets that lead from the program to itself
        self.printed = 0

    def emit(self, call: Call, kind: Kind, data: bytes | None = None, **fields: int) -> int:
        number = _NUMBERS.get(call.name)
        fields["call"] = 0 if number is None else number + 1
        return self.out.event(call.pid, kind, data, self._process_of(call.pid), **fields)

    def named(
        self, call: Call, kind: Kind, inode: Inode, place: Place, second: bytes = b"", flags: int = 0, **names: int
    ) -> None:
        head = np.zeros(1, dtype=fmt.NAMES)
        head["name_bytes"] = len(place.name)
        for name, value in names.items():
            head[name] = value
        data = head.tobytes() + place.name + second
        self.emit(call, kind, data, file=inode.id, folder=place.folder, flags=flags)

    def note(self, call: Call, what: str, inode: Inode | None = None) -> None:
        self.emit(call, Kind.UNMODELLED, what.encode(), file=inode.id if inode else 0)

    def output(self, call: Call, path: bytes, size: int, data: bytes) -> None:
        kind = self._output_kind(path)
        if kind is None:
            return
        if kind is OutputKind.STDOUT:
            self.printed += size
            data = b""
        self.emit(call, Kind.OUTPUT, data[: fmt.OUTPUT_BYTES], aux=int(kind), offset=self.printed)

    def _output_kind(self, path: bytes) -> OutputKind | None:
        if path in self._standard:
            return self._standard[path]
        if path.startswith((b"/dev/pts/", b"/dev/tty")):
            return OutputKind.TERMINAL
        if path in self.private:
            return None
        if path.startswith(b"pipe:["):
            return OutputKind.PIPE
        return OutputKind.SOCKET if path.startswith((b"TCP", b"UDP", b"UNIX")) else None

    def resize(self, call: Call, inode: Inode, size: int) -> None:
        self.emit(call, Kind.TRUNCATE, file=inode.id, offset=size)
        inode.resize(size)

    def put(self, call: Call, inode: Inode, offset: int, data: bytes, flags: int = 0) -> None:
        self.emit(call, Kind.WRITE, data, file=inode.id, offset=offset, flags=flags)
        inode.resize(max(inode.size, offset + len(data)))
        if inode.data is not None:
            inode.data[offset : offset + len(data)] = data
