"""Which findings count: those that nobody knew of or chose to live with, from a level on.

All of it is a function of values: a run's result, what a baseline knows and which suppressions there are. What becomes
of a finding is written on it (`new`, `suppressed`); none is ever taken out of a report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from crashcheck.checker.results import LEVELS, Finding, Kind, Location, RunResult, StopReason
from crashcheck.errors import CrashcheckError

VERSION = 1
ANY = "*"
KINDS = (*(kind.value for kind in Kind), ANY)
FailOn = Literal["none", "note", "warning", "error"]
FAIL_ON: tuple[FailOn, ...] = ("none", *LEVELS)

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
        if not self.kinds & {ANY, finding.kind.value} or (self.id and self.id != finding.id):
            return False
        return not self.file or any(self._holds(place) for place in (finding.location, finding.other) if place)

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
        if "crashcheck:" not in text:
            continue
        match = _COMMENT.search(text)
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
            warnings.append(
                f"{where}: nothing is ignored: a reason must stand after ignore[{', '.join(sorted(kinds))}]"
            )
        else:
            found.append(Suppression(where, reason, kinds, file=file, line=_about(lines, number)))
    return tuple(found), tuple(warnings)


def _about(lines: Sequence[str], number: int) -> int:
    at = number
    while at <= len(lines) and _ONLY_COMMENT.match(lines[at - 1]):
        at += 1
    return at


# -- the baseline


@dataclass(frozen=True, slots=True)
class Known:
    """A finding that the baseline has. `note` is the user's and is kept."""

    id: str
    likenesses: tuple[str, ...]
    kind: str
    message: str
    note: str = ""


def read_baseline(text: str, name: str) -> tuple[Known, ...]:
    """The findings of a baseline file `name`. Raises CrashcheckError(baseline-unreadable)."""
    hint = "`crashcheck run --baseline FILE --update-baseline` writes one."

    def refused(why: str) -> CrashcheckError:
        return CrashcheckError("baseline-unreadable", f"{name} is no baseline of crashcheck: {why}.", hint)

    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refused(f"it is no JSON: {str(error)[:200]}") from None
    if not isinstance(document, dict) or not isinstance(document.get("findings"), list):
        raise refused("it has no list `findings`")
    if document.get("version") != VERSION:
        raise refused(f"it is of version {document.get('version')!r:.40}; this crashcheck reads version {VERSION}")
    return tuple(_known(entry, at, refused) for at, entry in enumerate(document["findings"]))


def _known(entry: object, at: int, refused: Any) -> Known:
    if not isinstance(entry, dict):
        raise refused(f"findings[{at}] is no object")
    texts = {key: entry.get(key, "") for key in ("id", "kind", "message", "note")}
    likenesses = entry.get("likenesses", [])
    if not all(isinstance(text, str) for text in texts.values()) or not texts["id"]:
        raise refused(f"findings[{at}] has no id, or a field that is no text")
    if not isinstance(likenesses, list) or not all(isinstance(text, str) for text in likenesses):
        raise refused(f"findings[{at}].likenesses is no list of texts")
    return Known(texts["id"], tuple(likenesses), texts["kind"], texts["message"], texts["note"])


def write_baseline(known: Iterable[Known]) -> str:
    """The file's text: the same findings give the same bytes."""
    rows = [
        {
            "id": each.id,
            "kind": each.kind,
            "message": each.message,
            "note": each.note,
            "likenesses": list(each.likenesses),
        }
        for each in sorted(known, key=lambda each: each.id)
    ]
    return json.dumps({"version": VERSION, "findings": rows}, ensure_ascii=False, indent=2) + "\n"


