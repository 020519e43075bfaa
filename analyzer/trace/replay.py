"""Replays all recorded system calls onto the first image, and compares names and bytes with the final one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.trace import calls
from crashcheck.analyzer.trace.accesses import Events
from crashcheck.analyzer.trace.calls import Allocate, Names
from crashcheck.analyzer.trace.completeness import Completeness, FileCompleteness, FileReplay
from crashcheck.analyzer.trace.reader import Inode, Trace
from crashcheck.runtime.trace_format import Kind

CONTENT = np.array([Kind.WRITE, Kind.STORE, Kind.CONTENT, Kind.TRUNCATE, Kind.ALLOCATE], dtype=np.uint8)
_WRITES = np.zeros(256, dtype=np.bool_)  # by kind: of few events isin takes ten times as long
_WRITES[[Kind.WRITE, Kind.STORE]] = True


def replay(trace: Trace, first: Path) -> tuple[dict[str, int], dict[int, FileReplay], dict[int, str]]:
    """(inode by path, content by inode, target by inode of symbolic links) after the last event."""
    names = Names.first(trace)
    contents = {number: FileReplay(file, first / file.path) for number, file in trace.files.items()}
    targets = {
        inode.id: _target(first / inode.paths[0])
        for inode in trace.inodes.values()
        if inode.is_symlink and inode.existed
    }
    for change in calls.name_events(trace):
        names.apply(change)
        if isinstance(change, calls.Symlink):
            targets[change.inode] = change.target
    for file, rows in by_file(trace, np.flatnonzero(np.isin(trace.events["kind"], CONTENT))):
        replay_file(trace, contents[file], rows)
    return names.paths(), contents, targets


def by_file(trace: Trace, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Some events, by their file."""
    if len(rows) == 1:  # of a run over thousands of files most calls write one
        yield int(trace.events["file"][rows[0]]), rows
        return
    files = trace.events["file"][rows].astype(np.int64)
    order = np.argsort(files, kind="stable")
    for mine in np.split(rows[order], np.flatnonzero(np.diff(files[order])) + 1) if len(rows) else ():
        yield int(trace.events["file"][mine[0]]), mine


def writes(events: Events) -> NDArray[np.bool_]:
    """Which events are writes and stores."""
    chosen: NDArray[np.bool_] = _WRITES[events["kind"]]
    return chosen


def replay_file(trace: Trace, content: FileReplay, rows: NDArray[np.int64]) -> None:
    """Take the events of one file, in order; writes that follow one another all at once."""
    written = writes(trace.events[rows])
    alone = ~written | np.concatenate([[True], ~written[:-1]])
    for some in np.split(rows, np.flatnonzero(alone)[1:]) if len(rows) > 1 else (rows,):
        event = trace.events[some[0]]
        kind, offset = int(event["kind"]), int(event["offset"])
        if kind == Kind.TRUNCATE:
            content.truncate(offset)
        elif kind == Kind.ALLOCATE:
            _allocate(content, offset, int(event["payload"]), int(event["aux"]))
        elif kind == Kind.CONTENT:
            data = trace.data(int(some[0]))
            content.write(offset, data)
            content.size = max(content.size, offset + len(data))
        else:
            content.write_all(trace, some)


def _target(link: Path) -> str:
    """Where a symbolic link leads; nowhere if the first image lacks it, as a file that is not there is empty."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _allocate(content: FileReplay, offset: int, size: int, mode: int) -> None:
    """COLLAPSE_RANGE and INSERT_RANGE are left out, as in crash images: what they move is not accounted for."""
    if mode & (Allocate.PUNCH_HOLE | Allocate.ZERO_RANGE):
        content.zero(offset, min(offset + size, content.size))


def check(trace: Trace, first: Path, final: Path) -> Completeness:
    """Compare every name below `final`, and the bytes of every file, with the replay onto `first`."""
    paths, contents, targets = replay(trace, first)
    found = sorted({*paths, *_below(final)}, key=os.fsencode)
    return Completeness(tuple(_compare(trace, final, path, paths.get(path), contents, targets) for path in found))


def _below(folder: Path) -> list[str]:
    out = []
    todo = [""]
    while todo:
        prefix = todo.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                out.append(prefix + entry.name)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(f"{prefix}{entry.name}/")
    return out


def _compare(
    trace: Trace,
    final: Path,
    path: str,
    number: int | None,
    contents: dict[int, FileReplay],
    targets: dict[int, str],
) -> FileCompleteness:
    there = final / path
    inode = trace.inodes[number] if number is not None else None
    same_type = inode is not None and os.path.lexists(there) and _type(inode) == stat.S_IFMT(there.lstat().st_mode)
    if inode is None or not same_type:
        return FileCompleteness(path, 0, 0, (), os.path.lexists(there), inode is not None, 0, 0)
    if inode.is_file:
        contents[inode.id].exists = True  # it has a name
        return contents[inode.id].compare(there, path)
    wrong: tuple[tuple[int, int], ...] = ()
    if inode.is_symlink:
        target = os.readlink(there)
        wrong = ((0, len(os.fsencode(target))),) if target != targets[inode.id] else ()
    return FileCompleteness(path, 0, sum(high - low for low, high in wrong), wrong, True, True, 0, 0)


def _type(inode: Inode) -> int:
    return stat.S_IFMT(inode.mode)
