"""How many orders pmreorder tries: every sequence of every subset of the stores that a fence makes durable.

PMDK's documentation of pmreorder describes the engine `ReorderFull`; Witcher (§6.5, figure 4) counts what it validates.
It knows no cache lines, so that it also tries what no processor does.
"""

from __future__ import annotations

from math import factorial

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind

_LINE_BYTES = 64


def by_operation(trace: Trace, operations: int) -> list[int]:
    """How many sequences are tried while each operation runs: 0 before the first one's end, then one more each."""
    counts = [0] * operations
    stored: dict[int, list[int]] = {}  # line of a file: stores that no flush covers yet
    flushed = 0
    ended = 0
    columns = (trace.events[name].tolist() for name in ("kind", "file", "offset", "size"))
    for at, (kind, file, offset, size) in enumerate(zip(*columns, strict=True)):
        lines = range(offset // _LINE_BYTES, (offset + max(size, 1) - 1) // _LINE_BYTES + 1)
        if kind == Kind.STORE and file:
            stored.setdefault(_key(file, lines[0]), []).append(at)
        elif kind == Kind.FLUSH and file:
            flushed += sum(len(stored.pop(_key(file, line), ())) for line in lines)
        elif kind == Kind.FENCE:
            counts[min(ended, operations - 1)] += sequences(flushed)
            flushed = 0
        elif kind == Kind.MARK_END:
            ended += 1
    return counts


def sequences(stores: int) -> int:
    """All orders of all subsets of so many stores."""
    return sum(factorial(stores) // factorial(stores - chosen) for chosen in range(stores + 1)) if stores else 0


def _key(file: int, line: int) -> int:
    return line << 16 | file
