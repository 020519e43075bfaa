"""Every suggestion for every planted bug, accepted as on GitHub: it builds, the finding is gone, and no other came."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.recall import Bug, planted, prepared

from crashcheck.checker.baseline import Known, matched
from crashcheck.checker.results import Finding, RunResult
from crashcheck.reports.formats import json_report
from support.command_line import run_crashcheck
from support.paths import EXAMPLES
from support.reports.suggestions import accept, suggested

# Operations, and states to execute, until a bug is found: nearly all are in the first. A search after an edit is no
# longer than the one before, or it would show other bugs that were there already.
EXTENTS = ((80, 1000), (200, 1000))
TWINS = sorted(path.parent.name for path in EXAMPLES.glob("*/buggy.toml"))


class Program:
    """A program in a folder of its own, and the command line in it."""

    def __init__(self, folder: Path, environment: dict[str, str], config: str = "crashcheck.toml") -> None:
        self.folder = folder
        self.environment = environment
        self.config = config

    def crashcheck(self, command: str, *words: str) -> tuple[int, str]:
        done = run_crashcheck(command, "-c", self.config, *words, cwd=self.folder, env=self.environment)
        return done.returncode, done.stdout + done.stderr

    def run(self, *words: str) -> RunResult:
        """A run; the build shows no warning that could be one about a suggestion."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        code, printed = self.crashcheck("run", "--format", f"json={report}", *words)
        assert code in (0, 1), printed
        assert "warning:" not in printed
        return json_report.load(report.read_text(encoding="utf-8"))

    def sources(self) -> dict[Path, str]:
        found = (path for path in self.folder.glob("*.[ch]*") if path.is_file())
        return {path: path.read_text(encoding="utf-8") for path in found}


def accepted_one_by_one(program: Program, found: RunResult, *extent: str) -> Iterator[Finding]:
    """Accept the suggestions for each finding alone, and run again; yields the findings that have some."""
    before = program.sources()
    for finding in found.findings:
        comments = suggested(program.folder, finding)
        if not comments:
            continue
        accept(program.folder, comments)
        again = program.run("--no-fixes", *extent)
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")
        others = [one for one in found.findings if suggested(program.folder, one) != comments]
        known = [Known(one.id, one.likenesses, one.kind.value, one.message) for one in others]
        every = (*again.findings, *again.uncertain)
        came = set(range(len(every))) - matched(every, known).keys()
        assert [every[at].message for at in sorted(came)] == [], finding.message
        yield finding


def check_that_fix_writes_the_same(program: Program, found: RunResult) -> None:
    """All suggestions leave the text of `crashcheck fix --apply` of the newest run, except where `} else` is joined."""
    original = program.sources()
    comments = suggested(program.folder, *found.findings)
    if len({(one.path, one.line) for one in comments}) < len(comments):
        return  # two findings change one line, each in its own way: a reviewer takes one, and pushes
    program.crashcheck("fix", "--apply")
    fixed = program.sources()
    for path, text in original.items():
        path.write_text(text, encoding="utf-8")
    accept(program.folder, comments)
    accepted = program.sources()
    for path, text in original.items():
        path.write_text(text, encoding="utf-8")
    assert {path: text.split() for path, text in accepted.items()} == {
        path: text.split() for path, text in fixed.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in planted() if bug.number], ids=lambda bug: f"{bug.program}-{bug.number}")
def test_each_suggestion_for_a_planted_bug_fixes_it_and_brings_no_other(
    bug: Bug, tmp_path: Path, environment: dict[str, str]
) -> None:
    for operations, states in EXTENTS:
        extent = tmp_path / str(operations)
        extent.mkdir()
        folder = prepared(bug, extent, operations).folder
        program = Program(folder, {**environment, "BUG": str(bug.number)})
        extent_of_search = ("--states", str(states), "--no-explore")
        found = program.run(*extent_of_search)
        if found.findings:
            break
    assert found.findings
    check_that_fix_writes_the_same(program, found)
    suggested_for = list(accepted_one_by_one(program, found, *extent_of_search))
    for finding in suggested_for:
        assert finding.fix is not None
        edited = "".join(edit.text for edit in finding.fix.edits)
        assert "_mm_" not in edited, "the structures have a flush and a fence of their own"
    if bug.kind in ("ordering", "unpersisted"):
        assert suggested_for == list(found.findings)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_each_suggestion_for_a_twin_fixes_it_and_brings_no_other(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("buggy", "fixed", "check", ".crashcheck"))
    depth = json.loads((folder / "expected.json").read_text(encoding="utf-8")).get("depth", 1)
    program = Program(folder, environment, "buggy.toml")
    found = program.run("--depth", str(depth))
    assert found.findings
    check_that_fix_writes_the_same(program, found)
    list(accepted_one_by_one(program, found, "--depth", str(depth)))
