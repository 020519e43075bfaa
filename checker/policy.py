"""Which findings count: those that neither the baseline knows nor a suppression covers, from a severity on.

`rules_of` gathers the suppressions, from crashcheck.toml and from comments in the program's sources; all else is a
function of values: a run's result, what a baseline knows and which suppressions there are. A finding carries the
decision (`new`, `suppressed`); none is ever left out of a report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.checker.baseline import Known, matched
from crashcheck.checker.results import LEVELS, FailOn, Finding, FindingKind, Location, RunResult, StopReason
from crashcheck.config import Config
from crashcheck.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS
from crashcheck.source import SourceTree, repository_of, source_lines

ANY = "*"
KINDS = (*(kind.value for kind in FindingKind), ANY)
FAIL_ON: tuple[FailOn, ...] = ("none", *LEVELS)
# What a run without a finding that a budget ended must have tested to pass, of the site signatures of the plainest
# states: a fifth, and of few signatures nearly all. Measured on examples/structures with 200 operations, by `ranked`:
#
#     share                                                     a tenth        a fifth    two fifths
#     planted bugs found by then, of 103                             72             75            88
#     states, five structures of 35 to 61 signatures           15 to 20       15 to 25      22 to 64
#     states, B-tree, CLHT, red-black tree (471 to 1,417)     78 to 305     175 to 550  467 to 1,452
#     states, 150 transactions of sqlite (97)                        11             41           105
#
# So it refuses a search that barely began, and is no promise: all 103 bugs take up to 237 states.
LEAST_SHARE, FEW_SIGNATURES, LEAST_OF_FEW = 0.2, 10, 0.8
# A program that repeats one call has two signatures: these are tested after two states of 300,000 calls.
LEAST_STATES = 10

# -- suppressions


@dataclass(frozen=True, slots=True)
class Suppression:
    """Findings that the user lives with. Those it means fit all of `id`, `file`, `line` and `kinds`."""

    where: str  # how a report names it: "src/table.c:12", "[[suppress]] 2"
    reason: str
    kinds: frozenset[str] = frozenset({ANY})
    id: str = ""
    file: str = ""  # a pattern as of fnmatch, over the name that findings give; "" for all
    line: int = 0  # then `file` is a name and no pattern

    def means(self, finding: Finding) -> bool:
        """Whether it is about this finding."""
        if not self.kinds & {ANY, finding.kind.value}:
            return False
        if self.id and self.id not in (finding.id, *finding.likenesses):
            return False
        return not self.file or any(map(self._holds, finding.blamed))

    def _holds(self, place: Location) -> bool:
        if self.line:
            return (place.file, place.line) == (self.file, self.line)
        return bool(place.file) and fnmatchcase(place.file, self.file)


_COMMENT = re.compile(r"(?://|/\*|^\s*\*)(?:.*?[\s*/])?crashcheck:\s*ignore\b(?P<rest>.*)")
_KINDS_AND_REASON = re.compile(r"\s*\[(?P<kinds>[^\]]*)\](?P<reason>.*)")
_ONLY_COMMENT = re.compile(r"\s*(?://|/\*|\*)")
REASON_CHARS = 300


def in_comments(file: str, lines: Sequence[str]) -> tuple[tuple[Suppression, ...], tuple[str, ...]]:
    """(suppressions, warnings) of the comments `crashcheck: ignore[kinds] reason` in `file`.

    A comment beside code is about its own line; one that has its line for itself is about the next line of code.
    """
    found: list[Suppression] = []
    warnings: list[str] = []
    for number, text in enumerate(lines, 1):
        # The pattern takes long on a long line with many comments in it.
        match = _COMMENT.search(text) if "crashcheck:" in text else None
        if match is None:
            continue
        where = f"{file}:{number}"
        parts = _KINDS_AND_REASON.fullmatch(match["rest"])
        kinds = frozenset(word.strip() for word in parts["kinds"].split(",")) if parts else frozenset()
        unknown = sorted(kinds - set(KINDS))
        reason = parts["reason"].split("*/")[0].strip(" \t:-\r\n")[:REASON_CHARS] if parts else ""
        if parts is None or unknown:
            what = f"{', '.join(map(repr, unknown))} is no kind" if unknown else "it names no kind"
            warnings.append(f"{where}: nothing is ignored: {what}; write crashcheck: ignore[kind, …] reason")
        elif not reason:
            warnings.append(f"{where}: nothing is ignored: write a reason after ignore[{', '.join(sorted(kinds))}]")
        else:
            found.append(Suppression(where, reason, kinds, file=file, line=_about(lines, number)))
    return tuple(found), tuple(warnings)


def _about(lines: Sequence[str], number: int) -> int:
    at = number
    while at <= len(lines) and _ONLY_COMMENT.match(lines[at - 1]):
        at += 1
    return at


@dataclass(frozen=True, slots=True)
class Rules:
    """The suppressions of a run, and what is wrong with others."""

    suppressions: tuple[Suppression, ...]
    warnings: tuple[str, ...]


def rules_of(config: Config, sources: Iterable[str], result: RunResult) -> Rules:
    """Suppressions of `config`, and those of comments in the sources that the program was made of (`sources_of`) and in
    those of findings.

    Only files of the repository are read: names of sources come from debug information.
    """
    found = [
        Suppression(f"[[suppress]] {number}", each.reason, frozenset(each.kinds), each.id, each.file)
        for number, each in enumerate(config.suppress, 1)
    ]
    warnings: list[str] = []
    root = repository_of(config.folder).root
    every = result.all_findings
    for file in sorted({*sources, *(place.file for found in every for place in found.blamed)}):
        path = Path(os.path.realpath(config.folder / file))
        if path.is_relative_to(root):
            comments, remarks = in_comments(file, source_lines(path))
            found += comments
            warnings += remarks
    return Rules(tuple(found), tuple(warnings))


def sources_of(folder: Path, facts: ProgramFacts) -> list[str]:
    """The sources that a program was made of, as findings name them, in order."""
    tree = SourceTree(folder)
    recorded = {place.file for unit in facts.units.values() for site in unit.sites for place in site.positions}
    recorded |= {unit.source for unit in facts.units.values()}
    return sorted({tree.relative(file) for file in recorded if file})


# -- the judgement

_BASELINE = "baseline: "


def judge(
    result: RunResult, suppressions: Sequence[Suppression] = (), baseline: Sequence[Known] | None = None
) -> RunResult:
    """`result` with each finding marked, those that count first, and a warning for each rule that met nothing."""
    baseline = baseline or ()
    every = result.all_findings
    pairs = matched(every, baseline)
    used: set[int] = set()
    marked: list[Finding] = []
    for number, finding in enumerate(every):
        about = [at for at, each in enumerate(suppressions) if each.means(finding)]
        used.update(about)
        reasons = dict.fromkeys(f"{suppressions[at].reason} ({suppressions[at].where})" for at in about)
        marked.append(replace(finding, suppressed="; ".join(reasons), new=number not in pairs))
    whole = result.stop_reason is StopReason.EXHAUSTED
    unmet = "met nothing: take it out" if whole else "met nothing in this run, which was cut short"
    gone = "was not met: it is fixed" if whole else "was not met in this run, which was cut short"
    warnings = [
        f"{each.where}: this suppression ({', '.join(sorted(each.kinds))}: {each.reason}) {unmet}"
        for at, each in enumerate(suppressions)
        if at not in used
    ]
    matched_there = set(pairs.values())
    warnings += [
        f"{_BASELINE}{known.id} {gone}: {known.message}"
        for number, known in enumerate(baseline)
        if number not in matched_there
    ]
    proved = len(result.findings)
    return replace(
        result,
        findings=in_order(marked[:proved]),
        uncertain=in_order(marked[proved:]),
        warnings=(*result.warnings, *warnings),
    )


def accepted(result: RunResult) -> RunResult:
    """`result` once the baseline was brought up to date: nothing in it is new, and nothing in the baseline is unmet."""
    return replace(
        result,
        findings=tuple(replace(finding, new=False) for finding in result.findings),
        uncertain=tuple(replace(finding, new=False) for finding in result.uncertain),
        warnings=tuple(warning for warning in result.warnings if not warning.startswith(_BASELINE)),
    )


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What counts first, of that what the change touches, and notes last; else as they were found."""
    return tuple(
        sorted(findings, key=lambda finding: (not counts(finding), not finding.in_diff, finding.level == "note"))
    )


