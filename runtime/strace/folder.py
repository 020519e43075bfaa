"""The watched folder while strace's lines are replayed: its inodes, and what each name leads to."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from crashcheck.runtime.strace.trace_writer import TraceWriter
from crashcheck.runtime.trace_format import InodeFlag, Kind

_MOST_KEPT = 256 << 20  # of a file's content, for copies; a sparse file may have any size
_ROOT = 1


@dataclass(slots=True)
class Inode:
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


@dataclass(frozen=True, slots=True)
class Place:
    """A name in a directory; `folder` 0: outside."""

    folder: int
    name: bytes
    full: bytes


class Folder:
    """Inodes and names, as they are at the line that is replayed."""

    def __init__(self, root: Path, first: Path, out: TraceWriter, copies: bool) -> None:
        self._root, self._first = os.fsencode(root.resolve()), os.fsencode(first)
        self._out = out
        self._copies = copies  # whether calls may ask for the content of files
        self.inodes: dict[int, Inode] = {}
        self.entries: dict[tuple[int, bytes], int] = {}
        self._above: dict[int, tuple[int, bytes]] = {}  # of each directory its own entry
        self._scan()

    def at(self, place: Place) -> Inode | None:
        """What has this name."""
        return self.inodes.get(self.entries.get((place.folder, place.name), 0))

    def define(self, pid: int, mode: int, path: bytes, size: int = 0, flags: int = 0) -> Inode:
        inode = Inode(len(self.inodes) + 1, mode, size)
        self.inodes[inode.id] = inode
        if self._copies and inode.is_file:
            inode.data = bytearray()
        first = size if inode.is_file else 0
        self._out.event(pid, Kind.INODE_DEF, path, file=inode.id, aux=mode, flags=flags, offset=first)
        return inode

    def _scan(self) -> None:
        """Ids for what is in the folder at first, each directory's entries in the order of their bytes."""
        known: dict[tuple[int, int], Inode] = {}
        self.define(0, stat.S_IFDIR | 0o755, b"", flags=InodeFlag.EXISTED)

        def scan(folder: int, prefix: bytes) -> None:
            for name in sorted(os.listdir(self._first + b"/" + prefix)):
                path = self._first + b"/" + prefix + name
                state = os.lstat(path)
                same = known.get((state.st_dev, state.st_ino))
                if same is None:
                    same = self.define(0, state.st_mode, prefix + name, state.st_size, _flags(path, state))
                    known[state.st_dev, state.st_ino] = same
                else:
                    fields = {
                        "file": same.id,
                        "aux": state.st_mode,
                        "flags": int(InodeFlag.EXISTED),
                        "offset": state.st_size,
                    }
                    self._out.event(0, Kind.INODE_DEF, prefix + name, **fields)
                self.entries[folder, name] = same.id
                if stat.S_ISLNK(state.st_mode):
                    same.target = os.readlink(path)
                elif stat.S_ISDIR(state.st_mode):
                    self._above[same.id] = folder, name
                    scan(same.id, prefix + name + b"/")
                elif self._copies and same.is_file and not same.data:
                    small = same.size <= _MOST_KEPT
                    same.data = bytearray(Path(os.fsdecode(path)).read_bytes()) if small else None

        scan(_ROOT, b"")

    def path_of(self, folder: int, name: bytes) -> bytes:
        parts = [name]
        while folder in self._above:
            folder, part = self._above[folder]
            parts.append(part)
        return b"/".join(reversed(parts))

    def resolve(self, path: bytes, follow: bool = False, depth: int = 0) -> Place:
        path = path.rstrip(b"/") or b"/"
        above, name = os.path.split(path)
        folder = self.folder_id(above, depth)
        if not folder or name in (b"", b".", b".."):
            return Place(0, b"", path)
        inode = self.inodes.get(self.entries.get((folder, name), 0))
        if follow and inode is not None and stat.S_ISLNK(inode.mode) and depth < 40:
            here = os.path.join(self._root, self.path_of(folder, b""))
            return self.resolve(os.path.join(here, inode.target), True, depth + 1)
        return Place(folder, name, path)

    def folder_id(self, path: bytes, depth: int = 0) -> int:
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
            inode = self.inodes.get(self.entries.get((at, part), 0))
            if inode is not None and stat.S_ISLNK(inode.mode) and depth < 40:
                here = os.path.join(self._root, self.path_of(at, b""))
                return self.folder_id(os.path.join(here, inode.target, *parts[where + 1 :]), depth + 1)
            if inode is None or not stat.S_ISDIR(inode.mode):
                return 0
            at = inode.id
        return at

    def inode_at(self, path: bytes) -> Inode | None:
        folder = self.folder_id(path) if path == self._root else 0
        if folder:
            return self.inodes[folder]
        place = self.resolve(path, follow=True)
        return self.at(place)

    def enter(self, place: Place, inode: Inode) -> None:
        """Raises ValueError for a directory that would be within itself."""
        self.entries[place.folder, place.name] = inode.id
        if stat.S_ISDIR(inode.mode):
            self._above[inode.id] = place.folder, place.name
            above = place.folder
            while above in self._above:
                if above == inode.id:
                    raise ValueError(f"{os.fsdecode(place.full)} would be within itself")
                above = self._above[above][0]


def _flags(path: bytes, state: os.stat_result) -> InodeFlag:
    """Of what is there at first. A file that cannot be read is taken to have holes."""
    if not stat.S_ISREG(state.st_mode) or not state.st_size:
        return InodeFlag.EXISTED
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return InodeFlag.EXISTED
    try:
        dense = os.lseek(fd, 0, os.SEEK_HOLE) >= state.st_size
    finally:
        os.close(fd)
    return InodeFlag.EXISTED | InodeFlag.DENSE if dense else InodeFlag.EXISTED
