"""Chunks of loads number threads, sites and stacks apart from events; here they get the names that events know.

So what events are called does not depend on whether reads were recorded (trace_format.h, CC_CHUNK_LOADS).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import Kind

Events = NDArray[np.void]


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
) -> tuple[Events, Events, Events]:
    """(loads of watched files, accesses to other memory, gaps), with threads, sites and stacks as events have them.

    What no event knows gets numbers that none uses; such units and stacks are added to `units` and `stacks`.
    """
    kinds = accesses["kind"]
    if not len(accesses):
        return accesses, accesses, accesses
    bases, shifts = _site_shifts(raw, header, accesses, units)
    stack_of = _stack_numbers(header, accesses[kinds == Kind.STACK_DEF], bases, shifts, stacks)
    thread_of = _thread_numbers(header, accesses)
    result = []
    for chosen in ([Kind.LOAD], [Kind.VOLATILE_LOAD, Kind.VOLATILE_STORE], [Kind.LOAD_GAP]):
        rows = accesses[np.isin(kinds, np.array(chosen, dtype=np.uint8))]
        rows["site"] = _shifted(rows["site"], bases, shifts)
        rows["stack"] = stack_of[np.minimum(rows["stack"], len(stack_of) - 1)]
        rows["thread"] = thread_of[np.minimum(rows["thread"], len(thread_of) - 1)]
        result.append(rows)
    # loads and gaps of one thread may share a number: the offset shows which was first
    result[2]["offset"] = np.cumsum(kinds == Kind.LOAD)[kinds == Kind.LOAD_GAP]
    return result[0], result[1], result[2]


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
) -> NDArray[np.uint32]:
    """By stack of a load, the stack of events with the same calls."""
    known: dict[tuple[int, int], int] = {}
    for number, edge in stacks.items():
        known.setdefault(edge, number)
    free = max(int(header["next_stack"]), 1, max(stacks, default=0) + 1)
    ordered = definitions[np.argsort(definitions["stack"], kind="stable")]
    numbers = np.zeros(int(ordered["stack"][-1]) + 1 if len(ordered) else 1, dtype=np.uint32)
    sites = _shifted(ordered["site"], bases, shifts).tolist()
    for stack, parent, site in zip(ordered["stack"].tolist(), ordered["aux"].tolist(), sites, strict=True):
        edge = (int(numbers[parent]) if parent < stack else 0, site)
        number = known.get(edge, 0)
        if not number:
            number = known[edge] = free
            stacks[number] = edge
            free += 1
        numbers[stack] = number
    return numbers


def _thread_numbers(header: np.void, accesses: Events) -> NDArray[np.uint32]:
    """By thread of loads, the thread of events; one that recorded no event gets a number of its own."""
    said = accesses[accesses["kind"] == Kind.THREAD_START]
    numbers = np.arange(int(accesses["thread"].max()) + 1, dtype=np.uint32) + np.uint32(
        max(int(header["next_thread"]), 1) - 1
    )
    numbers[said["thread"]] = said["aux"]
    return numbers
