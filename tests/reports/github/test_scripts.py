"""The scripts behind action.yml: an input is one argument, whatever it holds, and only 1 means findings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from crashcheck.reports.github.comment import Job, job_key
from crashcheck.reports.github.sections import FAILS, NO_REPORT, SECTIONS_MAX, Section, read, render
from support.github.fake_github import BOT, HEAD, REPOSITORY, FakeGitHub
from support.paths import ROOT

EVIL = "$(touch evil) `touch evil`; touch evil; \"'; ::error::gotcha.toml"


@pytest.fixture
def step(tmp_path: Path, environment: dict[str, str]) -> dict[str, str]:
    """The variables of a step of the action; the folder is empty."""
    (tmp_path / "work").mkdir()
    (tmp_path / "outputs").touch()
    crashcheck = Path(environment["PATH"].split(os.pathsep)[0]) / "crashcheck"
    return {
        **environment,
        "CRASHCHECK": str(crashcheck),
        "GITHUB_OUTPUT": str(tmp_path / "outputs"),
        "GITHUB_WORKSPACE": str(tmp_path / "work"),
        "RUNNER_TEMP": str(tmp_path),
        "WORKING_DIRECTORY": str(tmp_path / "work"),
    }


def run(name: str, step: dict[str, str]) -> tuple[int, str, dict[str, str]]:
    """Exit code, what it printed, and the outputs of the step."""
    done = subprocess.run(
        [ROOT / ".ci" / name],
        cwd=step["GITHUB_WORKSPACE"],
        env=step,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    rows = Path(step["GITHUB_OUTPUT"]).read_text(encoding="utf-8").splitlines()
    return done.returncode, done.stdout, dict(row.split("=", 1) for row in rows)


@pytest.mark.parametrize("name", ["CONFIG", "BUDGET", "FAIL_ON", "WORKING_DIRECTORY"])
def test_an_input_is_never_run_and_a_wrong_one_is_an_error_and_no_finding(
    step: dict[str, str], tmp_path: Path, name: str
) -> None:
    step[name] = EVIL
    code, printed, outputs = run("action-run", step)
    assert (code, outputs["exit-code"]) == (0, "2")
    assert "::error title=crashcheck::" in printed or json.loads(Path(outputs["failure"]).read_text())["slug"]
    assert not list(tmp_path.rglob("evil"))


def test_what_the_tool_prints_is_between_a_stop_and_its_secret_end(step: dict[str, str]) -> None:
    step["CONFIG"] = "missing.toml"
    _, printed, _ = run("action-run", step)
    rows = printed.splitlines()
    secret = rows[0].removeprefix("::stop-commands::")
    assert len(secret) == 32
    assert rows.index(f"::{secret}::") > next(number for number, row in enumerate(rows) if "missing.toml" in row)


def test_the_last_step_ends_as_the_run_did_also_where_there_is_no_report(step: dict[str, str]) -> None:
    step["EXIT_CODE"] = "2"
    code, _, outputs = run("action-publish", step)
    assert (code, outputs) == (2, {"conclusion": "error"})


@pytest.mark.parametrize("installed", [True, False])
def test_a_job_that_was_cancelled_or_could_not_install_says_so_in_the_comment(
    step: dict[str, str], tmp_path: Path, installed: bool
) -> None:
    event = {"pull_request": {"number": 7, "head": {"sha": HEAD, "repo": {"full_name": REPOSITORY}}}}
    (tmp_path / "event.json").write_text(json.dumps(event), encoding="utf-8")
    key = job_key(Job("crashcheck.toml", "px86", "test (gcc, 2)"))
    mine = Section(key, "test (gcc, 2), crashcheck.toml, px86", (1, 1), "b" * 40, FAILS, "Fails: an older commit", "d")
    other = replace(mine, key="o", job="lint, crashcheck.toml, px86")
    with FakeGitHub() as github:
        github.say(render((mine, other)), BOT)
        here = {
            "GITHUB_TOKEN": "ghs_x",
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_API_URL": github.url,
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_SHA": "c" * 40,
            "GITHUB_RUN_ID": "2",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_JOB": "test",
            "MATRIX": '{"compiler": "gcc", "size": {"pages": 2}}',
            "MODEL": "px86",
        }
        steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
        assert [one["if"] for one in steps if one.get("id") == "publish"] == ["always()"]
        code, _, outputs = run("action-publish", {**step, **here, **({} if installed else {"CRASHCHECK": "/none"})})
        assert (code, outputs["conclusion"], github.broken) == (2, "error", [])
        (comment,) = github.comments
    why = "the job ended before crashcheck ran" if installed else "crashcheck was not installed"
    job = f" (test (gcc, 2), crashcheck.toml, px86); 1 other job has no report for {HEAD[:7]}" if installed else ""
    assert comment["body"].split("\n")[1] == f"### crashcheck: No report: {why}; {HEAD[:7]}{job}"
    rows = {one.key: (one.rank, one.commit, one.run) for one in read(comment["body"])}
    assert rows == {key: (NO_REPORT, HEAD, (2, 1)), "o": (FAILS, "b" * 40, (1, 1))}


@pytest.mark.parametrize(
    ("commit", "run", "first"),
    [
        ("b" * 40, (1, 1), "No report: crashcheck was not installed"),
        (HEAD, (2, 1), "Fails"),
        ("b" * 40, (3, 1), "Fails"),
    ],
    ids=["an older commit", "this commit", "a newer run"],
)
def test_a_job_that_could_not_install_hides_no_failure_of_another_job(
    step: dict[str, str], tmp_path: Path, commit: str, run: tuple[int, int], first: str
) -> None:
    event = {"pull_request": {"number": 7, "head": {"sha": HEAD, "repo": {"full_name": REPOSITORY}}}}
    (tmp_path / "event.json").write_text(json.dumps(event), encoding="utf-8")
    with FakeGitHub() as github:
        github.say(render((Section("o", "other", run, commit, FAILS, "Fails: `a`"),)), BOT)
        here = {"GITHUB_TOKEN": "ghs_x", "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_API_URL": github.url, "JOB": "mine"}
        here |= {"GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "GITHUB_RUN_ID": "2", "GITHUB_RUN_ATTEMPT": "1"}
        asked = [sys.executable, "-I", ROOT / ".ci" / "action-unreported"]
        subprocess.run(asked, env={**step, **here}, check=True)
        assert github.comments[0]["body"].split("\n")[1].startswith(f"### crashcheck: {first}")
        assert github.broken == []


def test_jobs_of_a_matrix_without_a_name_differ_in_their_names(step: dict[str, str]) -> None:
    def name(**variables: str) -> str:
        asked = [ROOT / ".ci" / "action-name"]
        return subprocess.run(asked, env={**step, **variables}, capture_output=True, text=True, check=True).stdout

    assert name(GITHUB_JOB="test", MATRIX='{"os": "a", "n": 2}') == "test (2, a)\n"
    assert name(GITHUB_JOB="test", MATRIX="null") == "test\n"
    assert name(GITHUB_JOB="test", MATRIX='{"os": "a"}', NAME="mine") == "mine\n"


def test_the_second_workflow_publishes_no_more_reports_than_a_comment_has_rows(
    step: dict[str, str], tmp_path: Path
) -> None:
    for number in range(60):
        (tmp_path / "reports" / str(number)).mkdir(parents=True)
        (tmp_path / "reports" / str(number) / "report.json").touch()
    _, printed, _ = run("action-post", {**step, "CRASHCHECK": "echo", "REPORTS": str(tmp_path / "reports")})
    assert printed.count("publish --report ") == SECTIONS_MAX
    assert "::warning title=crashcheck::That run left 60 reports; only the first 50 are published." in printed


def test_why_a_run_made_no_report_reaches_the_pull_request(step: dict[str, str], tmp_path: Path) -> None:
    tables = ('[pool]\nfiles = ["*"]', '[build]\ncommand = "false"', *('[%s]\ncommand = "true"',) * 2)
    text = "\n".join(tables) % ("workload", "check")
    (tmp_path / "work" / "crashcheck.toml").write_text(text, encoding="utf-8")
    run("action-run", step)
    outputs = dict(row.split("=", 1) for row in Path(step["GITHUB_OUTPUT"]).read_text().splitlines())
    code, printed, outputs = run("action-publish", {**step, "EXIT_CODE": "2", "REPORTS": outputs["reports"]})
    assert (code, outputs["conclusion"]) == (2, "error")
    assert "::error title=crashcheck::No report: build-failed; " in printed
    assert "build-failed" in printed


@pytest.mark.parametrize("names", [(), ("report.json",), ("failure.json",), ("report.json", "failure.json")])
def test_the_second_workflow_publishes_what_the_artifacts_hold_and_nothing_where_there_is_none(
    step: dict[str, str], tmp_path: Path, names: tuple[str, ...]
) -> None:
    crashcheck = tmp_path / "crashcheck"
    crashcheck.write_text('#!/bin/sh\necho "asked: $*"\n', encoding="utf-8")
    crashcheck.chmod(0o755)
    for number, name in enumerate(names):
        folder = tmp_path / "reports" / f"crashcheck-report-{number}"
        folder.mkdir(parents=True)
        (folder / name).touch()
    code, printed, _ = run("action-post", {**step, "CRASHCHECK": str(crashcheck), "REPORTS": str(tmp_path / "reports")})
    options = {"report.json": "--report", "failure.json": "--failure"}
    asked = [row for row in printed.splitlines() if row.startswith("asked: ")]
    assert code == 0
    assert [row.split()[2] for row in asked] == [options[name] for name in names]
    assert ("left no report" in printed) == (not names)


@pytest.mark.slow
def test_no_module_of_the_pull_request_runs_while_the_action_is_installed(step: dict[str, str], tmp_path: Path) -> None:
    for name in ("venv", "logging", "pip", "setuptools", "sitecustomize", "usercustomize"):
        (tmp_path / "work" / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name}')\n")
    folder, cache = tmp_path / "installed", tmp_path / "cache"
    here = {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "work"), "CRASHCHECK_CACHE": str(cache)}
    environment = {**step, **here}
    for what in (("key",), ("make", str(folder), "recorder")):
        subprocess.run([ROOT / ".ci" / "action-setup", *what], cwd=tmp_path / "work", env=environment, check=True)
    outputs = dict(row.split("=", 1) for row in Path(step["GITHUB_OUTPUT"]).read_text().splitlines())
    assert [path.is_dir() for path in tmp_path.glob(os.path.relpath(outputs["runtime"], tmp_path))] == [True]
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    made = next(number for number, one in enumerate(steps) if ' make "$FOLDER" recorder' in one.get("run", ""))
    assert "${{ steps.key.outputs.runtime }}" in steps[made + 1]["with"]["path"]  # saved right after it was compiled
    assert not (tmp_path / "ran").exists()
    assert (folder / "ready").exists()
    asked = [folder / "venv" / "bin" / "crashcheck", "version"]
    assert subprocess.run(asked, cwd=tmp_path / "work", check=False).returncode == 0


def test_everything_that_the_action_installs_is_pinned_by_a_hash() -> None:
    for name in ("action-requirements.txt", "action-zig.txt"):
        rows = [row for row in (ROOT / ".ci" / name).read_text().splitlines() if not row.startswith("#")]
        assert rows != []
        assert [row for row in rows if not re.fullmatch(r"[\w.-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", row)] == []
    script = (ROOT / ".ci" / "action-setup").read_text()
    assert all("--require-hashes" in row or "--no-index" in row for row in re.findall(r"^ +pip (.*)$", script, re.M))


def test_pull_request_target_is_refused_before_anything_is_built(step: dict[str, str], tmp_path: Path) -> None:
    crashcheck = tmp_path / "crashcheck"
    crashcheck.write_text("#!/bin/sh\necho started\n", encoding="utf-8")
    crashcheck.chmod(0o755)
    environment = {**step, "GITHUB_EVENT_NAME": "pull_request_target", "CRASHCHECK": str(crashcheck)}
    code, printed, outputs = run("action-run", environment)
    assert (code, outputs["exit-code"]) == (0, "2")
    assert "::error title=crashcheck::pull_request_target is refused" in printed
    assert "started" not in printed


def merged(folder: Path, depth: int) -> Path:
    """A clone as GitHub's checkout makes it: the merge of a change into main, with `depth` commits."""
    origin = folder / "origin"
    who = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    for command in (
        ("init", "-q", "-b", "main", str(origin)),
        *(
            ("-C", str(origin), *who, *one)
            for one in (
                ("commit", "-q", "--allow-empty", "-m", "base"),
                ("checkout", "-q", "-b", "change"),
                ("commit", "-q", "--allow-empty", "-m", "change"),
                ("checkout", "-q", "--detach", "main"),
                ("merge", "-q", "--no-ff", "-m", "merge", "change"),
                ("branch", "merged"),
            )
        ),
        ("clone", "-q", "--depth", str(depth), "--branch", "merged", f"file://{origin}", str(folder / "clone")),
    ):
        subprocess.run(["git", *command], check=True)
    return folder / "clone"


