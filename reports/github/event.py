"""Which commit and which pull request a GitHub workflow runs for, from its environment and its event."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crashcheck.errors import CrashcheckError

EVENT_BYTES_MAX = 64 << 20

_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_COUNT = re.compile(r"[0-9]{1,18}")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Event:
    """What a workflow runs for. `sha`: the commit that checks and reviews belong to.

    `number`: the pull request, or None; then `head` ("owner:branch"), if not "", finds it. `run`: the workflow's run
    and its attempt, which grow with time; (0, 0) if not known.
    """

    repository: str
    sha: str
    number: int | None = None
    head: str = ""
    fork: bool = False
    run: tuple[int, int] = (0, 0)
    head_repository: str = ""  # in lower case; of a followed run: the pull request must be from it
    base: str = ""  # the branch that a pull request is for
    followed: bool = False  # `run` is not this run, but an earlier one that this one follows


def read_event(environment: Mapping[str, str]) -> Event:
    """The event of GITHUB_EVENT_PATH in GITHUB_REPOSITORY; without an event, GITHUB_SHA alone counts.

    A pull request's `sha` is the newest commit of its branch, not the merge that GITHUB_SHA names. After a
    `workflow_run` it is the commit of that run: for a fork that event names no pull request, only its branch.
    Raises CrashcheckError(github-environment).
    """
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not _REPOSITORY.fullmatch(repository):
        raise _unknown(f"GITHUB_REPOSITORY is {repository!r}, not OWNER/NAME")
    event = _payload(environment.get("GITHUB_EVENT_PATH", ""))
    now = _run(environment.get("GITHUB_RUN_ID"), environment.get("GITHUB_RUN_ATTEMPT"))
    pull, run = _table(event, "pull_request"), _table(event, "workflow_run")
    if pull:
        head = _table(pull, "head")
        return Event(
            repository,
            _sha(head.get("sha")),
            _number(pull.get("number")),
            fork=_full_name(head) != repository.lower(),
            run=now,
            head_repository=_full_name(head),
            base=str(_table(pull, "base").get("ref") or ""),
        )
    if run:
        owner = _table(_table(run, "head_repository"), "owner").get("login")
        branch = run.get("head_branch")
        return Event(
            repository,
            _sha(run.get("head_sha")),
            None,  # of all that this event names, only the branch and the commit lead to the pull request
            f"{owner}:{branch}" if isinstance(owner, str) and isinstance(branch, str) else "",
            str(_table(run, "head_repository").get("full_name", repository)).lower() != repository.lower(),
            _run(run.get("id"), run.get("run_attempt")),
            str(_table(run, "head_repository").get("full_name", repository)).lower(),
            followed=True,
        )
    return Event(repository, _sha(environment.get("GITHUB_SHA")), run=now)


def _run(number: object, attempt: object) -> tuple[int, int]:
    known = [str(one) for one in (number, attempt) if _COUNT.fullmatch(str(one))]
    return (int(known[0]), int(known[1])) if len(known) == 2 else (0, 0)


def _payload(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        with Path(path).open("rb") as file:
            raw = file.read(EVENT_BYTES_MAX + 1)
        if len(raw) > EVENT_BYTES_MAX:
            raise ValueError("it is too long")
        event = json.loads(raw)
    except (OSError, ValueError, RecursionError) as error:
        raise _unknown(f"the event in {path} cannot be read: {str(error)[:200]}") from error
    if not isinstance(event, dict):
        raise _unknown(f"the event in {path} is no JSON object")
    return event


def _table(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, dict) else {}


def _full_name(side: Mapping[str, Any]) -> str:
    """The repository of a branch, in lower case; "" if it was deleted."""
    return str(_table(side, "repo").get("full_name", "")).lower()


def _sha(found: object) -> str:
    if isinstance(found, str) and _SHA.fullmatch(found):
        return found
    raise _unknown(f"the commit is {found!r}, which is no full hash")


def _number(found: object) -> int:
    if isinstance(found, int) and not isinstance(found, bool) and found > 0:
        return found
    raise _unknown(f"the pull request's number is {found!r}")


def _unknown(what: str) -> CrashcheckError:
    return CrashcheckError(
        "github-environment",
        f"The repository or commit to publish to is not known: {what}.",
        "Run this in a GitHub workflow, or set GITHUB_REPOSITORY, GITHUB_SHA and GITHUB_EVENT_PATH as one would.",
    )
