"""Lets these tests import the helpers in tests/support, in tests/behaviours and beside them."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
for folder in (_HERE, _HERE.parent, _HERE.parent / "behaviours"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
