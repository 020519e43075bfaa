"""QDBM: a page of its tree is deleted before its successor is written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import real_programs

pytestmark = pytest.mark.slow


def test_a_page_that_a_killed_commit_loses_is_found(
    laid_out: Callable[[str, str, str], Path], crashcheck_run: Callable[..., Any]
) -> None:
    try:
        folder = laid_out("qdbm", "crashcheck", "crashcheck")
    except real_programs.Unavailable as error:
        pytest.skip(str(error))
    report = crashcheck_run(folder, "killed")
    report.assert_found_in("depot.c")
    assert all("kill -9" in finding["note"] for finding in report.findings)
