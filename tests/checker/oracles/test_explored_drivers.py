"""Drivers that write their results to a file are explored as those that print them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = (Path(__file__).resolve().parent / "records.c").read_text(encoding="utf-8")
OPERATIONS = [f"add {value}" for value in (3, 50, 700)]
RESULTS = {
    'fopen("/dev/stdout", "w")': "stdout",
    'freopen("/dev/stdout", "a", stdout)': "stdout",
    'fopen(path, "w")': "{pool}/results.txt",
    'freopen(path, "a+", stdout)': "{pool}/results.txt",
    'fdopen(dup(2), "w")': "stderr",
    'fdopen(7, "w")': "fd 7",
}

Drive = Callable[..., Any]


@pytest.mark.parametrize("results", RESULTS)
def test_a_driver_is_explored_wherever_it_prints(drive: Drive, results: str) -> None:
    ran = drive(f"#define RESULTS {results}\n{SOURCE}", OPERATIONS, outputs=[RESULTS[results]])
    states = ran.report["run"]["states"]
    assert (ran.exit_code, ran.findings, states["not_explored"]) == (0, [], [])
    assert states["explored"] > states["executed"]


def test_what_an_explored_driver_writes_to_its_file_is_judged(drive: Drive) -> None:
    ran = drive(
        f'#define EARLY\n#define RESULTS fopen(path, "w")\n{SOURCE}', OPERATIONS, outputs=["{pool}/results.txt"]
    )
    (finding,) = ran.findings
    assert (finding["kind"], finding["location"]["variable"]) == ("atomicity", "pool.count")
