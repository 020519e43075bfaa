"""`crashcheck publish`: what is sent to a pull request, in which order, and what happens where GitHub refuses."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck import cli
from crashcheck.checker.results import BLIND, Base, Earlier, Finding, FindingKind, RunResult, StopReason
from crashcheck.cli.publish import publish
from crashcheck.errors import CrashcheckError
from crashcheck.reports.formats import json_report
from crashcheck.reports.formats.failure import Failure
from crashcheck.reports.formats.failure import render as render_failure
from support.github.fake_github import BOT, HEAD, MALLORY, REPOSITORY, FakeGitHub, Trouble
from support.reports.runs import ALL as ALL_STATES
from support.reports.runs import LEVEL_HASH, UNCERTAIN, run, with_fields

PATCH = """@@ -7,4 +7,4 @@
     entry->key = key;
-    entry->value = 0;
+    entry->value = value;
     b->tokens[slot].valid = 1;
     clwb(entry);"""


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as fake:
        fake.change("src/level_hash.c", PATCH)
        yield fake
        assert fake.broken == []


class Job:
    """A step of a workflow on a pull request, with a token for the fake."""

    def __init__(self, folder: Path, github: FakeGitHub, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.waits: list[float] = []
        self.summary = folder / "summary.md"
        self.outputs = folder / "outputs"
        self.environment = {
            "GITHUB_TOKEN": "ghs_token",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": github.url,
            "GITHUB_SHA": "c" * 40,
            "GITHUB_WORKSPACE": str(folder),
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.outputs),
            "GITHUB_RUN_ID": "99",
            "GITHUB_RUN_ATTEMPT": "1",
        }
        self.event(pull_request_event())

    def event(self, event: object) -> None:
        (self.folder / "event.json").write_text(json.dumps(event), encoding="utf-8")

    def publish(self, result: RunResult, *options: str) -> str:
        """What the step prints."""
        report = self.folder / "report.json"
        report.write_text(json_report.render(result), encoding="utf-8")
        assert publish(parsed("--report", str(report), *options), self.environment, self.waits.append, 0) == 0
        return self.capsys.readouterr().out

    def fail(self, failure: Failure, *options: str) -> str:
        """What the step prints where there is no report."""
        path = self.folder / "failure.json"
        path.write_text(render_failure(failure), encoding="utf-8")
        assert publish(parsed("--failure", str(path), *options), self.environment, self.waits.append, 0) == 0
        return self.capsys.readouterr().out


def parsed(*options: str) -> argparse.Namespace:
    return cli.build_parser().parse_args(["publish", *options])


def pull_request_event(head: str = REPOSITORY) -> Mapping[str, object]:
    base = {"sha": "d" * 40, "repo": {"full_name": REPOSITORY}}
    return {"pull_request": {"number": 7, "head": {"sha": HEAD, "repo": {"full_name": head}}, "base": base}}


@pytest.fixture
def job(tmp_path: Path, github: FakeGitHub, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(tmp_path, github, capsys)


def first_line(comment: Mapping[str, str]) -> str:
    """The first line that a reader sees."""
    return comment["body"].split("\n")[1]


def a_run(count: int) -> RunResult:
    return run(*findings(count))


def findings(count: int) -> tuple[Finding, ...]:
    return tuple(replace(LEVEL_HASH, id=f"ORD-{number:08x}") for number in range(count))


ALL = ("--comment", "--check-run", "auto", "--review")


@pytest.mark.parametrize(("count", "shown", "checks"), [(0, 0, 0), (1, 1, 0), (10, 10, 0), (11, 11, 1), (60, 11, 1)])
def test_annotations_go_to_the_log_and_above_ten_to_a_check_run_as_well(
    job: Job, github: FakeGitHub, count: int, shown: int, checks: int
) -> None:
    printed = job.publish(a_run(count), *ALL)
    assert len([row for row in printed.split("\n") if row.startswith("::")]) == shown
    assert len(github.check_runs) == checks
    assert [len(there) for there in github.annotations.values()] == ([count] if checks else [])
    assert len(github.comments) == (1 if count else 0)
    assert job.outputs.read_text() == (
        f"findings={count}\nnew-findings={count}\nconclusion={'failure' if count else 'success'}\n"
    )
    assert all(one["body"].startswith("<!-- crashcheck comment ") for one in github.comments)
    assert all(len(one["body"]) <= 65_536 for one in github.comments)
    assert all(len(run["output"]["summary"]) <= 65_535 for run in github.check_runs)


def test_a_check_run_may_be_asked_for_and_belongs_to_the_branchs_newest_commit(job: Job, github: FakeGitHub) -> None:
    job.publish(a_run(1), "--check-run", "always", "--link", "https://github.com/octo/storage/artifacts/1")
    (run,) = github.check_runs
    assert (run["name"], run["head_sha"], run["conclusion"]) == (
        "crashcheck findings (crashcheck.toml, px86)",
        HEAD,
        "failure",
    )
    assert run["details_url"] == "https://github.com/octo/storage/artifacts/1"
    ((annotation,),) = github.annotations.values()
    assert (annotation["path"], annotation["start_line"], annotation["end_line"], annotation["annotation_level"]) == (
        "src/level_hash.c",
        9,
        9,
        "failure",
    )


def test_the_base_is_named_by_its_branch_although_the_checkout_knows_only_the_first_parent(
    job: Job, github: FakeGitHub
) -> None:
    head = {"sha": HEAD, "repo": {"full_name": REPOSITORY}}
    job.event({"pull_request": {"number": 7, "head": head, "base": {"sha": "d" * 40, "ref": "release/2"}}})
    job.publish(replace(a_run(1), base=Base("HEAD^1", "d" * 40)), "--comment")
    (comment,) = github.comments
    assert "Compared with release/2 (dddddddddd)" in comment["body"]
    assert "HEAD^1" not in comment["body"] + job.summary.read_text(encoding="utf-8")


def test_the_comment_follows_the_findings_until_they_are_gone(job: Job, github: FakeGitHub) -> None:
    assert "comment: created" in job.publish(a_run(2), "--comment")
    assert "comment: updated" in job.publish(a_run(1), "--comment")
    assert "comment: updated" in job.publish(a_run(0), "--comment")
    (comment,) = github.comments
    assert first_line(comment) == f"### crashcheck: Passes: no crash state fails; {HEAD[:7]}, 412 of 412 states"
    assert "level_hash" not in comment["body"]


def test_a_search_that_was_cut_short_calls_no_finding_gone_or_fixed(job: Job, github: FakeGitHub) -> None:
    job.publish(a_run(1), "--comment")
    short = replace(ALL_STATES, feasible=29_000_000, executed=700, pruned=38)
    job.publish(run(states=short, stop=StopReason.BUDGET_SECONDS), "--comment")
    (comment,) = github.comments
    assert first_line(comment) == (
        f"### crashcheck: Nothing found, though the search was not complete; {HEAD[:7]}, 738 of 2.9×10⁷ states"
    )
    assert "The time budget ended the search; the remaining states were not checked." in comment["body"]
    assert "gone" not in comment["body"]


def test_each_model_and_each_named_job_of_a_matrix_has_a_row_of_the_comment_and_a_check_run(
    job: Job, github: FakeGitHub
) -> None:
    job.publish(a_run(1), "--comment", "--check-run", "always")
    job.publish(replace(a_run(0), model="eadr"), "--comment", "--check-run", "always")
    job.publish(replace(a_run(1), name="second"), "--comment", "--check-run", "always")
    (comment,) = github.comments
    rows = [row.split(" | ")[:2] for row in comment["body"].split("\n") if row.startswith("| ")]
    assert [[job, result.partition(":")[0]] for job, result in rows[2:]] == [
        ["| crashcheck.toml, px86", "Fails"],
        ["| second, crashcheck.toml, px86", "Fails"],
        ["| crashcheck.toml, eadr", "Passes"],
    ]
    assert [(one["name"], one["conclusion"]) for one in github.check_runs] == [
        ("crashcheck findings (crashcheck.toml, px86)", "failure"),
        ("crashcheck findings (crashcheck.toml, eadr)", "success"),
        ("crashcheck findings (second, crashcheck.toml, px86)", "failure"),
    ]


FAILURE = Failure("crashcheck.toml", "build-failed", "the build command exited with status 2: make\nno rule", "px86")


def test_a_run_without_a_report_updates_the_comment_and_says_why_and_for_which_commit(
    job: Job, github: FakeGitHub
) -> None:
    job.publish(a_run(1), "--comment")
    job.environment["GITHUB_RUN_ID"] = "100"
    job.summary.unlink()
    printed = job.fail(FAILURE, "--comment", "--check-run", "always")
    (comment,) = github.comments
    for text in (comment["body"], job.summary.read_text(), github.check_runs[0]["output"]["summary"]):
        assert "no rule" in text
        assert "token.valid" not in text
    title = f"No report: build-failed; {HEAD[:7]}"
    assert first_line(comment) == f"### crashcheck: {title}"
    assert job.summary.read_text().startswith(f"### crashcheck: {title}\n")
    assert [(one["conclusion"], one["output"]["title"]) for one in github.check_runs] == [("failure", title)]
    assert f"::error title=crashcheck::{title}: the build command" in printed
    assert f"[The log](https://github.com/{REPOSITORY}/actions/runs/100)" in comment["body"]
    assert job.outputs.read_text().endswith("conclusion=error\n")


def test_a_failure_alone_makes_no_comment_and_no_check_run_unless_one_is_always_wanted(
    job: Job, github: FakeGitHub
) -> None:
    job.fail(FAILURE, "--comment", "--check-run", "auto")
    assert github.comments == github.check_runs == []


def test_a_configuration_that_cannot_be_read_updates_the_comment_of_any_model(job: Job, github: FakeGitHub) -> None:
    job.publish(replace(a_run(1), model="eadr"), "--comment")
    job.fail(replace(FAILURE, model="", slug="config-syntax"), "--comment")
    assert ["config-syntax" in one["body"] for one in github.comments] == [True]


def test_every_comment_names_its_commit(job: Job, github: FakeGitHub) -> None:
    for result in (a_run(1), a_run(0)):
        job.publish(result, "--comment")
        assert f"; {HEAD[:7]}, 412 of 412 states" in first_line(github.comments[0])


@pytest.mark.parametrize(("run_id", "attempt", "left"), [("98", "1", True), ("99", "1", True), ("99", "2", False)])
def test_an_older_run_that_ends_later_leaves_the_comment(
    job: Job, github: FakeGitHub, run_id: str, attempt: str, left: bool
) -> None:
    job.environment |= {"GITHUB_RUN_ATTEMPT": "2"}
    job.publish(a_run(2), "--comment")
    before = github.comments[0]["body"]
    job.environment |= {"GITHUB_RUN_ID": run_id, "GITHUB_RUN_ATTEMPT": attempt}
    printed = job.publish(a_run(1), "--comment")
    assert ("comment: left: a newer run wrote it" in printed) == left
    assert (github.comments[0]["body"] == before) == left


def test_each_configuration_has_its_own_row_of_the_comment(job: Job, github: FakeGitHub) -> None:
    job.publish(a_run(1), "--comment", "--folder", "lib/a")
    job.publish(a_run(1), "--comment", "--folder", "lib/b")
    (comment,) = github.comments
    assert comment["body"].count("<!-- job ") == 2


def test_on_a_fork_the_token_costs_one_line_and_nothing_else_is_lost(job: Job, github: FakeGitHub) -> None:
    job.event(pull_request_event("mallory/storage"))
    github.read_only = {"comments", "checks", "reviews"}
    printed = job.publish(a_run(60), *ALL)
    assert [row for row in printed.split("\n") if row.startswith("crashcheck: ")] == [
        "crashcheck: review: none",
        "crashcheck: The token may not write the comment and the check run, as on a pull request from a fork: "
        "could not comment: HTTP 403: Resource not accessible by integration. "
        "The summary and the annotations show every finding.",
    ]
    assert printed.count("::error ") == 10
    assert "findings=60" in job.outputs.read_text()
    assert "level_hash.c:9" in job.summary.read_text()
    assert job.waits == []


def test_a_github_that_answers_nothing_useful_costs_warnings_and_no_failure(job: Job, github: FakeGitHub) -> None:
    github.troubles.append(Trouble("", 500, {"message": "Server Error"}, times=1000))
    printed = job.publish(a_run(1), "--comment")
    assert "::warning title=crashcheck::The comment was left out: could not read the comments: HTTP 500" in printed
    assert "findings=1" in job.outputs.read_text()


def test_without_a_token_the_summary_and_the_annotations_are_written(job: Job, github: FakeGitHub) -> None:
    del job.environment["GITHUB_TOKEN"]
    printed = job.publish(a_run(1), *ALL)
    assert "::error file=src/level_hash.c,line=9," in printed
    assert "crashcheck: No token" in printed
    assert github.asked == []


def test_what_needs_no_permission_is_done_before_github_is_written_to(job: Job, github: FakeGitHub) -> None:
    seen: list[bool] = []
    comment = github._comment

    def spy(body: object, query: object) -> tuple[int, object]:
        seen.append("level_hash" in job.summary.read_text() and "findings=1" in job.outputs.read_text())
        return comment(body, query)

    github._comment = spy  # type: ignore[method-assign]
    job.publish(a_run(1), "--comment")
    assert seen == [True]


def test_a_finding_outside_the_change_is_annotated_at_the_nearest_changed_line(job: Job, github: FakeGitHub) -> None:
    github.files.clear()
    github.change("src/level_hash.c", "@@ -7,2 +7,2 @@\n     entry->key = key;\n-    x\n+    entry->value = value;")
    printed = job.publish(a_run(1))
    assert "::error file=src/level_hash.c,line=8," in printed
    assert "The store is at src/level_hash.c%3A9" in printed or "The store is at src/level_hash.c:9" in printed


def test_after_a_workflow_run_a_forks_pull_request_is_found_by_its_branch(job: Job, github: FakeGitHub) -> None:
    owner = {"login": "mallory"}
    head = {"owner": owner, "full_name": "mallory/storage"}
    run = {"head_sha": HEAD, "head_branch": "fix", "head_repository": head, "pull_requests": []}
    job.event({"workflow_run": run})
    github.pull(7, HEAD, "mallory/storage")
    assert "comment: created" in job.publish(a_run(1), "--comment")
    assert github.count(r"^GET /repos/octo/storage/pulls$") == 1


@pytest.mark.parametrize(
    ("sha", "repository"), [("b" * 40, "mallory/storage"), (HEAD, "eve/storage"), (HEAD, REPOSITORY)]
)
def test_a_forks_report_is_not_published_where_the_pull_request_has_another_commit_or_repository(
    job: Job, github: FakeGitHub, sha: str, repository: str
) -> None:
    head = {"owner": {"login": "mallory"}, "full_name": "mallory/storage"}
    run = {"head_sha": HEAD, "head_branch": "fix", "head_repository": head, "pull_requests": [{"number": 7}]}
    job.event({"workflow_run": run})
    github.pull(7, sha, repository)
    assert "This event belongs to no open pull request" in job.publish(a_run(1), "--comment")
    assert github.comments == []


def test_after_a_workflow_run_the_comment_leads_to_that_runs_artifacts(job: Job, github: FakeGitHub) -> None:
    head = {"owner": {"login": "mallory"}, "full_name": "mallory/storage"}
    run = {"id": 41, "run_attempt": 1, "head_sha": HEAD, "head_branch": "fix", "head_repository": head}
    job.event({"workflow_run": {**run, "pull_requests": []}})
    github.pull(7, HEAD, "mallory/storage")
    job.publish(a_run(1), "--comment")
    assert "(https://github.com/octo/storage/actions/runs/41#artifacts)" in github.comments[0]["body"]


def test_a_replay_names_the_configuration_from_the_repositorys_root(job: Job, github: FakeGitHub) -> None:
    job.publish(replace(a_run(1), config_path="/home/runner/db/hard.toml"), "--comment", "--folder", "db")
    assert "crashcheck replay -c db/hard.toml cc1-" in github.comments[0]["body"]


def test_a_run_that_decided_nothing_is_an_error_with_its_reason(job: Job, github: FakeGitHub) -> None:
    nothing = run(states=replace(ALL_STATES, executed=0, pruned=0), stop=StopReason.BUDGET_SECONDS)
    printed = job.publish(nothing, "--comment", "--check-run", "always", "--exit-code", "2")
    why = "No verdict: none of 412 feasible crash states was checked, because the time budget ended first"
    assert f"::error title=crashcheck::{why}" in printed
    assert f"### crashcheck: {why}" in github.comments[0]["body"]
    assert [one["conclusion"] for one in github.check_runs] == ["action_required"]
    assert "conclusion=undecided\n" in job.outputs.read_text()


def test_a_run_with_nothing_to_decide_is_a_success(job: Job, github: FakeGitHub) -> None:
    empty = run(states=replace(ALL_STATES, feasible=0, executed=0, pruned=0))
    assert "::error" not in job.publish(empty, "--comment", "--exit-code", "0")
    assert github.comments == []
    assert "conclusion=success\n" in job.outputs.read_text()


def test_a_check_that_accepts_damaged_files_is_named_in_a_comment_although_nothing_fails(
    job: Job, github: FakeGitHub
) -> None:
    job.publish(replace(a_run(0), warnings=(BLIND,)), "--comment")
    (comment,) = github.comments
    words = "Passes: no crash state fails; but the check accepts damaged files, too"
    assert first_line(comment) == f"### crashcheck: {words}; {HEAD[:7]}, 412 of 412 states"
    assert "filled with zeros" in comment["body"]
    assert job.outputs.read_text().endswith("conclusion=success\n")


def test_a_change_that_fixes_a_bug_of_the_base_gets_a_comment_that_names_it(job: Job, github: FakeGitHub) -> None:
    fixed = Earlier("ORD-1", FindingKind.ORDERING, "`a` can survive a crash without `b`", "fixed", 2)
    job.publish(replace(a_run(0), base=Base("refs/remotes/origin/main", "d" * 40, earlier=(fixed,))), "--comment")
    (comment,) = github.comments
    assert first_line(comment).startswith(
        "### crashcheck: Passes: fixed, the crash that failed in main passes now: `a`"
    )


def test_long_names_of_what_is_fixed_are_cut_and_do_not_run_into_one_another(job: Job, github: FakeGitHub) -> None:
    name = "`" + "n" * 110 + "`"
    fixed = Earlier("ORD-1", FindingKind.ORDERING, f"{name} can survive a crash without {name}", "fixed", 2)
    job.publish(replace(a_run(0), again=(fixed, replace(fixed, id="ORD-2"))), "--comment")
    (comment,) = github.comments
    assert "`" not in first_line(comment)
    assert first_line(comment).endswith(f"; {HEAD[:7]}, 412 of 412 states")


def test_a_push_has_no_pull_request_to_comment_on(job: Job, github: FakeGitHub) -> None:
    job.event({"ref": "refs/heads/main"})
    printed = job.publish(a_run(1), "--comment", "--check-run", "always")
    assert "belongs to no open pull request" in printed
    assert [run["head_sha"] for run in github.check_runs] == ["c" * 40]


@pytest.mark.parametrize(
    ("fail_on", "conclusion"), [("none", "neutral"), ("note", "failure"), ("warning", "failure"), ("error", "neutral")]
)
def test_the_fail_level_decides_the_conclusion(job: Job, fail_on: str, conclusion: str) -> None:
    lesser = replace(a_run(1), findings=(with_fields(LEVEL_HASH, depth=2),))
    job.publish(lesser, "--fail-on", fail_on)
    assert f"conclusion={conclusion}\n" in job.outputs.read_text()


@pytest.mark.parametrize(
    ("options", "conclusion", "checked"),
    [
        (("--exit-code", "2"), "undecided", "action_required"),
        (("--fail-on", "warning"), "undecided", "action_required"),
        (("--fail-on", "note"), "failure", "failure"),
        (("--fail-on", "none"), "neutral", "neutral"),
        (("--exit-code", "0"), "neutral", "neutral"),
    ],
)
def test_failures_that_are_not_proved_leave_the_conclusion_open(
    job: Job, github: FakeGitHub, options: tuple[str, str], conclusion: str, checked: str
) -> None:
    job.publish(run(uncertain=(UNCERTAIN,)), "--check-run", "always", "--comment", *options)
    assert f"conclusion={conclusion}\n" in job.outputs.read_text()
    assert [one["conclusion"] for one in github.check_runs] == [checked]
    (comment,) = github.comments
    word = {"undecided": "No verdict", "failure": "Fails", "neutral": "Passes, though"}[conclusion]
    if options != ("--exit-code", "0"):  # an exit code and a report that do not fit together
        assert first_line(comment).startswith(f"### crashcheck: {word}: ")
        assert word == "No verdict" or ", not proved; no tested fix; " in first_line(comment)


@pytest.mark.parametrize("options", [("--exit-code", "2"), ("--fail-on", "warning")])
def test_a_run_that_was_broken_off_is_no_success(job: Job, github: FakeGitHub, options: tuple[str, str]) -> None:
    job.publish(run(stop=StopReason.INTERRUPTED), "--check-run", "always", *options)
    assert "conclusion=error\n" in job.outputs.read_text()
    assert [one["conclusion"] for one in github.check_runs] == ["action_required"]


def test_findings_of_the_baseline_and_suppressed_ones_are_in_the_summary_only(job: Job, github: FakeGitHub) -> None:
    known = replace(LEVEL_HASH, new=False)
    accepted = replace(LEVEL_HASH, id="ORD-2", suppressed="a cache, rebuilt at start")
    printed = job.publish(replace(a_run(1), findings=(known, accepted)), *ALL)
    assert "::" not in printed
    assert github.comments == []
    assert job.outputs.read_text() == "findings=2\nnew-findings=0\nconclusion=success\n"


HOSTILE = """
::error::gotcha
##[error]gotcha
<script>alert(1)</script> @octo #1 ![x](https://evil/x.png) ```
<!-- crashcheck comment"""


def test_nothing_from_the_program_acts_as_a_command_or_as_markup(job: Job, github: FakeGitHub) -> None:
    place = replace(LEVEL_HASH.location, function=HOSTILE, variable=HOSTILE, text=HOSTILE)
    verdict = replace(LEVEL_HASH.evidence.verdict, output=HOSTILE * 3)
    hostile = with_fields(LEVEL_HASH, message=HOSTILE, location=place, crash_point=HOSTILE, verdict=verdict)
    dangerous = replace(a_run(1), findings=(hostile,), config_path=f"{HOSTILE}.toml")
    printed = job.publish(dangerous, "--comment", "--check-run", "always")
    assert [row[:8] for row in printed.split("\n") if row.startswith(("::", "##"))] == ["::error "]
    (comment,) = github.comments
    hidden = 1 + comment["body"].count("<!-- job ")
    for text in (comment["body"], job.summary.read_text(), github.check_runs[0]["output"]["summary"]):
        outside = outside_code(text)
        assert "<script" not in outside
        assert "@octo" not in outside
        # Markdown leaves a line alone that begins with an element of HTML.
        assert [row for row in outside.split("\n") if "![x]" in row and not row.startswith("<")] == []
        assert outside.count("<!-- ") == (hidden if text is comment["body"] else 0)


def outside_code(text: str) -> str:
    """Markdown without its blocks and spans of code."""
    text = re.sub(r"^(`{3,}).*?^\1`*\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def test_an_imitated_comment_is_never_taken_for_ours(job: Job, github: FakeGitHub) -> None:
    job.publish(a_run(1), "--comment")
    body = github.comments[0]["body"]
    github.comments.clear()
    github.say(body, MALLORY)
    job.publish(a_run(2), "--comment")
    assert [one["user"]["login"] for one in github.comments] == ["mallory", BOT["login"]]
    assert github.comments[0]["body"] == body


@pytest.mark.parametrize(
    "event",
    [
        "no object",
        {"pull_request": {"number": "7; rm -rf", "head": {"sha": HEAD}}},
        {"pull_request": {"number": 7, "head": {"sha": "main"}}},
        {"workflow_run": {"head_sha": None}},
    ],
)
def test_an_event_that_makes_no_sense_is_refused(job: Job, event: object) -> None:
    job.event(event)
    with pytest.raises(CrashcheckError) as refusal:
        job.publish(a_run(1))
    assert refusal.value.slug == "github-environment"


def test_a_folder_outside_the_repository_is_refused(job: Job) -> None:
    with pytest.raises(CrashcheckError) as refusal:
        job.publish(a_run(1), "--folder", "../elsewhere")
    assert refusal.value.slug == "publish-folder"
