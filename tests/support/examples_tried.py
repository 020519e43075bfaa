"""How many examples a property test tries: few, and the same in each run; `make test-slow` tries ten times as many."""

from __future__ import annotations

import os

_FACTOR = int(os.environ.get("CRASHCHECK_EXAMPLES", "1"))


def examples(number: int) -> int:
    return number * _FACTOR
