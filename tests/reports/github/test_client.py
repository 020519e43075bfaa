"""What is written to GitHub, once and no more, whatever GitHub answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from crashcheck.reports.github import sections
from crashcheck.reports.github.client import Client, Refused
from crashcheck.reports.github.comment import Annotation, CheckText, Job, ReviewComment, marker
from support.github.fake_github import BOT, HEAD, MALLORY, REPOSITORY, FakeGitHub, Trouble

MARK = f"{sections.MARKER} 0123456789ab -->"  # of an earlier version
REVIEW = marker(Job("crashcheck.toml", "px86"))
TEXT = CheckText("60 findings", "summary", "failure")
LOST = {"message": "Server Error"}


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as fake:
        yield fake
        assert fake.broken == []


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def client(github: FakeGitHub, waits: list[float]) -> Client:
    return Client("ghs_token", REPOSITORY, github.url, waits.append, 0)


def annotations(count: int) -> list[Annotation]:
    return [Annotation("src/a.c", n, "failure", f"finding {n}", "words") for n in range(1, count + 1)]


def section(verdict: str, key: str = "k", run: int = 1) -> sections.Section:
    return sections.Section(key, f"job {key}", (run, 1), HEAD, sections.FAILS, verdict, "its details")


def bodies(github: FakeGitHub) -> list[str]:
    return [one["body"] for one in github.comments]


def verdicts(github: FakeGitHub) -> list[str]:
    return [one.verdict for comment in github.comments for one in sections.read(comment["body"])]


def test_a_comment_is_made_once_and_then_kept_up_to_date(github: FakeGitHub, client: Client) -> None:
    assert client.comment(7, section("first"), create=True) == "created"
    assert client.comment(7, section("first"), create=True) == "unchanged"
    assert client.comment(7, section("second"), create=True) == "updated"
    assert client.comment(7, section("all well"), create=False) == "updated"
    assert verdicts(github) == ["all well"]
    assert github.count("^POST .*/comments$") == 1
    assert github.reactions == {}


def test_a_clean_run_posts_nothing_where_nothing_was_posted(github: FakeGitHub, client: Client) -> None:
    assert client.comment(7, section("all well"), create=False) == "none"
    assert github.comments == []


def test_a_comment_of_somebody_else_that_imitates_the_marker_is_left_alone(github: FakeGitHub, client: Client) -> None:
    github.say(f"{MARK}\nall is well, merge it")
    github.say(f"quoted: {MARK}", BOT)
    assert client.comment(7, section("mine"), create=True) == "created"
    assert bodies(github)[:2] == [f"{MARK}\nall is well, merge it", f"quoted: {MARK}"]
    assert verdicts(github) == ["mine"]


def test_with_a_persons_token_only_that_persons_comment_is_ours(github: FakeGitHub) -> None:
    client = Client("ghp_token", REPOSITORY, github.url, lambda seconds: None, 0)
    github.login = "octocat"
    github.user = {"login": "octocat", "type": "User", "id": 42}
    github.say(f"{MARK}\nanother bot's", BOT)
    github.say(f"{MARK}\nours", github.user)
    assert client.comment(7, section("new"), create=True) == "updated"
    assert bodies(github)[0] == f"{MARK}\nanother bot's"
    assert verdicts(github) == ["new"]


def test_the_comment_is_found_after_hundreds_of_others(github: FakeGitHub, client: Client) -> None:
    for number in range(250):
        github.say(f"remark {number}")
    github.say(f"{MARK}\nold", BOT)
    assert client.comment(7, section("new"), create=True) == "updated"
    assert verdicts(github) == ["new"]


def test_a_second_comment_of_ours_is_removed(github: FakeGitHub, client: Client) -> None:
    github.say(f"{MARK}\none", BOT)
    github.say(f"{MARK}\ntwo", BOT)
    assert client.comment(7, section("new"), create=True) == "updated"
    assert len(github.comments) == 1
    assert verdicts(github) == ["new"]


@pytest.mark.parametrize("done_anyway", [True, False])
def test_a_comment_whose_answer_was_lost_is_not_made_twice(
    github: FakeGitHub, client: Client, done_anyway: bool
) -> None:
    github.troubles.append(Trouble("^POST .*/comments", 502, LOST, done_anyway=done_anyway))
    assert client.comment(7, section("once"), create=True) == "created"
    assert verdicts(github) == ["once"]
    assert github.count("^POST .*/comments$") == (1 if done_anyway else 2)


def test_a_github_that_is_down_is_asked_four_times_with_growing_pauses(
    github: FakeGitHub, client: Client, waits: list[float]
) -> None:
    github.troubles.append(Trouble("", 503, LOST, times=100))
    with pytest.raises(Refused, match=r"HTTP 503: Server Error \(tried 4 times\)") as refusal:
        client.shown(7)
    assert refusal.value.why == "unavailable"
    assert waits == [1, 2, 4]


def test_an_answer_that_is_no_json_is_a_refusal_and_no_crash(github: FakeGitHub, client: Client) -> None:
    github.troubles.append(Trouble("", 200, {"not": "a list"}, times=100))
    with pytest.raises(Refused, match="could not read the comments"):
        client.comment(7, section("x"), create=True)


def test_a_forks_token_is_refused_at_once(github: FakeGitHub, client: Client, waits: list[float]) -> None:
    github.read_only = {"comments", "checks", "reviews"}
    for write in (
        lambda: client.comment(7, section("x"), create=True),
        lambda: client.check_run(HEAD, "crashcheck", "id", TEXT, annotations(1)),
        lambda: client.review(7, HEAD, REVIEW, "words", [ReviewComment("a.c", 1, f"{REVIEW}\nx", "x")]),
    ):
        with pytest.raises(Refused, match="HTTP 403: Resource not accessible by integration") as refusal:
            write()
        assert refusal.value.why == "forbidden"
    assert waits == []
    assert github.count("^POST ") == 3


def test_what_github_refuses_is_reported_with_its_reason(github: FakeGitHub, client: Client) -> None:
    errors = [{"resource": "CheckRun", "field": "annotations", "code": "invalid", "message": "no such path"}]
    body = {"message": "Validation Failed", "errors": errors, "documentation_url": "https://docs.github.com"}
    github.troubles.append(Trouble("^POST .*/check-runs", 422, body))
    with pytest.raises(Refused, match=r"HTTP 422: Validation Failed \(no such path\)") as refusal:
        client.check_run(HEAD, "crashcheck", "id", TEXT, annotations(1))
    assert refusal.value.why == "invalid"
    assert github.count("^POST ") == 1


def test_a_short_rate_limit_is_waited_for(github: FakeGitHub, client: Client, waits: list[float]) -> None:
    limit = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}
    github.troubles.append(Trouble("^POST ", 403, limit, headers={"Retry-After": "7"}))
    assert client.comment(7, section("x"), create=True) == "created"
    assert waits == [7]


def test_a_minute_that_github_asks_for_is_waited_once(github: FakeGitHub, client: Client, waits: list[float]) -> None:
    limit = Trouble("^POST ", 403, {"message": "secondary rate limit"}, times=2, headers={"Retry-After": "60"})
    github.troubles.append(limit)
    with pytest.raises(Refused, match="rate limit"):
        client.comment(7, section("x"), create=True)
    assert client.comment(7, section("x"), create=True) == "created"
    assert waits == [60]


def test_a_wrong_token_is_no_matter_of_permissions(github: FakeGitHub, client: Client) -> None:
    github.troubles.append(Trouble("", 401, {"message": "Bad credentials"}))
    with pytest.raises(Refused, match=r"HTTP 401: Bad credentials \(the token is wrong") as refusal:
        client.comment(7, section("x"), create=True)
    assert refusal.value.why == "unauthorized"


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (403, {"Retry-After": "3600"}),
        (429, {"Retry-After": "3600"}),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999999999"}),
    ],
)
def test_a_long_rate_limit_is_not_waited_for(
    github: FakeGitHub, client: Client, waits: list[float], status: int, headers: dict[str, str]
) -> None:
    limit = {"message": "API rate limit exceeded for installation ID 1."}
    github.troubles.append(Trouble("^POST ", status, limit, headers=headers))
    with pytest.raises(Refused, match="rate limit; over in") as refusal:
        client.comment(7, section("x"), create=True)
    assert refusal.value.why == "limited"
    assert waits == []


@pytest.mark.parametrize(("count", "patches"), [(0, 0), (1, 0), (10, 0), (50, 0), (51, 1), (60, 1), (101, 2)])
def test_a_check_run_takes_its_annotations_by_fifties(
    github: FakeGitHub, client: Client, count: int, patches: int
) -> None:
    assert client.check_run(HEAD, "crashcheck", "id", TEXT, annotations(count)) == "created"
    ((_, there),) = github.annotations.items()
    assert [one["start_line"] for one in there] == list(range(1, count + 1))
    assert github.count("^PATCH ") == patches


@pytest.mark.parametrize("done_anyway", [True, False])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_no_annotation_is_lost_or_doubled_by_a_failing_server(
    github: FakeGitHub, client: Client, method: str, done_anyway: bool
) -> None:
    github.troubles.append(Trouble(f"^{method} .*/check-runs", 500, LOST, done_anyway=done_anyway))
    client.check_run(HEAD, "crashcheck", "id", TEXT, annotations(120))
    ((_, there),) = github.annotations.items()
    assert [one["start_line"] for one in there] == list(range(1, 121))


def test_a_check_run_of_the_same_attempt_is_completed_and_not_doubled(github: FakeGitHub, client: Client) -> None:
    client.check_run(HEAD, "crashcheck", "run-1", TEXT, annotations(3))
    assert client.check_run(HEAD, "crashcheck", "run-1", TEXT, annotations(3)) == "unchanged"
    assert client.check_run(HEAD, "crashcheck", "run-2", TEXT, annotations(3)) == "created"
    assert [run["external_id"] for run in github.check_runs] == ["run-1", "run-2"]


def suggestion(line: int, words: str = "") -> ReviewComment:
    says = words or f"change {line}"
    return ReviewComment("src/a.c", line, f"{REVIEW}\n{line}: {says}", says)


def test_a_suggestion_whose_line_moved_is_left_and_not_made_anew(github: FakeGitHub, client: Client) -> None:
    client.review(7, HEAD, REVIEW, "words", [suggestion(4, "ORD-1")])
    github.review_comments[0]["line"] = 6  # as GitHub does where lines were put in above
    assert client.review(7, HEAD, REVIEW, "words", [suggestion(6, "ORD-1")]) == "unchanged"
    assert [one["body"] for one in github.review_comments] == [f"{REVIEW}\n4: ORD-1"]
    assert github.count("^DELETE ") == 0


def test_a_review_only_comments_and_repeats_nothing(github: FakeGitHub, client: Client) -> None:
    assert client.review(7, HEAD, REVIEW, "words", [suggestion(4), suggestion(9)]) == "created"
    assert client.review(7, HEAD, REVIEW, "words", [suggestion(4), suggestion(9)]) == "unchanged"
    assert [one["state"] for one in github.reviews] == ["COMMENTED"]
    assert [one["line"] for one in github.review_comments] == [4, 9]


def test_outdated_comments_of_ours_go_and_answered_ones_stay(github: FakeGitHub, client: Client) -> None:
    client.review(7, HEAD, REVIEW, "words", [suggestion(4), suggestion(9)])
    first, second = github.review_comments
    first.pop("line")  # the line is not in the diff any more
    github.remark("src/a.c", 9, "why?", first["pull_request_review_id"], MALLORY, answers=second["id"])
    github.remark("src/a.c", 4, f"{REVIEW}\nimitated", 1, MALLORY)
    assert client.review(7, HEAD, REVIEW, "words", [suggestion(5)]) == "created"
    assert [(one["line"], one["user"]["login"]) for one in github.review_comments] == [
        (9, BOT["login"]),
        (9, "mallory"),
        (4, "mallory"),
        (5, BOT["login"]),
    ]


def test_a_review_left_without_comments_is_marked_as_outdated(github: FakeGitHub, client: Client) -> None:
    client.review(7, HEAD, REVIEW, "words", [suggestion(4)])
    assert client.review(7, HEAD, REVIEW, "words", []) == "none"
    assert github.review_comments == []
    assert [one["body"] for one in github.reviews] == [
        f"{REVIEW}\nOutdated: what this review suggested does not apply any more."
    ]


@pytest.mark.parametrize("done_anyway", [True, False])
def test_a_review_whose_answer_was_lost_is_not_made_twice(
    github: FakeGitHub, client: Client, done_anyway: bool
) -> None:
    github.troubles.append(Trouble("^POST .*/reviews", 502, LOST, done_anyway=done_anyway))
    assert client.review(7, HEAD, REVIEW, "words", [suggestion(4)]) == "created"
    assert len(github.reviews) == 1


def test_the_lines_that_a_pull_request_shows_are_known_with_their_text(github: FakeGitHub, client: Client) -> None:
    github.change("src/a.c", "@@ -1,3 +1,3 @@ int f()\n a\n-b\n+B\n c\n\\ No newline at end of file")
    github.change("gone.c", "@@ -1 +0,0 @@\n-x", "removed")
    github.files.append({**github.files[0], "filename": "big.bin"})
    del github.files[-1]["patch"]
    shown = client.shown(7)
    assert {path: sorted(one.added) for path, one in shown.diff.files.items()} == {"src/a.c": [2]}
    assert shown.texts == {"src/a.c": {1: "a", 2: "B", 3: "c"}}


def in_turns(github: FakeGitHub, at: int, first: sections.Section, second: sections.Section) -> None:
    """Two publishers: the first one's request number `at` waits until the second is done, or waits for the first."""
    go, idle = threading.Event(), threading.Event()
    asked = 0

    def other() -> None:
        Client("ghs_second", REPOSITORY, github.url, pause, 0).comment(7, second, True)
        idle.set()

    def pause(seconds: float) -> None:
        idle.set()
        go.wait()

    thread = threading.Thread(target=other)

    def before(request: str, token: str) -> None:
        nonlocal asked
        if token.endswith("ghs_first"):
            asked += 1
            if asked == at:
                thread.start()
                idle.wait()

    github.before = before
    Client("ghs_first", REPOSITORY, github.url, lambda seconds: time.sleep(0.001), 0).comment(7, first, True)
    go.set()
    if asked >= at:
        thread.join()
    else:
        other()


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("at", range(1, 12))
def test_of_two_publishers_interleaved_at_any_request_neither_loses_its_row(
    github: FakeGitHub, client: Client, at: int, there: bool
) -> None:
    if there:
        client.comment(7, section("old", "a"), True)
        client.comment(7, section("old", "z"), True)
    in_turns(github, at, section("first", "a", 2), section("second", "b", 2))
    assert len(github.comments) == 1
    assert sorted(verdicts(github)) == ["first", "old", "second"] if there else ["first", "second"]
    assert github.reactions == {}


