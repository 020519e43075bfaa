"""The tutorial of docs/nodes.md: what it shows of examples/replicated-log is what crashcheck finds."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from support.command_line import run_crashcheck
from support.paths import EXAMPLES, ROOT

LOST = "leader starts again without 4 bytes at offset 0x0 of log at log.py:24"
FOUND = (
    "leader ends with status 1 if `has 0` from follower1 to leader (Server.send at log.py:41, from Server.append at "
    f"log.py:69) is delivered before leader loses power and {LOST}",
    f"the check fails if {LOST}",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "replicated-log", tmp_path / "log")
    configured = tmp_path / "log" / "crashcheck.toml"
    configured.write_text(configured.read_text().replace("python3 ", f"{sys.executable} "))
    return tmp_path / "log"


def messages(project: Path, states: int) -> list[str]:
    options = ("--states", str(states), "--budget", "30m", "--format", "json=report.json")
    run_crashcheck("run", *options, cwd=project, env=os.environ)
    return [finding["message"] for finding in json.loads((project / "report.json").read_text())["findings"]]


@pytest.mark.slow
def test_the_log_of_the_tutorial_loses_what_it_answered_until_it_syncs(project: Path) -> None:
    found = messages(project, 60)
    assert all(any(message.startswith(shown) for message in found) for shown in FOUND), found
    program = project / "log.py"
    write = '        os.write(self.file, f"{entry}\\n".encode())\n'
    assert write in program.read_text()
    program.write_text(program.read_text().replace(write, f"{write}        os.fsync(self.file)\n"))
    assert messages(project, 60) == []


def test_the_tutorial_shows_the_configuration_and_the_check_of_the_example() -> None:
    lines = (ROOT / "docs" / "nodes.md").read_text(encoding="utf-8").splitlines(keepends=True)
    shown = "".join(line.removeprefix("   ") for line in lines)
    configured = (EXAMPLES / "replicated-log" / "crashcheck.toml").read_text(encoding="utf-8")
    check = (EXAMPLES / "replicated-log" / "agree.py").read_text(encoding="utf-8")
    assert configured in shown
    assert check[check.index("state = ") :] in shown
