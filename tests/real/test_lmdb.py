"""LMDB: its synchronous modes survive every crash, and the modes that its manual warns of do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["default", "nometasync", "writemap", "writemap-nometasync"])
def test_a_mode_that_syncs_before_its_meta_page_survives_every_crash(run: Callable[[str, str], Any], mode: str) -> None:
    run("lmdb", mode).assert_clean()


@pytest.mark.parametrize("mode", ["nosync", "writemap-mapasync", "writemap-nosync", "writemap-nosync-short"])
def test_a_mode_that_syncs_nothing_is_found_to_corrupt(run: Callable[[str, str], Any], mode: str) -> None:
    run("lmdb", mode).assert_found_in("mdb.c")


@pytest.mark.parametrize(("mode", "exit_code"), [("default", 0), ("writemap-nosync-short", 1)])
def test_an_instrumented_check_gives_the_verdicts_of_a_plain_one(
    laid_out: Callable[[str, str, str], Path], crashcheck_run: Callable[..., Any], mode: str, exit_code: int
) -> None:
    report = crashcheck_run(laid_out("lmdb", "crashcheck", "crashcheck"), mode)
    assert report.exit_code == exit_code, report.output
