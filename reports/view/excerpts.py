"""The source lines that the steps of a crash schedule come from."""

from __future__ import annotations

from dataclasses import dataclass

from crashcheck.checker.evidence import CrashSchedule
from crashcheck.checker.results import Location
from crashcheck.reports.view.failing_behaviour import ScheduleView
from crashcheck.reports.view.source_lines import Sources, around
from crashcheck.reports.view.text import line
from crashcheck.source import spoken

STEP_CONTEXT_LINES = 1
LINES_MAX = 60
FILES_MAX = 4


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


def _visited(file: str, crash: CrashSchedule, schedule: ScheduleView) -> list[tuple[int, Location]]:
    """The places of the shown steps and of the crash, each with the number of its step."""
    visited: list[tuple[int, Location]] = []
    for at, step in enumerate(schedule.steps):
        place = crash.schedule[step.number - 1].location
        both = (place, _from(file, place)) if place is not None else ()
        visited += [(at, each) for each in both if each and _is_somewhere(each)]
    if crash.crash_location is not None and crash.crash_location.line:
        visited.append((len(schedule.steps), crash.crash_location))
    return visited


def step_sources(home: str, crash: CrashSchedule, schedule: ScheduleView, sources: Sources) -> tuple[StepFile, ...]:
    """The lines that the shown steps come from, latest files first to be kept, and the lines around them.

    `home`: the file of the finding's place.
    """
    visited = _visited(home, crash, schedule)
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
    return frame.location if frame is not None else None


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