@pytest.mark.parametrize(
    ("depth", "base", "option"),
    [(2, "auto", "--base HEAD^1 "), (2, "none", "--diff HEAD^1 "), (1, "auto", "")],
)
def test_a_pull_request_is_compared_with_its_base_and_a_checkout_without_it_warns(
    step: dict[str, str], tmp_path: Path, depth: int, base: str, option: str
) -> None:
    crashcheck = tmp_path / "crashcheck"
    crashcheck.write_text('#!/bin/sh\necho "asked: $*"\n', encoding="utf-8")
    crashcheck.chmod(0o755)
    clone = str(merged(tmp_path, depth))
    environment = {**step, "GITHUB_BASE_REF": "main", "BASE": base, "CRASHCHECK": str(crashcheck)}
    _, printed, _ = run("action-run", {**environment, "GITHUB_WORKSPACE": clone, "WORKING_DIRECTORY": clone})
    assert option in printed
    assert ("--base" in printed, "--diff" in printed) == (option.startswith("--base"), option.startswith("--diff"))
    assert ("::warning title=crashcheck::The checkout holds no commit of the base" in printed) == (depth == 1)


def test_a_pull_request_looks_for_the_result_of_its_base_where_the_push_of_that_commit_kept_it(
    step: dict[str, str], tmp_path: Path
) -> None:
    clone = merged(tmp_path, 2)
    outputs = Path(step["GITHUB_OUTPUT"])

    def kept_under(folder: Path, event: str, **more: str) -> str:
        outputs.write_text("", encoding="utf-8")
        environment = {**step, "KEY": "k", "GITHUB_EVENT_NAME": event, "WORKING_DIRECTORY": ".", **more}
        environment["GITHUB_WORKSPACE"] = str(folder)
        if event == "pull_request":
            environment["GITHUB_BASE_REF"] = "main"
        _, _, found = run("action-results", environment)
        return found.get("key", "")

    subprocess.run(["git", "-C", str(tmp_path / "origin"), "checkout", "-q", "main"], check=True)
    pushed = kept_under(tmp_path / "origin", "push")
    assert pushed.startswith("k-results-")
    in_pull_request = kept_under(clone, "pull_request")
    assert in_pull_request == pushed
    assert kept_under(clone, "push") != in_pull_request
    assert kept_under(clone, "pull_request", MODEL="eadr") != in_pull_request
    assert kept_under(clone, "pull_request", BASE="none") == ""
    assert kept_under(clone, "schedule") == ""


