"""Reads the log of pmemcheck: its stores, and which contents each cache line could have in each operation."""

from __future__ import annotations

import re

from bench.measure import CannotMeasure

_LINE = 64


def stores_of(log: str) -> str:
    """The log of stores in what pmemcheck wrote, without the beginnings of valgrind's lines in it.

    pmreorder would take those for a part of the marker before them.
    """
    found = re.search(r"START\|.*\|STOP", re.sub(r"\n==\d+== ", "", log), re.DOTALL)
    if found is None:
        raise CannotMeasure(f"pmemcheck logged no stores: {log[-500:]}")
    return found[0]


class CacheLines:
    """Which contents each cache line can have in each operation: what has persisted before, then its stores in order.

    From a log, and the bytes of its file. pmreorder keeps the order of fences, but knows no cache lines.
    """

    def __init__(self, log: str, size: int) -> None:
        records = [record.strip().split(";") for record in log.split("|")]
        (base,) = (int(record[2], 16) for record in records if record[0] == "REGISTER_FILE")
        self._image = bytearray(size)
        self._contents: dict[int, list[bytes]] = {}  # of each line: at first, then after each of its stores
        flushed: dict[int, int] = {}  # by line, how many of its stores
        durable: dict[int, int] = {}
        self._windows: list[tuple[dict[int, int], dict[int, int]]] = []  # by operation: the first and last contents
        began: dict[int, int] = {}
        for kind, *values in records:
            if kind == "STORE":
                self._store(int(values[0], 16) - base, int(values[1], 16).to_bytes(int(values[2], 16), "little"))
            elif kind == "FLUSH":
                for line in self._lines(int(values[0], 16) - base, int(values[1], 16)):
                    flushed[line] = len(self._contents[line]) - 1
            elif kind == "FENCE":
                durable = dict(flushed)
            elif kind in ("operation.END", "STOP"):
                self._windows.append((began, {line: len(contents) for line, contents in self._contents.items()}))
                began = dict(durable)

    def _lines(self, at: int, length: int) -> range:
        """The lines that some bytes touch, each with its content as it is."""
        lines = range(at & ~(_LINE - 1), at + length, _LINE)
        for line in lines:
            self._contents.setdefault(line, [self._content(line)])
        return lines

    def _store(self, at: int, data: bytes) -> None:
        lines = self._lines(at, len(data))
        self._image[at : at + len(data)] = data
        for line in lines:
            self._contents[line].append(self._content(line))

    def _content(self, line: int) -> bytes:
        return bytes(self._image[line : line + _LINE])

    def can_hold(self, image: bytes, ended: int) -> bool:
        """Whether each line of an image can have its content in the operation after `ended` ones."""
        first, last = self._windows[ended]
        return all(
            image[line : line + _LINE] in contents[first.get(line, 0) : last.get(line, 1)]
            for line, contents in self._contents.items()
        )
