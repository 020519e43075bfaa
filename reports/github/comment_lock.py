"""A lock on a comment of GitHub: the one publisher whose reaction it is may edit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from github import GithubException

REACTION = "eyes"
WAIT_S = 3.0
STALE_S = 60.0  # a publisher reads and writes within a few seconds, or was ended meanwhile

Ask = Callable[..., tuple[int, Any]]  # method, address, body → status, answer


class CommentLock:
    """GitHub has one reaction of a kind for a comment and a user, and answers 201 only to who made it.

    Whoever finds the same reaction for STALE_S removes it: its owner is taken for gone. A token that may not react
    continues without a lock.
    """

    def __init__(self, ask: Ask, comment_url: str, pause: Callable[[float], None]) -> None:
        self._ask = ask
        self._url = f"{comment_url}/reactions"
        self._pause = pause
        self._reaction = 0  # ours; 0 if we hold none

    def take(self) -> None:
        """Wait until the lock is ours."""
        body: Mapping[str, str] = {"content": REACTION}
        seen, waited = 0, 0.0
        while True:
            try:
                status, reaction = self._ask("POST", self._url, body)
            except GithubException as error:
                if error.status in (403, 404):
                    return
                raise
            if status == 201:
                self._reaction = reaction["id"]
                return
            if reaction["id"] != seen:
                seen, waited = reaction["id"], 0.0
            elif waited >= STALE_S:
                self._remove(seen)
                continue
            self._pause(WAIT_S)
            waited += WAIT_S

    def release(self) -> None:
        """Let the next one edit. A reaction that cannot be removed now is stale later."""
        if self._reaction:
            self._remove(self._reaction)
            self._reaction = 0

    def _remove(self, reaction: int) -> None:
        import requests

        try:
            self._ask("DELETE", f"{self._url}/{reaction}")
        except (GithubException, requests.RequestException):
            pass
