"""Reads a trace: its events, and the files, names, units and call sites that they mention."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.trace.accesses import Events, UnitDef, payload_of, renumber_loads, units_of
from crashcheck.analyzer.trace.chunks import corrupt, read_chunks
from crashcheck.analyzer.trace.python_code import PythonCode, python_code
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import InodeFlag, Kind, OutputKind, Recorder, SiteFlag, Status

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
    dense: bool = False  # it was seen then that it has no hole

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

    Of a function of a script the module is its source, `function` its first line, and `name` what it is called; `line`
    and `column` are those of the call, 0 if unknown.
    """

    module: str
    offset: int
    function: int = 0
    name: str = ""
    line: int = 0
    column: int = 0


class Facts(Protocol):
    """The part of analyzer.compile.facts.ProgramFacts that finds a site's place in the source."""

    def unit(self, key: int) -> Any: ...


def calls_of(events: NDArray[np.void], rows: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.uint64]:
    """A number for each of some events or loads, the same for those of one site (its upper half) and stack."""
    site, stack = (events[name][rows].astype(np.uint64) for name in ("site", "stack"))
    numbers: NDArray[np.uint64] = site << np.uint64(32) | stack
    return numbers


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Trace:
    """A recorded run. `events` is sorted by `seq`; an event's *index* is its place in that array.

    `truncated` is why the trace ends early, or empty. Nothing here is copied from the blob
    chunks: payloads are read from the mapped file when they are asked for.

    `loads` are the reads of watched files, in order of `seq`, and of one thread in its order. They took no number: one
    happened before the first event with the same `seq` or a higher one. There may be none; `events` is the same with
    and without them. A repeated load from one place by one site and call stack may be left out, as long as no other
    load by the same site and stack happened between.

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

    def rows(self, *kinds: int) -> NDArray[np.int64]:
        """The indices of the events of some kinds, ascending."""
        return np.flatnonzero(among(self.events["kind"], kinds))

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
        return calls_of(self.events, rows)

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

    def place(self, site: int, facts: Facts | None) -> tuple[Any, int] | None:
        """The facts of the unit that holds a global site id, and its index there; None if one of them is not known."""
        unit = self.unit_of(site)
        if unit is None or facts is None:
            return None
        try:
            known = facts.unit(unit.key)
            return (known, site - unit.base) if site - unit.base < len(known.sites) else None
        except (KeyError, AttributeError):
            return None

    def site(self, global_id: int, facts: Facts | None) -> Any | None:
        """The source place of a global site id, or None if it or its unit's facts are unknown."""
        place = self.place(global_id, facts)
        return place[0].sites[place[1]] if place is not None else None


def read(path: Path | str) -> Trace:
    """Read the trace at `path`.

    Raises CrashcheckError: trace-missing, trace-unreadable, trace-foreign, trace-truncated, trace-version,
    trace-corrupt, trace-disk-full, trace-too-many.
    """
    path = Path(path)
    chunks = read_chunks(path)
    raw, header, events, accesses = chunks.raw, chunks.header, chunks.events, chunks.accesses
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
    recorder = _recorder(path, header)
    inodes = _inodes(path, trace)
    files = _files(path, trace, inodes)
    _check_files(path, events, files)
    _check_names(path, trace, inodes)
    _check_outputs(path, events)
    units = units_of(raw, events)
    loads, gaps = renumber_loads(raw, header, accesses, units, stacks)
    _check_files(path, loads, files)
    ordered = tuple(sorted((unit for _, unit in units), key=lambda unit: unit.base))
    sites = _call_sites(path, trace)
    return Trace(path, events, files, ordered, truncated, raw, stacks, loads, gaps, recorder, inodes, sites)


def _files(path: Path, trace: Trace, inodes: Mapping[int, Inode]) -> dict[int, WatchedFile]:
    files: dict[int, WatchedFile] = {}
    for index in trace.rows(Kind.FILE_DEF).tolist():
        event = trace.events[index]
        name = os.fsdecode(trace.data(index))
        existed = bool(event["flags"] & 1)
        number = int(event["file"])
        _check_name(path, name)
        # the first definition counts: it has the size before the first update
        files.setdefault(number, WatchedFile(number, name, existed, int(event["offset"]) if existed else 0))
    files |= {
        inode.id: WatchedFile(inode.id, next(iter(inode.paths), ""), inode.existed, inode.first_size)
        for inode in inodes.values()
        if inode.is_file
    }
    return files


def _recorder(path: Path, header: np.void) -> Recorder:
    try:
        return Recorder(int(header["recorder"]))
    except ValueError:
        raise corrupt(path, f"recorder {int(header['recorder'])}, expected one of {[*map(int, Recorder)]}") from None


def _inodes(path: Path, trace: Trace) -> dict[int, Inode]:
    paths: dict[int, list[str]] = {}
    firsts: dict[int, np.void] = {}
    for index in trace.rows(Kind.INODE_DEF).tolist():
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
            bool(event["flags"] & InodeFlag.EXISTED),
            int(event["offset"]) if event["flags"] & InodeFlag.EXISTED else 0,
            tuple(paths[number]),
            bool(event["flags"] & InodeFlag.DENSE),
        )
        for number, event in firsts.items()
    }


