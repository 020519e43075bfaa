"""The action, run from this checkout by act on this machine: what a pull request and one from a fork get to see."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest

from support.github.act import LEDGER, Act, commands, workflow
from support.github.fake_github import HEAD, FakeGitHub
from support.ledger import APART, CONFIG, PERSISTED, SOURCE, files

pytestmark = pytest.mark.slow

NO_BASE = (
    "::warning title=crashcheck::The checkout holds no commit of the base, so every finding counts as new. "
    "Give actions/checkout fetch-depth: 2."
)
TRY = ".github/workflows/try-ledger.yml"
FIXED, BUGGY = files(PERSISTED), files("")
BUG = (f"`account.used` ({LEDGER}/ledger.c:", f") can survive a crash without `account.owner` ({LEDGER}/ledger.c:")


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory) -> Act:
    made = Act(tmp_path_factory.mktemp("act"))
    workflows = made.checkout / ".github" / "workflows"
    for config in ("buggy", "broken"):
        text = workflow("examples/level-hash", f"{config}.toml")
        (workflows / f"try-{config}.yml").write_text(text, encoding="utf-8")
    (workflows / "try-ledger.yml").write_text(workflow(LEDGER), encoding="utf-8")
    (workflows / "try-models.yml").write_text(workflow(LEDGER, models='["px86", "eadr"]'), encoding="utf-8")
    example = made.checkout / "examples" / "level-hash"
    text = (example / "buggy.toml").read_text(encoding="utf-8")
    broken = re.sub(r'command = "make.*"', """command = "printf '::error::gotcha\\\\n' && false" """, text, count=1)
    (example / "broken.toml").write_text(broken, encoding="utf-8")
    return made


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as fake:
        fake.change("examples/level-hash/buggy.c", "@@ -42,2 +42,2 @@\n-x\n+y\n         bucket->valid[i] = 1;")
        yield fake
        assert fake.broken == []


def test_a_pull_request_gets_annotations_a_summary_a_comment_and_a_check_run(act: Act, github: FakeGitHub) -> None:
    log = act.run(".github/workflows/try-buggy.yml", github)
    assert act.outcome() == "failure"
    outputs = act.outputs()
    assert (outputs["findings"], outputs["new-findings"], outputs["conclusion"]) == ("1", "1", "failure")
    assert os.path.basename(outputs["report-html"]) == "report.html"
    no_base, error = commands(log)
    assert no_base == NO_BASE
    assert error.startswith("::error file=examples/level-hash/buggy.c,line=43,title=crashcheck")
    assert "Summary - ### crashcheck: Fails: after a power failure " in log
    assert "1 finding; all 121 feasible crash states checked" in log
    sarif = json.loads((act.seen / "report.sarif").read_text(encoding="utf-8"))
    (result,) = sarif["runs"][0]["results"]
    where = result["locations"][0]["physicalLocation"]
    assert (where["artifactLocation"]["uri"], where["region"]["startLine"]) == ("examples/level-hash/buggy.c", 43)
    (comment,) = github.comments
    assert "buggy.c:43" in comment["body"]
    assert "https://github.com/octo/storage/actions/runs/1/artifacts/2" in comment["body"]
    (run,) = github.check_runs
    assert (run["head_sha"], run["conclusion"]) == (HEAD, "failure")
    kept = set(re.findall(r"artifact (report\S+)", log))
    assert kept == {"report.html", "report.json", "report.md", "report.sarif"}


def test_a_second_run_installs_nothing_and_updates_the_comment(act: Act, github: FakeGitHub) -> None:
    act.run(".github/workflows/try-buggy.yml", github)
    log = act.run(".github/workflows/try-buggy.yml", github)
    assert "cache looked up crashcheck-Linux-X64-" in log
    assert "crashcheck is installed in" in log
    assert len(github.comments) == 1


def test_on_a_fork_everything_is_reported_that_needs_no_permission(act: Act, github: FakeGitHub) -> None:
    github.read_only = {"comments", "checks", "reviews"}
    log = act.run(".github/workflows/try-buggy.yml", github, head="mallory/storage")
    assert act.outcome() == "failure"
    assert act.outputs()["conclusion"] == "failure"
    assert len(commands(log)) == 2
    assert "Summary - ### crashcheck: Fails: after a power failure " in log
    assert "1 finding; all 121 feasible crash states checked" in log
    assert log.count("The token may not write the comment and the check run, as on a pull request from a fork") == 1
    assert github.comments == github.check_runs == []


def test_a_build_that_fails_ends_in_an_error_and_its_output_gives_no_commands(act: Act, github: FakeGitHub) -> None:
    log = act.run(".github/workflows/try-broken.yml", github)
    assert act.outcome() == "failure"
    assert act.outputs()["conclusion"] == "error"
    assert "gotcha" in log
    no_base, error = commands(log)
    assert no_base == NO_BASE
    assert error.startswith("::error title=crashcheck::No report: build-failed; aaaaaaa: the build command exited")
    assert github.comments == []


def test_this_projects_own_workflow_passes(act: Act, github: FakeGitHub) -> None:
    log = act.run(".github/workflows/action.yml", github)
    assert "Job succeeded" in log


def test_a_bug_that_the_pull_request_brings_fails_and_a_later_push_without_it_updates_the_comment(
    act: Act, github: FakeGitHub
) -> None:
    act.pull_request(FIXED, BUGGY, github)
    log = act.run(TRY, github)
    outputs = act.outputs()
    assert (outputs["new-findings"], outputs["conclusion"]) == ("1", "failure")
    (error,) = commands(log)
    assert error.startswith(f"::error file={LEDGER}/ledger.c,line=18,title=crashcheck")
    (comment,) = github.comments
    assert all(part in comment["body"] for part in BUG)
    assert "1 introduced, 0 existing" in comment["body"]

    act.pull_request(FIXED, {**FIXED, "notes.c": "int unused;\n"}, github)
    log = act.run(TRY, github)
    assert (act.outcome(), act.outputs()["conclusion"], commands(log)) == ("success", "success", [])
    (comment,) = github.comments
    assert "### crashcheck: Passes: fixed, the crash that failed in " in comment["body"]


def test_a_fix_and_a_rename_are_green_and_an_old_bug_is_listed_as_existing(act: Act, github: FakeGitHub) -> None:
    act.pull_request(BUGGY, FIXED, github)
    log = act.run(TRY, github)
    assert (act.outcome(), act.outputs()["findings"]) == ("success", "0")
    assert "Fixed, the crash that failed in main " in log
    assert "### crashcheck: Passes: fixed, the crash that failed in main " in github.comments.pop()["body"]

    renamed = SOURCE.replace("FIRST", "").replace("put(", "open_account(").replace("ledger.h", "book.h")
    moved = {**BUGGY, "ledger.c": renamed, "book.h": BUGGY["ledger.h"]}
    del moved["ledger.h"]
    act.pull_request(BUGGY, moved, github)
    log = act.run(TRY, github)
    outputs = act.outputs()
    assert (outputs["findings"], outputs["new-findings"], outputs["conclusion"]) == ("1", "0", "success")
    assert commands(log) == []
    assert "0 introduced, 1 existing" in log
    assert github.comments == []


def test_a_change_of_documents_builds_nothing(act: Act, github: FakeGitHub) -> None:
    act.pull_request(BUGGY, {**BUGGY, "README.md": "A ledger.\n"}, github)
    log = act.run(TRY, github)
    assert (act.outcome(), act.outputs()["conclusion"]) == ("success", "success")
    assert "holds documents only" in log
    assert "building" not in log


def test_a_push_that_hangs_says_so_in_the_comment_on_an_earlier_one(act: Act, github: FakeGitHub) -> None:
    act.pull_request(FIXED, BUGGY, github)
    act.run(TRY, github)
    endless = SOURCE.replace("FIRST", "for (volatile int i = 0; i == 0;) {}")
    quick = CONFIG.replace("[workload]", "[workload]\ntimeout_s = 1")
    act.pull_request(FIXED, {**BUGGY, "ledger.c": endless, "crashcheck.toml": quick}, github)
    log = act.run(TRY, github)
    assert (act.outcome(), act.outputs()["conclusion"]) == ("failure", "error")
    assert commands(log)[-1].startswith("::error title=crashcheck::No report: workload-timeout; aaaaaaa: ")
    (comment,) = github.comments
    assert "### crashcheck: No report: workload-timeout; aaaaaaa" in comment["body"]


def test_two_models_have_a_check_run_and_a_row_each_and_the_clean_one_hides_no_bug(
    act: Act, github: FakeGitHub
) -> None:
    act.pull_request(FIXED, BUGGY, github)
    act.run(".github/workflows/try-models.yml", github)
    assert [(run["name"], run["conclusion"]) for run in github.check_runs] == [
        (f"crashcheck findings (check (px86), {LEDGER}/crashcheck.toml, px86)", "failure"),
        (f"crashcheck findings (check (eadr), {LEDGER}/crashcheck.toml, eadr)", "success"),
    ]
    (comment,) = github.comments
    assert all(part in comment["body"] for part in BUG)


def test_a_header_that_parts_two_fields_fails_and_the_two_cache_lines_are_shown(act: Act, github: FakeGitHub) -> None:
    act.pull_request(files("", padding=""), files("", padding=APART), github)
    log = act.run(TRY, github)
    assert (act.outputs()["new-findings"], act.outputs()["conclusion"]) == ("1", "failure")
    (error,) = commands(log)
    assert error.startswith(f"::error file={LEDGER}/ledger.c,line=18,title=crashcheck")
    assert f"It changes {LEDGER}/ledger.h, which may have moved a field to another cache line" in error
    assert "`account.owner` is in cache line 0 and `account.used` in cache line 1" in log


def test_a_pull_request_takes_the_result_that_a_push_to_main_kept_of_its_base(act: Act, github: FakeGitHub) -> None:
    act.push(BUGGY)
    log = act.run(TRY, github, event_name="push")
    assert (act.outputs()["new-findings"], github.comments) == ("1", [])
    (saved,) = re.findall(r"cache saved (\S+-results-\S+)", log)

    act.commit({**BUGGY, "notes.c": "int unused;\n"})
    log = act.run(TRY, github)
    assert f"cache looked up {saved}" in log
    assert "base: " not in log
    assert "0 introduced, 1 existing" in log
    assert not re.search(r"cache saved \S+-results-", log)
