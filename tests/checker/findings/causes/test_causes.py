"""Each cause is one finding: two bugs that meet are two, and one bug that shows in several ways is one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.command_line import run_crashcheck

HERE = Path(__file__).resolve().parent
CONFIG = """\
[build]
command = "crashcheck-cc -DCASE=%d -O1 -g -mclflushopt -o causes causes.c library.c"
[workload]
command = "./causes work {pool}/pool"
[pool]
files = ["pool"]
[check]
command = "./causes check {pool}/pool"
[report]
fixes = false
"""
# By the case (causes.c): the variable that is lost, for each cause; "" of `to[i]`, which has no name.
CAUSES = {
    1: ["pool.left[].value", "pool.right[].key"],
    2: ["log.entries[]", "pool.left[].value"],
    3: ["pool.index[]", "pool.index[]"],
    4: ["pool.index[]", "pool.left[].value"],
    5: ["pool.index[]", "pool.index[]"],
    6: ["", ""],
    7: ["log.entries[]", "pool.index[]"],
    8: ["heap.first"],
    9: ["heap.blocks[].data[]", "pool.left[].value"],
    10: ["pool.buckets[].tag"],
    11: [""],
    12: ["node.value"],
}


@pytest.mark.parametrize("case", CAUSES)
def test_each_cause_is_one_finding(tmp_path: Path, environment: dict[str, str], case: int) -> None:
    for name in ("causes.c", "library.c", "library.h"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "crashcheck.toml").write_text(CONFIG % case, encoding="utf-8")
    report = tmp_path / "report.json"
    # Cases 6 and 11 have tens of thousands of states that fail.
    run_crashcheck("run", "--states", "400", "--format", f"json={report}", cwd=tmp_path, env=environment)
    findings = json.loads(report.read_text(encoding="utf-8"))["findings"]
    lost = [
        (finding["location"] if finding["kind"] == "unpersisted" or not finding["other"] else finding["other"])[
            "variable"
        ]
        for finding in findings
    ]
    assert sorted(lost) == CAUSES[case]
