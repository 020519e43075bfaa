"""The report as GitHub's Markdown: for a job's summary, for a comment on a pull request, for a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from crashcheck.checker.results import LEVELS
from crashcheck.reports.formats import markup, templates
from crashcheck.reports.view.numbers import superscript
from crashcheck.reports.view.places import PlaceView
from crashcheck.reports.view.run_view import FindingView, RunView
from crashcheck.reports.view.text import telling

ROWS_MAX = 200  # of the table
OUTPUT_LINES = 15
OPEN_MAX = 5  # findings that a reader sees without opening a fold
LISTED_MAX = 20  # units not instrumented, warnings and so on


@dataclass(frozen=True, slots=True)
class Limit:
    """How much one place takes, in characters and in bytes of UTF-8."""

    characters: int
    size_bytes: int
    name: str


COMMENT = Limit(65_000, 260_000, "a comment")  # GitHub: 65,536 characters, less what a caller puts around it
SUMMARY = Limit(1_000_000, 1_000_000, "a job's summary")  # GitHub: 1 MiB a step

_UNFOLD = "</details>"

Link = Callable[[str, int], str]
"""The address of a line of a file, or "": see `github_links`."""


def github_links(repository_url: str, commit: str, name: Callable[[str], str]) -> Link:
    """Addresses of lines at a commit; `name` gives the repository's name of a file, "" for one outside."""

    def link(file: str, number: int) -> str:
        known = name(file)
        # A file without a line is no source, but one that the program writes.
        return f"{repository_url}/blob/{commit}/{quote(known, errors='replace')}#L{number}" if known and number else ""

    return link


def render(view: RunView, limit: Limit = SUMMARY, link: Link | None = None, more: str = "", cause: bool = False) -> str:
    """The whole text. If it does not fit, it ends between two findings with a line that names the number left out, and
    of the table the most severe findings stay.

    `more` names where the rest is found ("the HTML report in the artifact"), as plain text. `cause`: the caller's own
    title has what breaks, and the text begins with the cause.
    """
    environment = _environment()
    every = view.all_findings
    shown = [finding for finding in every if not finding.suppressed]
    counting = sorted((finding for finding in shown if not finding.why_not), key=_severity)
    settled = [*(f for f in shown if f.why_not), *(f for f in every if f.suppressed)]
    template = environment.get_template("finding.md.j2")
    foot = environment.get_template("foot.md.j2").render(view=view)
    rows_max = ROWS_MAX
    while True:
        head = environment.get_template("summary.md.j2").render(
            view=view,
            cause=cause,
            counting=counting,
            settled=settled,
            link=link or _no_link,
            rows_max=rows_max,
            open_max=OPEN_MAX,
            listed_max=LISTED_MAX,
            more=more,
        )
        # Half of the place is for the table: a finding's details are worth more than the row of the next.
        if rows_max == 1 or (len(head) <= limit.characters // 2 and len(head.encode()) <= limit.size_bytes // 2):
            break
        rows_max = rows_max * 3 // 4
    parts = [head]
    others = len(counting) - OPEN_MAX
    fold = f"<details><summary>Details of {others:,} more</summary>" if others > 0 else ""
    room = _Room(limit, head, foot, fold, _UNFOLD)
    for number, finding in enumerate(counting):
        if number == OPEN_MAX and fold:
            parts.append(fold)
        part = template.render(finding=finding, link=link or _no_link, headline=view.headline, alone=len(counting) == 1)
        left = len(counting) - number
        note = _cut(left, limit, more)
        if not room.takes(part, _cut(left - 1, limit, more) if left > 1 else ""):
            parts += [_UNFOLD, note] if fold in parts else [note]
            break
        parts.append(part)
    else:
        parts += [_UNFOLD] if fold in parts else []
    text = "\n".join([*(part.strip("\n") + "\n" for part in parts), foot.strip("\n")]).rstrip("\n") + "\n"
    return text if _fits(text, limit) else _bare(view, limit, more)


def _severity(finding: FindingView) -> int:
    return -LEVELS.index(finding.level)


class _Room:
    """What is left of a limit."""

    def __init__(self, limit: Limit, *taken: str) -> None:
        self.characters = limit.characters - 10
        self.size_bytes = limit.size_bytes - 10
        for text in taken:
            self._take(text)

    def takes(self, text: str, then: str) -> bool:
        """Takes `text` if it fits together with `then`, which must follow if the next one does not."""
        size = len(text.encode()) + len(then.encode()) + 4
        if len(text) + len(then) + 4 > self.characters or size > self.size_bytes:
            return False
        self._take(text)
        return True

    def _take(self, text: str) -> None:
        self.characters -= len(text) + 2
        self.size_bytes -= len(text.encode()) + 2


def _fits(text: str, limit: Limit) -> bool:
    return len(text) <= limit.characters and len(text.encode()) <= limit.size_bytes


def _cut(left: int, limit: Limit, more: str) -> str:
    where = f" See {markup.inline(more)}." if more else ""
    these = "The details of 1 finding are" if left == 1 else f"The details of {left:,} findings are"
    return f"**{these} left out here**: {limit.name} takes no more.{where}\n"


def _bare(view: RunView, limit: Limit, more: str) -> str:
    """The counts alone, where not even the table fits."""
    count = len(view.findings) + len(view.uncertain)
    return f"### crashcheck: {markup.inline(superscript(view.counted))}\n\n{_cut(count, limit, more)}"


def _no_link(file: str, number: int) -> str:
    return ""


@cache
def _environment() -> Environment:
    environment = templates.environment(
        # Whatever a template shows is made safe for Markdown, unless one of the filters has done so.
        finalize=lambda value: value if isinstance(value, Markup) else markup.inline(str(value)),
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "code": markup.code,
        "code_cell": markup.code_cell,
        "prose": markup.prose,
        "prose_cell": markup.prose_cell,
        "html": markup.html,
        "html_prose": markup.html_prose,
        "block": markup.block,
        "telling": lambda rows: telling(rows, OUTPUT_LINES),
        "sup": superscript,
    }
    environment.globals["place_link"] = _place_link
    return environment


def _place_link(place: PlaceView, link: Link, cell: bool = False) -> Markup:
    """A place as code, a link where there is an address."""
    shown = markup.code(place.where, cell=cell)
    url = link(place.file, place.line)
    return Markup(f"[{shown}](<{quote(url, safe=_URL_SAFE)}>)") if url else shown


_URL_SAFE = "/:#%?=&~.-_"
