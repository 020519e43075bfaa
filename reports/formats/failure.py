"""Why a run made no report, as a small JSON file for whatever publishes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import msgspec

from crashcheck.errors import CrashcheckError

_MESSAGE_CHARS = 8000
_MOST_CHARS = 1 << 20  # of the file
ENDED_EARLY = "ended-early"
NOT_RUN = "not-run"  # the action writes it


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed. `model`: "" if it was not known yet, because the configuration could not be read."""

    config_path: str
    slug: str = ENDED_EARLY
    message: str = "it was ended from outside, or ran out of memory"
    model: str = ""
    name: str = ""


def render(failure: Failure) -> str:
    """The file's text."""
    return json.dumps({**asdict(failure), "message": failure.message[:_MESSAGE_CHARS]}, indent=2) + "\n"


def load(text: str) -> Failure:
    """The failure of such a file; it may come from anywhere. Raises CrashcheckError(report-unreadable)."""
    try:
        return msgspec.json.decode(text[:_MOST_CHARS], type=Failure)
    except (ValueError, RecursionError) as error:  # of which msgspec's errors are some
        raise CrashcheckError(
            "report-unreadable",
            "this is no file of `crashcheck run --failure`.",
            "Give a JSON report with --report instead.",
        ) from error
