"""Calls of libatomic, which clang emits for atomic operations that no single instruction does (16 bytes, misaligned).

`__atomic_store(size, pointer, value, order)` takes the size first; `__atomic_store_16(pointer, …)` has it
in its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_NAME = re.compile(
    r"__atomic_(load|store|exchange|compare_exchange|fetch_(?:add|sub|and|or|xor|nand)|(?:add|sub|and|or|xor|nand)_fetch)"
    r"(?:_(\d+))?"
)


class AtomicCall(NamedTuple):
    operation: str  # "load", "store", "exchange", "compare_exchange", "fetch_add", …
    size_bytes: int
    pointer: int  # which argument, from 0, is the address of the object


def sized_first(callee: str) -> bool:
    """Whether a function is one of those whose first argument is the size."""
    found = _NAME.fullmatch(callee)
    return found is not None and found.group(2) is None


def atomic_call(callee: str, arguments: Sequence[str]) -> AtomicCall | None:
    """What a call does; None if it is no such call, or one whose size is not known."""
    found = _NAME.fullmatch(callee)
    if found is None:
        return None
    size = found.group(2) or (arguments[0].rpartition(" ")[2] if arguments else "")
    return AtomicCall(found.group(1), int(size), 0 if found.group(2) else 1) if size.isdigit() else None
