"""A small GitHub on 127.0.0.1 that remembers its requests, and holds both sides to GitHub's OpenAPI description."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

if TYPE_CHECKING:  # each worker of a test run collects the tests, and few of them ask the fake
    from openapi_core import OpenAPI
    from openapi_core.datatypes import RequestParameters

API = Path(__file__).parent / "github_api.json"
REPOSITORY = "octo/storage"
HEAD = "a" * 40
BOT = {"login": "github-actions[bot]", "type": "Bot", "id": 41898282}
MALLORY = {"login": "mallory", "type": "User", "id": 666}
TIME = "2026-01-02T03:04:05Z"


@functools.cache
def description() -> OpenAPI:
    """GitHub's description, served from nowhere: the host of a request plays no part."""
    from openapi_core import OpenAPI

    whole = json.loads(API.read_text(encoding="utf-8"))
    return OpenAPI.from_dict({**whole, "servers": [{"url": "http://127.0.0.1"}]})


@dataclass(frozen=True)
class Asked:
    """A request as openapi-core reads one."""

    method: str
    path: str
    parameters: RequestParameters
    body: bytes | None
    content_type: str = "application/json"
    host_url: str = "http://127.0.0.1"


@dataclass(frozen=True)
class Answered:
    """An answer as openapi-core reads one."""

    status_code: int
    data: bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass
class Trouble:
    """What the fake does instead, `times` times, for requests whose "METHOD path" matches `pattern`."""

    pattern: str
    status: int
    body: dict[str, Any]
    times: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    done_anyway: bool = False  # the work is done, and only the answer is lost


