"""Compares the final image with the first image plus all traced updates: bytes that differ were not recorded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among, ranges, unique
from crashcheck.analyzer.trace.accesses import payload_of, payloads_of
from crashcheck.analyzer.trace.calls import Allocate, allocations
from crashcheck.analyzer.trace.reader import Trace, WatchedFile
from crashcheck.runtime.sparse import extents
from crashcheck.runtime.trace_format import Kind, Recorder

BLOCK = 1 << 16
_AT_ONCE = 1 << 22  # bytes of writes that are replayed together
_BLOCKS_AT_ONCE = 1024
_FEW = 16  # so many writes are replayed faster one by one
_UPDATES = (Kind.STORE, Kind.WRITE, Kind.TRUNCATE, Kind.CREATE, Kind.UNLINK, Kind.RENAME)


@dataclass(frozen=True, slots=True)
class FileCompleteness:
    """One file: how the replay of its traced updates onto the first image compares with the final image."""

    path: str
    explained_bytes: int  # bytes that changed between the images and that the replay has right
    unexplained_bytes: int
    unexplained: tuple[tuple[int, int], ...]  # maximal ranges [low, high) in which the replay is wrong
    exists: bool  # in the final image
    replayed_exists: bool
    size: int  # in the final image
    replayed_size: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """All watched files, by path."""

    files: tuple[FileCompleteness, ...]

    @property
    def explained_bytes(self) -> int:
        return sum(file.explained_bytes for file in self.files)

    @property
    def unexplained_bytes(self) -> int:
        return sum(file.unexplained_bytes for file in self.files)

    @property
    def whole(self) -> bool:
        """Every byte, size and name of the final image follows from the trace."""
        return all(
            not file.unexplained and file.exists == file.replayed_exists and file.size == file.replayed_size
            for file in self.files
        )

    @property
    def unexplained(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """By path, the ranges that something untraced wrote; only files that have some."""
        return {file.path: file.unexplained for file in self.files if file.unexplained}


_RANGES_SHOWN = 3


def causes(trace: Trace, completeness: Completeness, notes: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One line per file that the trace does not account for: which bytes, and what is known of the cause.

    `notes` are the recorder's (reason, path).
    """
    called: dict[int, set[str]] = {}
    for index in trace.rows(Kind.UNMODELLED).tolist():
        number = int(trace.events["file"][index])
        called.setdefault(number, set()).add(trace.data(index).decode("utf-8", "replace"))
    for allocate in allocations(trace):
        if allocate.mode & (Allocate.COLLAPSE_RANGE | Allocate.INSERT_RANGE):
            called.setdefault(allocate.inode, set()).add("fallocate that collapses or inserts a range")
    of_path = {file.path: called.get(number, set()) | called.get(0, set()) for number, file in trace.files.items()}
    deleted = {path.removesuffix(" (deleted)") for reason, path in notes if reason == "deleted"}
    out = []
    for file in completeness.files:
        where = _where(file)
        if where:
            calls = of_path.get(file.path, called.get(0, set()))
            linked = trace.recorder == Recorder.LINKED
            out.append(f"{file.path}: {where}: {_cause(file, calls, file.path in deleted, linked)}")
    return tuple(out)


def _where(file: FileCompleteness) -> str:
    """The bytes, size or name that the replay has wrong; empty if all is right."""
    if file.exists != file.replayed_exists:
        return "the file is gone" if file.replayed_exists else "the file is there, and by the trace it is not"
    if file.unexplained:
        ranges = [f"{low:#x}–{high - 1:#x}" for low, high in file.unexplained[:_RANGES_SHOWN]]
        more = len(file.unexplained) - _RANGES_SHOWN
        rest = f" and {more} more ranges" if more > 0 else ""
        return f"{file.unexplained_bytes} bytes at {', '.join(ranges)}{rest} are not accounted for"
    if file.size != file.replayed_size:
        return f"its size is {file.size} bytes, and {file.replayed_size} by the trace"
    return ""


def _cause(file: FileCompleteness, called: set[str], written_after_deletion: bool, linked: bool) -> str:
    if called:
        return f"{', '.join(sorted(called))} is not modelled"
    if written_after_deletion:
        return "it was written after it was deleted"
    if not linked:
        return "another process changed it meanwhile, or a call that the recorder does not know"
    if file.exists != file.replayed_exists:
        return "a process without the recorder, or a system call made directly, changed its name"
    return "written by a library or process that was not built with crashcheck-cc, or by a function without a model"