def test_only_runs_of_one_pull_request_and_job_share_what_failed_in_the_last_of_them(
    step: dict[str, str], tmp_path: Path
) -> None:
    def failing(event: str = "pull_request", number: int = 7, **more: str) -> tuple[str, str]:
        Path(step["GITHUB_OUTPUT"]).write_text("", encoding="utf-8")
        variables = {"GITHUB_EVENT_NAME": event, "GITHUB_REF": f"refs/pull/{number}/merge", "BASE": "none", "KEY": "k"}
        _, _, found = run("action-results", {**step, **variables, "CRASHCHECK_CACHE": "/cache", **more})
        return found.get("failing-key", ""), found.get("failing", "")

    key, folder = failing()
    assert re.fullmatch(r"crashcheck-failing-[0-9a-f]{12}-7", key)
    assert re.fullmatch(r"/cache/failing/[0-9a-f]{12}", folder)
    assert failing(KEY="of another version") == (key, folder)
    assert len({failing()[0], failing(number=8)[0], failing(MODEL="eadr")[0], failing(NAME="other")[0]}) == 4
    assert failing("push") == ("", "")


def test_what_failed_is_read_where_it_was_restored(step: dict[str, str], tmp_path: Path) -> None:
    crashcheck = tmp_path / "crashcheck"
    crashcheck.write_text('#!/bin/sh\necho "asked: $*"\n', encoding="utf-8")
    crashcheck.chmod(0o755)
    for folder, asked in (("/cache/failing/a b", True), ("", False)):
        _, printed, _ = run("action-run", {**step, "FAILING": folder, "CRASHCHECK": str(crashcheck)})
        assert ("--failing /cache/failing/a b/failing.json" in printed) == asked


