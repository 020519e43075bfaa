"""Microsoft's SARIF multitool, with GitHub's rules, finds nothing in our logs but what is known and meant.

It comes by npm (MIT licence, 100 MB) and is kept in `$CRASHCHECK_TOOLS_CACHE`, else in `~/.cache/crashcheck/tools`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crashcheck.checker.results import RunResult
from crashcheck.reports.formats import sarif
from crashcheck.reports.formats.sarif import line_hashes
from crashcheck.reports.view.run_view import build_view
from support.reports.runs import CLEAN, FULL, KILLED, LEVEL_HASH_C, hostile, many, run

pytestmark = pytest.mark.slow

PACKAGE = "@microsoft/sarif-multitool-linux"
VERSION = "5.7.0"
SOURCES = {"src/level_hash.c": (*LEVEL_HASH_C, "")}
# The project has no page of its own on the web that a log could name.
MEANT = {"SARIF2005"}


@pytest.fixture(scope="session")
def multitool() -> Path:
    npm = shutil.which("npm")
    assert npm, "npm is needed: apt-get install npm"
    kept = os.environ.get("CRASHCHECK_TOOLS_CACHE") or Path.home() / ".cache" / "crashcheck" / "tools"
    folder = Path(kept) / f"sarif-multitool-{VERSION}"
    program = folder / "node_modules" / PACKAGE / "Sarif.Multitool"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder, f"{PACKAGE}@{VERSION}"],
            check=True,
        )
    program.chmod(0o755)
    return program


def log(result: RunResult) -> str:
    return sarif.render(result, build_view(result, SOURCES), lambda file: "" if file.startswith("/") else file, SOURCES)


def complaints(multitool: Path, path: Path) -> list[tuple[str, str]]:
    """Level and rule of each; the exit code means nothing."""
    out = path.with_suffix(".validated")
    done = subprocess.run(
        [multitool, "validate", path, "--rule-kind", "Sarif;Ghas", "--output", out, "--log", "ForceOverwrite"],
        env={**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Analysis completed successfully." in done.stdout, done.stdout + done.stderr
    printed = set(re.findall(r": (error|warning) (\w+):", done.stdout))
    (only,) = json.loads(out.read_text("utf-8-sig"))["runs"]
    written = {(found.get("level", "warning"), found["ruleId"].split("/")[0]) for found in only.get("results", ())}
    return sorted(printed | written)


@pytest.mark.parametrize(
    "result",
    [CLEAN, FULL, run(KILLED), many(60), hostile],
    ids=["clean", "full", "killed", "many", "hostile"],
    indirect=True,
)
def test_the_multitool_finds_nothing_else(multitool: Path, tmp_path: Path, result: RunResult) -> None:
    path = tmp_path / "log.sarif"
    path.write_text(log(result), encoding="utf-8")
    assert [found for found in complaints(multitool, path) if found[1] not in MEANT] == []


def broken(change: str) -> str:
    document: dict[str, Any] = json.loads(log(FULL))
    result = document["runs"][0]["results"][0]
    if change == "no location":
        del result["locations"]
    else:
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] = "a b\\c.c"
    return json.dumps(document)


@pytest.mark.parametrize("change", ["no location", "no address"])
def test_the_multitool_would_find_a_mistake(multitool: Path, tmp_path: Path, change: str) -> None:
    path = tmp_path / "log.sarif"
    path.write_text(broken(change), encoding="utf-8")
    assert any(level == "error" for level, _ in complaints(multitool, path))


def test_the_multitool_makes_the_same_line_hash(multitool: Path, tmp_path: Path) -> None:
    source = tmp_path / "src" / "level_hash.c"
    source.parent.mkdir()
    source.write_text("\n".join(SOURCES["src/level_hash.c"]))
    document = json.loads(log(FULL))
    result = document["runs"][0]["results"][0]
    del result["partialFingerprints"]
    document["runs"][0]["results"] = [result]
    document["runs"][0]["originalUriBaseIds"] = {"%SRCROOT%": {"uri": f"{tmp_path.as_uri()}/"}}
    before, after = tmp_path / "before.sarif", tmp_path / "after.sarif"
    before.write_text(json.dumps(document), encoding="utf-8")
    subprocess.run(
        [multitool, "rewrite", before, "--insert", "RollingHashPartialFingerprints", "--output", after],
        env={**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"},
        check=True,
        capture_output=True,
    )
    (made,) = json.loads(after.read_text("utf-8-sig"))["runs"][0]["results"]
    assert made["partialFingerprints"]["primaryLocationLineHash"] == line_hashes(source.read_text())[8]