def check(trace: Trace, first: Path, final: Path) -> Completeness:
    """Compare the replay of all updates with the files below `final`.

    `first` and `final` are the folders of the first and the final image. Holes are skipped, so that memory
    and time follow the bytes that are there, not the sizes of the files. Bytes that one image lacks because
    its file is shorter count as changed where they are not zero.
    """
    replays = {number: FileReplay(file, first / file.path) for number, file in trace.files.items()}
    events = trace.events
    where = trace.rows(*_UPDATES, Kind.CONTENT)
    written = among(events["kind"][where], (Kind.STORE, Kind.WRITE))
    contents: dict[tuple[int, int], list[int]] = {}  # file, thread: events with the content of a file that is renamed
    for some in np.split(where, np.flatnonzero(written[1:] != written[:-1]) + 1):
        if len(some) and written[np.searchsorted(where, some[0])]:
            for number in unique(events["file"][some]).tolist():
                if not replays[number].ended:  # else it has no name any more
                    replays[number].write_all(trace, some[events["file"][some] == number])
            continue
        for index in some.tolist():
            _change(trace, index, replays, contents)
    ordered = sorted(replays.values(), key=lambda replay: replay.file.path)
    return Completeness(tuple(replay.compare(final / replay.file.path) for replay in ordered))


def _change(
    trace: Trace, index: int, replays: dict[int, FileReplay], contents: dict[tuple[int, int], list[int]]
) -> None:
    """Take an event that changes more than bytes of a file."""
    event = trace.events[index]
    kind, file, aux = int(event["kind"]), int(event["file"]), int(event["aux"])
    replay, key = replays[file], (file, int(event["thread"]))
    if kind == Kind.CREATE:
        replay.begin()
    elif kind == Kind.UNLINK:
        replay.end()
    elif kind == Kind.CONTENT:
        contents.setdefault(key, []).append(index)
    elif kind == Kind.RENAME:
        if aux:
            replays[aux].end()
        replay.begin()
        for content in contents.pop(key, ()):
            replay.write(int(trace.events["offset"][content]), trace.data(content))
        replay.size = int(event["offset"])
    elif kind == Kind.TRUNCATE and not replay.ended:
        replay.truncate(int(event["offset"]))