def met(findings: Sequence[Finding], baseline: Sequence[Known]) -> dict[int, int]:
    """Which finding (index) is which of the baseline (index): each at most once, by id first, then by likeness."""
    out: dict[int, int] = {}
    left = dict(enumerate(baseline))

    def pair(fits: Any) -> None:
        for at, finding in enumerate(findings):
            if at not in out:
                found = next((number for number, known in left.items() if fits(finding, known)), None)
                if found is not None:
                    out[at] = found
                    del left[found]

    pair(lambda finding, known: finding.id == known.id)
    for which in range(max((len(finding.likenesses) for finding in findings), default=0)):
        pair(
            lambda finding, known, which=which: (
                finding.likenesses[which : which + 1] == known.likenesses[which : which + 1] != ()
            )
        )
    return out


def updated(result: RunResult, baseline: Sequence[Known]) -> tuple[tuple[Known, ...], tuple[str, ...]]:
    """The baseline that knows what `result` has, and what was changed, in sentences.

    What was not met is dropped, unless the search was cut short: then it may well be there. What a suppression covers
    needs no entry.
    """
    found = (*result.findings, *result.uncertain)
    pairs = met(found, baseline)
    kept: list[Known] = []
    told: list[str] = []
    for at, finding in enumerate(found):
        if at in pairs or not finding.suppressed:
            note = baseline[pairs[at]].note if at in pairs else ""
            kept.append(Known(finding.id, finding.likenesses, finding.kind.value, finding.message, note))
        if at not in pairs and not finding.suppressed:
            told.append(f"added {finding.id}: {finding.message}")
    for number, known in enumerate(baseline):
        if number in set(pairs.values()):
            continue
        if result.stop_reason is StopReason.EXHAUSTED:
            told.append(f"dropped {known.id}, which is fixed: {known.message}")
        else:
            kept.append(known)
            told.append(
                f"kept {known.id}, which was not met in this run, but the search was cut short: {known.message}"
            )
    return tuple(kept), tuple(told)


# -- the judgement

_BASELINE = "baseline: "


def judge(
    result: RunResult, suppressions: Sequence[Suppression] = (), baseline: Sequence[Known] | None = None
) -> RunResult:
    """`result` with each finding marked, those that count first, and a warning for each rule that met nothing."""
    every = (*result.findings, *result.uncertain)
    used: set[int] = set()
    marked: list[Finding] = []
    for finding in every:
        about = [at for at, each in enumerate(suppressions) if each.means(finding)]
        used.update(about)
        reasons = dict.fromkeys(f"{suppressions[at].reason} ({suppressions[at].where})" for at in about)
        marked.append(replace(finding, suppressed="; ".join(reasons)))
    pairs = {} if baseline is None else met(every, baseline)
    if baseline is not None:
        marked = [replace(finding, new=at not in pairs) for at, finding in enumerate(marked)]
    whole = result.stop_reason is StopReason.EXHAUSTED
    unmet = "met nothing: take it out" if whole else "met nothing in this run, which was cut short"
    gone = "was not met: it is fixed" if whole else "was not met in this run, which was cut short"
    warnings = [
        f"{each.where}: this suppression ({', '.join(sorted(each.kinds))}: {each.reason}) {unmet}"
        for at, each in enumerate(suppressions)
        if at not in used
    ]
    met_there = set(pairs.values())
    warnings += [
        f"{_BASELINE}{known.id} {gone}: {known.message}"
        for number, known in enumerate(baseline or ())
        if number not in met_there
    ]
    many = len(result.findings)
    return replace(
        result,
        findings=in_order(marked[:many]),
        uncertain=in_order(marked[many:]),
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
    """What counts first, and of that what the change touches; else as they were found."""
    return tuple(sorted(findings, key=lambda finding: (not counts(finding), not finding.in_diff)))


def counts(finding: Finding) -> bool:
    """Whether a finding is neither known nor lived with."""
    return finding.new and not finding.suppressed


def fails(result: RunResult, fail_on: FailOn) -> bool:
    """Whether a run fails: a finding counts and is at least as grave as `fail_on`."""
    if fail_on == "none":
        return False
    least = LEVELS.index(fail_on)
    return any(
        counts(finding) and LEVELS.index(finding.level) >= least for finding in (*result.findings, *result.uncertain)
    )
