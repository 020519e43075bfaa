"""What one run of the check may take."""

from __future__ import annotations

from pathlib import Path

from crashcheck.config import parse
from crashcheck.stages.executor_setup import limits_of

LEAST = '[workload]\ncommand = "true"\n[pool]\nfiles = ["*"]\n[check]\ncommand = "true"\n'


def test_the_limits_of_a_check_are_those_of_its_section(tmp_path: Path) -> None:
    text = f"{LEAST}timeout_s = 7\nmemory_mib = 3\nfile_mib = 5\n"
    limits = limits_of(parse(text, tmp_path / "crashcheck.toml"))
    assert (limits.timeout_s, limits.memory_bytes, limits.file_bytes) == (7, 3 << 20, 5 << 20)


def test_a_check_without_memory_and_file_limits_has_none(tmp_path: Path) -> None:
    limits = limits_of(parse(f"{LEAST}memory_mib = 0\nfile_mib = 0\n", tmp_path / "crashcheck.toml"))
    assert (limits.memory_bytes, limits.file_bytes) == (None, None)