class FileReplay:
    """A file as the trace makes it: the first image, cut at `kept`, with changed blocks on top."""

    def __init__(self, file: WatchedFile, first: Path | None) -> None:
        self.file = file
        self.exists = file.existed
        self.ended = False  # it was deleted, and not created again
        self.size = file.first_size
        self.first = _Image(first) if file.existed else _Image(None)
        self.kept = self.first.size
        self.blocks: dict[int, bytearray] = {}

    def begin(self) -> None:
        """It comes into being, empty."""
        self.truncate(0)
        self.exists, self.ended = True, False

    def end(self) -> None:
        """It goes away, with all that it held."""
        self.truncate(0)
        self.exists, self.ended = False, True

    def _block(self, number: int) -> bytearray:
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = bytearray(self._original(number))
        return block

    def _original(self, number: int) -> bytes:
        low = number * BLOCK
        return self.first.read(low, min(low + BLOCK, self.kept))

    def write(self, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            number, within = divmod(offset + at, BLOCK)
            many = min(BLOCK - within, len(data) - at)
            block = self._block(number)
            if len(block) < within:
                block.extend(bytes(within - len(block)))
            block[within : within + many] = data[at : at + many]
            at += many

    def write_all(self, trace: Trace, rows: NDArray[np.int64]) -> None:
        """Take some stores and writes to it, in their order."""
        events = trace.events[rows]
        if len(rows) < _FEW:
            for event in events:
                self._write_one(event, payload_of(trace.raw, event))
            return
        offset, size = events["offset"].astype(np.int64), events["size"].astype(np.int64)
        called = events["kind"] == Kind.WRITE
        self.size = max(self.size, int(np.where(called & (size > 0), offset + size, 0).max(initial=0)))
        bytes_before, at = np.cumsum(size) - size, 0
        large = np.flatnonzero(size > BLOCK)
        while at < len(rows):
            end = int(np.searchsorted(bytes_before, bytes_before[at] + _AT_ONCE))
            end = min(end, int(np.append(large, len(rows))[np.searchsorted(large, at)]))
            numbers = unique(np.concatenate([offset[at:end], (offset + np.maximum(size, 1) - 1)[at:end]]) // BLOCK)
            if at < end and len(numbers) <= _BLOCKS_AT_ONCE:
                self._scatter(numbers, offset[at:end], size[at:end], payloads_of(trace.raw, events[at:end]))
            else:
                end = max(end, at + 1)
                for row in rows[at:end].tolist():
                    self.write(int(trace.events["offset"][row]), trace.data(row))
            at = end

    def _write_one(self, event: np.void, data: bytes) -> None:
        offset = int(event["offset"])
        self.write(offset, data)
        if data and event["kind"] == Kind.WRITE:
            self.size = max(self.size, offset + len(data))

    def _scatter(
        self, numbers: NDArray[np.int64], offset: NDArray[np.int64], size: NDArray[np.int64], data: NDArray[np.uint8]
    ) -> None:
        """Write `data`, the bytes of several writes one after another, to the blocks `numbers`: in each write's range
        all of them, in order."""
        joined = np.zeros((len(numbers), BLOCK), dtype=np.uint8)
        for into, number in zip(joined, numbers.tolist(), strict=True):
            block = self._block(number)
            into[: len(block)] = np.frombuffer(block, dtype=np.uint8)
        start = np.searchsorted(numbers, offset // BLOCK) * BLOCK + offset % BLOCK
        joined.reshape(-1)[ranges(start, size)] = data  # of several bytes for one place the last one stays
        for block_bytes, number in zip(joined, numbers.tolist(), strict=True):
            self.blocks[number][:] = block_bytes.tobytes().rstrip(b"\0")  # a short file takes no whole block

    def truncate(self, size: int) -> None:
        if size < self.size:
            for number in [n for n in self.blocks if (n + 1) * BLOCK > size]:
                within = max(size - number * BLOCK, 0)
                if within:
                    del self.blocks[number][within:]
                else:
                    del self.blocks[number]
            self.kept = min(self.kept, size)
        self.size = size

    def zero(self, low: int, high: int) -> None:
        """Turn a range into zeros; what holds no data is zeros already."""
        for number in self.with_data(low, high):
            start = number * BLOCK
            block = self._block(number)
            within, end = max(low - start, 0), min(high - start, len(block))
            if within < end:
                block[within:end] = bytes(end - within)

    def with_data(self, low: int, high: int) -> list[int]:
        """The blocks of a range that may hold other bytes than zeros."""
        wanted = range(low // BLOCK, -(-high // BLOCK))
        fewer, others = (wanted, self.blocks) if len(wanted) < len(self.blocks) else (self.blocks, wanted)
        numbers = {number for number in fewer if number in others}
        for start, end in self.first.extents() if low < self.kept else ():
            start, end = max(start, low), min(end, high, self.kept)
            numbers.update(range(start // BLOCK, -(-end // BLOCK)) if start < end else ())
        return sorted(numbers)

    def counted(self, low: int, high: int) -> NDArray[np.int64]:
        """(256,): how often each byte value occurs in a range; bytes that nothing wrote are zeros."""
        out = np.zeros(256, dtype=np.int64)
        for number in self.with_data(low, high):
            start = number * BLOCK
            block = self.blocks[number] if number in self.blocks else self._original(number)
            out += np.bincount(np.frombuffer(block, np.uint8)[max(low - start, 0) : high - start], minlength=256)
        out[0] += max(high - low, 0) - int(out.sum())
        return out

    def compare(self, final: Path, path: str = "") -> FileCompleteness:
        """With the file `final`, which is called `path` in the result (default: as when it was first seen)."""
        after = _Image(final)
        numbers = set(self.blocks)
        for image in (self.first, after):
            numbers.update(n for low, high in image.extents() for n in range(low // BLOCK, -(-high // BLOCK)))
        explained = unexplained = 0
        ranges: list[tuple[int, int]] = []
        for number in sorted(numbers):
            low = number * BLOCK
            became = np.frombuffer(after.read(low, low + BLOCK).ljust(BLOCK, b"\0"), dtype=np.uint8)
            was = np.frombuffer(self.first.read(low, low + BLOCK).ljust(BLOCK, b"\0"), dtype=np.uint8)
            block = self.blocks.get(number)
            replayed = bytes(block) if block is not None else self._original(number)
            inside = max(self.size - low, 0)  # bytes beyond the end of the replayed file are not part of it
            said = np.frombuffer(replayed[:inside].ljust(BLOCK, b"\0"), dtype=np.uint8)
            if np.array_equal(said, became):
                explained += int(np.count_nonzero(was != became))
                continue
            wrong = said != became
            explained += int(np.count_nonzero((was != became) & ~wrong))
            bad = np.flatnonzero(np.diff(np.concatenate([[False], wrong, [False]]).astype(np.int8)))
            for a, b in zip(bad[::2].tolist(), bad[1::2].tolist(), strict=True):
                unexplained += b - a
                if ranges and ranges[-1][1] == low + a:
                    ranges[-1] = (ranges[-1][0], low + b)
                else:
                    ranges.append((low + a, low + b))
        return FileCompleteness(
            path or self.file.path,
            explained,
            unexplained,
            tuple(ranges),
            after.exists,
            self.exists,
            after.size,
            self.size if self.exists else 0,
        )


class _Image:
    """One file of an image folder, or nothing. It is open only while it is read: a folder may have many files."""

    def __init__(self, path: Path | None) -> None:
        self.exists = path is not None and path.is_file()
        self.path = path if self.exists else None
        self.size = path.stat().st_size if path is not None and self.exists else 0
        self._extents: list[tuple[int, int]] | None = None

    def read(self, low: int, high: int) -> bytes:
        if self.path is None or high <= low:
            return b""
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), high - low, low)

    def extents(self) -> list[tuple[int, int]]:
        """Ranges that are not holes."""
        if self.path is None:
            return []
        if self._extents is None:
            with self.path.open("rb", buffering=0) as file:
                self._extents = extents(file.fileno(), 0, self.size)
        return self._extents