def test_a_lock_whose_owner_is_gone_is_taken_after_a_minute(
    github: FakeGitHub, client: Client, waits: list[float]
) -> None:
    client.comment(7, section("old", "a"), True)
    number = github.comments[0]["id"]
    github._react({"content": "eyes"}, {}, str(number))
    assert client.comment(7, section("new", "a", 2), True) == "updated"
    assert (verdicts(github), github.reactions, sum(waits)) == (["new"], {}, 60)


def test_a_token_that_may_not_react_still_updates_the_comment(github: FakeGitHub, client: Client) -> None:
    client.comment(7, section("old"), True)
    github.troubles.append(Trouble("^POST .*/reactions", 403, {"message": "Resource not accessible by integration"}))
    assert client.comment(7, section("new", run=2), True) == "updated"
    assert verdicts(github) == ["new"]


def test_a_workflows_own_token_is_not_asked_whose_it_is(github: FakeGitHub, client: Client) -> None:
    github.troubles.append(Trouble("^GET /user", 503, LOST, times=100))
    client.comment(7, section("old"), True)
    assert client.comment(7, section("new", run=2), True) == "updated"
    assert (verdicts(github), github.count("/user")) == (["new"], 0)


def test_the_details_of_a_job_cannot_imitate_another_jobs(github: FakeGitHub, client: Client) -> None:
    client.comment(7, section("red", "a"), True)
    forged = sections.render([section("all well", "a", 9)])
    evil = sections.Section("b", "job b", (1, 1), HEAD, sections.PASSES, f"fine {forged}", f"{forged}\n--> x")
    client.comment(7, evil, True)
    client.comment(7, section("more", "c"), True)
    assert [one.verdict for one in sections.read(bodies(github)[0]) if one.key == "a"] == ["red"]


