"""Lets these tests import the helpers in tests/support, those of tests/behaviours, and their own."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

for folder in (HERE, HERE.parent, HERE.parent / "behaviours"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
