"""What the tests of mutants share."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tracing import TraceBuilder


@pytest.fixture
def builder(tmp_path: Path) -> TraceBuilder:
    out = TraceBuilder(tmp_path / "t.cct")
    out.file("a", 4096)
    return out
