"""Lines of scripts: which line an instruction of Python is at, by the table of lines that is kept with each function.

Three formats: PEP 657's of 3.11 and later, PEP 626's of 3.10, and the older `co_lnotab`. A damaged table yields line 0.
Other languages have no table: their positions are recorded as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crashcheck.runtime import trace_format as fmt

_OTHER_LANGUAGE = (0, 0)  # as a version of Python
_UNIT = 2  # bytes of an instruction
_NO_LINE = -128


class Position(NamedTuple):
    """Both from 1; 0 where not known."""

    line: int
    column: int


NOWHERE = Position(0, 0)


@dataclass(frozen=True, slots=True)
class PythonCode:
    """A function, a class's body or a module of Python, or a function of another language, as the recorder found it."""

    version: tuple[int, int]
    file: str
    name: str
    first_line: int
    table: bytes

    def position(self, offset: int) -> Position:
        """Of the instruction at a byte offset; outside of Python the offset is a line (high 32 bits) and a column."""
        if self.version == _OTHER_LANGUAGE:
            return Position(offset >> 32, offset & 0xFFFFFFFF)
        try:
            if self.version >= (3, 11):
                return self._position(offset)
            return Position(self._line_3_10(offset) if self.version == (3, 10) else self._line_old(offset), 0)
        except IndexError:
            return NOWHERE

    def _position(self, offset: int) -> Position:
        at = 0
        for length, position in self._entries():
            if at <= offset < at + length:
                return position
            at += length
        return NOWHERE

    def _entries(self) -> Iterator[tuple[int, Position]]:
        """The bytes that each entry covers, and where they come from."""
        table, at, line = self.table, 0, self.first_line
        while at < len(table):
            code, length = table[at] >> 3 & 15, ((table[at] & 7) + 1) * _UNIT
            at += 1
            position = NOWHERE
            if code <= 9:
                position = Position(line, (code << 3 | table[at] >> 4) + 1)
                at += 1
            elif code <= 12:
                line += code - 10
                position = Position(line, table[at] + 1)
                at += 2
            elif code == 13:
                delta, at = _signed(table, at)
                line += delta
                position = Position(line, 0)
            elif code == 14:
                delta, at = _signed(table, at)
                line += delta
                _, at = _varint(table, at)
                column, at = _varint(table, at)
                _, at = _varint(table, at)
                position = Position(line, column)
            yield length, position

    def _line_3_10(self, offset: int) -> int:
        end, line = 0, self.first_line
        for index in range(0, len(self.table), 2):
            start, end = end, end + self.table[index]
            delta = _signed_byte(self.table[index + 1])
            line += delta if delta != _NO_LINE else 0
            if start <= offset < end:
                return line if delta != _NO_LINE else 0
        return 0

    def _line_old(self, offset: int) -> int:
        at, line = 0, self.first_line
        for index in range(0, len(self.table), 2):
            at += self.table[index]
            if at > offset:
                break
            line += _signed_byte(self.table[index + 1])
        return line


def python_code(data: bytes) -> PythonCode | None:
    """The function that a CODE_DEF describes; None if that is damaged."""
    if len(data) < fmt.CODE.itemsize:
        return None
    head = np.frombuffer(data[: fmt.CODE.itemsize], fmt.CODE)[0]
    rest, file, name = data[fmt.CODE.itemsize :], int(head["file_bytes"]), int(head["name_bytes"])
    if not file or not name or file + name > len(rest) or b"\0" in rest[: file + name]:
        return None
    version, shown = divmod(int(head["version"]), 256), rest[file : file + name].decode("utf-8", "replace")
    return PythonCode(version, os.fsdecode(rest[:file]), shown, int(head["first_line"]), rest[file + name :])


def _signed_byte(value: int) -> int:
    return value - 256 if value > 127 else value


def _varint(table: bytes, at: int) -> tuple[int, int]:
    """A number of six bits a byte, the lowest first, and where the next one begins."""
    value = shift = 0
    while True:
        byte = table[at]
        at += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            return value, at


def _signed(table: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(table, at)
    return (-(value >> 1) if value & 1 else value >> 1), at
