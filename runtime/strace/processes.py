"""Processes, their folders, and what their descriptors are open on, while strace's lines are replayed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from crashcheck.runtime.strace.events import Events
from crashcheck.runtime.strace.folder import Folder, Inode, Place
from crashcheck.runtime.strace.lines import NOT_FOLLOWED, Call, Descriptor, Exit, flags_of
from crashcheck.runtime.strace.lines import descriptor as descriptor_in
from crashcheck.runtime.trace_format import CreateFlag, Kind

_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_FORKS = ("fork", "vfork", "clone", "clone3")


@dataclass(slots=True)
class Open:
    """An open file description."""

    path: bytes
    inode: Inode | None
    flags: int = os.O_RDWR
    position: int = 0


@dataclass(slots=True)
class Process:
    pid: int
    cwd: bytes
    table: dict[int, Open] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)  # calls that are not modelled


class Processes:
    """Replays calls that begin and end processes, and that open, move and close descriptors."""

    def __init__(self, folder: Folder, events: Events, threads: dict[int, Process], cwd: bytes) -> None:
        self._folder, self._events = folder, events
        self.threads = threads
        self._cwd = cwd  # of the first process
        self._leaders: set[int] = set()
        self._forking: set[int] = set()  # threads in a call that makes a process
        self.main, self.clean = 0, False

    def steps(self) -> dict[str, Callable[[Call], None]]:
        """What replays which call."""
        return {
            **dict.fromkeys(("open", "openat", "openat2", "creat"), self._open),
            **dict.fromkeys(("dup", "dup2", "dup3", "fcntl"), self._dup),
            **dict.fromkeys(("pipe", "pipe2", "socketpair"), self._pair),
            **dict.fromkeys(("read", "readv"), self._read),
            **dict.fromkeys(_FORKS, self._fork),
            **dict.fromkeys(("chdir", "fchdir"), self._chdir),
            **dict.fromkeys(NOT_FOLLOWED, self._unmodelled),
            "lseek": self._seek,
            "close": self._close,
            "execve": self._exec,
        }

    def met(self, pid: int) -> None:
        """A thread of this number is known from now on."""
        if pid not in self.threads:
            self.main = self.main or pid
            self._leaders.add(pid)
            self.threads[pid] = Process(pid, self._cwd)
            if len(self._forking) == 1:  # it runs before the call that makes it returns
                parent = self.threads[min(self._forking)]
                self.threads[pid] = Process(pid, parent.cwd, dict(parent.table))

    def within(self, call: Call) -> None:
        """Note whether a thread is in a call that makes a process."""
        if call.name in _FORKS and not call.ended:
            self._forking.add(call.pid)
        else:
            self._forking.discard(call.pid)

    def _base(self, call: Call, at: int | None) -> bytes:
        process = self.threads[call.pid]
        if at is None:
            return process.cwd
        given = call.descriptor(at)
        return given.path or process.cwd

    def place(self, call: Call, at: int | None, which: int, follow: bool = False) -> Place:
        """Where a path leads: its last directory, with symbolic links followed, and its last name."""
        path = os.path.join(self._base(call, at), call.text(which))
        if path.startswith((b"/proc/self/fd/", b"/dev/fd/")):
            number = path.rpartition(b"/")[2]
            file = self.threads[call.pid].table.get(int(number)) if number.isdigit() else None
            return Place(0, b"", file.path if file is not None else path)
        return self._folder.resolve(path, follow)

    def opened(self, call: Call, at: int) -> Open:
        """What a descriptor is open on. One that came unseen (inherited, or passed) is known by its path alone."""
        given = call.descriptor(at)
        table = self.threads[call.pid].table
        known = table.get(given.number)
        if known is not None and (self._fits(known.inode, given) if known.inode else known.path == given.path):
            return known
        inode = None if given.deleted else self._folder.inode_at(given.path)
        table[given.number] = Open(given.path, inode)
        return table[given.number]

    def _fits(self, inode: Inode, given: Descriptor) -> bool:
        return given.deleted or self._folder.inode_at(given.path) in (inode, None)

    def _open(self, call: Call) -> None:
        at = call.name in ("openat", "openat2")
        if call.name == "openat2":
            how = call.arguments[2]
            flags, mode = (_of_struct(how, key) for key in ("flags", "mode"))
        elif call.name == "creat":
            flags, mode = os.O_CREAT | os.O_TRUNC | os.O_WRONLY, call.number(1)
        else:
            flags = call.number(1 + at)
            mode = call.number(2 + at) if len(call.arguments) > 2 + at else 0
        given = descriptor_in(call.returned)
        inode = None if given.deleted else self._folder.inode_at(given.path)
        table = self.threads[call.pid].table
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            if self._folder.folder_id(os.path.dirname(given.path)):
                inode = self._folder.define(call.pid, stat.S_IFREG | mode, b"")
        elif inode is None and flags & os.O_CREAT:
            place = self._folder.resolve(given.path)
            if place.folder:
                inode = self._folder.define(
                    call.pid, stat.S_IFREG | mode & ~0o22, self._folder.path_of(place.folder, place.name)
                )
                exclusive = int(CreateFlag.EXCLUSIVE) if flags & os.O_EXCL else 0
                self._events.named(call, Kind.NAME_CREATE, inode, place, flags=exclusive)
                self._folder.enter(place, inode)
        elif inode is not None and inode.is_file and flags & os.O_TRUNC:
            self._events.resize(call, inode, 0)
        table[given.number] = Open(given.path, inode, flags)

    def _close(self, call: Call) -> None:
        self.threads[call.pid].table.pop(call.descriptor(0).number, None)

    def _dup(self, call: Call) -> None:
        if call.name == "fcntl" and call.number(1) not in (0, 0x406):
            return
        self.threads[call.pid].table[descriptor_in(call.returned).number] = self.opened(call, 0)

    def _pair(self, call: Call) -> None:
        ends = call.arguments[3 if call.name == "socketpair" else 0]
        self._events.private.update(descriptor_in(end.strip()).path for end in ends.strip("[]").split(", "))

    def _seek(self, call: Call) -> None:
        self.opened(call, 0).position = call.result

    def _read(self, call: Call) -> None:
        self.opened(call, 0).position += call.result

    def _chdir(self, call: Call) -> None:
        process = self.threads[call.pid]
        process.cwd = call.descriptor(0).path if call.name == "fchdir" else self._canonical(process.cwd, call.text(0))

    def _canonical(self, cwd: bytes, path: bytes) -> bytes:
        return os.path.realpath(os.path.join(cwd, path))

    def _fork(self, call: Call) -> None:
        parent, child = self.threads[call.pid], call.result
        flags = _of_struct(",".join(call.arguments), "flags")
        earlier = self.threads.get(child)  # it may have run before this call returned
        if flags & _CLONE_THREAD:
            self.threads[child] = parent
            self._leaders.discard(child)
        else:
            table = parent.table if flags & _CLONE_FILES else dict(parent.table)
            self.threads[child] = Process(child, parent.cwd, {**table, **earlier.table} if earlier else table)
            self._leaders.add(child)
            self._events.emit(call, Kind.FORK, payload=child)

    def _exec(self, call: Call) -> None:
        self._events.emit(call, Kind.EXEC, call.text(0))

    def exit(self, end: Exit) -> None:
        self._forking.discard(end.pid)
        if end.pid not in self._leaders:
            return
        clean = end.pid == self.main and not end.killed
        self.clean = self.clean or clean
        self._events.out.event(end.pid, Kind.EXIT, process=end.pid, aux=int(clean), offset=end.status)

    def _unmodelled(self, call: Call) -> None:
        noted = self.threads[call.pid].noted
        if call.name not in noted:
            self._events.note(call, call.name.removesuffix("_setup"))
        noted.add(call.name)


def _of_struct(text: str, key: str) -> int:
    """A number in `{flags=0x100|17, mode=0}`; 0 where it is not there."""
    return flags_of(text.partition(f"{key}=")[2].split(",")[0].rstrip("}"))
