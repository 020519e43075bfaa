"""Reads a trace file into one sequence of events, whatever thread or process recorded them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.trace.accesses import Events, UnitDef, payload_of, renumber_loads, units_of
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.seal import checksum
from crashcheck.runtime.trace_format import ChunkKind, Kind, Recorder, Status

_MOST_SITES = np.uint64((1 << 32) - 1)
_MOST_OFFSET = np.uint64(1 << 62)  # no file system has files this long


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file whose updates were recorded. `path` is relative to the pool folder."""

    id: int
    path: str
    existed: bool  # when it was first seen
    first_size: int  # bytes; 0 if it did not exist


@dataclass(frozen=True, slots=True)
class Inode:
    """A file or directory inside the watched folder, whatever its names are. Paths are relative to the folder.

    `paths`: what was there at first has all of its names; what came later the one that it came with, or none. The
    watched folder itself has the path "" and the id `ROOT`.
    """

    id: int
    mode: int  # as in st_mode: type and permissions
    existed: bool  # when recording began
    first_size: int  # bytes; 0 if it did not exist
    paths: tuple[str, ...]

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self.mode)


ROOT = 1  # id of the watched folder in a trace of system calls


@dataclass(frozen=True, slots=True)
class CallSite:
    """A place in machine code: the instruction after a call, as an offset in the file of its program or library.

    `function` is where its function begins in that file, 0 if unknown. Code that no file holds has the module "".
    """

    module: str
    offset: int
    function: int = 0


class Facts(Protocol):
    """The part of analyzer.compile.facts.ProgramFacts that finds a site's place in the source."""

    def unit(self, key: int) -> Any: ...


