"""Two programs with two threads answer from data that a crash can lose, and their twins do not: px86 and page-cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_crashcheck

SOURCE = Path(__file__).with_name("answers.c")
SERVICES = {1: "px86", 2: "page-cache"}


def findings_of(
    folder: Path, environment: dict[str, str], service: int, flags: str, status: int
) -> list[dict[str, Any]]:
    shutil.copy(SOURCE, folder)
    (folder / "crashcheck.toml").write_text(
        f'[build]\ncommand = "crashcheck-cc -O1 -g -pthread -DSERVICE={service} {flags} -o answers answers.c"\n'
        '[setup]\ncommand = "truncate -s 8192 {pool}/data"\n'
        '[workload]\ncommand = "./answers {pool}/data"\n[pool]\nfiles = ["data"]\n'
        f'[check]\ncommand = "./answers {{pool}}/data {{stdout}}"\n[model]\nname = "{SERVICES[service]}"\n',
        encoding="utf-8",
    )
    done = run_crashcheck("run", "--no-fixes", "--format", "json=found.json", cwd=folder, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "found.json").read_text(encoding="utf-8"))["findings"]
    return found


def line_of(text: str) -> int:
    (number,) = [number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line]
    return number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "variable", "read"),
    [(1, "file.records[].value", "uint64_t value ="), (2, "file.log.length", "uint64_t length =")],
)
def test_the_read_from_which_a_thread_answered_too_early_is_named(
    tmp_path: Path, environment: dict[str, str], service: int, variable: str, read: str
) -> None:
    (finding,) = findings_of(tmp_path, environment, service, "-DEARLY", 1)
    assert finding["kind"] == "unpersisted"
    assert finding["note"] == (
        "answered from data that a crash can lose: "
        f"the thread that answered at answers.c:{line_of('fflush(stdout)')} had read `{variable}` at "
        f"answers.c:{line_of(read)}; another thread stores it, and had not made it durable"
    )


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
def test_a_twin_that_answers_when_the_data_are_durable_has_no_finding(
    tmp_path: Path, environment: dict[str, str], service: int
) -> None:
    assert findings_of(tmp_path, environment, service, "", 0) == []
