"""Folders of this checkout that tests name."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
EXAMPLES = ROOT / "examples"
RUNTIME_PROGRAMS = TESTS / "runtime" / "programs"  # small C programs that call the hooks by hand, or make calls
