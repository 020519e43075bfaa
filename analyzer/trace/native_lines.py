"""Lines of programs in C, C++, Go, Rust and others that compilers described by DWARF, without crashcheck-cc.

Programs in Go that were stripped of it have lines, too (go_table).

A place in machine code is a chain: the function whose line it is, then those that it was inlined into. What a file does
not describe, or what is damaged, has an empty chain. See DWARF 5, sections 3.3.8 and 6.2.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from crashcheck.analyzer.trace.go_table import GoTable, read_go_table, without_path

_LARGEST = 256 << 20  # bytes of .debug_info, uncompressed: reading the heads of 10^5 units takes a minute
# Of one file: bytes of functions that are read, at 5 s for a MiB, and of lines of units that are asked for, at 10 s.
# Beyond the first there are lines without functions, beyond the second none.
_MOST_FUNCTIONS = 1 << 20
_MOST_LINES = 1 << 19
_ADDRESSES = 1 << 64
_HIGHEST = 1 << 63  # of user space on any machine; those above are of damaged files
_GO, _RUST = 0x16, 0x1C  # DW_LANG_Go, DW_LANG_Rust


# What holds functions. The members of a class in C++ are defined outside of it, those of a structure in Rust inside.
_HOLDERS = (
    ("DW_TAG_lexical_block", "DW_TAG_namespace"),
    ("DW_TAG_lexical_block", "DW_TAG_namespace", "DW_TAG_structure_type", "DW_TAG_enumeration_type"),
)


class NativePlace(NamedTuple):
    """Lines and columns count from 1; 0 where not known."""

    function: str
    file: str
    line: int
    column: int


@dataclass(slots=True)
class NativeLines:
    """Finds the places; each file is opened once, and each unit of it read when it is asked for first.

    Units all of whose sources are of libraries are not read: there are many, and nobody asks where in them a call is.
    """

    is_own: Callable[[str], bool]  # whether a source is the program's own
    _files: dict[str, _DebugFile | _GoFile | None] = field(default_factory=dict)

    def chain(self, module: str, offset: int) -> tuple[NativePlace, ...]:
        """Of the instruction at an offset of a program or library, innermost first."""
        if module not in self._files:
            self._files[module] = _opened(module, self.is_own)
        file = self._files[module]
        try:
            return file.chain(offset) if file is not None else ()
        except Exception:  # of a damaged file pyelftools raises errors of its parser, of zlib, of Python's integers…
            self._files[module] = None
            return ()


def _opened(path: str, is_own: Callable[[str], bool]) -> _DebugFile | _GoFile | None:
    try:
        with open(path, "rb") as file:
            elf = ELFFile(file)
            section = elf.get_section_by_name(".debug_info") or elf.get_section_by_name(".zdebug_info")
            if section is not None and section.data_size <= _LARGEST:
                return _DebugFile(elf, is_own)
            table = read_go_table(elf)
            return _GoFile(_Loads(elf), table) if table is not None else None
    except Exception:
        return None


class _Loads:
    """Which part of a file is loaded to which address."""

    def __init__(self, elf: ELFFile) -> None:
        self._loads = [
            (s["p_offset"], s["p_filesz"], s["p_vaddr"]) for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"
        ]

    def address(self, offset: int) -> int:
        """-1: it is not loaded."""
        return next((offset - at + to for at, size, to in self._loads if at <= offset < at + size), -1)


@dataclass(frozen=True, slots=True)
class _GoFile:
    _loads: _Loads
    _table: GoTable

    def chain(self, offset: int) -> tuple[NativePlace, ...]:
        place = self._table.place(self._loads.address(offset))
        return (NativePlace(*place, 0),) if place is not None else ()


@dataclass(slots=True)
class _Unit:
    """Of one compilation unit: its lines, and the functions that hold them."""

    address: NDArray[np.int64]  # where each row of the line table begins, ascending
    rows: list[tuple[str, int, int]]  # file, line, column; line 0 ends a sequence
    functions: list[_Function]


@dataclass
class _Function:
    """A function, or a copy of one that was inlined. What is in it is read when it is asked for."""

    ranges: list[tuple[int, int]]
    call: tuple[str, int, int]  # of a copy: where it is called
    _die: Any
    _within: Callable[[Any], Iterator[_Function]]

    @cached_property
    def name(self) -> str:
        return _name(self._die)

    @cached_property
    def inner(self) -> list[_Function]:
        return list(self._within(self._die))

    def has(self, address: int) -> bool:
        return any(low <= address < high for low, high in self.ranges)


class _DebugFile:
    def __init__(self, elf: ELFFile, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self._loads = _Loads(elf)
        self._dwarf = elf.get_dwarf_info()
        self._lists = self._dwarf.range_lists()
        self._units: dict[int, _Unit] = {}
        self._functions_left, self._lines_left = _MOST_FUNCTIONS, _MOST_LINES
        found = [(low, high, unit) for unit in self._dwarf.iter_CUs() for low, high in self._ranges(unit.get_top_DIE())]
        found.sort(key=lambda each: each[:2])
        self._low = np.array([low for low, _, _ in found], dtype=np.int64)
        self._high = [high for _, high, _ in found]
        self._of = [unit for _, _, unit in found]

    def chain(self, offset: int) -> tuple[NativePlace, ...]:
        address = self._loads.address(offset)
        index = int(np.searchsorted(self._low, address, side="right")) - 1
        if index < 0 or address >= self._high[index]:
            return ()
        described = self._of[index]
        unit = self._units.get(described.cu_offset)
        if unit is None:
            unit = self._units[described.cu_offset] = self._read(described)
        row = int(np.searchsorted(unit.address, address, side="right")) - 1
        if row < 0 or not unit.rows[row][1]:
            return ()
        inside, level = list[_Function](), unit.functions
        while function := next((each for each in level if each.has(address)), None):
            inside.append(function)
            level = function.inner
        places, at = [], unit.rows[row]
        for function in reversed(inside):
            places.append(NativePlace(function.name, *at))
            at = function.call
        return tuple(places) or (NativePlace("", *at),)

    def _read(self, described: Any) -> _Unit:
        program = self._dwarf.line_program_for_CU(described)
        top = described.get_top_DIE()
        folder = _text(top, "DW_AT_comp_dir")
        files = _Files(program, folder)
        if program is None or not any(map(self._is_own, files.paths)):
            return _Unit(np.zeros(0, dtype=np.int64), [], [])
        self._lines_left -= program.program_end_offset - program.program_start_offset
        if self._lines_left < 0:
            return _Unit(np.zeros(0, dtype=np.int64), [], [])
        address, rows = [], []
        for entry in program.get_entries():
            state = entry.state
            if state is not None:
                address.append(int(state.address))
                rows.append(("", 0, 0) if state.end_sequence else (files.path(state.file), state.line, state.column))
        # where one sequence ends, another may begin
        order = sorted(range(len(address)), key=lambda at: (address[at], rows[at][1] > 0))
        return _Unit(
            np.array([address[at] for at in order], dtype=np.int64),
            [rows[at] for at in order],
            list(self._functions(files, _HOLDERS[_number(top, "DW_AT_language") == _RUST], top)),
        )

    def _functions(self, files: _Files, holders: Collection[str], die: Any) -> Iterator[_Function]:
        """The functions below an entry, also those in blocks and namespaces."""
        for child in self._children(die):
            if child.tag in ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine"):
                ranges = self._ranges(child)
                if ranges:
                    call = tuple(_number(child, f"DW_AT_call_{what}") for what in ("file", "line", "column"))
                    where = (files.path(call[0]), call[1], call[2])
                    yield _Function(ranges, where, child, partial(self._functions, files, holders))
            elif child.has_children and child.tag in holders:
                yield from self._functions(files, holders, child)

    def _children(self, die: Any) -> Iterator[Any]:
        """As long as there are bytes left. All below a child is read with it, unless the child refers to the next."""
        is_new = die.get_parent() is None or "DW_AT_sibling" in die.attributes
        start = die.offset
        for child in die.iter_children():
            self._functions_left -= (child.offset - start) * is_new
            if self._functions_left < 0:
                return
            yield child
            start = child.offset
            if "DW_AT_sibling" in child.attributes:
                start = child.get_DIE_from_attribute("DW_AT_sibling").offset - child.size

    def _ranges(self, die: Any) -> list[tuple[int, int]]:
        first, last, several = (die.attributes.get(f"DW_AT_{what}") for what in ("low_pc", "high_pc", "ranges"))
        if several is None or self._lists is None:
            if first is None or last is None:
                return []
            end = last.value if last.form == "DW_FORM_addr" else first.value + last.value
            return [(first.value, end)] if first.value < end < _HIGHEST else []
        top = die.cu.get_top_DIE().attributes.get("DW_AT_low_pc")
        base, out = top.value if top is not None else 0, []
        for entry in self._lists.get_range_list_at_offset(several.value, cu=die.cu):
            if isinstance(entry, BaseAddressEntry):
                base = entry.base_address
                continue
            start = 0 if getattr(entry, "is_absolute", False) else base
            # Go's linker writes what is below the base as an offset that wraps around.
            low, high = ((start + offset) % _ADDRESSES for offset in (entry.begin_offset, entry.end_offset))
            if low < high < _HIGHEST:
                out.append((low, high))
        return out


class _Files:
    """Files of a unit by their numbers in its line program."""

    def __init__(self, program: Any, folder: str) -> None:
        self.paths: list[str] = []
        self._first = 0
        if program is None:
            return
        header = program.header
        self._first = 0 if header["version"] >= 5 else 1
        folders = [_decoded(each) for each in header["include_directory"]]
        if self._first:
            folders = [folder, *folders]
        for entry in header["file_entry"]:
            number = entry["dir_index"]
            within = folders[number] if number < len(folders) else ""
            self.paths.append(os.path.normpath(os.path.join(folder, within, _decoded(entry["name"]))))

    def path(self, number: int) -> str:
        at = number - self._first if self.paths else -1
        return self.paths[at] if 0 <= at < len(self.paths) else ""


def _decoded(name: bytes | str) -> str:
    return os.fsdecode(name)


def _text(die: Any, attribute: str) -> str:
    found = die.attributes.get(attribute)
    return _decoded(found.value) if found is not None else ""


def _number(die: Any, attribute: str) -> int:
    found = die.attributes.get(attribute)
    return int(found.value) if found is not None else 0


def _name(die: Any) -> str:
    """Of a function: its own, or that of what it is a copy or the definition of."""
    for _ in range(4):
        if "DW_AT_name" in die.attributes:
            name, unit = _text(die, "DW_AT_name"), die.cu.get_top_DIE()
            return without_path(name) if _number(unit, "DW_AT_language") == _GO else name
        link: Sequence[str] = [
            each for each in ("DW_AT_abstract_origin", "DW_AT_specification") if each in die.attributes
        ]
        if not link:
            return ""
        die = die.get_DIE_from_attribute(link[0])
    return ""
