"""Drivers for output equivalence, and how the tests run them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_crashcheck
from support.paths import EXAMPLES

HERE = Path(__file__).resolve().parent
EXAMPLE = EXAMPLES / "output-equivalence"

BUILD = "crashcheck-cc -O1 -g -o driver driver.c -lpthread"
CONFIG = """\
[build]
command = "{build}"
[workload]
command = "./driver {{pool}}/table.pm {{ops}}{more}"
operations_file = "ops.txt"
operations = {names}
[pool]
files = ["table.pm"]
[check]
command = "./driver {{pool}}/table.pm {{ops}}"
oracle = "output-equivalence"
outputs = {outputs}
timeout_s = 5
"""


@dataclass(frozen=True)
class Ran:
    exit_code: int
    stderr: str
    report: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        findings: list[dict[str, Any]] = self.report["findings"]
        return findings


Drive = Callable[..., Ran]


@pytest.fixture
def drive(tmp_path: Path, environment: dict[str, str]) -> Drive:
    """Runs a driver: `drive(source, operations, more=" argument", build="command")`."""

    def run(
        source: str,
        operations: list[str],
        more: str = "",
        build: str = BUILD,
        operations_by_name: Sequence[str] = (),
        outputs: Sequence[str] = ("stdout",),
    ) -> Ran:
        shutil.copy(EXAMPLE / "table.h", tmp_path)
        (tmp_path / "driver.c").write_text(source, encoding="utf-8")
        (tmp_path / "ops.txt").write_text("".join(f"{line}\n" for line in operations), encoding="utf-8")
        (tmp_path / "crashcheck.toml").write_text(
            CONFIG.format(
                more=more, build=build, names=json.dumps(list(operations_by_name)), outputs=json.dumps(list(outputs))
            ),
            encoding="utf-8",
        )
        report = tmp_path / "report.json"
        words = ["run", "--no-fixes", "--format", f"json={report}"]
        done = run_crashcheck(*words, cwd=tmp_path, env=environment)
        found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
        return Ran(done.returncode, done.stderr, found)

    return run


CHANGES = {
    "open": "    char line[128], name[16];\n",
    "answer": '        printf("%s %" PRIu64 ": %s\\n", name, key, answer);\n',
    "begin": "        CRASHCHECK_OP_BEGIN();\n",
    "end": "        CRASHCHECK_OP_END();\n",
    "delete_missing": '    int slot = find(bucket, key);\n    if (slot < 0)\n        return "missing";\n    commit',
    "query_value": '    snprintf(text, sizeof text, "%" PRIu64, bucket->entry[slot].value);\n',
}


@pytest.fixture
def example() -> Callable[..., str]:
    """The example's source with places of CHANGES exchanged: `example("fixed", end=lambda old: "")`."""

    def make(twin: str, **changes: Callable[[str], str]) -> str:
        text = (EXAMPLE / f"{twin}.c").read_text(encoding="utf-8")
        for name, change in changes.items():
            assert text.count(CHANGES[name]) == 1, name
            text = text.replace(CHANGES[name], change(CHANGES[name]))
        return text

    return make
