"""What calls do to names: files, directories and links that are made, renamed and removed."""

from __future__ import annotations

import stat
from collections.abc import Callable

from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.strace.events import Events
from crashcheck.runtime.strace.folder import Folder, Inode, Place
from crashcheck.runtime.strace.lines import Call
from crashcheck.runtime.strace.processes import Processes
from crashcheck.runtime.trace_format import Kind, OutputKind


class Names:
    """Replays calls that change the names in the folder."""

    def __init__(self, folder: Folder, events: Events, processes: Processes) -> None:
        self._folder, self._events, self._processes = folder, events, processes

    def steps(self) -> dict[str, Callable[[Call], None]]:
        """What replays which call."""
        return {
            **dict.fromkeys(("mkdir", "mkdirat", "mknod", "mknodat"), self._make),
            **dict.fromkeys(("symlink", "symlinkat"), self._symlink),
            **dict.fromkeys(("link", "linkat"), self._link),
            **dict.fromkeys(("unlink", "unlinkat", "rmdir"), self._unlink),
            **dict.fromkeys(("rename", "renameat", "renameat2"), self._rename),
        }

    def _make(self, call: Call) -> None:
        at = call.name.endswith("at")
        place = self._processes.place(call, 0 if at else None, int(at))
        if place.folder:
            folder = call.name.startswith("mkdir")
            given = call.number(1 + at)
            mode = stat.S_IFDIR | given & ~0o22 if folder else given if stat.S_IFMT(given) else stat.S_IFREG | given
            inode = self._folder.define(call.pid, mode, self._folder.path_of(place.folder, place.name))
            self._events.named(call, Kind.NAME_MKDIR if folder else Kind.NAME_CREATE, inode, place)
            self._folder.enter(place, inode)

    def _symlink(self, call: Call) -> None:
        at = call.name.endswith("at")
        place = self._processes.place(call, 1 if at else None, 1 + at)
        if place.folder:
            inode = self._folder.define(call.pid, stat.S_IFLNK | 0o777, self._folder.path_of(place.folder, place.name))
            inode.target = call.text(0)
            self._events.named(call, Kind.NAME_SYMLINK, inode, place, inode.target)
            self._folder.enter(place, inode)

    def _link(self, call: Call) -> None:
        at = call.name == "linkat"
        place = self._processes.place(call, 2 if at else None, 3 if at else 1)
        if not place.folder:
            return
        source = self._processes.place(call, 0 if at else None, int(at), follow=at and bool(call.number(4) & 0x400))
        inode = self._folder.at(source)
        if inode is None:
            opened = [file for file in self._processes.threads[call.pid].table.values() if file.path == source.full]
            inode = opened[0].inode if opened else None
        if inode is None:
            inode = self._arrived(call, place)
        self._events.named(call, Kind.NAME_LINK, inode, place)
        self._folder.enter(place, inode)

    def _arrived(self, call: Call, place: Place) -> Inode:
        inode = self._folder.define(call.pid, stat.S_IFREG | 0o644, self._folder.path_of(place.folder, place.name))
        self._events.note(call, "a file from outside of the folder", inode)
        return inode

    def _unlink(self, call: Call) -> None:
        at = call.name == "unlinkat"
        place = self._processes.place(call, 0 if at else None, int(at))
        if not place.folder:
            self._events.emit(
                call, Kind.OUTPUT, place.full[: fmt.OUTPUT_BYTES], aux=int(OutputKind.NAME), offset=self._events.printed
            )
            return
        inode = self._folder.inodes.get(self._folder.entries.pop((place.folder, place.name), 0))
        if inode is not None:
            folder = call.name == "rmdir" or (at and bool(call.number(2) & 0x200))
            self._events.named(call, Kind.NAME_RMDIR if folder else Kind.NAME_UNLINK, inode, place)

    def _rename(self, call: Call) -> None:
        at = call.name != "rename"
        old = self._processes.place(call, 0 if at else None, int(at))
        new = self._processes.place(call, 2 if at else None, 3 if at else 1)
        if not old.folder and not new.folder:
            self._events.emit(
                call, Kind.OUTPUT, old.full[: fmt.OUTPUT_BYTES], aux=int(OutputKind.NAME), offset=self._events.printed
            )
            return
        moved = self._folder.at(old) if old.folder else None
        replaced = self._folder.at(new) if new.folder else None
        exchange = call.name == "renameat2" and call.number(4) & 2
        if exchange and (moved is None or replaced is None):
            self._events.note(call, "exchange with the outside")
            return
        if moved is None:
            moved = self._arrived(call, new)
        elif moved is replaced:
            return
        kind = Kind.NAME_EXCHANGE if exchange else Kind.NAME_RENAME
        names = {"to_folder": new.folder, "replaced": replaced.id if replaced is not None else 0}
        here = Place(old.folder, old.name if old.folder else b"", old.full)
        self._events.named(call, kind, moved, here, new.name if new.folder else b"", **names)
        if old.folder:
            self._folder.entries.pop((old.folder, old.name), None)
        if new.folder:
            self._folder.enter(new, moved)
        if exchange and replaced is not None:
            self._folder.enter(old, replaced)
