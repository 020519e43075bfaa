"""The steps of action.yml on pushes of programs to one pull request: recorded, searched, compared and published."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support import generated_store, ledger, settings_store
from support.caches import cache_of_its_own
from support.github.fake_github import REPOSITORY, FakeGitHub
from support.github.runner import Runner, merge_of
from support.versions import GIT

pytestmark = pytest.mark.slow

KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


class PullRequest:
    """Pull request 7: a branch `change` into main, which may move on."""

    def __init__(self, folder: Path, github: FakeGitHub, environment: Mapping[str, str]) -> None:
        self.github = github
        self.origin, self.folder = folder / "origin", folder
        self.origin.mkdir()
        cache = cache_of_its_own(folder / "built")
        self.runner = Runner(folder, github, {**environment, "CRASHCHECK_CACHE": str(cache)})
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        done = subprocess.run([*GIT, *words], cwd=self.origin, capture_output=True, text=True, check=True)
        return done.stdout.rstrip("\n")

    def commit(self, branch: str, files: Mapping[str, str]) -> str:
        """A version on a branch, with exactly these files; returns the commit."""
        if branch != "main" and not self.git("branch", "--list", branch):
            self.git("branch", branch, "main")
        if self.git("branch", "--list", branch):
            self.git("checkout", "-q", branch)
            self.git("rm", "-rq", "--ignore-unmatch", ".")
        for name, text in files.items():
            (self.origin / name).write_text(text, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "A version")
        return self.git("rev-parse", "HEAD")

    def merge(self) -> str:
        """As GitHub does after each push; returns the head."""
        head = self.git("rev-parse", "change")
        self.git("checkout", "-q", "--detach", "main")
        self.git("merge", "-q", "--no-ff", "-m", "merge", "change")
        self.git("update-ref", "refs/pull/7/merge", "HEAD")
        self.github.files.clear()
        for part in ("\n" + self.git("diff", "main...change")).split("\ndiff --git ")[1:]:
            name = part.split(" b/", 1)[1].split("\n", 1)[0]
            self.github.change(name, "@@" + part.split("\n@@", 1)[1])
        return head

    def run(self, **variables: str) -> tuple[str, str]:
        """The conclusion of a job of the pull request, and the first line of the comment."""
        sha = self.merge()
        head = {"sha": sha, "ref": "change", "repo": {"full_name": REPOSITORY}}
        base = {"sha": self.git("rev-parse", "main"), "ref": "main", "repo": {"full_name": REPOSITORY}}
        workspace = merge_of(self.origin, self.folder, self.runner.run_id)
        event = {"pull_request": {"number": 7, "head": head, "base": base}}
        here = {"GITHUB_REF": "refs/pull/7/merge", "GITHUB_BASE_REF": "main", "GITHUB_SHA": "c" * 40}
        outputs = self.runner.job(workspace, "pull_request", event, **here, **variables)
        print(self.runner.log)
        comments = [one["body"].split("\n")[1] for one in self.github.comments]
        assert len(comments) < 2
        first = comments[0].removeprefix("### crashcheck: ") if comments else "(no comment)"
        return outputs["conclusion"], first.replace(sha[:7], "HEAD")


@pytest.fixture
def pull(tmp_path: Path, environment: dict[str, str]) -> Iterator[PullRequest]:
    with FakeGitHub() as github:
        yield PullRequest(tmp_path, github, {**environment, "GIT_CONFIG_GLOBAL": os.devnull})
        assert github.broken == []


def test_a_script_loses_its_fsync_and_gets_it_back(pull: PullRequest) -> None:
    good, bad = settings_store.files(), settings_store.files(sync="")
    pull.commit("main", good)
    pull.commit("change", {**good, "store.py": "# A store.\n" + good["store.py"]})
    assert pull.run() == ("success", "(no comment)")

    pull.commit("change", bad)
    conclusion, first = pull.run()
    assert (conclusion, first.startswith('Fails: after a power failure "')) == ("failure", True)
    assert "0 existing" in pull.github.comments[0]["body"]

    blind = {**bad, "check.sh": "exit 0\n"}
    pull.commit("change", blind)
    conclusion, first = pull.run()
    assert (conclusion, "; but the check accepts damaged files, too; HEAD, " in first) == ("success", True)

    leaking = f'[build]\ncommand = "echo $ACTIONS_URL. $DEPLOY_KEY; echo {KEY}; false"\n'
    pull.commit("change", {**bad, "crashcheck.toml": leaking + bad["crashcheck.toml"]})
    assert pull.run(ACTIONS_URL="of-the-service", DEPLOY_KEY="hunter2-hunter2") == (
        "error",
        "No report: build-failed; HEAD",
    )
    assert [word in pull.github.comments[0]["body"] for word in ("hunter2", "ghp_", "of-the-service")] == [False] * 3

    failed = pull.commit("change", bad)
    assert pull.run()[0] == "failure"
    pull.commit("change", settings_store.files(sync="os.fdatasync(file.fileno())"))
    conclusion, first = pull.run()
    assert (conclusion, first.startswith(f"Passes: fixed, the crash that failed in {failed[:7]} ")) == ("success", True)


def test_lines_are_those_of_the_head_where_the_base_has_moved_on(pull: PullRequest) -> None:
    pull.commit("main", ledger.files(ledger.PERSISTED))
    pull.commit("change", ledger.files(""))
    source = ledger.files(ledger.PERSISTED)["ledger.c"]
    pull.commit("main", {**ledger.files(ledger.PERSISTED), "ledger.c": "/* A\n * ledger.\n *\n */\n" + source})
    conclusion, first = pull.run()
    rows = ledger.files("")["ledger.c"].split("\n")
    line = rows.index("    account->used = 1;") + 1
    assert (conclusion, f"(ledger.c:{line}); tested fix below; HEAD, " in first) == ("failure", True)
    assert f"::error file=ledger.c,line={line}," in pull.runner.log
    (suggested,) = pull.github.review_comments
    assert (suggested["path"], rows[suggested["line"] - 1].strip() in suggested["body"]) == ("ledger.c", True)

    pull.commit("change", ledger.files(ledger.PERSISTED))
    assert pull.run()[0] == "success"
    assert pull.github.review_comments == []


def test_a_flush_deleted_in_generated_code_fails_and_gets_no_link_to_a_file_that_is_not_there(
    pull: PullRequest,
) -> None:
    pull.commit("main", generated_store.files(ledger.PERSISTED) | {"ledger.h": ledger.files("")["ledger.h"]})
    pull.commit("change", generated_store.files("") | {"ledger.h": ledger.files("")["ledger.h"]})
    conclusion, first = pull.run()
    assert (conclusion, "(grammar.y:" in first) == ("failure", True)
    assert "grammar.y#L" not in pull.github.comments[0]["body"]


def test_a_bug_of_the_base_fails_nothing_and_its_fix_is_named(pull: PullRequest) -> None:
    pull.commit("main", ledger.files(""))
    pull.commit("change", {**ledger.files(""), "notes.c": "int unused;\n"})
    assert pull.run() == ("success", "(no comment)")
    pull.commit("change", ledger.files(ledger.PERSISTED))
    conclusion, first = pull.run()
    assert (conclusion, first.startswith("Passes: fixed, the crash that failed in main ")) == ("success", True)
