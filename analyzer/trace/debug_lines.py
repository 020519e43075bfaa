"""Lines of source of places in machine code, from the debug information (DWARF) of a program that somebody else built.

Reading a line table takes long: this is for the few places that a finding names.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from elftools.dwarf.descriptions import describe_form_class
from elftools.elf.elffile import ELFFile

from crashcheck.analyzer.trace.reader import CallSite

_MOST_BYTES = 128 << 20  # of a file that is read


class DebugLine(NamedTuple):
    """A line of a source; `file` as the compiler was given it, absolute where its folder is known."""

    file: str
    line: int


class DebugLines:
    """Finds the lines; each file is read once, and each place is searched once."""

    def __init__(self) -> None:
        self._files: dict[str, _Lines | None] = {}
        self._known: dict[CallSite, DebugLine | None] = {}

    def of(self, site: CallSite) -> DebugLine | None:
        """The line of a call; None where no debug information has it."""
        if site not in self._known:
            self._known[site] = self._find(site)
        return self._known[site]

    def _find(self, site: CallSite) -> DebugLine | None:
        if site.line:
            return DebugLine(site.module, site.line)
        if not site.module or site.name:
            return None
        if site.module not in self._files:
            self._files[site.module] = _opened(site.module)
        lines = self._files[site.module]
        try:
            return None if lines is None else lines.at(site.offset - 1)  # it is the instruction after the call
        except Exception:  # of damaged debug information pyelftools raises errors of many kinds
            return None


class _Lines:
    """The debug information of one file."""

    def __init__(self, elf: ELFFile) -> None:
        self._loads = [each.header for each in elf.iter_segments() if each["p_type"] == "PT_LOAD"]
        self._dwarf = elf.get_dwarf_info()
        self._tables: dict[int, list[tuple[int, int, str, int]]] = {}  # by unit: low, high, file, line

    def at(self, offset: int) -> DebugLine | None:
        address = next((offset - each.p_offset + each.p_vaddr for each in self._loads if _holds(each, offset)), None)
        if address is None:
            return None
        for unit in self._units(address):
            if unit.cu_offset not in self._tables:
                self._tables[unit.cu_offset] = list(self._rows(unit))
            for low, high, file, line in self._tables[unit.cu_offset]:
                if low <= address < high and line:
                    return DebugLine(file, line)
        return None

    def _units(self, address: int) -> Iterator[Any]:
        """The units that may hold an address."""
        ranges = self._dwarf.get_aranges()
        known = ranges.cu_offset_at_addr(address) if ranges is not None else None
        if known is not None:
            yield self._dwarf.get_CU_at(known)
            return
        for unit in self._dwarf.iter_CUs():
            top = unit.get_top_DIE().attributes
            low, high = top.get("DW_AT_low_pc"), top.get("DW_AT_high_pc")
            if low is None or high is None:
                if "DW_AT_ranges" in top:
                    yield unit
                continue
            end = high.value if describe_form_class(high.form) == "address" else low.value + high.value
            if low.value <= address < end:
                yield unit

    def _rows(self, unit: Any) -> Iterator[tuple[int, int, str, int]]:
        program = self._dwarf.line_program_for_CU(unit)
        last = None
        for entry in program.get_entries() if program is not None else ():
            state = entry.state
            if state is None:
                continue
            if last is not None and not last.end_sequence:
                yield last.address, state.address, _file(program, unit, last.file), last.line
            last = state


def _holds(segment: Any, offset: int) -> bool:
    return bool(segment.p_offset <= offset < segment.p_offset + segment.p_filesz)


def _file(program: Any, unit: Any, number: int) -> str:
    """The path of a file of a line table: up to DWARF 4 its files count from 1, and folder 0 is the compiler's."""
    header = program.header
    modern = header.version >= 5
    entry = header.file_entry[number if modern else number - 1]
    folders = [each.decode("utf-8", "replace") for each in header.include_directory]
    compiled = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
    here = compiled.value.decode("utf-8", "replace") if compiled is not None else ""
    folders = folders if modern else [here, *folders]
    folder = folders[entry.dir_index] if entry.dir_index < len(folders) else here
    return os.path.normpath(os.path.join(here, folder, entry.name.decode("utf-8", "replace")))


def _opened(path: str) -> _Lines | None:
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            return None
        elf = ELFFile(io.BytesIO(Path(path).read_bytes()))
        return _Lines(elf) if elf.has_dwarf_info() else None
    except Exception:  # as in `of`
        return None
