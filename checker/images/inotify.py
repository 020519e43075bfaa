"""Watching an image folder for changes, so that an untouched one need not be compared."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_IN_MODIFY = 0x2
_IN_ATTRIB = 0x4
_IN_CLOSE_WRITE = 0x8
_IN_OPEN = 0x20
_IN_NAMES = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800  # moved from/to, create, delete, delete self, move self
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x1000000
_MASK = _IN_MODIFY | _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_NAMES
_OF_FILES = _IN_MODIFY | _IN_CLOSE_WRITE | _IN_OPEN  # events that concern the content of one file
_HEADER = struct.Struct("iIII")
_READ_BYTES, _LONGEST = 65536, _HEADER.size + 256  # of reports that are read at once, and of one

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ChangedPaths:
    """What may have changed: `written` are paths relative to the root; `everything`: compare the whole folder."""

    written: frozenset[str]
    everything: bool

    def __bool__(self) -> bool:
        return self.everything or bool(self.written)


class Watch:
    """inotify on a folder tree.

    Why silence proves that nothing changed: bytes change only through a descriptor or a shared
    mapping whose file was opened for writing, and the kernel reports IN_CLOSE_WRITE when the last
    reference to such an open file goes, a mapping's included, which is before its process can be
    reaped; truncation by path reports IN_MODIFY, names and modes their own events. The caller must
    have reaped every process that could hold the files. `works()` tries this on the file system.
    """

    def __init__(self, *, opens: bool = False) -> None:
        """`opens`: that something was opened is reported as a change, too. Raises OSError without inotify."""
        self._mask = _MASK | _IN_ONLYDIR | (_IN_OPEN if opens else 0)
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._folders: dict[int, str] = {}

    def cover(self, root: Path, folders: Iterable[str]) -> None:
        """Watch these folders (relative to root, "" is root itself); those already watched stay so."""
        for folder in folders:
            wd = _libc.inotify_add_watch(self._fd, os.fsencode(root / folder), self._mask)
            if wd < 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(root / folder))
            self._folders[wd] = folder

    def changes(self) -> ChangedPaths:
        """Everything reported since the last call."""
        written: set[str] = set()
        everything = False
        for data in self._reports():
            at = 0
            while at < len(data):
                wd, mask, _, length = _HEADER.unpack_from(data, at)
                name = os.fsdecode(data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0"))
                at += _HEADER.size + length
                if mask & _IN_IGNORED:
                    self._folders.pop(wd, None)
                if mask & ~_OF_FILES or wd not in self._folders:
                    everything = True
                else:
                    folder = self._folders[wd]
                    written.add(f"{folder}/{name}" if folder else name)
        return ChangedPaths(frozenset(written), everything)

    def skip(self) -> None:
        """What was reported since the last call does not matter: it was done by whoever asks."""
        for _ in self._reports():
            pass

    def _reports(self) -> Iterator[bytes]:
        more = True
        while more:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            more = len(data) + _LONGEST > _READ_BYTES
            yield data

    def close(self) -> None:
        os.close(self._fd)


def works(folder: Path) -> bool:
    """Whether a write through a mapping, closed, is reported in `folder`; leaves nothing behind."""
    probe = folder / "watch-probe"
    probe.mkdir()
    try:
        watch = Watch()
    except OSError:
        probe.rmdir()
        return False
    try:
        path = probe / "file"
        path.write_bytes(bytes(mmap.PAGESIZE))
        watch.cover(probe, [""])
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        mapping = mmap.mmap(fd, mmap.PAGESIZE)
        os.close(fd)
        watch.changes()
        mapping[0] = 1
        mapping.close()
        by_mapping = bool(watch.changes())
        os.truncate(path, 1)
        by_path = bool(watch.changes())
        with path.open("rb") as file:
            file.read()
        silent = not watch.changes()
        path.unlink()
        return by_mapping and by_path and silent
    except OSError:
        return False
    finally:
        watch.close()
        for left in probe.iterdir():
            left.unlink()
        probe.rmdir()
