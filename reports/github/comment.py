"""What a run writes on GitHub beside the Markdown of its summary: annotations of a check run, a comment, a review."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crashcheck.checker import policy
from crashcheck.checker.results import Edit, Finding, Level, RunResult
from crashcheck.reports.formats import markdown, markup
from crashcheck.reports.formats.failure import Failure
from crashcheck.reports.github.annotations import Name, Remark
from crashcheck.reports.github.event import Event
from crashcheck.reports.github.sections import FINDINGS_MAX, MESSAGE_CHARS, Section
from crashcheck.reports.view import sentences
from crashcheck.reports.view.numbers import superscript
from crashcheck.reports.view.run_view import RunView
from crashcheck.reports.view.text import block, line, valid

Conclusion = Literal["success", "neutral", "failure", "action_required"]

TITLE_MAX = 255  # characters of an annotation's title
MESSAGE_MAX = 60_000  # bytes of its message: GitHub takes 64 KB
WORKFLOW_COMMANDS_SHOWN = 10  # of each level and step; a check run shows any number
CHECK_NAME_MAX = 100
ANNOTATIONS_MAX = 1000  # of a check run: a request takes 50, and nobody reads more
SUGGESTED_LINES_MAX = 20
SUGGESTED_COLUMNS_MAX = 500
_NO_ID = re.compile(r"[^0-9A-Za-z-]")
_LEVEL: Mapping[Level, Literal["failure", "warning", "notice"]] = {
    "error": "failure",
    "warning": "warning",
    "note": "notice",
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """Words at a line of a file of the repository, as a check run takes them."""

    path: str
    line: int
    level: Literal["failure", "warning", "notice"]
    title: str
    message: str

    def payload(self) -> dict[str, str | int]:
        return {
            "path": self.path,
            "start_line": self.line,
            "end_line": self.line,
            "annotation_level": self.level,
            "title": line(self.title, TITLE_MAX),
            "message": bounded(self.message, MESSAGE_MAX),
        }


@dataclass(frozen=True, slots=True)
class CheckText:
    """The head of a check run. `url`: where to read more, or ""."""

    title: str
    summary: str
    conclusion: Conclusion
    url: str = ""


@dataclass(frozen=True, slots=True)
class ReviewComment:
    """A comment of a review at one line of the new side of the diff.

    `says`: the part of `body` by which it is known again after its line moved: the suggestion and its findings.
    """

    path: str
    line: int
    body: str
    says: str

    def payload(self) -> dict[str, str | int]:
        return {"path": self.path, "line": self.line, "side": "RIGHT", "body": self.body}


@dataclass(frozen=True, slots=True)
class Job:
    """What has a section of the comment, a check run and a review of its own: one job of a matrix.

    `config`: relative to the repository; `name`: what the user calls the job, or the job's id and the values of its
    matrix, or "".
    """

    config: str
    model: str
    name: str = ""


def job_key(job: Job) -> str:
    """Distinguishes jobs, in few characters."""
    text = "\0".join((job.config, job.model, job.name))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def marker(job: Job) -> str:
    """The hidden first line by which a run finds the reviews that it wrote before; each job has its own.

    What comes from the program under test cannot imitate it: it never begins a text, and its `<` is escaped.
    """
    return f"<!-- crashcheck review {job_key(job)} -->"


def bounded(text: str, most_bytes: int) -> str:
    """`text` as valid UTF-8 of at most `most_bytes`, its end left out where it is longer."""
    raw = valid(text).encode("utf-8")
    return valid(text) if len(raw) <= most_bytes else raw[: most_bytes - 3].decode("utf-8", "ignore") + "…"


def conclusion(result: RunResult, fails: bool, undecided: bool) -> Conclusion:
    """`failure` if the run `fails` by its findings, `action_required` if it has no verdict; `neutral` if findings
    count, but are not severe enough to fail it.
    """
    if fails or undecided:
        return "failure" if fails else "action_required"
    return "neutral" if any(map(policy.counts, result.all_findings)) else "success"


def check_annotations(remarks: Iterable[Remark]) -> tuple[Annotation, ...]:
    """An annotation for each of the first remarks that have a line in the repository, in the order given."""
    placed = [remark for remark in remarks if remark.placement.file and remark.placement.line]
    return tuple(
        Annotation(
            remark.placement.file,
            remark.placement.line,
            _LEVEL[remark.level],
            f"crashcheck: {remark.title}",
            remark.message,
        )
        for remark in placed[:ANNOTATIONS_MAX]
    )


def section(job: Job, event: Event, ranked: tuple[int, str], details: str, findings: Sequence[Finding] = ()) -> Section:
    """What a job has in the one comment: its verdict, which is also the first line of its summary, and the rest."""
    rank, verdict = ranked
    label = ", ".join(filter(None, (job.name, job.config, job.model)))
    named = tuple((one.id, line(one.message, MESSAGE_CHARS)) for one in findings if policy.counts(one))[:FINDINGS_MAX]
    return Section(job_key(job), line(label, 200), event.run, event.sha, rank, verdict, details, named)


def details(view: RunView, link: markdown.Link, where: str, clean: bool) -> str:
    """What follows the verdict: the cause and the findings, or where nothing counts (`clean`), what was covered.

    A search samples the crash states, so what it did not meet again may still be there.
    """
    if clean:
        compared = "".join(f"\n- {markup.prose(sentence)}" for sentence in view.base)
        return f"{markup.inline(superscript(view.counted))}. {markup.inline(view.scope)}\n{compared}\n{where}"
    more = "the HTML report in the workflow's artifact"
    return f"{markdown.render(view, markdown.COMMENT, link, more, cause=True)}{where}"


def failed_text(failure: Failure, where: str) -> str:
    """What a comment, a check run and a summary show where there is no report, after the verdict."""
    rows, _ = block(failure.message)
    return (
        "There is no report for this commit. What was shown for an earlier commit may not hold for this one.\n\n"
        f"{markup.block(rows)}\n{where}"
    )


def check_text(view: RunView, verdict: str, link: markdown.Link, concluded: Conclusion, url: str) -> CheckText:
    """The head of the check run; its annotations hold the findings one by one."""
    summary = markdown.render(view, markdown.COMMENT, link, "the workflow's summary", cause=True)
    return CheckText(line(verdict, TITLE_MAX), summary, concluded, url)


def check_name(job: Job) -> str:
    """Unmistakable: GitHub may list a check run under any workflow of the same commit."""
    which = ", ".join(filter(None, (job.name, job.config, job.model)))
    return line(f"crashcheck findings ({which})", CHECK_NAME_MAX)


def needs_check_run(remarks: Sequence[Remark]) -> bool:
    """Whether workflow commands cannot show them all."""
    return len(remarks) > WORKFLOW_COMMANDS_SHOWN


def review_body(view: RunView, comments: int) -> str:
    """The text of a review above its comments."""
    return f"crashcheck: {markup.inline(view.counted)}. {sentences.plural(comments, 'suggestion')}."


def suggestions(
    result: RunResult, marked: str, name: Name, texts: Mapping[str, Mapping[int, str]]
) -> tuple[ReviewComment, ...]:
    """A comment for each line that a verified fix edits; `texts`: file → line → its text on GitHub, for what it shows.

    A finding is suggested whole or not at all: half of a fix would be taken for one. Where the line on GitHub is not
    the one that was recorded (the branch moved on), nothing is suggested. Findings with the same edits share a comment.
    """
    shared: dict[tuple[str, int, str], list[Finding]] = {}
    for finding in filter(policy.counts, result.findings):
        for path, number, suggestion in _suggested(finding, name, texts) or ():
            shared.setdefault((path, number, suggestion), []).append(finding)
    return tuple(
        _review_comment(marked, path, number, suggestion, findings)
        for (path, number, suggestion), findings in sorted(shared.items(), key=lambda item: item[0])
    )


def _review_comment(marked: str, path: str, number: int, suggestion: str, findings: Sequence[Finding]) -> ReviewComment:
    ids = " ".join(sorted(_NO_ID.sub("", finding.id) for finding in findings))
    says = f"<!-- {ids} -->\n{suggestion}"
    return ReviewComment(path, number, "\n".join((marked, *_words(findings), says)), says)


def _suggested(
    finding: Finding, name: Name, texts: Mapping[str, Mapping[int, str]]
) -> list[tuple[str, int, str]] | None:
    """(file, line, suggestion) of each line that the fix edits; None if the fix cannot be suggested whole."""
    fix = finding.fix
    if fix is None or not fix.edits or not fix.verified or fix.after_failing or not fix.before_failing:
        return None
    recorded = {(at.file, at.line): at.text for at in finding.places if at.text}
    lines: dict[tuple[str, int], list[Edit]] = {}
    for edit in fix.edits:
        lines.setdefault((edit.file, edit.line), []).append(edit)
    found: list[tuple[str, int, str]] = []
    for (file, number), edits in lines.items():
        text = texts.get(name(file), {}).get(number)
        if text is None or text.strip() != recorded.get((file, number), text).strip():
            return None
        if any(edit.replaces and edit.replaces.strip() != text.strip() for edit in edits):
            return None
        rows = _edited(text, edits)
        if len(rows) > SUGGESTED_LINES_MAX or any(len(row) > SUGGESTED_COLUMNS_MAX for row in rows):
            return None
        found.append((name(file), number, markup.block(rows, "suggestion")))
    return found


def _edited(text: str, edits: Sequence[Edit]) -> list[str]:
    """The rows that take the place of the line `text`, with its own line end."""
    end = "\r" if text.endswith("\r") else ""

    def rows(before: bool) -> list[str]:
        put = [edit.text for edit in edits if edit.insert_before is before and not edit.replaces]
        return [row.rstrip("\r") + end for text in put for row in text.split("\n")]

    changed = [edit.text for edit in edits if edit.replaces]
    own = [row.rstrip("\r") + end for text in changed[:1] for row in text.split("\n")] if changed else [text]
    return [*rows(True), *own, *rows(False)]


def _words(findings: Sequence[Finding]) -> Iterable[str]:
    """Which findings a suggestion fixes, and how it was checked."""
    first = findings[0].fix
    assert first is not None
    for finding in findings:
        yield f"**crashcheck, {sentences.KIND_TITLE[finding.kind].lower()}:** {markup.prose(finding.message, 400)}."
        yield ""
    yield f"Suggested fix: {markup.prose(first.words, 600)}. Checked: {markup.prose(first.verified, 600)}."
    yield ""
    if len(first.edits) > 1:
        yield f"This is one of {len(first.edits)} edits that belong together."
        yield ""
