"""Records with strace where our own recorder cannot run: converts what strace printed into the same trace.

strace prints paths and no inodes, so names, descriptors and positions are followed here as the calls change them. It
shows no stores through mappings, and call stacks are not asked for: they cost a millisecond a call.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from crashcheck.errors import CrashcheckError
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.strace_lines import TRACED, Call, Descriptor, Exit, flags_of, parts_of, read_lines
from crashcheck.runtime.strace_lines import descriptor as descriptor_in
from crashcheck.runtime.trace_format import CreateFlag, Kind, OutputKind, SyncKind, WriteFlag
from crashcheck.runtime.trace_writer import TraceWriter

_MOST_BYTES = 32 << 20  # of one write; a longer one is printed in part
_MOST_KEPT = 256 << 20  # of a file's content, for copies; a sparse file may have any size
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_RWF_DSYNC, _RWF_SYNC, _RWF_APPEND = 2, 4, 0x10
_FICLONES = (0x40049409, 0x4020940D)
_ROOT = 1
_NUMBERS = {
    "write": 1, "open": 2, "mmap": 9, "ioctl": 16, "pwrite64": 18, "writev": 20, "sendfile": 40,
    "sendto": 44, "sendmsg": 46, "fsync": 74, "fdatasync": 75, "truncate": 76, "ftruncate": 77, "rename": 82,
    "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "mknod": 133,
    "sync": 162, "io_submit": 209, "openat": 257, "mkdirat": 258, "mknodat": 259, "unlinkat": 263,
    "renameat": 264, "linkat": 265, "symlinkat": 266, "splice": 275, "sync_file_range": 277,
    "fallocate": 285, "pwritev": 296, "syncfs": 306, "sendmmsg": 307, "renameat2": 316,
    "copy_file_range": 326, "pwritev2": 328, "io_uring_setup": 425, "openat2": 437, "pidfd_getfd": 438,
}  # fmt: skip


def strace_command(output: Path, command: Sequence[str]) -> list[str]:
    """The command under strace. Raises CrashcheckError strace-missing."""
    program = shutil.which("strace")
    if program is None:
        raise CrashcheckError(
            "strace-missing", "strace is not installed, and is to record the workload.", "apt-get install strace"
        )
    options = ["-f", "--seccomp-bpf", "-y", "-yy", "-X", "raw", "-xx", "-s", str(_MOST_BYTES)]
    return [program, *options, "-e", f"trace={','.join(TRACED)}", "-o", str(output), "--", *command]


def convert(printed: Path, trace: Path, first: Path, pool: Path, cwd: Path, stdout: Path, stderr: Path) -> None:
    """Write the trace of what strace printed. `first`: a copy of the folder `pool` before.

    Raises OSError, and CrashcheckError record-failed for lines that no strace of a known version prints.
    """
    number = 0

    def counted(lines: Iterable[str]) -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(lines, 1):  # noqa: B007 - named in the error
            yield line

    with open(printed, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        copies = any(" copy_file_range(" in line or " sendfile(" in line or " ioctl(" in line for line in lines)
        converter = _Converter(first, pool, cwd, {os.fsencode(stdout): OutputKind.STDOUT}, copies)
        converter.standard[os.fsencode(stderr)] = OutputKind.STDERR
        lines.seek(0)
        try:
            for entry in read_lines(counted(lines)):
                converter.step(entry)
            converter.save(trace)
        except (IndexError, KeyError, ValueError, OverflowError) as error:
            raise CrashcheckError(
                "record-failed",
                f"line {number} of what strace printed cannot be read: {error}",
                'recorder = "syscalls" in [workload] needs no strace.',
            ) from error


@dataclass(slots=True)
class _Inode:
    id: int
    mode: int
    size: int = 0
    target: bytes = b""  # of a symbolic link
    data: bytearray | None = None  # its content, where copies may ask for it

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    def resize(self, size: int) -> None:
        self.size = size
        if self.data is not None and size <= _MOST_KEPT:
            del self.data[size:]
            self.data.extend(bytes(size - len(self.data)))
        else:
            self.data = None


@dataclass(slots=True)
class _Open:
    """An open file description."""

    path: bytes
    inode: _Inode | None
    flags: int = os.O_RDWR
    position: int = 0


@dataclass(slots=True)
class _Process:
    pid: int
    cwd: bytes
    table: dict[int, _Open] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)  # calls that are not modelled


@dataclass(frozen=True, slots=True)
class _Place:
    """A name in a directory; `folder` 0: outside."""

    folder: int
    name: bytes
    full: bytes


class _Converter:
    def __init__(self, first: Path, pool: Path, cwd: Path, standard: dict[bytes, OutputKind], copies: bool) -> None:
        self.standard = standard
        self._root, self._cwd, self._copies = os.fsencode(pool.resolve()), os.fsencode(cwd), copies
        self._out = TraceWriter()
        self._inodes: dict[int, _Inode] = {}
        self._entries: dict[tuple[int, bytes], int] = {}
        self._above: dict[int, tuple[int, bytes]] = {}  # of each directory its own entry
        self._threads: dict[int, _Process] = {}
        self._leaders: set[int] = set()
        self._begun: dict[int, int] = {}  # of each thread: the sync that it waits for
        self._private: set[bytes] = set()  # pipes and sockets that lead from the program to itself
        self._printed = 0
        self._main, self._clean = 0, False
        self._first = os.fsencode(first)
        self._scan()
        self._steps: dict[str, Callable[[Call], None]] = {
            **dict.fromkeys(("open", "openat", "openat2", "creat"), self._open),
            **dict.fromkeys(("write", "pwrite64", "writev", "pwritev", "pwritev2"), self._write),
            **dict.fromkeys(("sendfile", "splice", "copy_file_range"), self._copy),
            **dict.fromkeys(("read", "readv"), self._read),
            **dict.fromkeys(("dup", "dup2", "dup3", "fcntl"), self._dup),
            **dict.fromkeys(("pipe", "pipe2", "socketpair"), self._pair),
            **dict.fromkeys(("truncate", "ftruncate"), self._truncate),
            **dict.fromkeys(("mkdir", "mkdirat", "mknod", "mknodat"), self._make),
            **dict.fromkeys(("symlink", "symlinkat"), self._symlink),
            **dict.fromkeys(("link", "linkat"), self._link),
            **dict.fromkeys(("unlink", "unlinkat", "rmdir"), self._unlink),
            **dict.fromkeys(("rename", "renameat", "renameat2"), self._rename),
            **dict.fromkeys(("sendto", "sendmsg", "sendmmsg"), self._send),
            **dict.fromkeys(("fork", "vfork", "clone", "clone3"), self._fork),
            **dict.fromkeys(("chdir", "fchdir"), self._chdir),
            **dict.fromkeys(("io_uring_setup", "io_submit", "pidfd_getfd"), self._unmodelled),
            "fallocate": self._allocate,
            "ioctl": self._clone_range,
            "lseek": self._seek,
            "close": self._close,
            "mmap": self._map,
            "execve": self._exec,
        }

    def save(self, path: Path) -> None:
        self._out.save(path, self._main, len(self._inodes), self._clean)

    def step(self, entry: Call | Exit) -> None:
        if entry.pid not in self._threads:
            self._main = self._main or entry.pid
            self._leaders.add(entry.pid)
            self._threads[entry.pid] = _Process(entry.pid, self._cwd)
        if isinstance(entry, Exit):
            self._exit(entry)
        elif entry.name in _SYNCS:
            self._sync(entry)
        elif entry.ended and entry.result >= 0 and entry.name in self._steps:
            for text in entry.arguments:
                if text.startswith("-100<"):
                    self._threads[entry.pid].cwd = descriptor_in(text).path
            self._steps[entry.name](entry)

    # -- events

    def _emit(self, call: Call, kind: Kind, data: bytes | None = None, **fields: int) -> int:
        number = _NUMBERS.get(call.name)
        fields["call"] = 0 if number is None else number + 1
        return self._out.event(call.pid, kind, data, self._threads[call.pid].pid, **fields)

    def _define(self, pid: int, mode: int, path: bytes, size: int = 0, existed: bool = False) -> _Inode:
        inode = _Inode(len(self._inodes) + 1, mode, size)
        self._inodes[inode.id] = inode
        if self._copies and inode.is_file:
            inode.data = bytearray()
        first = size if inode.is_file else 0
        self._out.event(pid, Kind.INODE_DEF, path, file=inode.id, aux=mode, flags=int(existed), offset=first)
        return inode

    def _named(
        self, call: Call, kind: Kind, inode: _Inode, place: _Place, second: bytes = b"", flags: int = 0, **names: int
    ) -> None:
        head = np.zeros(1, dtype=fmt.NAMES)
        head["name_bytes"] = len(place.name)
        for name, value in names.items():
            head[name] = value
        data = head.tobytes() + place.name + second
        self._emit(call, kind, data, file=inode.id, folder=place.folder, flags=flags)

    def _note(self, call: Call, what: str, inode: _Inode | None = None) -> None:
        self._emit(call, Kind.UNMODELLED, what.encode(), file=inode.id if inode else 0)

    def _output(self, call: Call, path: bytes, size: int, data: bytes) -> None:
        kind = self._output_kind(path)
        if kind is None:
            return
        if kind is OutputKind.STDOUT:
            self._printed += size
            data = b""
        self._emit(call, Kind.OUTPUT, data[: fmt.OUTPUT_BYTES], aux=int(kind), offset=self._printed)

    def _output_kind(self, path: bytes) -> OutputKind | None:
        if path in self.standard:
            return self.standard[path]
        if path.startswith((b"/dev/pts/", b"/dev/tty")):
            return OutputKind.TERMINAL
        if path in self._private:
            return None
        if path.startswith(b"pipe:["):
            return OutputKind.PIPE
        return OutputKind.SOCKET if path.startswith((b"TCP", b"UDP", b"UNIX")) else None

    # -- names

    def _scan(self) -> None:
        """Ids for what is in the folder at first, each directory's entries in the order of their bytes."""
        known: dict[tuple[int, int], _Inode] = {}
        self._define(0, stat.S_IFDIR | 0o755, b"", existed=True)

        def scan(folder: int, prefix: bytes) -> None:
            for name in sorted(os.listdir(self._first + b"/" + prefix)):
                path = self._first + b"/" + prefix + name
                state = os.lstat(path)
                same = known.get((state.st_dev, state.st_ino))
                if same is None:
                    same = self._define(0, state.st_mode, prefix + name, state.st_size, existed=True)
                    known[state.st_dev, state.st_ino] = same
                else:
                    fields = {"file": same.id, "aux": state.st_mode, "flags": 1, "offset": state.st_size}
                    self._out.event(0, Kind.INODE_DEF, prefix + name, **fields)
                self._entries[folder, name] = same.id
                if stat.S_ISLNK(state.st_mode):
                    same.target = os.readlink(path)
                elif stat.S_ISDIR(state.st_mode):
                    self._above[same.id] = folder, name
                    scan(same.id, prefix + name + b"/")
                elif self._copies and same.is_file and not same.data:
                    small = same.size <= _MOST_KEPT
                    same.data = bytearray(Path(os.fsdecode(path)).read_bytes()) if small else None

        scan(_ROOT, b"")

    def _path_of(self, folder: int, name: bytes) -> bytes:
        parts = [name]
        while folder in self._above:
            folder, part = self._above[folder]
            parts.append(part)
        return b"/".join(reversed(parts))

    def _base(self, call: Call, at: int | None) -> bytes:
        process = self._threads[call.pid]
        if at is None:
            return process.cwd
        given = call.descriptor(at)
        return given.path or process.cwd

    def _place(self, call: Call, at: int | None, which: int, follow: bool = False) -> _Place:
        """Where a path leads: its last directory, with symbolic links followed, and its last name."""
        path = os.path.join(self._base(call, at), call.text(which))
        if path.startswith((b"/proc/self/fd/", b"/dev/fd/")):
            number = path.rpartition(b"/")[2]
            file = self._threads[call.pid].table.get(int(number)) if number.isdigit() else None
            return _Place(0, b"", file.path if file is not None else path)
        return self._resolve(path, follow)

    def _resolve(self, path: bytes, follow: bool = False, depth: int = 0) -> _Place:
        path = path.rstrip(b"/") or b"/"
        above, name = os.path.split(path)
        folder = self._folder(above, depth)
        if not folder or name in (b"", b".", b".."):
            return _Place(0, b"", path)
        inode = self._inodes.get(self._entries.get((folder, name), 0))
        if follow and inode is not None and stat.S_ISLNK(inode.mode) and depth < 40:
            here = os.path.join(self._root, self._path_of(folder, b""))
            return self._resolve(os.path.join(here, inode.target), True, depth + 1)
        return _Place(folder, name, path)

    def _folder(self, path: bytes, depth: int = 0) -> int:
        """The id of a watched directory, 0 if it is none."""
        if path != self._root and not path.startswith(self._root + b"/"):
            path = os.path.realpath(path)
        if path != self._root and not path.startswith(self._root + b"/"):
            return 0
        at = _ROOT
        parts = [part for part in path[len(self._root) :].split(b"/") if part not in (b"", b".")]
        for where, part in enumerate(parts):
            if part == b"..":
                if at == _ROOT:
                    return 0
                at = self._above[at][0]
                continue
            inode = self._inodes.get(self._entries.get((at, part), 0))
            if inode is not None and stat.S_ISLNK(inode.mode) and depth < 40:
                here = os.path.join(self._root, self._path_of(at, b""))
                return self._folder(os.path.join(here, inode.target, *parts[where + 1 :]), depth + 1)
            if inode is None or not stat.S_ISDIR(inode.mode):
                return 0
            at = inode.id
        return at

    def _inode_at(self, path: bytes) -> _Inode | None:
        folder = self._folder(path) if path == self._root else 0
        if folder:
            return self._inodes[folder]
        place = self._resolve(path, follow=True)
        return self._inodes.get(self._entries.get((place.folder, place.name), 0))

    def _set(self, place: _Place, inode: _Inode) -> None:
        self._entries[place.folder, place.name] = inode.id
        if stat.S_ISDIR(inode.mode):
            self._above[inode.id] = place.folder, place.name

    # -- descriptors

    def _opened(self, call: Call, at: int) -> _Open:
        """What a descriptor is open on. One that came unseen (inherited, or passed) is known by its path alone."""
        given = call.descriptor(at)
        table = self._threads[call.pid].table
        known = table.get(given.number)
        if known is not None and (self._fits(known.inode, given) if known.inode else known.path == given.path):
            return known
        inode = None if given.deleted else self._inode_at(given.path)
        table[given.number] = _Open(given.path, inode)
        return table[given.number]

    def _fits(self, inode: _Inode, given: Descriptor) -> bool:
        return given.deleted or self._inode_at(given.path) in (inode, None)

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
        inode = None if given.deleted else self._inode_at(given.path)
        table = self._threads[call.pid].table
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            if self._folder(os.path.dirname(given.path)):
                inode = self._define(call.pid, stat.S_IFREG | mode, b"")
        elif inode is None and flags & os.O_CREAT:
            place = self._resolve(given.path)
            if place.folder:
                inode = self._define(call.pid, stat.S_IFREG | mode & ~0o22, self._path_of(place.folder, place.name))
                exclusive = int(CreateFlag.EXCLUSIVE) if flags & os.O_EXCL else 0
                self._named(call, Kind.NAME_CREATE, inode, place, flags=exclusive)
                self._set(place, inode)
        elif inode is not None and inode.is_file and flags & os.O_TRUNC:
            self._resize(call, inode, 0)
        table[given.number] = _Open(given.path, inode, flags)

    def _close(self, call: Call) -> None:
        self._threads[call.pid].table.pop(call.descriptor(0).number, None)

    def _dup(self, call: Call) -> None:
        if call.name == "fcntl" and call.number(1) not in (0, 0x406):
            return
        self._threads[call.pid].table[descriptor_in(call.returned).number] = self._opened(call, 0)

    def _pair(self, call: Call) -> None:
        ends = call.arguments[3 if call.name == "socketpair" else 0]
        self._private.update(descriptor_in(end.strip()).path for end in ends.strip("[]").split(", "))

    def _seek(self, call: Call) -> None:
        self._opened(call, 0).position = call.result

    def _read(self, call: Call) -> None:
        self._opened(call, 0).position += call.result

    def _chdir(self, call: Call) -> None:
        process = self._threads[call.pid]
        process.cwd = call.descriptor(0).path if call.name == "fchdir" else self._canonical(process.cwd, call.text(0))

    def _canonical(self, cwd: bytes, path: bytes) -> bytes:
        return os.path.realpath(os.path.join(cwd, path))

    # -- processes

    def _fork(self, call: Call) -> None:
        parent, child = self._threads[call.pid], call.result
        flags = _of_struct(",".join(call.arguments), "flags")
        earlier = self._threads.get(child)  # it may have run before this call returned
        if flags & _CLONE_THREAD:
            self._threads[child] = parent
            self._leaders.discard(child)
        else:
            table = parent.table if flags & _CLONE_FILES else dict(parent.table)
            self._threads[child] = _Process(child, parent.cwd, {**table, **earlier.table} if earlier else table)
            self._leaders.add(child)
            self._emit(call, Kind.FORK, payload=child)

    def _exec(self, call: Call) -> None:
        self._emit(call, Kind.EXEC, call.text(0))

    def _exit(self, end: Exit) -> None:
        if end.pid not in self._leaders:
            return
        clean = end.pid == self._main and not end.killed
        self._clean = self._clean or clean
        self._out.event(end.pid, Kind.EXIT, process=end.pid, aux=int(clean), offset=end.status)

    def _unmodelled(self, call: Call) -> None:
        noted = self._threads[call.pid].noted
        if call.name not in noted:
            self._note(call, call.name.removesuffix("_setup"))
        noted.add(call.name)

    # -- content

    def _resize(self, call: Call, inode: _Inode, size: int) -> None:
        self._emit(call, Kind.TRUNCATE, file=inode.id, offset=size)
        inode.resize(size)

    def _put(self, call: Call, inode: _Inode, offset: int, data: bytes, flags: int = 0) -> None:
        self._emit(call, Kind.WRITE, data, file=inode.id, offset=offset, flags=flags)
        inode.resize(max(inode.size, offset + len(data)))
        if inode.data is not None:
            inode.data[offset : offset + len(data)] = data

    def _write(self, call: Call) -> None:
        size, file = call.result, self._opened(call, 0)
        vectored = call.name in ("writev", "pwritev", "pwritev2")
        data = (parts_of(call.arguments[1]) if vectored else call.text(1))[:size]
        if file.inode is None or not file.inode.is_file:
            if size > 0:
                self._output(call, file.path, size, data)
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
                self._note(call, "a write that strace printed in part", file.inode)
            self._put(call, file.inode, offset, data, int(shown))
            wanted = file.flags | (os.O_SYNC if rwf & _RWF_SYNC else os.O_DSYNC if rwf & _RWF_DSYNC else 0)
            self._synced(call, file.inode, offset, size, wanted)

    def _synced(self, call: Call, inode: _Inode, offset: int, size: int, flags: int) -> None:
        """The sync that a write brings."""
        if not flags & os.O_DSYNC:
            return
        kind = SyncKind.OSYNC if flags & os.O_SYNC == os.O_SYNC else SyncKind.ODSYNC
        fields = {"aux": int(kind), "file": inode.id, "offset": offset, "size": size}
        begun = self._emit(call, Kind.SYNC_BEGIN, None, **fields)
        self._emit(call, Kind.SYNC_END, None, **fields, payload=begun)

    def _copy(self, call: Call) -> None:
        """copy_file_range, splice and sendfile: the bytes of the source as replayed."""
        size = call.result
        sends = call.name == "sendfile"
        source, target = self._opened(call, 1 if sends else 0), self._opened(call, 0 if sends else 2)
        where = call.arguments[2 if sends else 1]
        start = source.position if where == "NULL" else _pointed(where)
        if where == "NULL":
            source.position += size
        if target.inode is None or not target.inode.is_file:
            if size > 0:
                self._output(call, target.path, size, b"")
            return
        there = "NULL" if sends else call.arguments[3]
        offset = target.position if there == "NULL" else _pointed(there)
        if there == "NULL":
            target.position += size
        if size > 0:
            self._put_copy(call, source, start, target.inode, offset, size)
            self._synced(call, target.inode, offset, size, target.flags)

    def _put_copy(self, call: Call, source: _Open, start: int, inode: _Inode, offset: int, size: int) -> None:
        data = b""
        if source.inode is not None:
            data = bytes((source.inode.data or b"")[start : start + size])
        elif source.path.startswith(b"/") and os.path.isfile(source.path):
            with open(source.path, "rb") as file:
                file.seek(start)
                data = file.read(size)
        if len(data) < size:
            self._note(call, f"{call.name} from a source that strace does not show", inode)
        if data:
            self._put(call, inode, offset, data)

    def _clone_range(self, call: Call) -> None:
        if call.number(1) not in _FICLONES or call.result != 0:
            return
        target = self._opened(call, 0)
        if target.inode is not None:
            self._note(call, "a reflink", target.inode)

    def _truncate(self, call: Call) -> None:
        if call.name == "ftruncate":
            inode = self._opened(call, 0).inode
        else:
            place = self._place(call, None, 0, follow=True)
            inode = self._inodes.get(self._entries.get((place.folder, place.name), 0))
        if inode is not None and inode.is_file:
            self._resize(call, inode, call.number(1))

    def _allocate(self, call: Call) -> None:
        inode = self._opened(call, 0).inode
        if inode is None:
            return
        mode, offset, size = (call.number(at) for at in (1, 2, 3))
        self._emit(call, Kind.ALLOCATE, file=inode.id, aux=mode, offset=offset, payload=size)
        if inode.data is not None and mode & 0x12:
            end = min(offset + size, len(inode.data))
            inode.data[offset:end] = bytes(max(end - offset, 0))
        moved = {8: -size, 32: size}.get(mode, 0)
        if moved or (not mode & 1 and offset + size > inode.size):
            self._resize(call, inode, inode.size + moved if moved else offset + size)

    def _map(self, call: Call) -> None:
        if call.number(3) & 1 and call.number(2) & 2 and "<" in call.arguments[4]:
            inode = self._opened(call, 4).inode
            if inode is not None:
                self._note(call, "stores through a mapping, which strace does not show", inode)

    def _send(self, call: Call) -> None:
        data = call.text(1) if call.name == "sendto" else parts_of(call.arguments[1])
        if call.result > 0:
            self._output(call, call.descriptor(0).path, call.result, data)

    def _sync(self, call: Call) -> None:
        kind = _SYNCS[call.name]
        file = 0
        if kind is not SyncKind.SYNC:
            inode = self._opened(call, 0).inode
            if inode is None or not (inode.is_file or stat.S_ISDIR(inode.mode)):
                return
            file = inode.id
        fields = {"aux": int(kind), "file": file}
        if kind is SyncKind.SYNC_RANGE:
            if not call.ended:
                return  # it orders nothing
            fields |= {"offset": call.number(1), "size": min(call.number(2), 2**32 - 1)}
        begun = self._begun.pop(call.pid, 0) or self._emit(call, Kind.SYNC_BEGIN, None, **fields)
        if call.ended:
            self._emit(call, Kind.SYNC_END, None, **fields, payload=begun, flags=int(call.result < 0))
        else:
            self._begun[call.pid] = begun

    # -- changes of names

    def _make(self, call: Call) -> None:
        at = call.name.endswith("at")
        place = self._place(call, 0 if at else None, int(at))
        if place.folder:
            folder = call.name.startswith("mkdir")
            given = call.number(1 + at)
            mode = stat.S_IFDIR | given & ~0o22 if folder else given if stat.S_IFMT(given) else stat.S_IFREG | given
            inode = self._define(call.pid, mode, self._path_of(place.folder, place.name))
            self._named(call, Kind.NAME_MKDIR if folder else Kind.NAME_CREATE, inode, place)
            self._set(place, inode)

    def _symlink(self, call: Call) -> None:
        at = call.name.endswith("at")
        place = self._place(call, 1 if at else None, 1 + at)
        if place.folder:
            inode = self._define(call.pid, stat.S_IFLNK | 0o777, self._path_of(place.folder, place.name))
            inode.target = call.text(0)
            self._named(call, Kind.NAME_SYMLINK, inode, place, inode.target)
            self._set(place, inode)

    def _link(self, call: Call) -> None:
        at = call.name == "linkat"
        place = self._place(call, 2 if at else None, 3 if at else 1)
        if not place.folder:
            return
        source = self._place(call, 0 if at else None, int(at), follow=at and bool(call.number(4) & 0x400))
        inode = self._inodes.get(self._entries.get((source.folder, source.name), 0))
        if inode is None:
            opened = [file for file in self._threads[call.pid].table.values() if file.path == source.full]
            inode = opened[0].inode if opened else None
        if inode is None:
            inode = self._arrived(call, place)
        self._named(call, Kind.NAME_LINK, inode, place)
        self._set(place, inode)

    def _arrived(self, call: Call, place: _Place) -> _Inode:
        inode = self._define(call.pid, stat.S_IFREG | 0o644, self._path_of(place.folder, place.name))
        self._note(call, "a file from outside of the folder", inode)
        return inode

    def _unlink(self, call: Call) -> None:
        at = call.name == "unlinkat"
        place = self._place(call, 0 if at else None, int(at))
        if not place.folder:
            self._emit(
                call, Kind.OUTPUT, place.full[: fmt.OUTPUT_BYTES], aux=int(OutputKind.NAME), offset=self._printed
            )
            return
        inode = self._inodes.get(self._entries.pop((place.folder, place.name), 0))
        if inode is not None:
            folder = call.name == "rmdir" or (at and bool(call.number(2) & 0x200))
            self._named(call, Kind.NAME_RMDIR if folder else Kind.NAME_UNLINK, inode, place)

    def _rename(self, call: Call) -> None:
        at = call.name != "rename"
        old = self._place(call, 0 if at else None, int(at))
        new = self._place(call, 2 if at else None, 3 if at else 1)
        if not old.folder and not new.folder:
            self._emit(call, Kind.OUTPUT, old.full[: fmt.OUTPUT_BYTES], aux=int(OutputKind.NAME), offset=self._printed)
            return
        moved = self._inodes.get(self._entries.get((old.folder, old.name), 0)) if old.folder else None
        replaced = self._inodes.get(self._entries.get((new.folder, new.name), 0)) if new.folder else None
        exchange = call.name == "renameat2" and call.number(4) & 2
        if exchange and (moved is None or replaced is None):
            self._note(call, "exchange with the outside")
            return
        if moved is None:
            moved = self._arrived(call, new)
        elif moved is replaced:
            return
        kind = Kind.NAME_EXCHANGE if exchange else Kind.NAME_RENAME
        names = {"to_folder": new.folder, "replaced": replaced.id if replaced is not None else 0}
        here = _Place(old.folder, old.name if old.folder else b"", old.full)
        self._named(call, kind, moved, here, new.name if new.folder else b"", **names)
        if old.folder:
            self._entries.pop((old.folder, old.name), None)
        if new.folder:
            self._set(new, moved)
        if exchange and replaced is not None:
            self._set(old, replaced)


_SYNCS = {
    "fsync": SyncKind.FSYNC,
    "fdatasync": SyncKind.FDATASYNC,
    "sync_file_range": SyncKind.SYNC_RANGE,
    "sync": SyncKind.SYNC,
    "syncfs": SyncKind.SYNC,
}


def _of_struct(text: str, key: str) -> int:
    """A number in `{flags=0x100|17, mode=0}`; 0 where it is not there."""
    return flags_of(text.partition(f"{key}=")[2].split(",")[0].rstrip("}"))


def _pointed(text: str) -> int:
    """The number before the call, of `[0]` or `[0] => [5]`."""
    return int(text.partition("]")[0].lstrip("["))
