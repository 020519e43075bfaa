"""Thirty pushes to one pull request: the first line of its comment after each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.results import Base, Earlier, Edit, Finding, FindingKind, Fix, RunResult, StopReason
from crashcheck.reports.formats.failure import Failure
from crashcheck.reports.github import sections
from reports.github.test_client import in_turns
from reports.github.test_publish import HOSTILE, PATCH, Job
from support.github.fake_github import BOT, MALLORY, REPOSITORY, FakeGitHub, Trouble
from support.reports.runs import ALL, LEVEL_HASH, UNCERTAIN, run, with_fields

HOSTILE_RED = r'Fails: after a power failure "::error::gotcha" (src/level\_hash.c:9)'
KEY = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"
RED = r'Fails: after a power failure "check: slot 5 of bucket 17 is valid" (src/level\_hash.c:9)'
BOUNDED = replace(ALL, feasible=29_000_000, executed=700, pruned=38)


class PullRequest:
    """A pull request, and a workflow that runs for each push to it."""

    def __init__(self, job: Job, github: FakeGitHub) -> None:
        self.job, self.github = job, github
        self.pushes = 0
        self.sha = ""

    def push(self, head: str = REPOSITORY) -> None:
        self.pushes += 1
        self.sha = f"{self.pushes:02d}" + "ab" * 19
        self.job.environment |= {"GITHUB_RUN_ID": str(100 + self.pushes), "GITHUB_SHA": "c" * 40}
        repo = {"full_name": REPOSITORY}
        base = {"sha": "d" * 40, "ref": "main", "repo": repo}
        pull = {"number": 7, "head": {"sha": self.sha, "repo": {"full_name": head}}, "base": base}
        self.job.event({"pull_request": pull})

    def publish(self, result: RunResult, *options: str) -> str:
        return self.job.publish(result, "--comment", "--check-run", "auto", "--review", *options)

    def fail(self, slug: str, message: str = "no rule", model: str = "px86", name: str = "") -> str:
        return self.job.fail(Failure("crashcheck.toml", slug, message, model, name), "--comment")

    def first_line(self) -> str:
        """What a reader sees first; the commit as COMMIT."""
        if not self.github.comments:
            return "(no comment)"
        ours = [one for one in self.github.comments if one["user"]["login"] == BOT["login"]]
        assert len(ours) == 1
        assert len(ours[0]["body"]) <= 65_536
        return str(ours[0]["body"].split("\n")[1]).removeprefix("### crashcheck: ").replace(self.sha[:7], "COMMIT")


@pytest.fixture
def pull(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[PullRequest]:
    with FakeGitHub() as github:
        github.change("src/level_hash.c", PATCH)
        yield PullRequest(Job(tmp_path, github, capsys), github)
        assert github.broken == []
        assert github.reactions == {}


def clean(**more: object) -> RunResult:
    return replace(run(), **more)  # type: ignore[arg-type]


def red(*findings: Finding, **more: object) -> RunResult:
    return replace(run(*(findings or (LEVEL_HASH,))), **more)  # type: ignore[arg-type]


def base(*earlier: Earlier, **more: object) -> Base:
    return replace(Base("refs/remotes/origin/main", "e" * 40, earlier=earlier), **more)  # type: ignore[arg-type]


def troubled(pull: PullRequest, trouble: Trouble, result: RunResult) -> None:
    pull.github.troubles.append(trouble)
    pull.publish(result)
    pull.github.troubles.clear()


def hostile(pull: PullRequest) -> None:
    verdict = replace(LEVEL_HASH.evidence.verdict, output=HOSTILE * 3)
    pull.publish(red(with_fields(LEVEL_HASH, message=HOSTILE, verdict=verdict)))


def imitated(pull: PullRequest) -> None:
    pull.github.say(pull.github.comments[0]["body"].replace("Fails", "Passes"), MALLORY)
    pull.publish(red())
    pull.github.comments[:] = [one for one in pull.github.comments if one["user"]["login"] != "mallory"]


def leaking(pull: PullRequest) -> None:
    pull.job.environment["DEPLOY_TOKEN"] = "hunter2-hunter2"
    pull.fail("build-failed", f"curl -H 'Authorization: Bearer {KEY}'\ndeploy hunter2-hunter2 failed")
    shown = json.dumps(pull.github.comments) + pull.job.summary.read_text()
    assert ("hunter2" in shown, KEY in shown, "deploy *** failed" in shown) == (False, False, True)


def forked(pull: PullRequest) -> None:
    pull.push("mallory/storage")
    pull.github.read_only = {"comments", "checks", "reviews"}
    pull.publish(red())
    pull.github.read_only = set()


def followed(pull: PullRequest, repository: str) -> None:
    head = {"owner": {"login": "mallory"}, "full_name": "mallory/storage"}
    run_of_it = {"id": 100 + pull.pushes, "run_attempt": 1, "head_sha": pull.sha, "head_branch": "fix"}
    pull.job.event({"workflow_run": {**run_of_it, "head_repository": head, "pull_requests": [{"number": 7}]}})
    pull.github.pulls.clear()
    pull.github.pull(7, pull.sha, repository)
    for number in range(8):
        pull.publish(red(name=f"forged {number:02}"))
    pull.github.pulls.clear()


def cleared(pull: PullRequest) -> None:
    """The forged rows are gone with the comment, which a maintainer removes."""
    pull.github.comments.clear()
    pull.publish(red())


def merged(pull: PullRequest) -> None:
    """The base put four lines above the store: the checkout of the merge has them, the head has not."""
    folder = pull.job.folder
    text = [f"line {number}" for number in range(1, 31)]
    source = folder / "src" / "level_hash.c"
    source.parent.mkdir()

    def git(*words: str) -> str:
        who = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(rows: list[str]) -> None:
        source.write_text("\n".join(rows) + "\n", encoding="utf-8")
        git("add", "src")
        git("commit", "-q", "-m", "x")

    git("init", "-q", "-b", "main")
    commit(text)
    git("checkout", "-q", "-b", "change")
    commit([*text[:29], "changed"])
    pull.sha = git("rev-parse", "HEAD")
    git("checkout", "-q", "main")
    commit([*["above"] * 4, *text])
    git("merge", "-q", "--no-ff", "-m", "merge", "change")
    pull.job.event({"pull_request": {"number": 7, "head": {"sha": pull.sha, "repo": {"full_name": REPOSITORY}}}})

    place = replace(LEVEL_HASH.location, line=LEVEL_HASH.location.line + 4)
    message = LEVEL_HASH.message.replace("level_hash.c:9", "level_hash.c:13")
    printed = pull.publish(red(replace(LEVEL_HASH, location=place, message=message)))
    assert "file=src/level_hash.c,line=9," in printed
    assert f"/blob/{pull.sha}/src/level_hash.c#L9" in pull.github.comments[0]["body"]
    subprocess.run(["rm", "-rf", str(folder / ".git")], check=True)


def interleaved(pull: PullRequest, at: int) -> None:
    """Two jobs of a matrix of which the one writes between two requests of the other."""
    run_of_it = (100 + pull.pushes, 1)
    one = sections.Section("one", "one", run_of_it, pull.sha, sections.FAILS, "Fails: one; COMMIT")
    two = sections.Section("two", "two", run_of_it, pull.sha, sections.PASSES, "Passes: two; COMMIT")
    in_turns(pull.github, at, one, two)
    pull.github.before = lambda asked, token: None
    assert {"one", "two"} <= {each.key for each in sections.read(pull.github.comments[0]["body"])}


def many(pull: PullRequest) -> None:
    name = "`" + "n" * 380 + "`"
    found = [replace(LEVEL_HASH, id=f"ORD-{n:08x}", message=f"{name} {n}") for n in range(180)]
    pull.publish(red(with_fields(LEVEL_HASH, id="ORD-late", depth=2), *found))
    body = pull.github.comments[0]["body"]
    assert body.count("\n| ") > 20
    assert "most severe of 181 findings" in body


def older(pull: PullRequest) -> None:
    pull.job.environment["GITHUB_RUN_ID"] = "1"
    pull.publish(clean())


def down(pull: PullRequest) -> None:
    troubled(pull, Trouble("", 503, {"message": "down"}, times=1000), clean())


Act = Callable[[PullRequest], object]
FIXED = Earlier("ORD-1", FindingKind.ORDERING, "`a` can survive a crash without `b`", "fixed", 1)
AGAIN = replace(FIXED, commit="a1b2c3d" + "0" * 33)
GONE = replace(AGAIN, id="ORD-2", message="`c` is lost", fate="not-seen", executed=0)
EDIT = Edit("src/level_hash.c", 8, False, "    clwb(entry);")
FIX = Fix("flush", "a flush of `entry.value`", (EDIT,), 6, 0, "the 6 failing states pass")
REPAIRABLE = replace(LEVEL_HASH, fix=FIX)
KNOWN = replace(LEVEL_HASH, compared="existing")
TWO_JOBS = "Fails: one; COMMIT (one); 1 other job has no report for COMMIT"

PUSHES: tuple[tuple[str, Act, str], ...] = (
    ("clean, nothing found before", lambda p: p.publish(clean()), "(no comment)"),
    ("build fails, nothing found before", lambda p: p.fail("build-failed"), "(no comment)"),
    (
        "bug introduced, with a tested fix",
        lambda p: p.publish(red(REPAIRABLE)),
        f"{RED}; tested fix below; COMMIT, 412 of 412 states",
    ),
    ("the same bug again", lambda p: p.publish(red(REPAIRABLE)), f"{RED}; tested fix below; COMMIT, 412 of 412 states"),
    (
        "a fix that is partial",
        lambda p: p.publish(red(replace(LEVEL_HASH, fix=replace(FIX, after_failing=2)))),
        f"{RED}; no tested fix; COMMIT, 412 of 412 states",
    ),
    (
        "bug fixed, every state checked",
        lambda p: p.publish(clean(again=(AGAIN,))),
        "Passes: fixed, the crash that failed in a1b2c3d passes now: `a` can survive a crash without `b`; "
        "COMMIT, 412 of 412 states",
    ),
    ("bug back", lambda p: p.publish(red()), f"{RED}; no tested fix; COMMIT, 412 of 412 states"),
    (
        "clean, but cut short, and what failed could not be tested",
        lambda p: p.publish(clean(states=BOUNDED, stop_reason=StopReason.BUDGET_SECONDS, again=(GONE,))),
        "Not seen again, which shows no fix: the search was not complete; COMMIT, 738 of 2.9×10⁷ states",
    ),
    (
        "clean, cut short, and nobody knows what failed before",
        lambda p: p.publish(clean(states=BOUNDED, stop_reason=StopReason.BUDGET_SECONDS)),
        "Nothing found, though the search was not complete; COMMIT, 738 of 2.9×10⁷ states",
    ),
    (
        "two bugs before, of which one is fixed and the other could not be tested",
        lambda p: p.publish(clean(states=BOUNDED, stop_reason=StopReason.BUDGET_SECONDS, again=(AGAIN, GONE))),
        "Passes: fixed, the crash that failed in a1b2c3d passes now: `a` can survive a crash without `b`; "
        "1 earlier finding not seen again, which shows no fix; COMMIT, 738 of 2.9×10⁷ states",
    ),
    (
        "bug that the base has, too",
        lambda p: p.publish(red(KNOWN, base=base())),
        "Passes: nothing new fails; 1 finding does not count; COMMIT, 412 of 412 states",
    ),
    (
        "bug of the base fixed",
        lambda p: p.publish(clean(base=base(FIXED))),
        "Passes: fixed, the crash that failed in main passes now: `a` can survive a crash without `b`; "
        "COMMIT, 412 of 412 states",
    ),
    (
        "nothing checked",
        lambda p: p.publish(clean(states=replace(ALL, executed=0, pruned=0), stop_reason=StopReason.BUDGET_SECONDS)),
        "No verdict: none of 412 feasible crash states was checked, because the time budget ended first; COMMIT",
    ),
    (
        "failures not proved",
        lambda p: p.publish(replace(clean(), uncertain=(UNCERTAIN,))),
        "No verdict: 1 uncertain finding (1 failing state); all 412 feasible crash states checked; COMMIT",
    ),
    (
        "below the level that fails",
        lambda p: p.publish(red(with_fields(LEVEL_HASH, depth=2)), "--fail-on", "error"),
        f"{RED.replace('Fails', 'Passes, though')}; no tested fix; COMMIT, 412 of 412 states",
    ),
    (
        "kill -9 shows it",
        lambda p: p.publish(red(replace(LEVEL_HASH, note="no reordering needed: `kill -9` shows it"))),
        f"{RED.replace('a power failure', 'kill -9')}; no tested fix; COMMIT, 412 of 412 states",
    ),
    ("build fails and prints secrets", leaking, "No report: build-failed; COMMIT"),
    ("workload times out", lambda p: p.fail("workload-timeout"), "No report: workload-timeout; COMMIT"),
    (
        "job cancelled",
        lambda p: p.fail("ended-early", "it was ended from outside, or ran out of memory"),
        "No report: the job was cancelled, timed out or ran out of memory; COMMIT",
    ),
    (
        "job ended before crashcheck",
        lambda p: p.fail("not-run", model=""),
        "No report: the job ended before crashcheck ran; COMMIT",
    ),
    (
        "hostile text",
        hostile,
        f"{HOSTILE_RED}; no tested fix; COMMIT, 412 of 412 states",
    ),
    ("somebody imitates the comment", imitated, f"{RED}; no tested fix; COMMIT, 412 of 412 states"),
    ("an older run ends later", older, f"{RED}; no tested fix; 22ababa, 412 of 412 states"),
    (
        "one 503 while the comment is written",
        lambda p: troubled(p, Trouble("^PATCH .*/comments/", 503, {"message": "x"}, done_anyway=True), red()),
        f"{RED}; no tested fix; COMMIT, 412 of 412 states",
    ),
    ("503 to everything", down, f"{RED}; no tested fix; 24ababa, 412 of 412 states"),
    (
        "the same, GitHub is back",
        lambda p: p.publish(clean()),
        "Passes: no crash state fails; COMMIT, 412 of 412 states",
    ),
    ("from a fork: the token may only read", forked, "Passes: no crash state fails; 26ababa, 412 of 412 states"),
    (
        "a fork's artifact, wrong repository",
        lambda p: followed(p, "eve/storage"),
        "Passes: no crash state fails; 26ababa, 412 of 412 states",
    ),
    (
        "a fork's artifact with eight reports",
        lambda p: followed(p, "mallory/storage"),
        f"{RED}; no tested fix; COMMIT, 412 of 412 states (forged 00, crashcheck.toml, px86); "
        "1 other job has no report for COMMIT",
    ),
    ("comment removed by hand, red", cleared, f"{RED}; no tested fix; COMMIT, 412 of 412 states"),
    ("the base moved on: a merge with other lines", merged, f"{RED}; no tested fix; COMMIT, 412 of 412 states"),
    ("180 findings with long names", many, f"{RED}; no tested fix; 180 more findings; COMMIT, 412 of 412 states"),
    (
        "documents only",
        lambda p: p.publish(clean(base=base(documents=("README.md",)))),
        "Passes: nothing to check, only documents changed; COMMIT",
    ),
    *((f"two jobs, interleaved at request {at}", lambda p, at=at: interleaved(p, at), TWO_JOBS) for at in (2, 4, 6)),  # type: ignore[misc]
)


@pytest.mark.slow
def test_the_first_line_after_each_of_thirty_pushes(pull: PullRequest) -> None:
    table: list[tuple[str, str]] = []
    for name, act, _ in PUSHES:
        if "fork's artifact" not in name:
            pull.push()
        act(pull)
        table.append((name, pull.first_line()))
    print("\n".join(f"| {number} | {name} | {first} |" for number, (name, first) in enumerate(table, 1)))
    assert table == [(name, first) for name, _, first in PUSHES]