class FakeGitHub:
    """The state of one repository with pull request 7, and what was asked of it."""

    def __init__(self) -> None:
        self.login: str | None = None  # None: a workflow's own token, which may not ask who it is
        self.user: dict[str, Any] = BOT
        self.read_only: set[str] = set()  # "comments", "checks", "reviews"
        self.comments: list[dict[str, Any]] = []
        self.check_runs: list[dict[str, Any]] = []
        self.annotations: dict[int, list[dict[str, Any]]] = {}
        self.review_comments: list[dict[str, Any]] = []
        self.reviews: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []
        self.pulls: list[dict[str, Any]] = []
        self.troubles: list[Trouble] = []
        self.reactions: dict[int, dict[str, Any]] = {}  # of each comment
        self.before: Callable[[str, str], None] = lambda asked, token: None  # called before each request is done
        self._lock = threading.Lock()
        self.asked: list[str] = []
        self.broken: list[str] = []  # what the description does not allow, on either side
        self._numbers = iter(range(1001, 10_000))
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                fake._serve(self)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self) -> FakeGitHub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def count(self, pattern: str) -> int:
        """How many requests were "METHOD path" of `pattern`."""
        return sum(1 for one in self.asked if re.search(pattern, one))

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        from openapi_core.datatypes import RequestParameters
        from openapi_core.exceptions import OpenAPIError

        split = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        raw = handler.rfile.read(length) if length else None
        asked = f"{handler.command} {split.path}"
        self.before(asked, handler.headers.get("Authorization", ""))
        self.asked.append(asked)
        query = dict(parse_qsl(split.query))
        request = Asked(
            handler.command.lower(),
            split.path,
            RequestParameters(query=query, header=dict(handler.headers)),
            raw,
        )
        try:
            description().validate_request(request)
        except OpenAPIError as error:
            self.broken.append(f"request {asked}: {error!r} {error.__cause__!r}")
        trouble = next((one for one in self.troubles if one.times and re.search(one.pattern, asked)), None)
        headers: Mapping[str, str] = {}
        if trouble is not None:
            trouble.times -= 1
            if trouble.done_anyway:
                self._do(handler.command, split.path, query, json.loads(raw or b"null"))
            status, value, headers = trouble.status, trouble.body, trouble.headers
        else:
            status, value = self._do(handler.command, split.path, query, json.loads(raw or b"null"))
            rows = value.get("check_runs") if isinstance(value, dict) else value
            if isinstance(rows, list) and len(rows) == int(query.get("per_page", 0)):
                more = urlencode({**query, "page": int(query.get("page", 1)) + 1})
                headers = {"Link": f'<{self.url}{split.path}?{more}>; rel="next"'}
        data = b"" if value is None else json.dumps(value).encode()
        if trouble is None and status < 400:
            try:
                answer = Answered(status, data or None, content_type="application/json" if data else "")
                description().validate_response(request, answer)
            except OpenAPIError as error:
                self.broken.append(f"answer to {asked}: {error!r} {error.__cause__!r}")
        handler.send_response(status)
        for name, text in headers.items():
            handler.send_header(name, text)
        handler.send_header("Content-Type", "application/json; charset=utf-8")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _do(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        if (method, path) == ("GET", "/user"):
            if self.login is None:
                return 403, _refusal("Resource not accessible by integration")
            return 200, _private_user(self.login)
        prefix = f"/repos/{REPOSITORY}"
        for shape, method_wanted, act in self._routes():
            match = re.fullmatch(prefix + shape, path)
            if match and method == method_wanted:
                return act(body, query, *match.groups())
        return 404, _refusal("Not Found")

    def _routes(self) -> Iterator[tuple[str, str, Any]]:
        yield r"/pulls", "GET", lambda body, query: (200, self.pulls)
        yield r"/pulls/7/files", "GET", lambda body, query: (200, _page(self.files, query))
        yield r"/issues/7/comments", "GET", lambda body, query: (200, _page(self.comments, query))
        yield r"/issues/7/comments", "POST", self._comment
        yield r"/issues/comments/(\d+)", "PATCH", self._edit_comment
        yield r"/issues/comments/(\d+)", "DELETE", self._delete("comments")
        yield r"/issues/comments/(\d+)/reactions", "POST", self._react
        yield r"/issues/comments/(\d+)/reactions/(\d+)", "DELETE", self._unreact
        yield r"/commits/([0-9a-f]{40})/check-runs", "GET", self._list_checks
        yield r"/check-runs", "POST", self._check
        yield r"/check-runs/(\d+)", "GET", lambda body, query, number: (200, self._find(self.check_runs, number))
        yield r"/check-runs/(\d+)", "PATCH", self._annotate
        yield r"/pulls/7/comments", "GET", lambda body, query: (200, _page(self.review_comments, query))
        yield r"/pulls/comments/(\d+)", "DELETE", self._delete("review_comments")
        yield r"/pulls/7/reviews", "GET", lambda body, query: (200, _page(self.reviews, query))
        yield r"/pulls/7/reviews", "POST", self._review
        yield r"/pulls/7/reviews/(\d+)", "PUT", self._edit_review

    def _find(self, things: list[dict[str, Any]], number: str) -> dict[str, Any]:
        return next(one for one in things if one["id"] == int(number))

    def say(self, body: str, user: dict[str, Any] = MALLORY) -> dict[str, Any]:
        """A comment on the pull request that was not made by way of the interface."""
        number = next(self._numbers)
        url = f"{self.url}/repos/{REPOSITORY}/issues/comments/{number}"
        made = {
            "id": number,
            "node_id": f"C_{number}",
            "url": url,
            "html_url": f"https://github.com/{REPOSITORY}/pull/7#issuecomment-{number}",
            "issue_url": f"{self.url}/repos/{REPOSITORY}/issues/7",
            "body": body,
            "user": _user(user),
            "created_at": TIME,
            "updated_at": TIME,
            "author_association": "NONE",
        }
        self.comments.append(made)
        return made

    def _comment(self, body: Any, query: Any) -> tuple[int, Any]:
        if "comments" in self.read_only:
            return 403, _refusal("Resource not accessible by integration")
        return 201, self.say(body["body"], self.user)

    def _edit_comment(self, body: Any, query: Any, number: str) -> tuple[int, Any]:
        if "comments" in self.read_only:
            return 403, _refusal("Resource not accessible by integration")
        found = self._find(self.comments, number)
        found["body"] = body["body"]
        return 200, found

    def _react(self, body: Any, query: Any, number: str) -> tuple[int, Any]:
        """One reaction of a kind for a user and a comment: 201 to who makes it, 200 to who finds it."""
        if "comments" in self.read_only:
            return 403, _refusal("Resource not accessible by integration")
        if all(one["id"] != int(number) for one in self.comments):
            return 404, _refusal("Not Found")
        with self._lock:
            there = self.reactions.get(int(number))
            if there is not None:
                return 200, there
            user = _user(self.user)
            made = {
                "id": next(self._numbers),
                "node_id": "RE",
                "user": user,
                "content": body["content"],
                "created_at": TIME,
            }
            self.reactions[int(number)] = made
            return 201, made

    def _unreact(self, body: Any, query: Any, number: str, reaction: str) -> tuple[int, Any]:
        with self._lock:
            there = self.reactions.get(int(number))
            if there is None or there["id"] != int(reaction):
                return 404, _refusal("Not Found")
            del self.reactions[int(number)]
        return 204, None

    def _delete(self, name: str) -> Any:
        def act(body: Any, query: Any, number: str) -> tuple[int, Any]:
            things: list[dict[str, Any]] = getattr(self, name)
            things[:] = [one for one in things if one["id"] != int(number)]
            return 204, None

        return act

    def _list_checks(self, body: Any, query: Mapping[str, str], sha: str) -> tuple[int, Any]:
        found = [run for run in self.check_runs if run["head_sha"] == sha and run["name"] == query["check_name"]]
        return 200, {"total_count": len(found), "check_runs": _page(found, query)}

    def _check(self, body: Any, query: Any) -> tuple[int, Any]:
        if "checks" in self.read_only:
            return 403, _refusal("Resource not accessible by integration")
        number = next(self._numbers)
        self.annotations[number] = []
        url = f"{self.url}/repos/{REPOSITORY}/check-runs/{number}"
        run = {
            "id": number,
            "node_id": f"R_{number}",
            "url": url,
            "html_url": f"https://github.com/{REPOSITORY}/runs/{number}",
            "details_url": body.get("details_url"),
            "name": body["name"],
            "head_sha": body["head_sha"],
            "external_id": body.get("external_id"),
            "status": body["status"],
            "conclusion": body["conclusion"],
            "started_at": TIME,
            "completed_at": TIME,
            "check_suite": {"id": 5},
            "app": None,
            "pull_requests": [],
            "output": {"title": None, "summary": None, "text": None, "annotations_count": 0, "annotations_url": url},
        }
        self.check_runs.append(run)
        self._put(run, body["output"])
        return 201, run

    def _put(self, run: dict[str, Any], output: dict[str, Any]) -> None:
        there = self.annotations[run["id"]]
        there += output.get("annotations", [])
        run["output"] |= {
            "title": output["title"],
            "summary": output["summary"],
            "annotations_count": len(there),
        }

    def _annotate(self, body: Any, query: Any, number: str) -> tuple[int, Any]:
        run = self._find(self.check_runs, number)
        self._put(run, body["output"])
        return 200, run

    def remark(
        self, path: str, line: int | None, body: str, review: int, user: dict[str, Any], answers: int = 0
    ) -> Any:
        """A comment of a review."""
        number = next(self._numbers)
        page = f"https://github.com/{REPOSITORY}/pull/7#discussion_r{number}"
        url = f"{self.url}/repos/{REPOSITORY}/pulls/comments/{number}"
        pull = f"{self.url}/repos/{REPOSITORY}/pulls/7"
        made = {
            "id": number,
            "node_id": f"RC_{number}",
            "url": url,
            "html_url": page,
            "pull_request_url": pull,
            "pull_request_review_id": review,
            "diff_hunk": "@@ -1 +1 @@",
            "path": path,
            "line": line,
            "side": "RIGHT",
            "commit_id": HEAD,
            "original_commit_id": HEAD,
            "body": body,
            "user": _user(user),
            "created_at": TIME,
            "updated_at": TIME,
            "author_association": "NONE",
            "_links": {name: {"href": url} for name in ("self", "html", "pull_request")},
            **({"in_reply_to_id": answers} if answers else {}),
        }
        self.review_comments.append(made)
        return made

    def _review(self, body: Any, query: Any) -> tuple[int, Any]:
        if "reviews" in self.read_only:
            return 403, _refusal("Resource not accessible by integration")
        number = next(self._numbers)
        page = f"https://github.com/{REPOSITORY}/pull/7#pullrequestreview-{number}"
        pull = f"{self.url}/repos/{REPOSITORY}/pulls/7"
        review = {
            "id": number,
            "node_id": f"PRR_{number}",
            "user": _user(self.user),
            "body": body["body"],
            "state": "COMMENTED" if body["event"] == "COMMENT" else "PENDING",
            "html_url": page,
            "pull_request_url": pull,
            "_links": {"html": {"href": page}, "pull_request": {"href": pull}},
            "submitted_at": TIME,
            "commit_id": body["commit_id"],
            "author_association": "NONE",
        }
        self.reviews.append(review)
        for one in body["comments"]:
            self.remark(one["path"], one["line"], one["body"], number, self.user)
        return 200, review

    def _edit_review(self, body: Any, query: Any, number: str) -> tuple[int, Any]:
        review = self._find(self.reviews, number)
        review["body"] = body["body"]
        return 200, review

    def pull(self, number: int, sha: str, repository: str = REPOSITORY) -> None:
        """An open pull request whose newest commit is `sha`."""
        made = _sample({"$ref": "#/components/schemas/pull-request-simple"})
        repo = {**made["head"]["repo"], "full_name": repository}
        self.pulls.append({**made, "number": number, "head": {**made["head"], "sha": sha, "repo": repo}})

    def change(self, path: str, patch: str, status: str = "modified") -> None:
        """Pull request 7 changes `path`."""
        rows = patch.split("\n")
        added, gone = (sum(row.startswith(sign) for row in rows) for sign in "+-")
        self.files.append(
            {
                "sha": "b" * 40,
                "filename": path,
                "status": status,
                "additions": added,
                "deletions": gone,
                "changes": added + gone,
                "blob_url": f"https://github.com/{REPOSITORY}/blob",
                "raw_url": f"https://github.com/{REPOSITORY}/raw",
                "contents_url": f"{self.url}/contents",
                "patch": patch,
            }
        )


def _sample(schema: Mapping[str, Any]) -> Any:
    """The least value that a schema of the description allows."""
    if "$ref" in schema:
        return _sample(_schemas()[schema["$ref"].rsplit("/", 1)[1]])
    if "allOf" in schema:
        return {name: value for part in schema["allOf"] for name, value in _sample(part).items()}
    if schema.get("nullable"):
        return None
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object" or "properties" in schema:
        return {name: _sample(schema["properties"][name]) for name in schema.get("required", ())}
    if schema.get("type") == "string":
        return {"date-time": TIME, "uri": "https://api.github.com/x"}.get(schema.get("format", ""), "x")
    return {"array": [], "integer": 1, "boolean": False}[schema["type"]]


@functools.cache
def _schemas() -> Any:
    return json.loads(API.read_text(encoding="utf-8"))["components"]["schemas"]


def _page(things: list[dict[str, Any]], query: Mapping[str, str]) -> list[dict[str, Any]]:
    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
    return things[(page - 1) * size : page * size]


def _refusal(message: str) -> dict[str, Any]:
    return {"message": message, "documentation_url": "https://docs.github.com/rest", "status": "403"}


def _user(user: dict[str, Any]) -> dict[str, Any]:
    home = f"https://api.github.com/users/{user['login']}".replace("[", "%5B").replace("]", "%5D")
    links = ("followers", "following", "gists", "starred", "subscriptions", "organizations", "repos", "events")
    return {
        **user,
        "node_id": f"U_{user['id']}",
        "avatar_url": home,
        "gravatar_id": "",
        "url": home,
        "html_url": home,
        "received_events_url": home,
        "site_admin": False,
        **{f"{name}_url": home for name in links},
    }


def _private_user(login: str) -> dict[str, Any]:
    made = _user({"login": login, "type": "User", "id": 42})
    zero = ("public_repos", "public_gists", "followers", "following", "private_gists", "total_private_repos")
    nothing = ("name", "company", "blog", "location", "email", "hireable", "bio")
    return {
        **made,
        **dict.fromkeys(nothing, None),
        "blog": "",
        **dict.fromkeys((*zero, "owned_private_repos", "disk_usage", "collaborators"), 0),
        "created_at": TIME,
        "updated_at": TIME,
        "two_factor_authentication": True,
        "user_view_type": "private",
    }
