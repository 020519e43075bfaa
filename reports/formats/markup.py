"""Text made safe for GitHub's Markdown: it is shown as it is, links to nothing, calls nobody and ends nothing."""

from __future__ import annotations

import html as _html
import re
from collections.abc import Sequence

from markupsafe import Markup

from crashcheck.reports.view.text import LINE_CHARS, line

_SPECIAL = re.compile(r"[\\`*_\[\]|~#]")
# What GitHub makes a link of, or calls somebody by, wherever it is outside of code: a mention, an issue, an
# address. A space without width breaks each, and is not seen.
_REFERENCE = re.compile(r"@|#(?=\w)|\bGH(?=-\d)|(?<=:)(?=//)|\bwww(?=\.)", re.IGNORECASE)
_GAP = "\u200b"


def _inert(text: str) -> str:
    return _REFERENCE.sub(lambda match: match.group() + _GAP, text)


def _escaped(text: str) -> str:
    return _html.escape(_inert(text)).replace("$", "<span>$</span>")


def inline(text: str, limit: int = LINE_CHARS) -> Markup:
    """Plain text within a line of Markdown, also within a cell of a table; never at the start of a line."""
    shown = _SPECIAL.sub(lambda match: "\\" + match.group(), _inert(" ".join(line(text, limit).split())))
    return Markup(_html.escape(shown, quote=False).replace("$", "<span>$</span>"))


def html(text: str, limit: int = LINE_CHARS) -> Markup:
    """Plain text within an element of HTML that Markdown leaves alone."""
    return Markup(_escaped(line(text, limit)))


def html_prose(text: str) -> Markup:
    """As `prose`, within an element of HTML."""
    parts = re.split(r"`([^`]*)`", line(text))
    shown = map(_escaped, parts)
    return Markup("").join(Markup(f"<code>{part}</code>" if odd % 2 else part) for odd, part in enumerate(shown))


def code(text: str, limit: int = LINE_CHARS, cell: bool = False) -> Markup:
    """A code span; `cell`: within a table, where a bar ends the cell even in code."""
    shown = line(text, limit).strip()
    if not shown:
        return Markup("")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    padded = f" {shown} " if len(fence) > 1 else shown
    return Markup(fence + (padded.replace("|", "\\|") if cell else padded) + fence)


def code_cell(text: str) -> Markup:
    """A code span within a cell of a table."""
    return code(text, cell=True)


def prose(text: str, limit: int = 4 * LINE_CHARS) -> Markup:
    """A sentence whose `quoted` parts are set as code."""
    parts = re.split(r"`([^`]*)`", line(text, limit))
    pieces = [code(part) if odd % 2 else _with_edges(part) for odd, part in enumerate(parts)]
    return Markup("").join(pieces)


def prose_cell(text: str) -> Markup:
    """As `prose`, within a cell of a table."""
    parts = re.split(r"`([^`]*)`", line(text))
    return Markup("").join(code_cell(part) if odd % 2 else _with_edges(part) for odd, part in enumerate(parts))


def _with_edges(part: str) -> Markup:
    """As `inline`, with a space kept before and after."""
    if not part.strip():
        return Markup(" " if part else "")
    return Markup(" " * part[0].isspace()) + inline(part, len(part)) + Markup(" " * part[-1].isspace())


def block(rows: Sequence[str], info: str = "text") -> Markup:
    """A block of code that no row can end: its fence is longer than any row of backticks within."""
    longest = max((len(run) for row in rows for run in re.findall("`+", row)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup("\n".join((f"{fence}{info}", *rows, fence)))
