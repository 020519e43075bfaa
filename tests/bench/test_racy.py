"""Rows of `make bench-guard`: what cannot run is reported with the reason, and a false alarm is relaxed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import racy

BUG = racy.BUGS["axel b1bdaa4"]


def test_a_bug_whose_source_is_not_named_or_is_another_one_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CRASHCHECK_REAL_AXEL", raising=False)
    assert racy.tried(racy.real_bug, BUG, 1) == {
        "not_measured": "set CRASHCHECK_REAL_AXEL to the folder of its source (docs/guard.md, Measured)"
    }
    monkeypatch.setenv("CRASHCHECK_REAL_AXEL", str(tmp_path))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert "b1bdaa4" in str(racy.tried(racy.real_bug, BUG, 1)["not_measured"])


@pytest.mark.slow
def test_a_false_alarm_is_logged_and_gone_after_relaxing() -> None:
    figures = racy.tried(racy.false_alarm)
    assert figures["logged"], figures
    assert not figures["logged_after_that"]
