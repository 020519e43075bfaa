"""TDB: a crash while a commit makes room for its recovery data leaves a database that does not open, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def outputs(report: Any) -> str:
    return "".join(finding["verdict"]["output"] for finding in report.findings)


def test_a_recovery_header_that_persists_before_the_size_of_the_file_is_found(run: Callable[[str, str], Any]) -> None:
    report = run("tdb", "content")
    report.assert_found_in("io.c")
    assert "tdb_transaction_recover: failed to read recovery record" in outputs(report)


def test_dead_space_that_makes_tdb_check_refuse_the_database_is_found(run: Callable[[str, str], Any]) -> None:
    report = run("tdb", "verified")
    report.assert_found_in("io.c")
    assert any(finding["kind"] == "atomicity" and "kill -9" in finding["note"] for finding in report.findings)
    assert "Dead space at" in outputs(report)
