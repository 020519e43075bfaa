"""What calls do to the content of files: writes, copies, sizes and syncs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from crashcheck.runtime.strace.events import Events
from crashcheck.runtime.strace.folder import Folder, Inode
from crashcheck.runtime.strace.lines import Call, parts_of
from crashcheck.runtime.strace.processes import Open, Processes
from crashcheck.runtime.trace_format import Kind, SyncKind, WriteFlag

_RWF_DSYNC, _RWF_SYNC, _RWF_APPEND = 2, 4, 0x10
_FICLONES = (0x40049409, 0x4020940D)
SYNCS = {
    "fsync": SyncKind.FSYNC,
    "fdatasync": SyncKind.FDATASYNC,
    "sync_file_range": SyncKind.SYNC_RANGE,
    "sync": SyncKind.SYNC,
    "syncfs": SyncKind.SYNC,
}


class Content:
    """Replays calls that change or sync what files hold."""

    def __init__(self, folder: Folder, events: Events, processes: Processes) -> None:
        self._folder, self._events, self._processes = folder, events, processes
        self._begun: dict[int, int] = {}  # of each thread: the sync that it waits for

    def steps(self) -> dict[str, Callable[[Call], None]]:
        """What replays which call."""
        return {
            **dict.fromkeys(("write", "pwrite64", "writev", "pwritev", "pwritev2"), self._write),
            **dict.fromkeys(("sendfile", "splice", "copy_file_range"), self._copy),
            **dict.fromkeys(("truncate", "ftruncate"), self._truncate),
            **dict.fromkeys(("sendto", "sendmsg", "sendmmsg"), self._send),
            "fallocate": self._allocate,
            "ioctl": self._clone_range,
            "mmap": self._map,
        }

    def _write(self, call: Call) -> None:
        size, file = call.result, self._processes.opened(call, 0)
        vectored = call.name in ("writev", "pwritev", "pwritev2")
        data = (parts_of(call.arguments[1]) if vectored else call.text(1))[:size]
        if file.inode is None or not file.inode.is_file:
            if size > 0:
                self._events.output(call, file.path, size, data)
            return
        rwf = call.number(4) if call.name == "pwritev2" else 0
        append = bool(file.flags & os.O_APPEND or rwf & _RWF_APPEND)
        moves = call.name in ("write", "writev") or (call.name == "pwritev2" and call.number(3) in (-1, 2**64 - 1))
        offset = file.inode.size if append else file.position if moves else call.number(3)
        if moves:
            file.position = offset + size
        if size > 0:
            shown = (WriteFlag.APPEND if append else 0) | (WriteFlag.DIRECT if file.flags & os.O_DIRECT else 0)
            if len(data) < size:
                self._events.note(call, "a write that strace printed in part", file.inode)
            self._events.put(call, file.inode, offset, data, int(shown))
            wanted = file.flags | (os.O_SYNC if rwf & _RWF_SYNC else os.O_DSYNC if rwf & _RWF_DSYNC else 0)
            self._synced(call, file.inode, offset, size, wanted)

    def _synced(self, call: Call, inode: Inode, offset: int, size: int, flags: int) -> None:
        """The sync that a write brings."""
        if not flags & os.O_DSYNC:
            return
        kind = SyncKind.OSYNC if flags & os.O_SYNC == os.O_SYNC else SyncKind.ODSYNC
        fields = {"aux": int(kind), "file": inode.id, "offset": offset, "size": size}
        begun = self._events.emit(call, Kind.SYNC_BEGIN, None, **fields)
        self._events.emit(call, Kind.SYNC_END, None, **fields, payload=begun)

    def _copy(self, call: Call) -> None:
        """copy_file_range, splice and sendfile: the bytes of the source as replayed."""
        size = call.result
        sends = call.name == "sendfile"
        source, target = (
            self._processes.opened(call, 1 if sends else 0),
            self._processes.opened(call, 0 if sends else 2),
        )
        where = call.arguments[2 if sends else 1]
        start = source.position if where == "NULL" else _pointed(where)
        if where == "NULL":
            source.position += size
        if target.inode is None or not target.inode.is_file:
            if size > 0:
                self._events.output(call, target.path, size, b"")
            return
        there = "NULL" if sends else call.arguments[3]
        offset = target.position if there == "NULL" else _pointed(there)
        if there == "NULL":
            target.position += size
        if size > 0:
            self._put_copy(call, source, start, target.inode, offset, size)
            self._synced(call, target.inode, offset, size, target.flags)

    def _put_copy(self, call: Call, source: Open, start: int, inode: Inode, offset: int, size: int) -> None:
        data = b""
        if source.inode is not None:
            data = bytes((source.inode.data or b"")[start : start + size])
        elif source.path.startswith(b"/") and os.path.isfile(source.path):
            with open(source.path, "rb") as file:
                file.seek(start)
                data = file.read(size)
        if len(data) < size:
            self._events.note(call, f"{call.name} from a source that strace does not show", inode)
        if data:
            self._events.put(call, inode, offset, data)

    def _clone_range(self, call: Call) -> None:
        if call.number(1) not in _FICLONES or call.result != 0:
            return
        target = self._processes.opened(call, 0)
        if target.inode is not None:
            self._events.note(call, "a reflink", target.inode)

    def _truncate(self, call: Call) -> None:
        if call.name == "ftruncate":
            inode = self._processes.opened(call, 0).inode
        else:
            place = self._processes.place(call, None, 0, follow=True)
            inode = self._folder.at(place)
        if inode is not None and inode.is_file:
            self._events.resize(call, inode, call.number(1))

    def _allocate(self, call: Call) -> None:
        inode = self._processes.opened(call, 0).inode
        if inode is None:
            return
        mode, offset, size = (call.number(at) for at in (1, 2, 3))
        self._events.emit(call, Kind.ALLOCATE, file=inode.id, aux=mode, offset=offset, payload=size)
        if inode.data is not None and mode & 0x12:
            end = min(offset + size, len(inode.data))
            inode.data[offset:end] = bytes(max(end - offset, 0))
        moved = {8: -size, 32: size}.get(mode, 0)
        if moved or (not mode & 1 and offset + size > inode.size):
            self._events.resize(call, inode, inode.size + moved if moved else offset + size)

    def _map(self, call: Call) -> None:
        if call.number(3) & 1 and call.number(2) & 2 and "<" in call.arguments[4]:
            inode = self._processes.opened(call, 4).inode
            if inode is not None:
                self._events.note(call, "stores through a mapping, which strace does not show", inode)

    def _send(self, call: Call) -> None:
        data = call.text(1) if call.name == "sendto" else parts_of(call.arguments[1])
        if call.result > 0:
            self._events.output(call, call.descriptor(0).path, call.result, data)

    def sync(self, call: Call) -> None:
        kind = SYNCS[call.name]
        file = 0
        if kind is not SyncKind.SYNC:
            inode = self._processes.opened(call, 0).inode
            if inode is None or not (inode.is_file or stat.S_ISDIR(inode.mode)):
                return
            file = inode.id
        fields = {"aux": int(kind), "file": file}
        if kind is SyncKind.SYNC_RANGE:
            if not call.ended:
                return  # it orders nothing
            fields |= {"offset": call.number(1), "size": min(call.number(2), 2**32 - 1)}
        begun = self._begun.pop(call.pid, 0) or self._events.emit(call, Kind.SYNC_BEGIN, None, **fields)
        if call.ended:
            self._events.emit(call, Kind.SYNC_END, None, **fields, payload=begun, flags=int(call.result < 0))
        else:
            self._begun[call.pid] = begun


def _pointed(text: str) -> int:
    """The number before the call, of `[0]` or `[0] => [5]`."""
    return int(text.partition("]")[0].lstrip("["))
