"""Places in the source as reports show them: where they are, their lines, their callers."""

from __future__ import annotations

from dataclasses import dataclass

from crashcheck.checker.results import Frame, Location
from crashcheck.reports.view.source_lines import Sources, around
from crashcheck.reports.view.text import line, valid
from crashcheck.source import spoken, spoken_line

STACK_MAX = 8
CALLS_MAX = 2
CONTEXT_LINES = 2
CLOSE_LINES = 10  # between two places that are shown in one excerpt


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of source. `hit` marks the line that the place is at."""

    number: int
    text: str
    hit: bool


@dataclass(frozen=True, slots=True)
class PlaceView:
    """A place in the source with its lines and its callers."""

    tag: str  # "A", "B": the same letter marks it in the pictures; "" elsewhere
    role: str  # "survived", "lost", "durable", or what the place is
    where: str  # "hash.c:42"
    function: str
    variable: str
    lines: tuple[SourceLine, ...]
    stack: tuple[str, ...]
    calls: tuple[str, ...]  # the same as short as a terminal needs it
    file: str  # as the finding names it: relative to the project for files inside it, else absolute; unshortened
    line: int  # 0 if unknown
    column: int  # 0 if unknown, or if the line has characters of several bytes: compilers count bytes


@dataclass(frozen=True, slots=True)
class MarkedLine:
    """A line of source, with the letters of the places that are at it."""

    number: int
    text: str
    tags: tuple[str, ...]


def where_text(place: Location | None) -> str:
    """`hash.c:42`; the file alone where no line is known; empty where nothing is."""
    if place is None or not place.file:
        return ""
    name = line(spoken(place.file), 120)
    return spoken_line(name, place.line) if place.line else name


def stack_text(place: Location, limit: int) -> tuple[str, ...]:
    """The innermost `limit` callers, and how many more there are.

    Of a place in a library, the last of them is at least the innermost one in the project's own source.
    """
    own = place.called_from
    at = limit if own is None else max(limit, place.stack.index(own) + 1)
    before, skipped = (limit, 0) if at <= limit else (max(1, limit - 1), at - max(1, limit - 1) - 1)
    shown = [_frame(frame) for frame in place.stack[:before]]
    if at > limit and own is not None:
        shown += [f"… {skipped} more"] if skipped else []
        shown.append(_frame(own))
    rest = len(place.stack) - at
    return (*shown, f"… {rest} more") if rest > 0 else tuple(shown)


def _frame(frame: Frame) -> str:
    return f"{line(frame.function, 60)}  {spoken_line(line(spoken(frame.file), 60), frame.line)}".strip()


def same_site(one: Location | None, other: Location | None) -> bool:
    """Whether both are one place of one function, whatever called it."""
    return (
        one is not None
        and other is not None
        and one.line > 0
        and (one.file, one.line, one.column, one.function) == (other.file, other.line, other.column, other.function)
    )


def place_view(place: Location, tag: str, role: str, sources: Sources) -> PlaceView:
    """A place with the lines around it, as far as they are in `sources`."""
    lines = tuple(
        SourceLine(number, line(text.replace("\t", "    "), 200), number == place.line)
        for number, text in around(sources, place, CONTEXT_LINES)
    )
    return PlaceView(
        tag,
        role,
        where_text(place) or "unknown place",
        line(place.function, 120),
        line(place.name, 80),
        lines,
        stack_text(place, STACK_MAX),
        stack_text(place, CALLS_MAX),
        valid(place.file),
        place.line,
        place.column if place.text.isascii() else 0,
    )


def both_lines(
    one: Location, other: Location | None, shown: list[PlaceView], sources: Sources
) -> tuple[MarkedLine, ...]:
    """One excerpt for two places; empty where they are of different functions, far apart, or not to be read."""
    if other is None or (one.file, one.function, one.stack) != (other.file, other.function, other.stack):
        return ()
    gap = abs(one.line - other.line)
    if gap > CLOSE_LINES:
        return ()
    rows = [dict(around(sources, place, gap + CONTEXT_LINES)) for place in (one, other)]
    if any(len(each) == 1 for each in rows):
        return ()
    first, last = (pick(one.line, other.line) for pick in (min, max))
    tags = [(place.line, place.tag) for place in shown if place.tag]
    return tuple(
        MarkedLine(number, line(text.replace("\t", "    "), 200), tuple(tag for at, tag in tags if at == number))
        for number, text in sorted({**rows[0], **rows[1]}.items())
        if first - CONTEXT_LINES <= number <= last + CONTEXT_LINES
    )
