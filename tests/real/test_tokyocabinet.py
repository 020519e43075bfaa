"""Tokyo Cabinet: its log is cut without a sync, and is believed although its bytes may not be there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import real_programs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["hash", "tree"])
def test_a_committed_transaction_that_is_rolled_back_is_found(
    laid_out: Callable[[str, str, str], Path], crashcheck_run: Callable[..., Any], mode: str
) -> None:
    try:
        folder = laid_out("tokyocabinet", "crashcheck", "crashcheck")
    except real_programs.Unavailable as error:
        pytest.skip(str(error))
    report = crashcheck_run(folder, mode)
    report.assert_found_in("tchdb.c", "tcutil.c")
    assert any(finding["kind"] == "unpersisted" and finding["location"]["line"] for finding in report.findings)
