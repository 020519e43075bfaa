"""The first line about a job on a pull request: verdict, harm, place, fix, commit; the cause follows."""

from __future__ import annotations

from collections.abc import Sequence

from crashcheck.checker import policy
from crashcheck.checker.results import BLIND, LEVELS, Earlier, Finding, RunResult
from crashcheck.reports.formats.failure import ENDED_EARLY, NOT_RUN, Failure
from crashcheck.reports.github import sections
from crashcheck.reports.view import earlier, sentences
from crashcheck.reports.view.numbers import superscript
from crashcheck.reports.view.run_view import FindingView, RunView
from crashcheck.reports.view.text import line

HARM_CHARS = 120
FIXED_MAX = 3  # fixed bugs that the line names
COMMIT_CHARS = 7


def verdict(result: RunResult, view: RunView, commit: str, fails: bool, undecided: bool) -> tuple[int, str]:
    """(rank of `sections`, the line). `view` is that of `result`."""
    end = f"; {commit[:COMMIT_CHARS]}, {superscript(view.covered)} {_unit(result)}"
    pairs = zip(result.all_findings, view.all_findings, strict=True)
    counting = [(finding, shown) for finding, shown in pairs if policy.counts(finding)]
    if undecided and not fails:
        words = view.headline if view.headline.startswith("No verdict") else f"No verdict: {view.headline}"
        return sections.UNDECIDED, f"{words}; {commit[:COMMIT_CHARS]}"
    if not counting:
        blind = BLIND in result.warnings
        words = _passes(result) + ("; but the check accepts damaged files, too" if blind else "")
        end = end if sentences.searched(result) else f"; {commit[:COMMIT_CHARS]}"
        return sections.UNDECIDED if blind else sections.PASSES, words + end
    finding, shown = max(counting, key=lambda pair: LEVELS.index(pair[0].level))
    word = "Fails" if fails else "Passes, though"
    more = f"; {sentences.plural(len(counting) - 1, 'more finding')}" if len(counting) > 1 else ""
    rank = sections.FAILS if fails else sections.UNDECIDED
    return rank, f"{word}: {_harm(finding, shown)}; {_fix(finding)}{more}{end}"


def _unit(result: RunResult) -> str:
    return f"{sentences.unit(result)}s" if sentences.of_nodes(result) else "states"


def failed(failure: Failure, commit: str) -> str:
    """The line where there is no report."""
    ended = "the job was cancelled, timed out or ran out of memory"
    why = {ENDED_EARLY: ended, NOT_RUN: "the job ended before crashcheck ran"}.get(failure.slug, failure.slug)
    return line(f"No report: {why}; {commit[:COMMIT_CHARS]}", 255)


def _harm(finding: Finding, shown: FindingView) -> str:
    place = next((spot.where for spot in shown.evidence.places if spot.line), shown.place.where)
    broken = line(shown.breaks, HARM_CHARS).replace('"', "'")
    return f'{shown.evidence.after} "{broken}" ({place}){", not proved" if finding.uncertain else ""}'


def _fix(finding: Finding) -> str:
    fix = finding.fix
    if fix is None or not fix.verified or fix.after_failing or not fix.before_failing:
        return "no tested fix"
    return "tested fix below"


def _passes(result: RunResult) -> str:
    fixed = earlier.fixed(result)
    others = len(result.findings) + len(result.uncertain)
    if fixed:
        return f"Passes: fixed, {_fixed(fixed)}{_unseen(result)}"
    if others:
        verb = "does" if others == 1 else "do"
        return f"Passes: nothing new fails; {sentences.plural(others, 'finding')} {verb} not count{_unseen(result)}"
    if not sentences.searched(result):
        return "Passes: nothing to check, only documents changed"
    if sentences.is_complete(result):
        return f"Passes: no {sentences.unit(result)} fails"
    if earlier.not_seen(result):
        return "Not seen again, which shows no fix: the search was not complete"
    return "Nothing found, though the search was not complete"


def _fixed(found: Sequence[tuple[str, Earlier]]) -> str:
    """Each with the version that it failed in, which those that have one in common share."""
    words: list[str] = []
    before = ""
    for where, one in found[:FIXED_MAX]:
        what = f"{earlier.failed(where, one)} {earlier.now(one)}: "
        words.append(("" if what == before else what) + _cut(one.message))
        before = what
    return "; ".join([*words, *([f"and {len(found) - FIXED_MAX} more"] if len(found) > FIXED_MAX else [])])


def _cut(message: str) -> str:
    """A message that is not too long; without marks of code where one of a pair was cut off."""
    short = line(message, 200)
    return short.replace("`", "") if short.count("`") % 2 else short


def _unseen(result: RunResult) -> str:
    """Earlier findings that a search which was not complete did not meet."""
    count = 0 if sentences.is_complete(result) else len(earlier.not_seen(result))
    return f"; {sentences.plural(count, 'earlier finding')} not seen again, which shows no fix" if count else ""
