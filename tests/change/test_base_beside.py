"""`--base` with cores for both: another process searches the base meanwhile, and the comparison finds its result."""

from __future__ import annotations

import pytest

from crashcheck.change.base import jobs_beside
from support.ledger import CONFIG, PERSISTED, SOURCE
from support.versions import Project, compared

COMMAND_OF_GRANDPARENT = "read -r _ _ _ up _ </proc/$PPID/stat && tr '\\\\0' ' ' </proc/$up/cmdline"


@pytest.mark.parametrize(("jobs", "of_base"), [(0, 0), (1, 0), (3, 0), (4, 2), (5, 2), (16, 8)])
def test_the_base_gets_half_of_the_jobs_where_there_are_four(jobs: int, of_base: int) -> None:
    assert jobs_beside(jobs) == of_base


@pytest.mark.parametrize(("jobs", "by_another"), [("4", True), ("1", False)])
def test_with_four_jobs_the_base_is_searched_once_by_another_process(
    project: Project, jobs: str, by_another: bool
) -> None:
    """The build notes the command of the process that its supervisor was started by."""
    config = {"crashcheck.toml": CONFIG.replace("echo built", COMMAND_OF_GRANDPARENT)}
    project.write(PERSISTED, more=config)
    project.write("", more=config)
    code, report = project.run("--jobs", jobs)
    assert (code, compared(report)) == (1, ["introduced"])
    (built,) = project.bases()
    assert ("--search-base" in built) == by_another
    assert len(list((project.cache / "results").glob("*.json"))) == 1
    assert project.run("--jobs", jobs)[0] == 1
    assert project.bases() == [built]


def test_why_a_base_fails_is_shown_although_another_process_met_it_first(project: Project) -> None:
    project.write("", more={"ledger.c": SOURCE.replace("FIRST", "no C")})
    project.write("")
    code, report = project.run("--jobs", "4")
    assert (code, compared(report)) == (1, ["introduced"])
    assert report["run"]["base"]["note"].startswith("the base was not searched: build-failed")
