"""Maps a trace file, and joins its chunks into one sequence of events; what is damaged is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.trace.accesses import Events
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.seal import checksum
from crashcheck.runtime.trace_format import ChunkKind, Kind, Recorder, Status


@dataclass(frozen=True, slots=True)
class Chunks:
    """A trace file, and the records of its chunks in order of `seq`, those that share one in order of their chunks."""

    raw: NDArray[np.uint8]  # the whole file, mapped
    header: np.void
    events: Events
    accesses: Events  # of the chunks of loads


def read_chunks(path: Path) -> Chunks:
    """Raises CrashcheckError: those of a file that is missing, foreign, of another version, cut short or damaged."""
    raw = _map(path)
    header = _header(path, raw)
    _check_sum(path, raw, header)
    events, accesses = _events(path, raw, header)
    _check_payloads(path, raw, events)
    _check_payloads(path, raw, accesses)
    return Chunks(raw, header, events, accesses)


def _map(path: Path) -> NDArray[np.uint8]:
    try:
        if path.stat().st_size == 0:
            raise CrashcheckError(
                "trace-truncated",
                f"{path}: found an empty file, expected a trace of at least {fmt.HEADER_BYTES} bytes",
                "Record the workload again.",
            )
        return np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)  # whose slices take a tenth of the time
    except FileNotFoundError:
        raise CrashcheckError(
            "trace-missing",
            f"{path}: no such file, expected a trace",
            "Run `crashcheck run` to record one, or correct the path.",
        ) from None
    except OSError as error:
        raise CrashcheckError(
            "trace-unreadable",
            f"{path}: {error.strerror or error}, expected a readable trace file",
            "Correct the path or its permissions.",
        ) from error


def _header(path: Path, raw: NDArray[np.uint8]) -> np.void:
    magic = raw[:8].tobytes()
    if magic != fmt.MAGIC[: len(magic)]:
        raise CrashcheckError(
            "trace-foreign",
            f"{path}: begins with {magic!r}, expected {fmt.MAGIC!r}: this is not a crashcheck trace",
            "Give the trace.cct of a record folder.",
        )
    if len(raw) < fmt.HEADER_BYTES:
        raise CrashcheckError(
            "trace-truncated",
            f"{path}: found {len(raw)} bytes, expected a header of {fmt.HEADER_BYTES} bytes",
            "The file was cut short; record the workload again.",
        )
    header: np.void = raw[: fmt.HEADER.itemsize].view(fmt.HEADER)[0]
    version = int(header["version"])
    if version != fmt.VERSION:
        who = "a newer" if version > fmt.VERSION else "an older"
        raise CrashcheckError(
            "trace-version",
            f"{path}: trace format version {version}, expected {fmt.VERSION}: written by {who} crashcheck",
            "Read it with the crashcheck that recorded it, or record the workload again.",
        )
    for name, expected in (
        ("header_bytes", fmt.HEADER_BYTES),
        ("chunk_bytes", fmt.CHUNK_BYTES),
        ("event_bytes", fmt.EVENT_BYTES),
    ):
        if int(header[name]) != expected:
            raise corrupt(path, f"header field {name} is {int(header[name])}, expected {expected}")
    status = int(header["status"])
    if status & Status.DISK_FULL:
        raise CrashcheckError(
            "trace-disk-full",
            f"{path}: recording stopped because the disk was full after {len(raw)} bytes, expected a whole trace",
            "Free space in the record folder (or put it elsewhere) and record again.",
        )
    if status & Status.TOO_MANY:
        raise CrashcheckError(
            "trace-too-many",
            f"{path}: the run has more files, threads, sites or stacks than a trace can number "
            f"(files {int(header['next_file'])}, threads {int(header['next_thread'])})",
            "Watch fewer files ([pool] files) or shorten the workload.",
        )
    return header


def _check_sum(path: Path, raw: NDArray[np.uint8], header: np.void) -> None:
    """A trace that `record` made has a checksum."""
    if not int(header["status"]) & Status.SEALED:
        return
    found, expected = checksum(raw.data), int(header["checksum"])
    if found == expected:
        return
    whole = fmt.HEADER_BYTES + int(header["next_chunk"]) * fmt.CHUNK_BYTES
    if len(raw) < whole:
        raise _cut_short(path, raw, f"{whole}")
    raise corrupt(path, f"its checksum is {found:08x}, expected {expected:08x}: bytes have changed")


def corrupt(path: Path, what: str) -> CrashcheckError:
    """The error of a trace that is damaged; `what` was found, and what was expected."""
    return CrashcheckError("trace-corrupt", f"{path}: {what}", "The file is damaged; record the workload again.")


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One chunk of the file: `used` bytes after its header at `start`; a blob may span several."""

    where: str  # for messages
    start: int
    kind: int
    used: int
    span: int
    thread: int
    pid: int


_Part = tuple[NDArray[np.void], int, int]  # records of one chunk, its thread and process


def _events(path: Path, raw: NDArray[np.uint8], header: np.void) -> tuple[Events, Events]:
    """What the chunks of events hold, and those of loads."""
    parts: dict[int, list[_Part]] = {ChunkKind.EVENTS: [], ChunkKind.LOADS: []}
    for chunk in _chunks(path, raw, header):
        if chunk.kind == ChunkKind.BLOB or not chunk.used:
            continue
        if chunk.used % fmt.EVENT_BYTES:
            raise corrupt(path, f"{chunk.where} uses {chunk.used} bytes, expected a multiple of {fmt.EVENT_BYTES}")
        body = chunk.start + fmt.CHUNK_HEADER_BYTES
        records = raw[body : body + chunk.used].view(fmt.RECORD)
        parts[chunk.kind].append((records, chunk.thread, chunk.pid))
    events = _joined(parts[ChunkKind.EVENTS])
    if int(header["recorder"]) == Recorder.SYSCALLS:
        _take_threads(events)
    _check_numbers(path, events["seq"])
    return events, _joined(parts[ChunkKind.LOADS])


