"""Functions and lines of programs in Go, by the table that each of them holds for its own tracebacks, stripped or not.

The layout is that of Go 1.18 and later, as the package runtime of Go's library declares it (symtab.go: pcHeader, _func,
pcvalue). Programs of earlier versions have no table here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

_SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
_VERSIONS = {0xFFFFFFF0: 40, 0xFFFFFFF1: 44}  # magic numbers: bytes of a function's fixed part
_FIRST = "_rt0_"  # how the name of the function begins that a program begins in
_INLINED = 2  # PCDATA_InlTreeIndex


class GoPlace(NamedTuple):
    """`function` is "" in code that was inlined: the table that names it is found only while the program runs."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, eq=False)
class GoTable:
    """Of one program. Addresses are those of its file, before it is loaded."""

    starts: NDArray[np.int64]  # where each function begins, ascending
    end: int  # of the last
    _parts: NDArray[np.int64]  # where each is described, from `_functions` on
    _data: bytes
    _fixed_bytes: int
    _names: int
    _units: int
    _files: int
    _values: int
    _functions: int

    def name(self, at: int) -> str:
        """Of the function whose place in `starts` is given."""
        return without_path(self._text(self._names + self._word(self._functions + int(self._parts[at]) + 4)))

    def place(self, address: int) -> GoPlace | None:
        """Of the instruction at an address."""
        at = int(np.searchsorted(self.starts, address, side="right")) - 1
        if at < 0 or address >= self.end:
            return None
        function = self._functions + int(self._parts[at])
        file, line, count, unit = (self._word(function + 4 * word) for word in range(5, 9))
        into = address - int(self.starts[at])
        number, inlined = self._value(file, into), -1
        if count > _INLINED:
            inlined = self._value(self._word(function + self._fixed_bytes + 4 * _INLINED), into)
        path = self._word(self._units + 4 * (unit + number)) if number >= 0 else 0xFFFFFFFF
        if path == 0xFFFFFFFF:
            return None
        own = self.name(at) if inlined < 0 else ""
        return GoPlace(own, self._text(self._files + path), max(self._value(line, into), 0))

    def _value(self, table: int, into: int) -> int:
        """The value of a table at an instruction, as bytes from the function's start; -1 where it has none."""
        if not table:
            return -1
        at, value, behind = self._values + table, -1, 0
        while True:
            change, at = self._number(at)
            if not change and behind:
                return -1
            value += ~(change >> 1) if change & 1 else change >> 1
            step, at = self._number(at)
            behind += step
            if into < behind:
                return value

    def _number(self, at: int) -> tuple[int, int]:
        """A number of seven bits a byte, and where the next begins."""
        value = shift = 0
        while True:
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    def _word(self, at: int) -> int:
        return int.from_bytes(self._data[at : at + 4], "little")

    def _text(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at)].decode("utf-8", "replace")


def read_go_table(elf: ELFFile) -> GoTable | None:
    """None if the program is not in Go, or of a version whose table is not known."""
    section = next(filter(None, map(elf.get_section_by_name, _SECTIONS)), None)
    if section is None or elf["e_machine"] != "EM_X86_64":
        return None
    data = section.data()
    fixed_bytes = _VERSIONS.get(int.from_bytes(data[:4], "little"))
    if fixed_bytes is None:
        return None
    count, _, text, names, units, files, values, functions = np.frombuffer(data, "<u8", 8, 8).tolist()
    rows = np.frombuffer(data, "<u4", 2 * count + 1, functions).astype(np.int64)
    offsets, parts, end = rows[:-1:2], rows[1::2], int(rows[-1])
    table = GoTable(offsets, end, parts, data, fixed_bytes, names, units, files, values, functions)
    start = _text_start(elf, text, table)
    return replace(table, starts=offsets + start, end=end + start) if start else None


def _text_start(elf: ELFFile, stated: int, table: GoTable) -> int:
    """The address from which a table counts; 0 if it is not known.

    A program that is linked for a fixed address states it, until Go 1.25. Else it is that of the code, if Go's linker
    made the program: then it begins with a function of Go's.
    """
    if stated and elf["e_type"] == "ET_EXEC":
        return stated
    section = elf.get_section_by_name(".text")
    start = int(section["sh_addr"]) if section is not None else 0
    at = int(np.searchsorted(table.starts, int(elf["e_entry"]) - start))
    begins = at < len(table.starts) and table.starts[at] + start == elf["e_entry"]
    return start if begins and table.name(at).startswith(_FIRST) else 0


def without_path(name: str) -> str:
    """Of a function, without where its package is imported from: its file's path has that, too."""
    return name[re.split(r"[(\[]", name, maxsplit=1)[0].rfind("/") + 1 :]
