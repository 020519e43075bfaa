"""Tkrzw: a hard synchronisation holds what it promises as long as buckets and metadata share a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_hard_synchronisation_survives_every_crash(run: Callable[[str, str], Any]) -> None:
    run("tkrzw", "hard").assert_clean()


@pytest.mark.parametrize("mode", ["hard-many-pages", "soft"])
def test_a_bucket_or_a_size_that_persists_before_its_records_is_found(
    run: Callable[[str, str], Any], mode: str
) -> None:
    # Stores into the mapping are those of MemoryMapParallelFile.
    run("tkrzw", mode).assert_found_in("tkrzw_file_mmap.cc", "tkrzw_file_util.cc", "tkrzw_str_util.h")