@pytest.mark.parametrize(("machine", "permitted"), [("github-hosted", True), ("self-hosted", False)])
def test_namespaces_with_rights_are_permitted_on_machines_of_github_only(
    step: dict[str, str], tmp_path: Path, machine: str, permitted: bool
) -> None:
    sudo, asked = tmp_path / "sudo", tmp_path / "asked"
    sudo.write_text(f'#!/bin/sh\necho "$*" > "{asked}"\nexit 1\n', encoding="utf-8")
    sudo.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{step['PATH']}"
    run("action-run", {**step, "PATH": path, "RUNNER_ENVIRONMENT": machine, "CRASHCHECK": "true"})
    wanted = "-n sysctl -qw kernel.apparmor_restrict_unprivileged_userns=0\n"
    assert (asked.read_text(encoding="utf-8") if asked.exists() else "") == (wanted if permitted else "")


@pytest.mark.parametrize("event", ["push", "pull_request", "schedule"])
def test_only_a_push_keeps_its_result_for_later_pull_requests(step: dict[str, str], tmp_path: Path, event: str) -> None:
    crashcheck = tmp_path / "crashcheck"
    crashcheck.write_text('#!/bin/sh\necho "asked: $*"\n', encoding="utf-8")
    crashcheck.chmod(0o755)
    _, printed, _ = run("action-run", {**step, "GITHUB_EVENT_NAME": event, "CRASHCHECK": str(crashcheck)})
    assert ("--keep-for-base" in printed) == (event == "push")
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    after = [one.get("id") for one in steps].index("run")
    saved = [one for one in steps[after:] if "cache/save" in one.get("uses", "")]
    results = [one for one in saved if "results.outputs.folder" in one["with"]["path"]]
    assert [one["if"].split(" && ")[0] for one in results] == ["github.event_name == 'push'"]
