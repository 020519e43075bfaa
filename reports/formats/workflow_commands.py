"""Annotations by GitHub's workflow commands: lines on standard output that need no permission, not even on a fork."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence

from crashcheck.reports.github.annotations import Remark
from crashcheck.reports.view import sentences
from crashcheck.reports.view.run_view import FindingView
from crashcheck.reports.view.text import line

MOST_OF_A_LEVEL = 10  # GitHub shows ten errors, ten warnings and ten notices of a step, and drops the rest silently
MOST_SUPPRESSED = 20
PATH_CHARS = 1000
_COMMAND = {"error": "error", "warning": "warning", "note": "notice"}


def render(remarks: Sequence[Remark], suppressed: Sequence[FindingView] = ()) -> str:
    """One command per line, the most severe first; "" if there is nothing.

    What GitHub would drop, and what is `suppressed`, with its reasons, is counted in a last notice.
    https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    counts = Counter(remark.level for remark in remarks)
    left = dict.fromkeys(_COMMAND, MOST_OF_A_LEVEL)
    if suppressed or any(count > MOST_OF_A_LEVEL for count in counts.values()):
        left["note"] -= 1  # the last notice is one of the ten
    rows: list[str] = []
    rest: Counter[str] = Counter()
    for remark in remarks:
        if left[remark.level]:
            left[remark.level] -= 1
            rows.append(_remark(remark))
        else:
            rest[remark.level] += 1
    last: list[str] = []
    if rest:
        more = ", ".join(sentences.plural(rest[level], _COMMAND[level]) for level in _COMMAND if rest[level])
        last.append(f"{more} more: GitHub shows ten of each. All are in the summary.")
    if suppressed:
        last.append(f"{sentences.plural(len(suppressed), 'suppressed finding')} not annotated:")
        named = [
            f"{finding.kind_title} at {finding.place.where}: {finding.suppressed} ({finding.id})"
            for finding in suppressed
        ]
        last += sentences.names(named, MOST_SUPPRESSED, 300)
    if last:
        rows.append(command("notice", "\n".join(last), title="crashcheck"))
    return "".join(row + "\n" for row in rows)


def _remark(remark: Remark) -> str:
    placed = remark.placement
    # A name that cannot be shown as it is names no file that the page could find.
    named = placed.file and line(placed.file, PATH_CHARS) == placed.file
    where = {"file": placed.file, "line": str(placed.line or "")} if named else {}
    return command(_COMMAND[remark.level], remark.message, **where, title=f"crashcheck: {remark.title}")


def command(name: str, message: str, **properties: str) -> str:
    """One workflow command, without its empty properties; nothing in `message` or a property can end it."""
    shown = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{name}{' ' + shown if shown else ''}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def silence(token: str = "") -> tuple[str, str]:
    """Lines to print before and after text of which no line may act as a workflow command.

    `token` ends the silence and must not be guessed by who made the text; a random one by default.
    """
    token = token or secrets.token_hex(16)
    return f"::stop-commands::{token}\n", f"::{token}::\n"
