"""What system calls did to names: one value per event of a trace that was recorded with ptrace.

Updates of content are rows of `Trace.events` as always (WRITE, STORE, TRUNCATE, ALLOCATE, CONTENT), and so are syncs.
Their `file` is an inode's id (`Trace.inodes`). A `folder` of 0 is outside of the watched folder.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from crashcheck.analyzer.trace.reader import ROOT, Inode, Trace
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import NAME_KINDS, Kind


@dataclass(frozen=True, slots=True)
class NameEvent:
    """What all events about names have: `inode` has, gets or loses the name `name` in the directory `folder`."""

    event: int  # index in Trace.events
    inode: int
    folder: int  # the id of its inode
    name: str  # bytes that are no UTF-8 as surrogates, as os.fsdecode makes them


@dataclass(frozen=True, slots=True)
class Create(NameEvent):
    """A file came into being: open with O_CREAT, mknod, bind."""


@dataclass(frozen=True, slots=True)
class Link(NameEvent):
    """An inode got another name, or, if it was opened with O_TMPFILE, its first."""


@dataclass(frozen=True, slots=True)
class Unlink(NameEvent):
    """A name of a file was removed; the file itself with its last name."""


@dataclass(frozen=True, slots=True)
class MakeFolder(NameEvent):
    """A directory came into being."""


@dataclass(frozen=True, slots=True)
class RemoveFolder(NameEvent):
    """A directory was removed."""


@dataclass(frozen=True, slots=True)
class Symlink(NameEvent):
    """A symbolic link came into being."""

    target: str


@dataclass(frozen=True, slots=True)
class Rename(NameEvent):
    """`inode` lost a name and got another. `folder` 0: it came from outside; `to_folder` 0: it went outside.

    What came from outside was defined before, with the names below it if it is a directory, and its content
    (Kind.CONTENT).
    """

    to_folder: int
    to_name: str
    replaced: int  # the inode that lost the second name by it, or 0


@dataclass(frozen=True, slots=True)
class RenameExchange(NameEvent):
    """`inode` and `other` exchanged their names: `inode` has `to_name` now, and `other` has `name`."""

    to_folder: int
    to_name: str
    other: int


@dataclass(frozen=True, slots=True)
class Allocate:
    """fallocate of a range. A size that it changed is the TRUNCATE that follows.

    COLLAPSE_RANGE and INSERT_RANGE move what is behind the range.
    """

    event: int
    inode: int
    offset: int
    size: int
    mode: int  # FALLOC_FL_*; 0: blocks are reserved, no byte changes

    KEEP_SIZE: ClassVar[int] = 1
    PUNCH_HOLE: ClassVar[int] = 2
    COLLAPSE_RANGE: ClassVar[int] = 8
    ZERO_RANGE: ClassVar[int] = 16
    INSERT_RANGE: ClassVar[int] = 32


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A call that was made to fail: it did nothing."""

    event: int
    call: str  # as [[faults]] has it: "write" for pwrite64, too
    path: str  # of the file that it concerns; "" if it has no name
    error: str  # "EIO"


_PLAIN: dict[int, type[NameEvent]] = {
    Kind.NAME_CREATE: Create,
    Kind.NAME_LINK: Link,
    Kind.NAME_UNLINK: Unlink,
    Kind.NAME_MKDIR: MakeFolder,
    Kind.NAME_RMDIR: RemoveFolder,
}


def name_event(trace: Trace, index: int) -> NameEvent:
    """The event `index`, whose kind is one of NAME_KINDS."""
    event, data = trace.events[index], trace.data(index)
    names = np.frombuffer(data[: fmt.NAMES.itemsize], fmt.NAMES)[0]
    rest = data[fmt.NAMES.itemsize :]
    first, second = os.fsdecode(rest[: int(names["name_bytes"])]), os.fsdecode(rest[int(names["name_bytes"]) :])
    head = (index, int(event["file"]), int(event["folder"]), first)
    kind = int(event["kind"])
    if kind in _PLAIN:
        return _PLAIN[kind](*head)
    if kind == Kind.NAME_SYMLINK:
        return Symlink(*head, second)
    two = Rename if kind == Kind.NAME_RENAME else RenameExchange
    return two(*head, int(names["to_folder"]), second, int(names["replaced"]))


_NAME_EVENTS: WeakKeyDictionary[Trace, tuple[NameEvent, ...]] = WeakKeyDictionary()  # of files there may be 10^5


def name_events(trace: Trace) -> tuple[NameEvent, ...]:
    """All events about names, in order."""
    if trace not in _NAME_EVENTS:
        where = trace.rows(*NAME_KINDS)
        _NAME_EVENTS[trace] = tuple(name_event(trace, index) for index in where.tolist())
    return _NAME_EVENTS[trace]


def allocations(trace: Trace) -> Iterator[Allocate]:
    """All calls of fallocate, in order."""
    for index in trace.rows(Kind.ALLOCATE).tolist():
        event = trace.events[index]
        yield Allocate(index, int(event["file"]), int(event["offset"]), int(event["payload"]), int(event["aux"]))


def injected_faults(trace: Trace) -> Iterator[InjectedFault]:
    """All calls that were made to fail, in order."""
    for index in trace.rows(Kind.FAULT).tolist():
        call, _, path = trace.data(index).partition(b"\0")
        number = int(trace.events["aux"][index])
        yield InjectedFault(
            index, call.decode("utf-8", "replace"), os.fsdecode(path), errno.errorcode.get(number, str(number))
        )


def paths_by_inode(paths: Mapping[str, int]) -> dict[int, list[str]]:
    """The names of each file, in the order of `paths`."""
    out: dict[int, list[str]] = {}
    for path, inode in paths.items():
        out.setdefault(inode, []).append(path)
    return out


@dataclass(slots=True)
class Names:
    """The names of a folder at one moment: the inode of each (directory, name)."""

    entries: dict[tuple[int, str], int] = field(default_factory=dict)

    @staticmethod
    def first(trace: Trace) -> Names:
        """What was there when recording began."""
        folders = {path: inode.id for inode in trace.inodes.values() if inode.is_folder for path in _first_paths(inode)}
        names = Names()
        for inode in trace.inodes.values():
            for path in _first_paths(inode):
                folder, _, name = path.rpartition("/")
                if inode.id != ROOT and folder in folders:
                    names.entries[folders[folder], name] = inode.id
        return names

    def apply(self, event: NameEvent) -> None:
        """The names after an event."""
        here = event.folder, event.name
        match event:
            case Rename():
                if event.folder:
                    self.entries.pop(here, None)
                if event.to_folder:
                    self.entries[event.to_folder, event.to_name] = event.inode
            case RenameExchange():
                self.entries[here] = event.other
                self.entries[event.to_folder, event.to_name] = event.inode
            case Unlink() | RemoveFolder():
                self.entries.pop(here, None)
            case _:
                self.entries[here] = event.inode

    def paths(self) -> dict[str, int]:
        """The inode of each path that is reached from the watched folder, without the folder itself."""
        below: dict[int, list[tuple[str, int]]] = {}
        for (folder, name), inode in self.entries.items():
            below.setdefault(folder, []).append((name, inode))
        out: dict[str, int] = {}
        todo = [("", ROOT)]
        while todo:
            prefix, folder = todo.pop()
            for name, inode in below.pop(folder, ()):  # once, even where a damaged trace has it within itself
                out[prefix + name] = inode
                if inode in below:
                    todo.append((f"{prefix}{name}/", inode))
        return out


def _first_paths(inode: Inode) -> tuple[str, ...]:
    return inode.paths if inode.existed else ()
