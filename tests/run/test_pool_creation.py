"""A pool that the workload itself creates before its first operation is noticed, and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.stages.run_summary import pool_creation
from support.tracing import TraceBuilder


@pytest.mark.parametrize(
    ("existed", "marked", "noticed"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_a_pool_created_before_the_first_operation_is_noticed(
    tmp_path: Path, existed: bool, marked: bool, noticed: bool
) -> None:
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("p", existed=existed)
    if not existed:
        t.create("p")
    t.store("p", 0, 8, 1)
    t.store("p", 64, 8, 1)
    if marked:
        t.begin(1)
    t.store("p", 128, 8, 1)
    warnings = pool_creation(t.trace())
    assert len(warnings) == noticed
    if noticed:
        assert warnings[0].startswith(
            "the workload creates p before its first operation: 2 of 4 updates are made there"
        )
