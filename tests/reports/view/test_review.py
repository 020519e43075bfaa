"""A run as reviewers use it: against a baseline, with suppressions, on a change, and opened in a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command_line import run_crashcheck
from support.examples import build_only_what_was_edited
from support.paths import EXAMPLES

EXAMPLE = EXAMPLES / "level-hash"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "table"
    folder.mkdir(parents=True)
    for file in EXAMPLE.iterdir():
        if file.suffix in (".c", ".h", ".toml") or file.name == "Makefile":
            shutil.copy(file, folder)
    build_only_what_was_edited(folder)
    git(folder.parent, "init", "--quiet", "--initial-branch=main")
    git(folder.parent, "add", ".")
    git(folder.parent, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--message=x")
    return folder


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def main(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, output, errors of the command line."""
    done = run_crashcheck(*arguments, cwd=Path.cwd(), env=os.environ)
    return done.returncode, done.stdout, done.stderr


def check(folder: Path, *options: str, whole: bool = False) -> tuple[int, dict]:  # type: ignore[type-arg]
    """Exit code and JSON report."""
    report = folder / "report.json"
    bounds = ["--no-fixes", *([] if whole else ["--states", "60"])]
    code = main(["run", "-c", str(folder / "buggy.toml"), "--format", f"json={report}", *bounds, *options])[0]
    return code, json.loads(report.read_text())


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_what_a_baseline_knows_does_not_fail_a_run_under_another_name_either(project: Path) -> None:
    baseline = str(project / "baseline.json")
    code, _, printed = main(["run", "-c", str(project / "buggy.toml"), "--baseline", baseline])
    assert (code, "[baseline-missing]" in printed) == (2, True)
    assert check(project)[0] == 1
    assert check(project, "--baseline", baseline, "--update-baseline")[0] == 0
    edit(project / "buggy.c", "insert_into", "put_into")
    edit(project / "buggy.c", "static ", "\n\nstatic ")
    code, report = check(project, "--baseline", baseline)
    assert code == 0
    assert [finding["new"] for finding in report["findings"]] == [False]
    assert report["run"]["warnings"] == []
    kept = (project / ".crashcheck").glob("*/report.html")
    assert main(["open", "-c", str(project / "buggy.toml"), "--print"]) == (0, f"{max(kept)}\n", "")


def test_comments_and_rules_suppress_with_a_reason_and_stale_ones_are_named(project: Path) -> None:
    edit(
        project / "buggy.c",
        "bucket->valid[i] = 1;",
        "bucket->valid[i] = 1; /* crashcheck: ignore[ordering] scrubbed */",
    )
    edit(project / "check.c", "int main", "// crashcheck: ignore[*] never needed\nint main")
    toml = project / "buggy.toml"
    toml.write_text(toml.read_text() + '\n[[suppress]]\nfile = "other/*"\nreason = "old"\n')
    code, report = check(project, whole=True)
    assert code == 0
    line = next(n for n, text in enumerate((project / "buggy.c").read_text().split("\n"), 1) if "scrubbed" in text)
    assert [finding["suppressed"] for finding in report["findings"]] == [f"scrubbed (buggy.c:{line})"]
    assert report["run"]["warnings"] == ["[[suppress]] 1: this suppression (*: old) met nothing: take it out"]


def test_the_level_of_a_finding_decides_the_exit_code(project: Path) -> None:
    assert check(project, "--fail-on", "error")[0] == 1
    assert check(project, "--fail-on", "none")[0] == 0
    toml = project / "buggy.toml"
    toml.write_text(toml.read_text() + '\n[report]\nfail_on = "none"\n')
    assert check(project)[0] == 0


def test_what_a_change_touches_is_marked_and_ranked_first(project: Path) -> None:
    assert [finding["in_diff"] for finding in check(project, "--diff", "main")[1]["findings"]] == [False]
    edit(project / "buggy.c", "bucket->entry[i].key = key;", "bucket->entry[i].key = key + 0;")
    report = check(project, "--diff", "main")[1]
    assert [finding["in_diff"] for finding in report["findings"]] == [True]
    assert any("sites changed" in reason for reason in report["groups"][0]["because"])


def test_there_is_nothing_to_open_before_the_first_run(project: Path) -> None:
    code, _, printed = main(["open", "-c", str(project / "buggy.toml")])
    assert (code, "[open-no-report]" in printed) == (2, True)


def test_a_fence_that_is_removed_is_a_change_of_the_function_that_it_was_in(project: Path) -> None:
    edit(project / "buggy.c", "        fence();\n", "")
    report = check(project, "--diff", "main")[1]
    assert report["findings"]
    assert all(finding["in_diff"] for finding in report["findings"])