def test_many_jobs_fit_and_the_failing_ones_stay() -> None:
    words = "`a` can survive " + "x" * 500
    some = tuple((f"{n:012}", "x" * 160) for n in range(10))
    jobs = [
        sections.Section(f"{n:012}", f"job {n}", (1, 1), HEAD, n % 4, words, "y" * 30_000, some) for n in range(200)
    ]
    body = sections.render(sections.merged((), jobs))
    read = sections.read(body)
    assert len(body) < 65_536
    assert len(read) == sections.SECTIONS_MAX
    assert {one.rank for one in read} == {sections.FAILS}
    assert "150 more jobs are not shown." in body
    assert "**The details of 49 jobs are left out here**" in body
    assert body.split("\n")[1].startswith("### crashcheck: ")


def test_a_run_that_failed_early_marks_each_row_of_its_job_whatever_its_models_options(
    github: FakeGitHub, client: Client
) -> None:
    """It ended before the configuration was read, so its model is not known, or not whole."""

    def put(job: str, verdict: str, rank: int, run: int, known: bool = False) -> str:
        one = sections.Section(job, job, (run, 1), HEAD, rank, verdict)
        return client.comment(7, one, True, known)

    for job in ("a, x.toml, page-cache tear=512", "a, x.toml, px86", "b, x.toml, px86"):
        put(job, "Passes", sections.PASSES, 1)
    assert put("a, x.toml", "No report", sections.NO_REPORT, 2, known=True) == "updated"
    assert verdicts(github) == ["No report", "No report", "Passes"]
    assert put("c, x.toml", "No report", sections.NO_REPORT, 2, known=True) == "unchanged"
    assert put("b, x.toml, px86", "No report", sections.NO_REPORT, 2) == "updated"
    assert put("d, x.toml, px86", "No report", sections.NO_REPORT, 2) == "updated"
    assert verdicts(github) == ["No report"] * 4


