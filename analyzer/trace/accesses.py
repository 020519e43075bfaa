"""Translates the thread, site and stack numbers of recorded reads into those of events.

Reads are numbered separately, so that the numbers of events do not depend on whether reads were recorded
(trace_format.h, CC_CHUNK_LOADS).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import ranges
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import Kind

Events = NDArray[np.void]
_LARGE = 512  # bytes that are copied by themselves: the place of each one takes sixteen times its room


@dataclass(frozen=True, slots=True)
class UnitDef:
    """A translation unit that ran: its sites have the global ids base … base + sites - 1."""

    base: int
    sites: int
    key: int
    module_path: str


def payload_of(raw: NDArray[np.uint8], event: np.void) -> bytes:
    """The bytes that a record carries; empty for kinds that carry none."""
    if int(event["kind"]) not in fmt.PAYLOAD_KINDS:
        return b""
    size, payload = int(event["size"]), int(event["payload"])
    if size <= fmt.INLINE_BYTES:
        return payload.to_bytes(8, "little")[:size]
    return raw[payload : payload + size].tobytes()


def payloads_of(raw: NDArray[np.uint8], events: Events) -> NDArray[np.uint8]:
    """The bytes that some stores and writes carry, one after another."""
    size = events["size"].astype(np.int64)
    inline = size <= fmt.INLINE_BYTES
    carried = np.ascontiguousarray(events["payload"])
    if bool(inline.all()):
        begin = np.arange(len(events)) * fmt.INLINE_BYTES
        return carried.astype("<u8", copy=False).view(np.uint8)[ranges(begin, size)]
    out = np.empty(int(size.sum()), dtype=np.uint8)
    ends = np.cumsum(size)
    near = np.flatnonzero(inline)
    out[ranges(ends[near] - size[near], size[near])] = payloads_of(raw, events[near])
    far = np.flatnonzero(~inline & (size < _LARGE))
    out[ranges(ends[far] - size[far], size[far])] = raw[ranges(carried[far].astype(np.int64), size[far])]
    for row in np.flatnonzero(size >= _LARGE).tolist():
        payload = int(carried[row])
        out[ends[row] - size[row] : ends[row]] = raw[payload : payload + size[row]]
    return out


def units_of(raw: NDArray[np.uint8], events: Events) -> list[tuple[int, UnitDef]]:
    """The process and the definition of each unit, in order."""
    units = []
    for event in events[events["kind"] == Kind.UNIT_DEF]:
        data = payload_of(raw, event)
        key, path = int.from_bytes(data[:8], "little"), os.fsdecode(data[8:])
        units.append((int(event["pid"]), UnitDef(int(event["aux"]), int(event["offset"]), key, path)))
    return units


def renumber_loads(
    raw: NDArray[np.uint8],
    header: np.void,
    accesses: Events,
    units: list[tuple[int, UnitDef]],
    stacks: dict[int, tuple[int, int]],
) -> tuple[Events, Events]:
    """(loads of watched files, gaps), with threads, sites and stacks as events have them.

    What no event knows gets numbers that none uses; such units and stacks are added to `units` and `stacks`.
    """
    kinds = accesses["kind"]
    if not len(accesses):
        return accesses, accesses
    bases, shifts = _site_shifts(raw, header, accesses, units)
    stack_numbers = _stack_numbers(header, accesses[kinds == Kind.STACK_DEF], bases, shifts, stacks)
    thread_numbers = _thread_numbers(header, accesses)
    result = []
    for kind in (Kind.LOAD, Kind.LOAD_GAP):
        rows = accesses[kinds == kind]
        rows["site"] = _shifted(rows["site"], bases, shifts)
        rows["stack"] = stack_numbers.of(rows["stack"])
        rows["thread"] = thread_numbers.of(rows["thread"])
        result.append(rows)
    # loads and gaps of one thread may share a number: the offset shows which was first
    result[1]["offset"] = np.cumsum(kinds == Kind.LOAD)[kinds == Kind.LOAD_GAP]
    return result[0], result[1]


@dataclass(frozen=True, slots=True)
class _Numbers:
    """New numbers for old ones, which are sorted. Sorted, not an index: a damaged trace may hold any 32-bit number."""

    old: NDArray[np.uint32]
    new: NDArray[np.uint32]

    def of(self, numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The new number of each; 0 for one that is not known."""
        if not len(self.old):
            return np.zeros(len(numbers), dtype=np.uint32)
        at = np.maximum(np.searchsorted(self.old, numbers, side="right") - 1, 0)
        return np.where(self.old[at] == numbers, self.new[at], np.uint32(0))


