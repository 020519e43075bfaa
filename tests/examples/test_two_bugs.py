"""Two planted bugs in one build are two findings, also where they share a function, a pointer or a commit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

STRUCTURES = Path(__file__).resolve().parent.parent.parent / "examples" / "structures"

TOGETHER = [
    ("b-tree", 5, 8),  # two updates that are not logged, until the same commit
    ("b-tree", 5, 14),  # two updates that are not logged, by one helper that two functions call
    ("bplus-tree", 1, 9),  # a missing fence in each of two functions that mirror each other, on the same fields
    ("clht", 1, 9),  # one field of one object: set too early, and its deletion lost
    ("extendible-hash", 6, 11),  # one pointer of one function: before what it leads to, and after what it led to
    ("level-hash", 2, 3),  # one word: set too early, and lost
    ("radix-tree", 7, 8),  # as in the extendible hash
]


def plant(source: Path, *bugs: int) -> None:
    """Turns the switches of several bugs on; all others stay as they are."""
    text = source.read_text(encoding="utf-8")
    for bug in bugs:
        text = re.sub(rf"\bBUG == {bug}\b", "1", re.sub(rf"\bBUG != {bug}\b", "0", text))
    source.write_text(text, encoding="utf-8")


def marks(finding: dict[str, Any], source: Path) -> set[int]:
    """The bugs that the source names on the lines of a finding's pair, and of the calls that led there."""
    lines = source.read_text(encoding="utf-8").splitlines()
    pair = [place for place in (finding["location"], finding["other"]) if place]
    places = [*pair, *(frame for place in pair for frame in place["stack"])]
    texts = [lines[place["line"] - 1] for place in places if Path(place["file"]).name == source.name]
    named = [marked for text in texts for marked in re.findall(r"/\* BUG ([\d, ]+) \*/", text)]
    return {int(number) for marked in named for number in marked.split(",")}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "one", "other"), TOGETHER)
def test_two_bugs_built_together_are_two_findings(
    name: str, one: int, other: int, tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "structures"
    shutil.copytree(STRUCTURES, folder, ignore=shutil.ignore_patterns("driver", ".crashcheck"))
    listed = tomllib.loads((folder / name / "bugs.toml").read_text(encoding="utf-8"))
    source = folder / name / listed["source"]
    plant(source, one, other)
    command = ["crashcheck", "run", "--states", "1500", "--budget", "10m", "--format", "json=report.json"]
    done = subprocess.run(command, cwd=folder / name, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    findings = json.loads((folder / name / "report.json").read_text(encoding="utf-8"))["findings"]
    messages = [finding["message"] for finding in findings]
    assert len(findings) == 2, messages
    bugs = {bug["number"]: bug["kind"] for bug in listed["bug"]}
    found = [(finding["kind"], marks(finding, source)) for finding in findings]
    assert any(
        all(kind == bugs[bug] and bug in named for bug, (kind, named) in zip(order, found, strict=True))
        for order in ((one, other), (other, one))
    ), messages
