"""How many examples a property test tries: few, and the same in each run; `make test-slow` tries ten times as many."""

from __future__ import annotations

import os

_FACTOR = int(os.environ.get("CRASHCHECK_EXAMPLES", "1"))
_GENERATED = os.environ.get("CRASHCHECK_GENERATED", "")


def examples(number: int) -> int:
    return number * _FACTOR


def seeds_in_parts(count: int, part: int) -> list[range]:
    """The seeds of generated programs that a slow test compares, a part for each test: the first `count`.

    `CRASHCHECK_GENERATED=5000,200`: the 200 from 5000 on.
    """
    first, count = map(int, _GENERATED.split(",")) if _GENERATED else (0, count)
    return [range(low, min(low + part, first + count)) for low in range(first, first + count, part)]