def _shifted(sites: NDArray[np.uint32], bases: NDArray[np.int64], shifts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Site numbers of events for those of loads; 0 stays 0."""
    at = np.searchsorted(bases, sites.astype(np.int64), side="right") - 1
    known: NDArray[np.int64] = np.where((at >= 0) & (sites != 0), sites + shifts[np.maximum(at, 0)], 0)
    return known


def _site_shifts(
    raw: NDArray[np.uint8], header: np.void, accesses: Events, units: list[tuple[int, UnitDef]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First site of each unit as loads have it, sorted, and what to add for events' numbers."""
    by_process: dict[tuple[int, int, str], int] = {}
    anywhere: dict[tuple[int, str], int] = {}
    for pid, unit in units:
        by_process.setdefault((pid, unit.key, unit.module_path), unit.base)
        anywhere.setdefault((unit.key, unit.module_path), unit.base)
    free = max(int(header["next_site"]), 1, *(unit.base + unit.sites for _, unit in units))
    moves = {0: 0}
    for pid, unit in units_of(raw, accesses):
        base = by_process.get((pid, unit.key, unit.module_path)) or anywhere.get((unit.key, unit.module_path)) or 0
        if not base:
            base = anywhere[unit.key, unit.module_path] = free
            units.append((pid, UnitDef(base, unit.sites, unit.key, unit.module_path)))
            free += max(unit.sites, 1)
        moves[unit.base] = base - unit.base
    bases = np.array(sorted(moves), dtype=np.int64)
    return bases, np.array([moves[int(base)] for base in bases], dtype=np.int64)


def _stack_numbers(
    header: np.void,
    definitions: Events,
    bases: NDArray[np.int64],
    shifts: NDArray[np.int64],
    stacks: dict[int, tuple[int, int]],
) -> _Numbers:
    """Of each stack of a load, the stack of events with the same calls."""
    known: dict[tuple[int, int], int] = {}
    for number, edge in stacks.items():
        known.setdefault(edge, number)
    free = max(int(header["next_stack"]), 1, max(stacks, default=0) + 1)
    ordered = definitions[np.argsort(definitions["stack"], kind="stable")]
    numbers: dict[int, int] = {}
    sites = _shifted(ordered["site"], bases, shifts).tolist()
    for stack, parent, site in zip(ordered["stack"].tolist(), ordered["aux"].tolist(), sites, strict=True):
        edge = (numbers.get(parent, 0) if parent < stack else 0, site)
        number = known.get(edge, 0)
        if not number:
            number = known[edge] = free
            stacks[number] = edge
            free += 1
        numbers[stack] = number
    return _Numbers(_uint32(numbers), _uint32(numbers.values()))


def _thread_numbers(header: np.void, accesses: Events) -> _Numbers:
    """Of each thread of loads, the thread of events; one that recorded no event gets a number of its own."""
    starts = accesses[accesses["kind"] == Kind.THREAD_START]
    old = np.unique(accesses["thread"])
    new = old + np.uint32(max(int(header["next_thread"]), 1) - 1)
    new[np.searchsorted(old, starts["thread"])] = starts["aux"]
    return _Numbers(old, new)


def _uint32(numbers: Iterable[int]) -> NDArray[np.uint32]:
    """Numbers of a damaged trace may be longer: their low 32 bits."""
    return np.array(list(numbers), dtype=np.int64).astype(np.uint32)