def counts(finding: Finding) -> bool:
    """Whether a finding is neither known nor suppressed, nor one that the base of the change has."""
    return finding.new and not finding.suppressed and finding.compared != "existing"


def checked_nothing(result: RunResult) -> bool:
    """Whether there were, or may have been, crash states to check, and the search decided none of them."""
    states = result.states
    there = states.feasible or not states.feasible_exact
    return bool(there) and not any((states.executed, states.pruned, states.explored, states.reused))


def barely_searched(result: RunResult) -> bool:
    """Whether a budget ended the search so early that to find nothing means nothing."""
    all_, tested = result.states.signatures, result.states.signatures_tested
    return few_states(result) or tested < max(LEAST_SHARE * all_, min(LEAST_OF_FEW * all_, FEW_SIGNATURES))


def few_states(result: RunResult) -> bool:
    """Whether a budget ended the search after fewer states than the first bugs need, whatever signatures they have."""
    states = result.states
    decided = states.executed + states.pruned + states.explored + states.reused
    return bool(states.signatures) and decided < LEAST_STATES


def undecided(result: RunResult) -> bool:
    """Whether a run that does not fail has no verdict either: failures that count are not proved, files may have been
    changed unseen, or nothing was checked, or too little.
    """
    return checked_nothing(result) or unproved(result) or unseen(result) or barely_searched(result)


def unseen(result: RunResult) -> bool:
    """Whether the files may hold what was not recorded, so that finding nothing proves nothing. As `unproved`, it does
    not count under --fail-on "none".
    """
    return result.fail_on != "none" and bool(result.trace.not_followed)


def unproved(result: RunResult) -> bool:
    """Whether failures that count are not proved, so that the run has no verdict unless it fails.

    They do not count under --fail-on "none", and fail the run under "note".
    """
    return result.fail_on not in ("none", "note") and any(map(counts, result.uncertain))


def fails(result: RunResult) -> bool:
    """Whether a run fails: a finding counts and is at least as severe as its `fail_on`."""
    if result.fail_on == "none":
        return False
    least = LEVELS.index(result.fail_on)
    return any(counts(finding) and LEVELS.index(finding.level) >= least for finding in result.all_findings)


def exit_code(result: RunResult) -> int:
    """What a command returns that has this result: EXIT_FAILED if the run does not fail and has no verdict either."""
    if fails(result):
        return EXIT_FINDINGS
    return EXIT_FAILED if result.stop_reason.broken_off or undecided(result) else EXIT_CLEAN
