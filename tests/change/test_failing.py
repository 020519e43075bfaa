"""`crashcheck run --failing FILE`: what failed in the last run is tested first, and what passes now is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import settings_store
from support.ledger import PERSISTED, SOURCE
from support.versions import Project


def failed(project: Project, *options: str) -> dict[str, Any]:
    """The report of a run of a version with a bug, of which FILE has the failing states."""
    code, report = project.run("--failing", "failing.json", *options)
    assert (code, report["run"]["again"]) == (1, [])
    return report


def test_a_state_that_failed_is_the_first_to_be_tested_in_the_next_version(project: Project) -> None:
    """A line above moved it: one state is enough to find it again."""
    project.write(PERSISTED)
    project.write("")
    failed(project)
    project.write("", more={"ledger.c": "/* moved */\n" + SOURCE.replace("FIRST", "")})
    code, report = project.run("--failing", "failing.json", "--states", "1", "--base", "main~2")
    assert (code, report["run"]["states"]["executed"], len(report["findings"])) == (1, 1, 1)


def test_a_crash_that_cannot_happen_any_more_is_fixed_and_names_the_commit_that_it_failed_in(project: Project) -> None:
    project.write("")
    project.write("", more={"notes.c": "int unused;\n"})
    project.search("--failing", "failing.json")
    project.write(PERSISTED)
    code, report = project.run("--failing", "failing.json")
    (one,) = report["run"]["again"]
    assert (code, one["fate"], one["executed"], len(one["commit"])) == (0, "fixed", 0, 40)
    assert json.loads((project.folder / "failing.json").read_text(encoding="utf-8"))["states"] == []


def test_a_crash_that_a_better_check_accepts_is_fixed_by_executing_it(project: Project) -> None:
    project.write("")
    project.search("--failing", "failing.json")
    lenient = SOURCE.replace("FIRST", "").replace("return 1;", "accounts[i].used = 0;")
    project.write("", more={"ledger.c": lenient})
    code, report = project.run("--failing", "failing.json")
    (one,) = report["run"]["again"]
    assert (code, one["fate"], one["executed"] > 0) == (0, "fixed", True)


def test_what_cannot_be_tested_is_not_called_fixed_and_is_kept_for_the_next_run(project: Project) -> None:
    project.write("")
    project.search("--failing", "failing.json")
    rewritten = SOURCE.replace("account->owner = owner;", "__atomic_store_n(&account->owner, owner, __ATOMIC_RELAXED);")
    project.write("", more={"ledger.c": rewritten.replace("FIRST", PERSISTED)})
    code, report = project.run("--failing", "failing.json")
    assert (code, [one["fate"] for one in report["run"]["again"]]) == (0, ["not-seen"])
    assert len(json.loads((project.folder / "failing.json").read_text(encoding="utf-8"))["states"]) == 1


def test_a_fsync_put_back_in_a_script_fixes_what_failed(project: Project) -> None:
    project.write("", more=settings_store.files(sync=""))
    project.search("--failing", "failing.json")
    project.write("", more=settings_store.files())
    code, report = project.run("--failing", "failing.json")
    assert (code, {one["fate"] for one in report["run"]["again"]}) == (0, {"fixed"})


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"version": 2, "states": []}', '{"version": 1, "states": [{"id": 1}]}']
)
def test_a_file_that_nobody_can_read_changes_nothing(project: Project, text: str) -> None:
    project.write("")
    (project.folder / "failing.json").write_text(text, encoding="utf-8")
    assert project.search("--failing", "failing.json")[0] == 1
    assert len(json.loads((project.folder / "failing.json").read_text(encoding="utf-8"))["states"]) == 1