def calls_of(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """A number for each of these events or loads, the same for those of one site (its upper half) and stack."""
    numbers: NDArray[np.uint64] = rows["site"].astype(np.uint64) << np.uint64(32) | rows["stack"].astype(np.uint64)
    return numbers


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A recorded run. `events` is sorted by `seq`; an event's *index* is its place in that array.

    `truncated` is why the trace ends early, or empty. Nothing here is copied from the blob
    chunks: payloads are read from the mapped file when they are asked for.

    `loads` are the reads of watched files, `elsewhere` accesses to other memory (`offset` is the address), both in
    order of `seq`, and of one thread in its order. Those of `loads` took no number, unless other memory was recorded
    too: one happened before the first event with the same `seq` or a higher one. Both may be empty; `events` is the
    same with and without them. A repeated load from one place by one site and call stack may be left out, as long
    as no other load by the same site and stack happened between.

    `gaps` are the places where the recorder began to leave loads of a thread out (`aux` 1), and where it continued with
    them (0): before the load that `offset` is the index of. Between gaps it left none out.
    """

    path: Path
    events: Events
    files: dict[int, WatchedFile]
    units: tuple[UnitDef, ...]
    truncated: str
    raw: NDArray[np.uint8]  # the whole file, mapped
    _stacks: dict[int, tuple[int, int]] = field(repr=False)
    loads: Events = field(default_factory=lambda: np.empty(0, dtype=fmt.EVENT))
    elsewhere: Events = field(default_factory=lambda: np.empty(0, dtype=fmt.EVENT))
    gaps: Events = field(default_factory=lambda: np.empty(0, dtype=fmt.EVENT))
    recorder: Recorder = Recorder.LINKED
    inodes: dict[int, Inode] = field(default_factory=dict)
    call_sites: dict[int, CallSite] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.events)

    @property
    def stacks(self) -> Mapping[int, tuple[int, int]]:
        """Of each call stack the one of its caller and the site of the call."""
        return self._stacks

    def data(self, index: int) -> bytes:
        """The bytes that event `index` carries; empty for kinds that carry none."""
        return payload_of(self.raw, self.events[index])

    def data_range(self, index: int, start: int, size: int) -> bytes:
        """`size` bytes of event `index`'s payload from `start`, without reading the rest."""
        event = self.events[index]
        payload = int(event["payload"])
        if int(event["size"]) <= fmt.INLINE_BYTES:
            return payload.to_bytes(8, "little")[start : start + size]
        return self.raw[payload + start : payload + start + size].tobytes()

    def stack(self, stack_id: int) -> tuple[int, ...]:
        """Global site ids of the calls that led to an event, innermost first."""
        sites = []
        while stack_id:
            parent, site = self._stacks.get(stack_id, (0, 0))
            if parent >= stack_id:  # a definition never precedes its parent's; stops at damage
                parent = 0
            sites.append(site)
            stack_id = parent
        return tuple(sites)

    def calls(self, rows: NDArray[np.int64] | slice) -> NDArray[np.uint64]:
        """A number for each of these events, the same for those of one site and stack."""
        return calls_of(self.events[rows])

    def one_of_each_call(self, rows: NDArray[np.int64]) -> list[int]:
        """Of these events the first of each site and stack."""
        firsts: list[int] = rows[np.unique(self.calls(rows), return_index=True)[1]].tolist()
        return firsts

    def unit_of(self, site: int) -> UnitDef | None:
        """The unit that holds a global site id; None for site 0 and for ids no unit has."""
        for unit in self.units:
            if unit.base <= site < unit.base + unit.sites and site:
                return unit
        return None

    def site(self, global_id: int, facts: Facts | None) -> Any | None:
        """The source place of a global site id, or None if it or its unit's facts are unknown."""
        unit = self.unit_of(global_id)
        if unit is None or facts is None:
            return None
        try:
            sites = facts.unit(unit.key).sites
        except (KeyError, AttributeError):
            return None
        index = global_id - unit.base
        return sites[index] if index < len(sites) else None


def read(path: Path | str) -> Trace:
    """Read the trace at `path`.

    Raises CrashcheckError: trace-missing, trace-unreadable, trace-foreign, trace-truncated, trace-version,
    trace-corrupt, trace-disk-full, trace-too-many.
    """
    path = Path(path)
    raw = _map(path)
    header = _header(path, raw)
    _check_sum(path, raw, header)
    events, accesses = _events(path, raw, header)
    _check_payloads(path, raw, events)
    _check_payloads(path, raw, accesses)
    _check_units(path, events)
    _check_units(path, accesses)
    kinds = events["kind"]
    stacks = {int(e["stack"]): (int(e["aux"]), int(e["site"])) for e in events[kinds == Kind.STACK_DEF]}
    truncated = ""
    if not int(header["status"]) & Status.CLEAN_EXIT:
        truncated = (
            "the recorded program ended without exit (it was killed or crashed); "
            f"the last complete record has seq {int(events['seq'][-1]) if len(events) else 0}"
        )
    trace = Trace(path, events, {}, (), truncated, raw, stacks)
    files: dict[int, WatchedFile] = {}
    for index in np.flatnonzero(kinds == Kind.FILE_DEF):
        event = events[index]
        name = os.fsdecode(trace.data(int(index)))
        existed = bool(event["flags"] & 1)
        number = int(event["file"])
        _check_name(path, name)
        # the first definition counts: it has the size before the first update
        files.setdefault(number, WatchedFile(number, name, existed, int(event["offset"]) if existed else 0))
    recorder = _recorder(path, header)
    inodes = _inodes(path, trace)
    files |= {
        inode.id: WatchedFile(inode.id, next(iter(inode.paths), ""), inode.existed, inode.first_size)
        for inode in inodes.values()
        if inode.is_file
    }
    _check_files(path, events, files)
    _check_names(path, trace, inodes)
    units = units_of(raw, events)
    loads, elsewhere, gaps = renumber_loads(raw, header, accesses, units, stacks)
    _check_files(path, loads, files)
    ordered = tuple(sorted((unit for _, unit in units), key=lambda unit: unit.base))
    sites = _call_sites(trace)
    return Trace(path, events, files, ordered, truncated, raw, stacks, loads, elsewhere, gaps, recorder, inodes, sites)


def _recorder(path: Path, header: np.void) -> Recorder:
    try:
        return Recorder(int(header["recorder"]))
    except ValueError:
        raise _corrupt(path, f"recorder {int(header['recorder'])}, expected one of {[*map(int, Recorder)]}") from None


def _inodes(path: Path, trace: Trace) -> dict[int, Inode]:
    paths: dict[int, list[str]] = {}
    firsts: dict[int, np.void] = {}
    for index in np.flatnonzero(trace.events["kind"] == Kind.INODE_DEF).tolist():
        event = trace.events[index]
        number, name = int(event["file"]), os.fsdecode(trace.data(index))
        if name:
            _check_name(path, name)
        firsts.setdefault(number, event)
        paths.setdefault(number, [])
        if name or number == ROOT:
            paths[number].append(name)
    return {
        number: Inode(
            number,
            int(event["aux"]),
            bool(event["flags"] & 1),
            int(event["offset"]) if event["flags"] & 1 else 0,
            tuple(paths[number]),
        )
        for number, event in firsts.items()
    }


def _call_sites(trace: Trace) -> dict[int, CallSite]:
    events = trace.events
    modules = {
        int(events["aux"][index]): os.fsdecode(trace.data(index))
        for index in np.flatnonzero(events["kind"] == Kind.MODULE_DEF).tolist()
    }
    sites = events[events["kind"] == Kind.SITE_DEF]
    return {
        int(e["site"]): CallSite(modules.get(int(e["aux"]), ""), int(e["offset"]), int(e["payload"])) for e in sites
    }


def _check_name(path: Path, name: str) -> None:
    if not name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise _corrupt(path, f"it names a file {name!r:.200}, expected a path inside the pool folder")


def _map(path: Path) -> NDArray[np.uint8]:
    try:
        if path.stat().st_size == 0:
            raise CrashcheckError(
                "trace-truncated",
                f"{path}: found an empty file, expected a trace of at least {fmt.HEADER_BYTES} bytes",
                "Record the workload again.",
            )
        return np.memmap(path, dtype=np.uint8, mode="r")
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
            raise _corrupt(path, f"header field {name} is {int(header[name])}, expected {expected}")
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
    raise _corrupt(path, f"its checksum is {found:08x}, expected {expected:08x}: bytes have changed")


def _corrupt(path: Path, what: str) -> CrashcheckError:
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
            raise _corrupt(path, f"{chunk.where} uses {chunk.used} bytes, expected a multiple of {fmt.EVENT_BYTES}")
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
        raise _corrupt(path, f"{where} has kind {kind}, expected one of {[int(known) for known in ChunkKind][1:]}")
    if kind != ChunkKind.BLOB and chunk.span != 1:
        raise _corrupt(path, f"{where} holds events and spans {chunk.span} chunks, expected 1")
    room = chunk.span * fmt.CHUNK_BYTES - fmt.CHUNK_HEADER_BYTES
    if used > room:
        raise _corrupt(path, f"{where} declares {used} bytes in use, expected at most {room}")
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
        raise _corrupt(path, "a record has seq 0, expected numbers from 1")
    twice = seq[1:][seq[1:] == seq[:-1]]
    if len(twice):
        raise _corrupt(path, f"two records have seq {int(twice[0])}, expected each number once, from 1")


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
    carries = np.isin(events["kind"], np.array(fmt.PAYLOAD_KINDS, dtype=np.uint8))
    far = carries & (events["size"] > fmt.INLINE_BYTES)
    start = events["payload"][far]
    size = events["size"][far].astype(np.uint64)
    limit = np.uint64(len(raw))
    bad = (start < fmt.HEADER_BYTES) | (start > limit) | (size > limit - np.minimum(start, limit))
    if bool(bad.any()):
        which = int(np.flatnonzero(far)[np.flatnonzero(bad)[0]])
        event = events[which]
        raise _corrupt(
            path,
            f"record with seq {int(event['seq'])} points at bytes {int(event['payload'])}+{int(event['size'])}, "
            f"expected them inside the file ({len(raw)} bytes)",
        )


def _check_units(path: Path, events: Events) -> None:
    units = events[events["kind"] == Kind.UNIT_DEF]
    many = units["offset"]
    beyond = (many > _MOST_SITES) | (units["aux"] + np.minimum(many, _MOST_SITES) > _MOST_SITES)
    if bool(beyond.any()):
        unit = units[int(np.flatnonzero(beyond)[0])]
        raise _corrupt(path, f"a unit has {int(unit['offset'])} sites from {int(unit['aux'])}, expected 32-bit numbers")


def _check_files(path: Path, events: Events, files: dict[int, WatchedFile]) -> None:
    kinds = [Kind.STORE, Kind.WRITE, Kind.TRUNCATE, Kind.CREATE, Kind.UNLINK, Kind.RENAME, Kind.CONTENT, Kind.LOAD]
    kinds.append(Kind.ALLOCATE)
    accesses = np.isin(events["kind"], np.array(kinds, dtype=np.uint8))
    for number in np.unique(events["file"][accesses]):
        if int(number) not in files:
            raise _corrupt(path, f"an access names file {int(number)}, expected one of {sorted(files)}")
    ends = np.minimum(events["offset"][accesses], _MOST_OFFSET) + events["size"][accesses]
    if bool((ends >= _MOST_OFFSET).any()):
        raise _corrupt(path, "an access is beyond byte 2^62, expected it inside a file")
    for number in np.unique(events["aux"][events["kind"] == Kind.RENAME]):
        if number and int(number) not in files:
            raise _corrupt(path, f"file {int(number)} is renamed, expected one of {sorted(files)}")


def _check_names(path: Path, trace: Trace, inodes: dict[int, Inode]) -> None:
    """Events about names have names, and name inodes and directories that are defined."""
    events = trace.events
    for index in np.flatnonzero(np.isin(events["kind"], np.array(fmt.NAME_KINDS, dtype=np.uint8))).tolist():
        event, data = events[index], trace.data(index)
        where = f"the event with seq {int(event['seq'])}"
        if len(data) < fmt.NAMES.itemsize:
            raise _corrupt(path, f"{where} has {len(data)} bytes, expected names")
        names = np.frombuffer(data[: fmt.NAMES.itemsize], fmt.NAMES)[0]
        name = data[fmt.NAMES.itemsize :][: int(names["name_bytes"])]
        if len(data) - fmt.NAMES.itemsize < int(names["name_bytes"]) or b"\0" in data[fmt.NAMES.itemsize :]:
            raise _corrupt(path, f"{where} has a name that is cut short, or holds a zero byte")
        if int(event["folder"]) and (not name or b"/" in name or name in (b".", b"..")):
            raise _corrupt(path, f"{where} has the name {name!r:.200}, expected one of a directory's entries")
        known = (int(event["file"]), int(event["folder"]), int(names["to_folder"]), int(names["replaced"]))
        for number in known:
            if number and number not in inodes:
                raise _corrupt(path, f"{where} names inode {number}, which is not defined")
        for number in (known[1], known[2]):
            if number and not inodes[number].is_folder:
                raise _corrupt(path, f"{where} has inode {number} for a directory, which it is not")