def _chunks(path: Path, raw: NDArray[np.uint8], header: np.void) -> Iterator[_Chunk]:
    """The chunks in use, in order, each one checked."""
    many = int(header["next_chunk"])
    index = 0
    while index < many:
        start = fmt.HEADER_BYTES + index * fmt.CHUNK_BYTES
        if start == len(raw) and not int(header["status"]) & Status.CLEAN_EXIT:
            return  # numbers were reserved, and the program killed before the file grew
        if start + fmt.CHUNK_HEADER_BYTES > len(raw):
            expected = f"{many} chunks ({fmt.HEADER_BYTES + many * fmt.CHUNK_BYTES} bytes)"
            raise _cut_short(path, raw, expected)
        head = raw[start : start + fmt.CHUNK_HEADER.itemsize].view(fmt.CHUNK_HEADER)[0]
        kind, used, span = int(head["kind"]), int(head["used_bytes"]), max(1, int(head["chunks"]))
        if kind == ChunkKind.FREE:
            index += 1
            continue
        where = f"chunk {index} at byte {start}"
        chunk = _Chunk(where, start, kind, used, span, int(head["thread"]), int(head["pid"]))
        _check_chunk(path, raw, chunk)
        yield chunk
        index += span


def _check_chunk(path: Path, raw: NDArray[np.uint8], chunk: _Chunk) -> None:
    where, kind, used = chunk.where, chunk.kind, chunk.used
    if kind not in (ChunkKind.EVENTS, ChunkKind.BLOB, ChunkKind.LOADS):
        raise corrupt(path, f"{where} has kind {kind}, expected one of {[int(known) for known in ChunkKind][1:]}")
    if kind != ChunkKind.BLOB and chunk.span != 1:
        raise corrupt(path, f"{where} holds events and spans {chunk.span} chunks, expected 1")
    room = chunk.span * fmt.CHUNK_BYTES - fmt.CHUNK_HEADER_BYTES
    if used > room:
        raise corrupt(path, f"{where} declares {used} bytes in use, expected at most {room}")
    if chunk.start + fmt.CHUNK_HEADER_BYTES + used > len(raw):
        raise _cut_short(path, raw, f"{where} to hold {used} bytes")


def _cut_short(path: Path, raw: NDArray[np.uint8], expected: str) -> CrashcheckError:
    return CrashcheckError(
        "trace-truncated",
        f"{path}: found {len(raw)} bytes, expected {expected}",
        "The file was cut short (an interrupted copy?); copy or record it again.",
    )


def _check_numbers(path: Path, seq: NDArray[np.uint64]) -> None:
    if len(seq) and seq[0] == 0:
        raise corrupt(path, "a record has seq 0, expected numbers from 1")
    twice = seq[1:][seq[1:] == seq[:-1]]
    if len(twice):
        raise corrupt(path, f"two records have seq {int(twice[0])}, expected each number once, from 1")


def _joined(parts: list[_Part]) -> Events:
    """The records of many chunks in order of seq, those that share one in order of their chunks."""
    events = np.empty(sum(len(records) for records, _, _ in parts), dtype=fmt.EVENT)
    at = 0
    for records, thread, pid in parts:
        here = events[at : at + len(records)]
        # a row begins with the record's own bytes: fields one by one would take ten times as long
        here.view(np.uint8).reshape(-1, fmt.EVENT.itemsize)[:, : fmt.EVENT_BYTES] = records.view(np.uint8).reshape(
            -1, fmt.EVENT_BYTES
        )
        here["thread"] = thread
        here["pid"] = pid
        at += len(records)
    if bool(np.any(events["seq"][1:] < events["seq"][:-1])):
        events = events[np.argsort(events["seq"], kind="stable")]
    return events


def _take_threads(events: Events) -> None:
    """In chunks of no thread each record has its thread where others have a struct instance."""
    starts = events[events["kind"] == Kind.THREAD_START]
    threads, first = np.unique(starts["aux"], return_index=True)
    shared = events["thread"] == 0
    number = np.where(shared, events["instance_delta"], events["thread"])
    if len(threads):
        at = np.minimum(np.searchsorted(threads, number), len(threads) - 1)
        events["pid"] = np.where(threads[at] == number, starts["payload"][first][at], 0)
    events["thread"] = number
    events["instance_delta"][shared] = fmt.NO_INSTANCE


def _check_payloads(path: Path, raw: NDArray[np.uint8], events: Events) -> None:
    carries = among(events["kind"], fmt.PAYLOAD_KINDS)
    far = carries & (events["size"] > fmt.INLINE_BYTES)
    start = events["payload"][far]
    size = events["size"][far].astype(np.uint64)
    limit = np.uint64(len(raw))
    bad = (start < fmt.HEADER_BYTES) | (start > limit) | (size > limit - np.minimum(start, limit))
    if bool(bad.any()):
        which = int(np.flatnonzero(far)[np.flatnonzero(bad)[0]])
        event = events[which]
        raise corrupt(
            path,
            f"record with seq {int(event['seq'])} points at bytes {int(event['payload'])}+{int(event['size'])}, "
            f"expected them inside the file ({len(raw)} bytes)",
        )
