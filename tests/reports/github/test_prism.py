"""Prism, between the client and the fake, refuses requests and answers that GitHub's description does not allow."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator

import pytest
import requests

from crashcheck.reports.github.client import Client
from crashcheck.reports.github.comment import Annotation, CheckText, Job, ReviewComment, marker
from crashcheck.reports.github.sections import FAILS, Section
from crashcheck.reports.github.sections import HEAD as HEAD_LINE
from support.github.fake_github import API, BOT, HEAD, MALLORY, REPOSITORY, FakeGitHub
from support.github.tools import node_tool

pytestmark = pytest.mark.slow
REVIEW = marker(Job("crashcheck.toml", "px86"))


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as fake:
        yield fake


@pytest.fixture
def proxy(github: FakeGitHub) -> Iterator[str]:
    """The address of a Prism that passes on to the fake what is right, and answers 4xx or 5xx itself to what is not."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [node_tool("prism"), "proxy", API, github.url, "--errors", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        try:
            for row in running.stdout:
                if b"is listening" in row:
                    break
            github.url = f"http://127.0.0.1:{port}"  # what the addresses in its answers begin with
            yield github.url
        finally:
            running.terminate()
            running.stdout.read()


def test_everything_that_is_written_is_as_githubs_description_has_it(github: FakeGitHub, proxy: str) -> None:
    github.change("src/a.c", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c")
    client = Client("ghs_token", REPOSITORY, proxy, between_writes_s=0)
    for count in (0, 1, 10, 60):
        many = [Annotation("src/a.c", n, "failure", f"finding {n}", "words") for n in range(1, count + 1)]
        text = CheckText(f"{count} findings", "summary", "failure" if count else "success", "https://github.com/x")
        assert client.check_run(HEAD, "crashcheck", f"run-{count}", text, many) == "created"
    assert [len(there) for there in github.annotations.values()] == [0, 1, 10, 60]
    assert sorted(client.shown(7).diff.files) == ["src/a.c"]
    one, two = (Section("k", "a job", (1, 1), HEAD, FAILS, words) for words in ("one", "two"))
    assert client.comment(7, one, create=True) == "created"
    github.say(f"{HEAD_LINE}\na copy", BOT)
    assert client.comment(7, two, create=True) == "updated"
    assert client.review(7, HEAD, REVIEW, "words", [ReviewComment("src/a.c", 2, f"{REVIEW}\nfix", "fix")]) == "created"
    github.remark("src/a.c", 2, "thanks", github.reviews[0]["id"], MALLORY)
    assert client.review(7, HEAD, REVIEW, "words", []) == "none"
    github.pull(7, HEAD)
    assert client.number_of("mallory:fix", HEAD, REPOSITORY) == 7
    assert github.broken == []


def test_prism_does_refuse_what_is_wrong(github: FakeGitHub, proxy: str) -> None:
    url = f"{proxy}/repos/{REPOSITORY}/issues/7/comments"
    answer = requests.post(url, json={"text": "no body"}, timeout=30)
    assert answer.status_code == 422
    github.comments.append({"id": "no number"})
    assert requests.get(url, timeout=30).status_code == 500
