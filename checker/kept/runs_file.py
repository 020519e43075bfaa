"""A file of runs of the check that a search writes while it lasts, for `crashcheck merge` and `run --resume`.

It is a sequence of frames: length and CRC-32 (little-endian, 4 bytes each), then zlib of msgpack. The first one is the
header, each other one a batch. A process that is killed leaves a file that ends within a frame: what is before it
counts. Paths in outputs differ from worker to worker, so batches bring the names of the workers as well.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import Run
from crashcheck.checker.kept.keys import SearchKey
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.exploration import Explored

_FORMAT = 2
_FRAME = struct.Struct("<II")
_BATCH = 128  # runs that are written at once: a killed search loses no more,
_BATCH_S = 1.0  # and no run that ended longer ago


class Share(msgspec.Struct, frozen=True):
    """Number `index`, from 1, of `of` shards."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


class Header(msgspec.Struct, frozen=True):
    """`share`: None of an undivided search. `surroundings`: what else a check may depend on, each with a digest."""

    key: SearchKey
    share: Share | None = None
    surroundings: dict[str, str] = {}
    format: int = _FORMAT


class Batch(msgspec.Struct):
    """Runs that ended, and names of workers; these are numbered through all batches.

    `complete`: the search came to its end; it was not cut short by time, by the user, or by a full disk.
    """

    names: list[dict[str, str]] = []  # paths of a worker, and what they are called in outputs
    runs: dict[bytes, tuple[Ended, int]] = {}  # by image; with the number of the names
    explored: dict[bytes, tuple[Explored, str]] = {}  # by product; with the folder in which its runs found their image
    complete: bool = False


class Contents(msgspec.Struct):
    """What a file holds."""

    header: Header
    all: Batch


class RunsFile:
    """The file while its search lasts. `runs`, `explored`: how many it holds; `why`: why no more can be written."""

    def __init__(self, path: Path, header: Header, earlier: Batch | None = None) -> None:
        """Begins a file, with what an `earlier` one held."""
        # constant
        self.path = path
        self._header = header
        # changing
        self.why = ""
        self.runs = self.explored = 0
        self._names: list[dict[str, str]] = []
        self._batch = Batch()
        self._written_at = time.monotonic()
        self._begin()
        if earlier is not None:
            self._names += earlier.names
            self._write(msgspec.structs.replace(earlier, complete=False))

    def add(self, image: bytes, run: Run) -> None:
        """Take a run that ended."""
        self._batch.runs[image] = run.ended, self._number_of(run.names)
        self._write_if_due()

    def add_explored(self, product: bytes, explored: Explored, folder: Path) -> None:
        self._batch.explored[product] = explored, str(folder)
        self._write_if_due()

    def restart(self) -> None:
        """Forget all that was written: it does not count."""
        self.why = ""
        self.runs = self.explored = 0
        self._names, self._batch = [], Batch()
        self._begin()

    def close(self, complete: bool) -> None:
        """Write what is left. `complete`: as Batch has it."""
        self._batch.complete = complete
        self._write(self._batch)

    def _begin(self) -> None:
        """Make the file with nothing but its header; it has its name once that is complete."""
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            new.write_bytes(_framed(self._header))
            new.replace(self.path)
        except OSError as error:
            self._fail(error)

    def _number_of(self, names: Mapping[str, str]) -> int:
        plain = dict(names)
        if plain not in self._names:
            self._names.append(plain)
            self._batch.names.append(plain)
        return self._names.index(plain)

    def _write_if_due(self) -> None:
        full = len(self._batch.runs) + len(self._batch.explored) >= _BATCH
        if full or time.monotonic() - self._written_at >= _BATCH_S:
            self._write(self._batch)

    def _write(self, batch: Batch) -> None:
        self._batch, self._written_at = Batch(), time.monotonic()
        if self.why:
            return
        try:
            # Not kept open: a search that ends with an error has nothing to close.
            with self.path.open("r+b") as file:
                file.seek(0, os.SEEK_END)
                file.write(_framed(batch))
        except OSError as error:
            self._fail(error)
            return
        self.runs += len(batch.runs)
        self.explored += len(batch.explored)

    def _fail(self, error: OSError) -> None:
        self.why = f"{self.path} cannot be written: {error.strerror}"


def _framed(value: Header | Batch) -> bytes:
    data = zlib.compress(msgspec.msgpack.encode(value), 1)
    return _FRAME.pack(len(data), zlib.crc32(data)) + data


def read_runs_file(path: Path) -> Contents:
    """All batches as one, up to a frame that was not written whole. Raises CrashcheckError(shard-unreadable)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CrashcheckError("shard-unreadable", f"{path} cannot be read: {error.strerror}.") from error
    try:
        payload, at = _frame_at(data, 0) or (b"", 0)
        header = msgspec.msgpack.decode(zlib.decompress(payload), type=Header)
        if header.format == _FORMAT:
            return Contents(header, _batches(data, at))
    except (zlib.error, ValueError, RecursionError) as error:  # msgspec.ValidationError is a ValueError
        raise CrashcheckError("shard-unreadable", f"{path} is no file of a shard: {error}.") from error
    raise CrashcheckError("shard-unreadable", f"{path} was written by another version of crashcheck.")


def _batches(data: bytes, at: int) -> Batch:
    everything = Batch([], {}, {})
    while (found := _frame_at(data, at)) is not None:
        payload, at = found
        batch = msgspec.msgpack.decode(zlib.decompress(payload), type=Batch)
        everything.names += batch.names
        numbers = [number for _, number in batch.runs.values()]
        if any(not 0 <= number < len(everything.names) for number in numbers):
            raise ValueError("a run has no names")
        everything.runs |= batch.runs
        everything.explored |= batch.explored
        everything.complete = batch.complete
    everything.complete &= at == len(data)
    return everything


def _frame_at(data: bytes, at: int) -> tuple[bytes, int] | None:
    """The payload of the frame at a place, and where the next one is; None where none was written whole."""
    if at + _FRAME.size > len(data):
        return None
    length, checksum = _FRAME.unpack_from(data, at)
    payload = data[at + _FRAME.size : at + _FRAME.size + length]
    whole = len(payload) == length and zlib.crc32(payload) == checksum
    return (payload, at + _FRAME.size + length) if whole else None
