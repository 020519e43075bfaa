"""A finding as an annotation of a pull request: its line and its text.

Comments appear only on lines that the diff holds. Workflow commands, check runs and reviews share the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from crashcheck.change.diff import Diff
from crashcheck.checker import policy
from crashcheck.checker.results import LEVELS, RESTORE, Finding, Level, Location, RunResult
from crashcheck.reports.view.evidence import renderer_of
from crashcheck.reports.view.evidence.values import Nearby
from crashcheck.reports.view.run_view import FindingView, FixView, RunView
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
    pairs = zip(result.all_findings, view.all_findings, strict=True)
    found = [
        Remark(shown, placed, shown.level, title(shown), message(shown, placed))
        for finding, shown in pairs
        if policy.counts(finding)
        for placed in (place(finding, name, diff),)
    ]
    return tuple(sorted(found, key=lambda remark: -LEVELS.index(remark.level)))


def suppressed(view: RunView) -> tuple[FindingView, ...]:
    """The suppressed findings, proved ones first."""
    return tuple(finding for finding in view.all_findings if finding.suppressed)


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
    rows += [finding.ending, *finding.notes]
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
                shown = f"the {_noun(finding)}, {_with_text(finding.location)}"
                words = f"This change does not show {shown}; it deletes the line here."
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

    A line that the change touches goes before one that is only shown; a step's own line before that of a caller; then
    what is the nearest to the finding's place. A line of a caller, or of a step, that the diff only shows is of
    something else.
    """
    own = Nearby(finding.location, 0, f"leads to the {_noun(finding)}")
    steps = renderer_of(finding.evidence).nearby(finding, finding.evidence)
    for order, step in enumerate((own, *steps)):
        for file, number, depth in _chain(step.location, name):
            if number in (diff.shown(file) if step.related and depth == 0 else diff.changed(file)):
                text = step.what if depth == 0 or step.location is finding.location else f"calls what {step.what}"
                yield number not in diff.changed(file), depth, step.distance, order, file, number, text


def _noun(finding: Finding) -> str:
    return renderer_of(finding.evidence).noun


def _there(finding: Finding) -> str:
    return f"The {_noun(finding)} is at {_with_text(finding.location)}"


def _with_text(where: Location) -> str:
    text = line(where.text, 120).replace("`", "'")
    return f"{line(where.file, 200)}:{where.line}" + (f" (`{text}`)" if text else "")


def _elsewhere(finding: Finding, what: str) -> str:
    return f"{_there(finding)}, which this change does not show; this line {what}, the nearest one in the change."


def _called(finding: Finding, store: tuple[str, int] | None) -> str:
    if store is not None:
        return ""
    return f"{_there(finding)}, outside the repository; this line calls what makes it."


def _summary(finding: Finding, home: tuple[str, int] | None, diff: Diff | None = None) -> Placement:
    file, number = home or ("", 0)
    because = _header_changed(finding, diff) or _changed(diff)
    words = "The change touches no line" if finding.location.line else "No source line is known"
    return Placement("summary", file, number, f"{words} of this failure.{because}")


def _changed(diff: Diff | None) -> str:
    """What the change edits instead: perhaps the check, or the workload."""
    names = sorted(diff.files) if diff else []
    if not names:
        return ""
    more = f" and {len(names) - _CHANGED_MAX} more files" if len(names) > _CHANGED_MAX else ""
    return f" It changes {', '.join(line(name, 120) for name in names[:_CHANGED_MAX])}{more}."


def _header_changed(finding: Finding, diff: Diff | None) -> str:
    headers = sorted(path for path in diff.files if path.endswith(_HEADERS)) if diff else []
    evidence = finding.evidence
    return renderer_of(evidence).header_changed(finding, evidence, headers[0]) if headers else ""