def _call_sites(path: Path, trace: Trace) -> dict[int, CallSite]:
    events = trace.events
    modules = {
        int(events["aux"][index]): os.fsdecode(trace.data(index))
        for index in np.flatnonzero(events["kind"] == Kind.MODULE_DEF).tolist()
    }
    codes = {
        int(events["aux"][index]): _python_code(path, trace.data(index))
        for index in np.flatnonzero(events["kind"] == Kind.CODE_DEF).tolist()
    }
    sites = {}
    for event in events[events["kind"] == Kind.SITE_DEF]:
        number, offset = int(event["aux"]), int(event["offset"])
        if not event["flags"] & SiteFlag.IN_CODE:
            sites[int(event["site"])] = CallSite(modules.get(number, ""), offset, int(event["payload"]))
        elif number in codes:
            code = codes[number]
            sites[int(event["site"])] = CallSite(code.file, offset, code.first_line, code.name, *code.position(offset))
        else:
            raise corrupt(path, f"a site is in the code {number}, which is not defined")
    return sites


def _python_code(path: Path, data: bytes) -> PythonCode:
    code = python_code(data)
    if code is None:
        raise corrupt(path, f"a function of Python has {len(data)} bytes, which do not hold its names")
    return code


def _check_name(path: Path, name: str) -> None:
    if not name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise corrupt(path, f"it names a file {name!r:.200}, expected a path inside the pool folder")


def _check_units(path: Path, events: Events) -> None:
    units = events[events["kind"] == Kind.UNIT_DEF]
    many = units["offset"]
    beyond = (many > _MOST_SITES) | (units["aux"] + np.minimum(many, _MOST_SITES) > _MOST_SITES)
    if bool(beyond.any()):
        unit = units[int(np.flatnonzero(beyond)[0])]
        raise corrupt(path, f"a unit has {int(unit['offset'])} sites from {int(unit['aux'])}, expected 32-bit numbers")


def _check_files(path: Path, events: Events, files: dict[int, WatchedFile]) -> None:
    kinds = [Kind.STORE, Kind.WRITE, Kind.TRUNCATE, Kind.CREATE, Kind.UNLINK, Kind.RENAME, Kind.CONTENT, Kind.LOAD]
    kinds.append(Kind.ALLOCATE)
    accesses = among(events["kind"], kinds)
    for number in np.unique(events["file"][accesses]):
        if int(number) not in files:
            raise corrupt(path, f"an access names file {int(number)}, expected one of {sorted(files)}")
    ends = np.minimum(events["offset"][accesses], _MOST_OFFSET) + events["size"][accesses]
    if bool((ends >= _MOST_OFFSET).any()):
        raise corrupt(path, "an access is beyond byte 2^62, expected it inside a file")
    for number in np.unique(events["aux"][events["kind"] == Kind.RENAME]):
        if number and int(number) not in files:
            raise corrupt(path, f"file {int(number)} is renamed, expected one of {sorted(files)}")


def _check_outputs(path: Path, events: Events) -> None:
    kinds = np.unique(events["aux"][events["kind"] == Kind.OUTPUT])
    for kind in set(kinds.tolist()) - set(OutputKind):
        raise corrupt(path, f"output of kind {kind}, expected one of {[*map(int, OutputKind)]}")


def _check_names(path: Path, trace: Trace, inodes: dict[int, Inode]) -> None:
    """Events about names have names, and name inodes and directories that are defined."""
    events = trace.events
    for index in trace.rows(*fmt.NAME_KINDS).tolist():
        event, data = events[index], trace.data(index)
        where = f"the event with seq {int(event['seq'])}"
        if len(data) < fmt.NAMES.itemsize:
            raise corrupt(path, f"{where} has {len(data)} bytes, expected names")
        names = np.frombuffer(data[: fmt.NAMES.itemsize], fmt.NAMES)[0]
        name = data[fmt.NAMES.itemsize :][: int(names["name_bytes"])]
        if len(data) - fmt.NAMES.itemsize < int(names["name_bytes"]) or b"\0" in data[fmt.NAMES.itemsize :]:
            raise corrupt(path, f"{where} has a name that is cut short, or holds a zero byte")
        if int(event["folder"]) and (not name or b"/" in name or name in (b".", b"..")):
            raise corrupt(path, f"{where} has the name {name!r:.200}, expected one of a directory's entries")
        known = (int(event["file"]), int(event["folder"]), int(names["to_folder"]), int(names["replaced"]))
        for number in (known[0], *filter(None, known[1:])):
            if number not in inodes:
                raise corrupt(path, f"{where} names inode {number}, which is not defined")
        for number in (known[1], known[2]):
            if number and not inodes[number].is_folder:
                raise corrupt(path, f"{where} has inode {number} for a directory, which it is not")
