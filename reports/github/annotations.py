"""A finding as an annotation of a pull request: its line and its text.

Comments appear only on lines that the diff holds. Workflow commands, check runs and reviews share the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from crashcheck.change.diff import Diff
from crashcheck.checker import policy
from crashcheck.checker.results import LEVELS, RESTORE, Finding, Level, Location, RunResult, ScheduleStep
from crashcheck.reports.view.failing_behaviour import culprits
from crashcheck.reports.view.run_view import FindingView, FixView, RunView
from crashcheck.reports.view.sentences import granule_word
from crashcheck.reports.view.text import line, shorten

TITLE_CHARS = 200
MESSAGE_CHARS = 4000
_CHANGED_MAX = 3  # files that a sentence names
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".inc")
Name = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Remark:
    """The text of one finding at one line: plain text, its only control characters the line ends of `message`."""

    finding: FindingView
    placement: Placement
    level: Level
    title: str  # one line
    message: str  # a few lines


def remarks(result: RunResult, view: RunView, name: Name, diff: Diff | None = None) -> tuple[Remark, ...]:
    """A remark for each finding that is new and not suppressed, the most severe first.

    `view` is that of `result`. Findings whose placement is "summary" are among them: they have no line.
    """
    pairs = zip((*result.findings, *result.uncertain), (*view.findings, *view.uncertain), strict=True)
    found = [
        Remark(shown, placed, shown.level, title(shown), message(shown, placed))
        for finding, shown in pairs
        if policy.counts(finding)
        for placed in (place(finding, name, diff),)
    ]
    return tuple(sorted(found, key=lambda remark: -LEVELS.index(remark.level)))


def suppressed(view: RunView) -> tuple[FindingView, ...]:
    """The suppressed findings, proved ones first."""
    return tuple(finding for finding in (*view.findings, *view.uncertain) if finding.suppressed)


def title(finding: FindingView) -> str:
    """ "Ordering [px86]"."""
    uncertain = ", uncertain" if finding.uncertain else ""
    return line(f"{finding.kind_title}{uncertain} [{finding.model}]", TITLE_CHARS)


def message(finding: FindingView, placement: Placement) -> str:
    """What is wrong, where the store is if it is not here, how the crash comes about, and how to reproduce it."""
    rows = [f"{finding.message}."]
    if placement.because:
        rows.append(placement.because)
    if finding.uncertain:
        rows.append(f"Not proved: {finding.uncertain}.")
    rows += [f"Crash {finding.crash_point}: {finding.outcome}.", *finding.notes]
    if finding.fix is not None:
        rows.append(f"Suggested fix: {fix_text(finding.fix)}")
        rows += finding.fix.patch
    rows.append(f"Reproduce: {shorten(finding.replay, 1000)}  ({finding.id})")
    return shorten("\n".join(rows), MESSAGE_CHARS)


def fix_text(fix: FixView) -> str:
    """The suggested fix, how it was checked and what it costs, in one line."""
    return "; ".join(filter(None, (fix.words, fix.verified, fix.cost))) + "."


"""The repository's name of a file, as `Repository.name` gives it; "" for one outside."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The line to annotate.

    `spot`: "store": the finding's own place, or the call in the project that led to it; "schedule": the nearest line of
    the crash schedule that the change touches, or else that its diff shows; "summary": the diff shows no such line.
    """

    spot: Literal["store", "schedule", "summary"]
    file: str  # relative to the repository; of the store for "summary", "" if that is outside
    line: int  # 0 if unknown
    because: str  # why this is not the store's line; "" if it is


def place(finding: Finding, name: Name, diff: Diff | None = None) -> Placement:
    """The line for `finding`; without a diff, that of the store. Pure, if `name` is."""
    store = _here(finding.location, name)
    home = store or _here_or_caller(finding.location, name)
    if diff is None:
        return Placement("store", *home, _called(finding, store)) if home else _summary(finding, home)
    for file, number, depth in _chain(finding.location, name):
        if number in diff.shown(file) and (depth == 0 or store is None):
            return Placement("store", file, number, _called(finding, store))
    deleted = _deletion(finding, name, diff)
    if deleted is not None:
        return deleted
    best = min(_candidates(finding, name, diff), default=None)
    if best is None:
        return _summary(finding, home, diff)
    *_, file, number, what = best
    return Placement("schedule", file, number, _elsewhere(finding, what))


def _deletion(finding: Finding, name: Name, diff: Diff) -> Placement | None:
    """Beside the line that the change deleted and that the fix puts back."""
    for edit in finding.fix.edits if finding.fix is not None and finding.fix.kind == RESTORE else ():
        file = name(edit.file)
        for number in (edit.line, edit.line - 1):
            if number in diff.shown(file):
                words = (
                    f"This change does not show the store, {_with_text(finding.location)}; it deletes the line here."
                )
                return Placement("schedule", file, number, words)
    return None


def _here(where: Location, name: Name) -> tuple[str, int] | None:
    file = name(where.file)
    return (file, where.line) if file and where.line else None


def _here_or_caller(where: Location, name: Name) -> tuple[str, int] | None:
    return next(((file, number) for file, number, _ in _chain(where, name)), None)


def _chain(where: Location, name: Name) -> Iterator[tuple[str, int, int]]:
    """The place and its callers, innermost first, as far as they are in the repository: file, line, depth."""
    frames = ((where.file, where.line), *((frame.file, frame.line) for frame in where.stack))
    for depth, (file, number) in enumerate(frames):
        known = name(file)
        if known and number:
            yield known, number, depth


def _candidates(finding: Finding, name: Name, diff: Diff) -> Iterator[tuple[bool, int, int, int, str, int, str]]:
    """Lines of the failing behaviour that the diff shows; the least is the best.

    A line that the change touches goes before one that is only shown; a step's own line before that of a caller; the
    other store before other steps, and then the step that is the nearest to the store in the trace. Steps of
    earlier operations are of something else, and so is a line of a step or a caller that the diff only shows.
    """
    tagged = culprits(finding)
    store = next((i for i, tag in tagged.items() if tag == "A"), len(finding.schedule) - 1)
    first = max((i for i in range(min(tagged, default=0)) if finding.schedule[i].what == "mark"), default=0)
    candidates: list[tuple[Location | None, int, str]] = [(finding.location, 0, "leads to the store")]
    candidates.append((finding.other, 0, "is the other store"))
    candidates += [
        (step.location, abs(i - store), _what(step)) for i, step in enumerate(finding.schedule) if i >= first
    ]
    candidates.append((finding.crash_location, len(finding.schedule), "is where the crash is"))
    for order, (where, distance, what) in enumerate(candidates):
        if where is None:
            continue
        own = where in (finding.location, finding.other, finding.crash_location)
        for file, number, depth in _chain(where, name):
            if number in (diff.shown(file) if own and depth == 0 else diff.changed(file)):
                text = what if depth == 0 or where is finding.location else f"calls what {what}"
                yield number not in diff.changed(file), depth, distance, order, file, number, text


def _what(step: ScheduleStep) -> str:
    """ "is the flush `clwb` of its crash schedule"."""
    shown = line(step.detail.split(" = ")[0], 60).replace("`", "'")
    return (
        f"is the {line(step.what, 20)} `{shown}` of its crash schedule" if shown else "is a step of its crash schedule"
    )


def _with_text(where: Location) -> str:
    text = line(where.text, 120).replace("`", "'")
    return f"{line(where.file, 200)}:{where.line}" + (f" (`{text}`)" if text else "")


def _elsewhere(finding: Finding, what: str) -> str:
    return (
        f"The store is at {_with_text(finding.location)}, which this change does not show; this line {what}, "
        "the nearest one in the change."
    )


def _called(finding: Finding, store: tuple[str, int] | None) -> str:
    if store is not None:
        return ""
    return f"The store is at {_with_text(finding.location)}, outside the repository; this line calls what makes it."


def _summary(finding: Finding, home: tuple[str, int] | None, diff: Diff | None = None) -> Placement:
    file, number = home or ("", 0)
    because = _layout(finding, diff) or _changed(diff)
    return Placement("summary", file, number, f"The change touches no line of this failure.{because}")


def _changed(diff: Diff | None) -> str:
    """What the change edits instead: perhaps the check, or the workload."""
    names = sorted(diff.files) if diff else []
    if not names:
        return ""
    more = f" and {len(names) - _CHANGED_MAX} more files" if len(names) > _CHANGED_MAX else ""
    return f" It changes {', '.join(line(name, 120) for name in names[:_CHANGED_MAX])}{more}."


def _layout(finding: Finding, diff: Diff | None) -> str:
    """Where a header changed: the granules of the two stores, which a new layout of a structure may have parted."""
    headers = sorted(path for path in diff.files if path.endswith(_HEADERS)) if diff else []
    steps = {tag: finding.schedule[at] for at, tag in culprits(finding).items()}
    if not headers or len(steps) < 2 or finding.other is None:
        return ""
    first, second = steps["B"].granule, steps["A"].granule
    if first < 0 or second < 0 or (steps["A"].file, first) == (steps["B"].file, second):
        return ""
    unit = granule_word(finding.model)
    word = "cache line" if unit == "line" else unit
    names = [line(place.name, 60).replace("`", "'") or "the store" for place in (finding.other, finding.location)]
    return (
        f" It changes {line(headers[0], 120)}, which may have moved a field to another {word}: `{names[0]}` is in "
        f"{word} {first} and `{names[1]}` in {word} {second}, and only updates of one {word} persist in order."
    )
