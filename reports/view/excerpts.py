"""The source lines around the places and steps of a finding, read from the project's folder only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crashcheck.checker.results import Finding, Location, RunResult
from crashcheck.reports.view.failing_behaviour import ScheduleView
from crashcheck.reports.view.text import line
from crashcheck.source import spoken

MAX_FILE_BYTES = 4 * 1024 * 1024
STEP_CONTEXT_LINES = 1
LINES_MAX = 60
FILES_MAX = 4
Sources = Mapping[str, tuple[str, ...]]
"""Lines of each source file, by the name that locations give it; joined by "\\n" they are its text."""


def places(finding: Finding) -> Iterator[Location]:
    """The locations of a finding that a report shows with source lines."""
    steps = (step.location for step in finding.schedule)
    for place in (finding.location, finding.other, finding.crash_location, *steps):
        if place is not None:
            yield place


def read_sources(result: RunResult, root: Path) -> Sources:
    """The files under `root` that findings point to; what cannot be read is left out.

    File names come from debug information, so from the program under test: one that leads out of `root` is not
    read, or a report could be made to carry any file of this machine.
    """
    sources: dict[str, tuple[str, ...]] = {}
    base = root.resolve()
    for finding in (*result.findings, *result.uncertain):
        for name in dict.fromkeys(place.file for place in places(finding)):
            if name in sources or not name:
                continue
            try:
                path = (base / name).resolve()
                if not path.is_relative_to(base) or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
                    continue
                # Only "\n" ends a line for a compiler; str.splitlines also splits at form feeds and other separators.
                sources[name] = tuple(path.read_bytes().decode("utf-8", "replace").split("\n"))
            except (OSError, ValueError):  # a name that is no path, a file that may not be read
                continue
    return sources


def around(sources: Sources, place: Location, context: int) -> tuple[tuple[int, str], ...]:
    """Numbered lines around `place`; only its own text where the file is missing or has changed since the build."""
    lines = sources.get(place.file, ())
    own = lines[place.line - 1] if 0 < place.line <= len(lines) else None
    if own is None or (place.text and own.strip() != place.text.strip()):
        return ((place.line, place.text),) if place.text else ()
    first = max(1, place.line - context)
    last = min(len(lines) - (lines[-1] == ""), place.line + context)  # after the last "\n" there is no line
    return tuple((number, lines[number - 1].rstrip("\r")) for number in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class StepLine:
    """A line of source. `steps`: indices into ScheduleView.steps, and one more for the crash."""

    number: int
    text: str
    tag: str  # of the culprits: "A", "B", or both
    steps: tuple[int, ...]
    skipped: bool  # lines are left out before it


@dataclass(frozen=True, slots=True)
class StepFile:
    """The lines of one file, in order."""

    name: str
    lines: tuple[StepLine, ...]


def _visited(finding: Finding, schedule: ScheduleView) -> list[tuple[int, Location]]:
    """The places of the shown steps and of the crash, each with the number of its step."""
    visited: list[tuple[int, Location]] = []
    for at, step in enumerate(schedule.steps):
        place = finding.schedule[step.number - 1].location
        both = (place, _from(finding.location.file, place)) if place is not None else ()
        visited += [(at, each) for each in both if each and _is_somewhere(each)]
    if finding.crash_location is not None and finding.crash_location.line:
        visited.append((len(schedule.steps), finding.crash_location))
    return visited


def step_sources(finding: Finding, schedule: ScheduleView, sources: Sources) -> tuple[StepFile, ...]:
    """The lines that the shown steps come from, latest files first to be kept, and the lines around them."""
    visited = _visited(finding, schedule)
    texts: dict[str, dict[int, str]] = {}
    steps: dict[tuple[str, int], list[int]] = {}
    left = LINES_MAX
    for at, place in reversed(visited):  # what is near the crash is kept where there is too much
        rows = around(sources, place, STEP_CONTEXT_LINES)
        lines = texts.get(place.file, {})
        fresh = sum(number not in lines for number, _ in rows)
        if not rows or fresh > left or (place.file not in texts and len(texts) == FILES_MAX):
            continue
        left -= fresh
        texts.setdefault(place.file, {}).update(rows)
        steps.setdefault((place.file, place.line), []).append(at)
    tags: dict[tuple[str, int], str] = {}
    for step in schedule.steps:
        if step.tag:
            tags[step.file, step.line] = "".join(sorted(tags.get((step.file, step.line), "") + step.tag))
    return tuple(
        StepFile(line(spoken(file), 120), _lines(file, lines, steps, tags))
        for file, lines in sorted(texts.items(), key=lambda item: -len(item[1]))
    )


def _is_somewhere(place: Location) -> bool:
    return bool(place.file) and place.line > 0


def _from(file: str, place: Location) -> Location | None:
    """Where `file`, the culprit's, calls what leads to a place elsewhere, as to a flush in a helper's header."""
    if place.file == file:
        return None
    frame = next((frame for frame in place.stack if frame.file == file), None)
    return Location(frame.file, frame.line, 0, frame.function, "", ()) if frame is not None else None


def _lines(
    file: str,
    lines: dict[int, str],
    steps: dict[tuple[str, int], list[int]],
    tags: dict[tuple[str, int], str],
) -> tuple[StepLine, ...]:
    return tuple(
        StepLine(
            number,
            line(text.replace("\t", "    "), 160),
            tags.get((file, number), ""),
            tuple(sorted(steps.get((file, number), []))),
            at > 0 and number - 1 not in lines,
        )
        for at, (number, text) in enumerate(sorted(lines.items()))
    )
