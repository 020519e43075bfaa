"""`crashcheck run` on nodes whose machines crash: what their disks may have kept belongs to what is searched."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support import compilers
from support.command_line import run_crashcheck

SOURCE = Path(__file__).parent / "nodes" / "log.c"
NODES = """
[[node]]
name = "leader"
command = "./log {{index}} {{peers}} {how}"
crash = ["{crash}"]
[[node]]
name = "follower"
command = "./log {{index}} {{peers}} {how}"
count = 2
[[node]]
name = "client"
command = "./log {{index}} {{peers}} {how}"
[bounds]
crashes = 1
[model]
name = "{model}"
[check]
after = "./log check {{state}}"
[strategy]
name = "{strategy}"
runs = 30
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("log") / "log"
    command = [*compilers.c_compiler(), "-O1", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, str(SOURCE), "-o", str(target)], check=True)
    return target


@pytest.fixture
def project(tmp_path: Path, program: Path) -> Path:
    os.link(program, tmp_path / "log")
    return tmp_path


def run(
    project: Path, how: str, crash: str, model: str, strategy: str, *options: str
) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON report and what was printed."""
    text = NODES.format(how=how, crash=crash, model=model, strategy=strategy)
    (project / "crashcheck.toml").write_text(text)
    formats = ("--format", "json=report.json", "--format", "terminal", "--format", "html=report.html")
    ended = run_crashcheck("run", *formats, *options, cwd=project, env=os.environ)
    return ended.returncode, json.loads((project / "report.json").read_text()), ended.stdout + ended.stderr


def test_a_log_that_answers_before_fsync_loses_an_answered_entry(project: Path) -> None:
    code, report, printed = run(project, "early", "machine", "ext4", "random", "--states", "40")
    assert code == 1, printed
    finding = report["findings"][0]
    message = finding["message"].replace("part of ", "")
    assert message.startswith("the check fails if "), message
    assert "leader starts again without 6 bytes at offset 0x0 of log at log.c:32" in message
    restarted = next(row for row in finding["evidence"]["rows"] if row["kind"] == "restart")
    assert restarted["disk"] == "kept 1 of 2 updates"
    assert ">kept 1 of 2</text>" in (project / "report.html").read_text()
    replays = [run_crashcheck("replay", finding["replay"], cwd=project, env=os.environ) for _ in range(2)]
    assert [each.returncode for each in replays] == [1, 1]
    assert replays[0].stdout == replays[1].stdout
    assert "leader's disk kept 1 of 2 updates\n" in replays[0].stdout


@pytest.mark.parametrize(
    ("how", "crash", "model"), [("sync", "machine", "ext4"), ("early", "process", "ext4"), ("early", "machine", "none")]
)
def test_no_entry_is_lost_with_fsync_or_without_a_power_failure(
    project: Path, how: str, crash: str, model: str
) -> None:
    code, report, printed = run(project, how, crash, model, "dpor")
    assert (code, report["findings"], report["run"]["states"]["feasible_exact"]) == (0, [], True), printed
