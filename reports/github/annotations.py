"""A finding as a remark at a line of a change: the words that workflow commands, check runs and reviews share."""

from __future__ import annotations

from dataclasses import dataclass

from crashcheck.checker.results import LEVELS, Level, RunResult
from crashcheck.diff import Diff
from crashcheck.reports.github.placement import Name, Placement, place
from crashcheck.reports.view.run_view import FindingView, FixView, RunView
from crashcheck.reports.view.text import line, shorten

TITLE_CHARS = 200
MESSAGE_CHARS = 4000


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
        if finding.new and not finding.suppressed
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
    if placement.spot != "summary" and placement.because:
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
