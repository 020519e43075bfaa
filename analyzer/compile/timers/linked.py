"""Switches on the hooks of a linked program that time reaches: in the file, where its units' tables of comparisons are.

Only now all units are known: a time may be read in one, kept by another and compared in a third. A shared library is a
program of its own here; times that pass from one to another are not followed.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from crashcheck.analyzer.compile.facts import SECTION, decode
from crashcheck.analyzer.compile.timers.flows import ImplicitTimer, timers_of, unpack

TIMERS_SECTION = "crashcheck_timers"
# struct cc_timer of hooks.h; of the first of a unit: how many follow, and the unit's key.
_ENTRY = struct.Struct("<QdIIQ")
_SWITCH = struct.Struct("<dI")  # its unit and its directions
_SWITCH_AT = 8
TIMER_BYTES, TIMER_DIRECTIONS = _ENTRY.size, _SWITCH_AT + 8  # and where its directions are
_GROWS, _SHRINKS = 1, 2


def activate(program: Path) -> int:
    """Write into a linked program which comparisons time decides; how many these are.

    Raises CrashcheckError: facts-corrupt, facts-version.
    """
    try:
        with open(program, "r+b") as stream, mmap.mmap(stream.fileno(), 0) as content:
            if content.find(TIMERS_SECTION.encode()) < 0:
                return 0
            return _activated(content, str(program))
    except (OSError, ValueError):  # no output, as of `-o /dev/null`; or one that is empty
        return 0


def _activated(content: mmap.mmap, origin: str) -> int:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(cast(IO[bytes], content))
    table = elf.get_section_by_name(TIMERS_SECTION)
    if elf["e_type"] not in ("ET_EXEC", "ET_DYN") or table is None:
        return 0
    facts = [section.data() for section in elf.iter_sections() if section.name == SECTION]
    units = [unit for data in facts for unit in decode(data, origin)]
    flows = [unpack(unit.timers, number) for number, unit in enumerate(units)]
    timers = dict(zip((unit.key for unit in units), timers_of(flows), strict=True))
    active = 0
    for key, entries in _tables(content, table["sh_offset"], table["sh_size"]):
        for entry, timer in zip(entries, timers.get(key, ()), strict=False):
            if timer is not None:
                _SWITCH.pack_into(content, entry + _SWITCH_AT, timer.unit_ns, _directions(timer))
                active += 1
    return active


def _directions(timer: ImplicitTimer) -> int:
    return _GROWS * timer.grows | _SHRINKS * timer.shrinks


def _tables(content: mmap.mmap, at: int, size: int) -> Iterator[tuple[int, range]]:
    """For each unit its key, and where the entries of its comparisons are."""
    end = at + size
    while at + _ENTRY.size <= end:
        _, _, count, _, key = _ENTRY.unpack_from(content, at)
        yield key, range(at + _ENTRY.size, at + _ENTRY.size * (count + 1), _ENTRY.size)
        at += _ENTRY.size * (count + 1)
