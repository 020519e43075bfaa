"""What a run writes to GitHub: one comment, a check run, a review; each once, whatever fails in between."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from crashcheck.change.diff import Diff, FileDiff, parse
from crashcheck.errors import CrashcheckError
from crashcheck.reports.github import sections
from crashcheck.reports.github.comment_lock import CommentLock

if TYPE_CHECKING:
    from github.CheckRun import CheckRun
    from github.GithubException import GithubException
    from github.IssueComment import IssueComment
    from github.PullRequestReview import PullRequestReview

    from crashcheck.reports.github.comment import Annotation, CheckText, ReviewComment
    from crashcheck.reports.github.sections import Section

API_URL = "https://api.github.com"
REQUEST_S = 15  # one request
PATIENCE_S = 120.0  # all requests of one command
ATTEMPTS = 4
RATE_LIMIT_WAIT_S = 60.0  # what GitHub asks for after a secondary rate limit; waited for once
BETWEEN_WRITES_S = 1.0  # as GitHub's "best practices for using the REST API" ask
ANNOTATIONS_A_REQUEST = 50
PAGE = 100
LISTED_MOST = 3000  # comments, files or reviews of one pull request that are read

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d{1,9})\b", re.ASCII)

T = TypeVar("T")
Done = Literal["created", "updated", "unchanged", "none", "left: a newer run wrote it"]


class Refused(Exception):
    """GitHub did not do it. `why`: the token may not or is wrong, the request is wrong, or GitHub cannot now."""

    def __init__(
        self, why: Literal["forbidden", "unauthorized", "invalid", "unavailable", "limited"], words: str
    ) -> None:
        super().__init__(words)
        self.why = why


@dataclass(frozen=True, slots=True)
class Shown:
    """The files of a pull request: what it changes, and the text of each line that its diff shows (new side)."""

    diff: Diff = field(default_factory=Diff)
    texts: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Remark:
    """A comment of a review as it is now. `line`: None if outdated. `answers`: the comment that it answers."""

    number: int
    review: int | None
    answers: int | None
    path: str
    line: int | None
    body: str
    login: str
    type: str

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> _Remark:
        user = found.get("user") or {}
        return cls(
            found["id"],
            found.get("pull_request_review_id"),
            found.get("in_reply_to_id"),
            found["path"],
            found.get("line"),
            found.get("body") or "",
            user.get("login", ""),
            user.get("type", ""),
        )


class Client:
    """Writes to one repository. Every method raises Refused where GitHub does not do it, and nothing else.

    No request is repeated blindly: after an error that may have come too late (5xx, a lost connection), the client
    first looks whether the work was done. `pause(seconds)` waits.
    """

    def __init__(
        self,
        token: str,
        repository: str,
        api_url: str = API_URL,
        pause: Callable[[float], None] = time.sleep,
        between_writes_s: float = BETWEEN_WRITES_S,
    ) -> None:
        from github import Auth, Github

        self._pause = pause
        self._until = time.monotonic() + PATIENCE_S
        self._limits_s = 0.0  # waited for rate limits so far
        # PyGithub would repeat a POST after a 5xx, and so comment twice; and wait for a rate limit for an hour.
        self._github = Github(
            auth=Auth.Token(token),
            base_url=api_url,
            timeout=REQUEST_S,
            retry=None,
            per_page=PAGE,
            seconds_between_requests=None,
            seconds_between_writes=between_writes_s,
            lazy=True,
        )
        self._repository = self._github.get_repo(repository)
        self._login: str | None = None
        self._asked_login = token.startswith("ghs_")  # a workflow's own token may not ask; its author is a bot

    def number_of(self, head: str, sha: str, repository: str) -> int | None:
        """The open pull request from `head` ("owner:branch") of `repository` whose newest commit is `sha`."""
        for pull in self._listed("look for the pull request", lambda: self._repository.get_pulls("open", head=head)):
            if pull.head.sha == sha and pull.head.repo and pull.head.repo.full_name.lower() == repository:
                return pull.number
        return None

    def shown(self, number: int) -> Shown:
        """What pull request `number` changes. A file that is too long for GitHub's answer shows no line."""
        files: dict[str, FileDiff] = {}
        texts: dict[str, Mapping[int, str]] = {}
        pull = self._repository.get_pull(number)
        for file in self._listed("read the pull request's changes", pull.get_files):
            patch = file.patch
            if not isinstance(patch, str) or file.status == "removed":
                continue
            try:
                (one,) = parse(f"--- a/file\n+++ b/file\n{patch}\n").files.values()
            except (CrashcheckError, ValueError):
                continue
            files[file.filename] = replace(one, path=file.filename, before=file.previous_filename or file.filename)
            texts[file.filename] = dict(_new_side(patch))
        return Shown(Diff(files), texts)

    def comment(self, number: int, mine: Section, create: bool, only_known: bool = False) -> Done:
        """Put the section `mine` into the one comment of the pull request; make none unless `create`, and if
        `only_known`, only where its job is in it.

        Two publishers may write at a time, and GitHub keeps the last text. So each holds a lock while it reads the
        comment and writes it. What a newer run wrote about the same job stays.
        """
        if not self._comments(number):
            if not create:
                return "none"
            issue = self._repository.get_issue(number)
            body = sections.render((mine,))
            self._ask("comment", lambda: issue.create_comment(body), lambda: next(iter(self._comments(number)), None))
            if len(self._comments(number)) == 1:
                return "created"
        return self._merge_locked(number, mine, only_known)

    def _merge_locked(self, number: int, mine: Section, only_known: bool) -> Done:
        """Merge into the oldest of our comments, and remove the others: publishers may each have made one."""
        oldest = self._comments(number)[0]
        lock = CommentLock(self._requester_json, f"{self._repository.url}/issues/comments/{oldest.id}", self._pause)
        self._ask("lock the comment", lock.take)
        try:
            comments = self._comments(number)
            if not comments:
                raise Refused("unavailable", "could not comment: somebody removed the comment meanwhile")
            kept, *copies = comments
            there = [one for comment in (*copies, kept) for one in sections.read(comment.body or "")]
            placed = sections.in_place(there, mine) if mine.rank == sections.NO_REPORT else ()
            placed = placed or (() if only_known else (mine,))
            if not there and not placed:
                return "none"
            merged = sections.merged(sections.merged((), there), placed)
            body = sections.render(merged)
            changed = kept.body != body
            if changed:
                self._ask("comment", lambda: kept.edit(body))
            for copy in copies:
                self._gone("remove a second comment", copy.delete)
        finally:
            lock.release()
        if placed and not any(one in merged for one in placed):
            return "left: a newer run wrote it"
        return "updated" if changed else "unchanged"

    def _requester_json(self, method: str, url: str, body: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """Status and answer. Raises GithubException for an error."""
        import json

        status, headers, output = self._github.requester.requestJson(method, url, input=body)
        answer = json.loads(output) if output else None
        if status >= 400:
            raise self._github.requester.createException(status, headers, answer or {})
        return status, answer

    def check_run(
        self, sha: str, name: str, external_id: str, text: CheckText, annotations: Sequence[Annotation]
    ) -> Done:
        """A finished check run with all `annotations`; one that `external_id` names is completed, not doubled."""

        from github.GithubObject import NotSet

        def known() -> CheckRun | None:
            return self._check_run(sha, name, external_id)

        found = known()
        run = found or self._ask(
            "make a check run",
            lambda: self._repository.create_check_run(
                name,
                sha,
                external_id=external_id,
                status="completed",
                conclusion=text.conclusion,
                output=_output(text, annotations[:ANNOTATIONS_A_REQUEST]),
                details_url=text.url or NotSet,
            ),
            known,
        )
        done = run.output.annotations_count
        while done < len(annotations):
            self._append(run, text, annotations, done)
            done += ANNOTATIONS_A_REQUEST
        return "unchanged" if found else "created"

    def has_check_run(self, sha: str, name: str) -> bool:
        """Whether a commit has a check run of that name."""
        commit = self._repository.get_commit(sha)
        return bool(self._listed("read the check runs", lambda: commit.get_check_runs(check_name=name)))

    def _append(self, run: CheckRun, text: CheckText, annotations: Sequence[Annotation], done: int) -> None:
        """Sends the annotations after the first `done`. GitHub adds what it is sent, so never send the same twice."""

        def landed() -> bool | None:
            now = self._ask("read the check run", lambda: self._repository.get_check_run(run.id).output)
            return True if now.annotations_count > done else None

        chunk = annotations[done : done + ANNOTATIONS_A_REQUEST]

        def send() -> bool:
            run.edit(output=_output(text, chunk))
            return True

        self._ask("annotate", send, landed)

    def _check_run(self, sha: str, name: str, external_id: str) -> CheckRun | None:
        commit = self._repository.get_commit(sha)
        runs = self._listed("read the check runs", lambda: commit.get_check_runs(check_name=name))
        return next((run for run in runs if run.external_id == external_id), None)

    def review(self, number: int, sha: str, marker: str, body: str, wanted: Sequence[ReviewComment]) -> Done:
        """A review that only comments. One that is still right is not repeated; outdated ones are removed.

        A comment that somebody answered is kept. A review cannot be removed: one without comments is marked outdated.
        """
        pull = self._repository.get_pull(number)
        there = self._remarks(number)
        mine = [one for one in there if one.body.startswith(marker) and self._is_own(one.login, one.type)]
        fresh = [one for one in wanted if not any(_same(old, one) for old in mine)]
        stale = [old for old in mine if not any(_same(old, one) for one in wanted)]
        answered = {one.answers for one in there}
        removed = [old for old in stale if old.number not in answered]
        for old in removed:
            self._gone("remove an outdated comment", pull.get_review_comment(old.number).delete)
        self._mark_outdated(number, marker, {old.review for old in mine if old not in removed})
        if not fresh:
            return "none" if not wanted else "unchanged"
        # The commit is named in the body: that is how a review that seemed to fail is known again.
        stamped = f"{marker}\n<!-- {sha} -->\n{body}"
        commit = self._repository.get_commit(sha)
        self._ask(
            "review",
            lambda: pull.create_review(commit, stamped, "COMMENT", [one.payload() for one in fresh]),  # type: ignore[misc]
            lambda: next((one for one in self._reviews(number, marker) if one.body == stamped), None),
        )
        return "created"

    def _mark_outdated(self, number: int, marker: str, still_used: Set[int | None]) -> None:
        """Mark our earlier reviews of which no comment is left."""
        outdated = f"{marker}\nOutdated: what this review suggested does not apply any more."
        for earlier in self._reviews(number, marker):
            if earlier.id not in still_used and earlier.body != outdated:
                self._ask("mark an outdated review", lambda review=earlier: review.edit(outdated))  # type: ignore[misc]

    def _remarks(self, number: int) -> list[_Remark]:
        """The comments of all reviews. PyGithub's objects would ask for each again, to see which it answers."""
        url = f"{self._repository.url}/pulls/{number}/comments"

        def page(wanted: int) -> list[_Remark]:
            parameters = {"per_page": PAGE, "page": wanted}
            _, found = self._github.requester.requestJsonAndCheck("GET", url, parameters)
            return [_Remark.read(one) for one in found]

        found: list[_Remark] = []
        for wanted in range(1, LISTED_MOST // PAGE + 1):
            found += (more := self._ask("read the review comments", lambda wanted=wanted: page(wanted)))  # type: ignore[misc]
            if len(more) < PAGE:
                break
        return found

    def _reviews(self, number: int, marker: str) -> list[PullRequestReview]:
        pull = self._repository.get_pull(number)
        return [one for one in self._listed("read the reviews", pull.get_reviews) if self._is_mine(one, marker)]

    def _comments(self, number: int) -> list[IssueComment]:
        """Our comments, the oldest first."""
        issue = self._repository.get_issue(number)
        found = self._listed("read the comments", issue.get_comments)
        return sorted((one for one in found if self._is_mine(one, sections.MARKER)), key=lambda one: one.id)

    def _is_mine(self, one: IssueComment | PullRequestReview, marker: str) -> bool:
        """Whether we wrote it: anybody can write the marker, so the author counts as well."""
        return (
            (one.body or "").startswith(marker) and one.user is not None and self._is_own(one.user.login, one.user.type)
        )

    def _is_own(self, login: str, kind: str) -> bool:
        own = self._own_login()
        return login == own if own else kind == "Bot"

    def _own_login(self) -> str | None:
        """Whose token it is; None for a workflow's own token, which may not ask."""
        if not self._asked_login:
            self._asked_login = True
            try:
                self._login = self._ask("ask whose token this is", lambda: self._github.get_user().login)
            except Refused as refusal:
                if refusal.why != "forbidden":
                    raise
        return self._login

    def _listed(self, what: str, list_them: Callable[[], Iterable[T]]) -> list[T]:
        from itertools import islice

        return self._ask(what, lambda: list(islice(list_them(), LISTED_MOST)))

    def _gone(self, what: str, delete: Callable[[], object]) -> None:
        """Deletes; what is gone already is no error."""
        try:
            self._ask(what, delete)
        except Refused as refusal:
            if "HTTP 404" not in str(refusal):
                raise

    def _ask(self, what: str, call: Callable[[], T], landed: Callable[[], T | None] = lambda: None) -> T:
        """`call()`, repeated where that may help; or what `landed()` finds of an attempt that seemed to fail."""
        import requests
        from github import GithubException

        words, wait = "", 1.0
        for attempt in range(ATTEMPTS):
            if attempt:
                if time.monotonic() + wait > self._until:
                    break
                self._pause(wait)
                wait *= 2
                found = landed()
                if found is not None:
                    return found
            try:
                return call()
            except GithubException as error:
                words = f"could not {what}: HTTP {error.status}: {_said(error)}"
                wait = max(wait, self._limit_after(error, words))
            except (requests.RequestException, AssertionError, TypeError, ValueError, KeyError) as error:
                # PyGithub asserts what it gets: an answer that is no JSON, or of another form, is GitHub's failure.
                words = f"could not {what}: {type(error).__name__}: {_short(str(error))}"
        raise Refused("unavailable", f"{words} (tried {ATTEMPTS} times)")

    def _limit_after(self, error: GithubException, words: str) -> float:
        """The seconds that GitHub's rate limit asks for, 0 for none; Refused where no further attempt helps."""
        limit = _rate_limit(error)
        if limit is not None:
            self._limits_s += limit
            if self._limits_s > RATE_LIMIT_WAIT_S:
                raise Refused("limited", f"{words} (GitHub's rate limit; over in {limit:.0f} s)") from error
            return limit
        if error.status == 401:
            raise Refused("unauthorized", f"{words} (the token is wrong or has expired)") from error
        if error.status in (403, 404):
            raise Refused("forbidden", words) from error
        if error.status < 500:
            raise Refused("invalid", words) from error
        return 0.0


def _output(text: CheckText, chunk: Sequence[Annotation]) -> dict[str, str | list[dict[str, str | int]]]:
    return {"title": text.title, "summary": text.summary, "annotations": [one.payload() for one in chunk]}


def _same(old: _Remark, new: ReviewComment) -> bool:
    """Whether a comment that is not outdated suggests the same for the same findings: GitHub moves it with its line."""
    return old.line is not None and old.path == new.path and new.says in old.body


def _new_side(patch: str) -> Iterator[tuple[int, str]]:
    """Each line of the new side that a patch shows, with its number."""
    number = 0
    for row in patch.split("\n"):
        if head := _HUNK.match(row):
            number = int(head[1])
        elif row.startswith(("+", " ")):
            yield number, row[1:]
            number += 1


def _said(error: GithubException) -> str:
    """GitHub's own words, with the fields that a 422 names."""
    data = error.data if isinstance(error.data, dict) else {}
    errors = data.get("errors")
    detail = "; ".join(
        one if isinstance(one, str) else str(one.get("message") or one.get("field") or one.get("code") or "")
        for one in (errors if isinstance(errors, list) else [])
        if isinstance(one, (str, dict))
    )
    message = str(data.get("message") or error.message or "no reason given")
    return _short(f"{message} ({detail})" if detail else message)


def _short(words: str) -> str:
    from crashcheck.reports.view.text import line

    return line(words, 300)


def _rate_limit(error: GithubException) -> float | None:
    """Seconds until GitHub answers again; None if it is not a matter of too many requests."""
    from github import RateLimitExceededException

    headers = {name.lower(): str(value) for name, value in (error.headers or {}).items()}
    after, left = headers.get("retry-after", ""), headers.get("x-ratelimit-remaining", "")
    if not (isinstance(error, RateLimitExceededException) or error.status == 429 or (error.status == 403 and after)):
        return None
    if after.isdigit():
        return float(after)
    reset = headers.get("x-ratelimit-reset", "")
    if left == "0" and reset.isdigit():
        return max(0.0, float(reset) - time.time()) + 1
    return 60.0