def test_a_bug_that_several_workloads_show_is_one_line_with_their_number() -> None:
    """A bug of an allocator, for example: each program that uses it has the finding."""
    bug, own = ("a1b2c3", "`chunk.size` can survive *without* `chunk`"), ("d4e5f6", "`entry` is lost")

    def job(name: str, commit: str, *findings: tuple[str, str]) -> sections.Section:
        return sections.Section(name, name, (int(commit == HEAD), 1), commit, sections.FAILS, "Fails: x", "d", findings)

    jobs = [job("btree", HEAD, bug, own), job("hash", HEAD, bug), job("list", HEAD), job("old", "b" * 40, own)]
    body = sections.render(sections.merged((), jobs))
    shared = [row for row in body.split("\n") if "jobs (" in row]
    assert shared == [r"- `chunk.size` can survive \*without\* `chunk`: in 2 of 3 jobs (btree, hash)"]
    assert sections.render(sections.merged(sections.read(body), [job("list", HEAD)])) == body
    assert "2 of 2 jobs" not in sections.render(sections.merged(sections.read(body), [job("hash", HEAD, own)]))


def test_a_job_of_an_older_commit_is_marked_and_decides_no_first_line() -> None:
    old = sections.Section("a", "job a", (1, 1), "a" * 40, sections.FAILS, "Fails: old")
    new = sections.Section("b", "job b", (2, 1), "b" * 40, sections.PASSES, "Passes: new")
    rows = sections.render(sections.merged((old,), (new,))).split("\n")
    assert rows[1] == f"### crashcheck: Passes: new (job b); 1 other job has no report for {'b' * 7}"
    assert f"| job a | Fails: old | {'a' * 7}, nothing newer |" in rows
