"""Kyoto Cabinet: the end of a transaction takes its log away before the data are safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_log_that_is_cleared_before_the_data_are_synced_is_found(run: Callable[[str, str], Any], mode: str) -> None:
    run("kyotocabinet", mode).assert_found_in("kcfile.cc")
