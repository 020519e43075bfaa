"""How messages of all rooms list what there may be much of, and remarks that are no errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def listed(names: Sequence[str], most: int, between: str = ", ") -> str:
    """The first of some names, and how many more there are: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def remark(text: str) -> None:
    """Show the user something at once, on standard error."""
    print(f"crashcheck: {text}", file=sys.stderr, flush=True)
