"""The one comment of a pull request: a section for each job, which each publisher replaces for itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from crashcheck.reports.formats import markup
from crashcheck.reports.view.text import line

MARKER = "<!-- crashcheck comment"  # begins every comment of ours, those of earlier versions as well
HEAD = f"{MARKER} of every job -->"
SECTIONS_MAX = 50  # of a comment; an artifact of a fork may hold any number of reports
BODY_MAX = 65_000  # GitHub: 65,536 characters
NOTE_CHARS = 200  # of the sentence about details that are left out
VERDICT_CHARS = 600
SHARED_MAX = 10  # findings of several jobs
FINDINGS_MAX, MESSAGE_CHARS = 10, 160  # of a section; none where the comment would not hold all details
MANY, SHORT_CHARS = 10, 120  # from so many jobs on, their names and verdicts are cut

# How a section is ranked: what a reader must see goes first.
FAILS, NO_REPORT, UNDECIDED, PASSES = range(4)

_SECTION = re.compile(r"<!-- job (\{.*\}) -->")


@dataclass(frozen=True, slots=True)
class Section:
    """What one job found. `verdict` and `job` are plain text; `details` is Markdown, made safe."""

    key: str  # the job, as a hash
    job: str
    run: tuple[int, int]  # the workflow's run and its attempt, which grow with time; (0, 0) if not known
    commit: str
    rank: int
    verdict: str
    details: str = ""
    findings: tuple[tuple[str, str], ...] = ()  # those that count, most severe first: id and message

    def newer_than(self, other: Section) -> bool:
        return self.run != (0, 0) and self.run > other.run


def read(body: str) -> tuple[Section, ...]:
    """The sections of a comment of ours; none of one of an earlier version.

    The length of the details is written before them: nothing in them can end them.
    """
    rows = body.replace("\r\n", "\n").split("\n")
    found: list[Section] = []
    at = 0
    while at < len(rows) and rows[0] == HEAD:
        head = _SECTION.fullmatch(rows[at])
        at += 1
        if head is None:
            continue
        try:
            known = json.loads(head[1])
            count = known.pop("rows")
            details = "\n".join(rows[at : at + count])
            findings = tuple((str(id_), str(message)) for id_, message in known.pop("findings", ()))
            found.append(Section(**{**known, "run": tuple(known["run"]), "details": details, "findings": findings}))
        except (ValueError, KeyError, TypeError):  # of a later version
            continue
        at += count
    return tuple(found)


def in_place(there: Iterable[Section], failed: Section) -> tuple[Section, ...]:
    """`failed` for each section of its job: a run that failed early knows no model, or not the model's options."""
    begins = (f"{failed.job}, ", f"{failed.job} ")
    same = (one for one in there if one.key == failed.key or one.job.startswith(begins))
    return tuple(replace(failed, key=one.key, job=one.job) for one in same)


def merged(there: Iterable[Section], mine: Sequence[Section]) -> tuple[Section, ...]:
    """The sections `there` and `mine`, of two of one job the newer; those that a reader must see first."""
    by_key: dict[str, Section] = {}
    for section in (*there, *mine):
        old = by_key.get(section.key)
        if old is None or not old.newer_than(section):
            by_key[section.key] = section
    newest = max((one.run for one in by_key.values()), default=(0, 0))
    current = {one.commit for one in by_key.values() if one.run == newest}
    return tuple(sorted(by_key.values(), key=lambda one: (one.commit not in current, one.rank, one.job, one.key)))


def render(sections: Sequence[Section]) -> str:
    """The comment's body. Where not every detail fits, those of the last sections are left out, and named."""
    shown = list(sections[:SECTIONS_MAX])
    if len(sections) > MANY:
        shown = [replace(one, verdict=line(one.verdict, SHORT_CHARS), job=line(one.job, SHORT_CHARS)) for one in shown]
    body, whole = _fitted(shown, len(sections))
    return body if whole else _fitted([replace(one, findings=()) for one in shown], len(sections))[0]


def _fitted(shown: list[Section], count: int) -> tuple[str, bool]:
    """The body with as much of these sections as a comment takes, and whether that is all. `count`: of all sections."""
    room, there = BODY_MAX - NOTE_CHARS, len(shown)
    while len(_bare(shown, count)) > room and len(shown) > 1:
        shown = shown[:-1]
    left = room - len(_bare(shown, count))
    parts, cut = [_head(shown, count)], 0
    for section in shown:
        short, whole = _section(replace(section, details="")), _section(section, count > 1)
        if len(whole) - len(short) > left:
            parts.append(short)
            cut += 1
        else:
            parts.append(whole)
            left -= len(whole) - len(short)
    if cut:
        jobs = "1 job" if cut == 1 else f"{cut} jobs"
        parts.append(f"**The details of {jobs} are left out here**: a comment takes no more. See the HTML reports.")
    return "\n".join(parts) + "\n", not cut and len(shown) == there


def _bare(shown: Sequence[Section], count: int) -> str:
    return "\n".join((_head(shown, count), *(_section(replace(one, details="")) for one in shown)))


def _head(shown: Sequence[Section], count: int) -> str:
    first = shown[0]
    title = f"### crashcheck: {_verdict(first, first.job if count > 1 else '')}{_waiting(shown, first.commit)}"
    several = (*_table(shown, first.commit, count - len(shown)), *_shared(shown, first.commit)) if count > 1 else ()
    return "\n".join((HEAD, title, "", *several))


def _verdict(section: Section, job: str = "") -> str:
    words = markup.prose(section.verdict, VERDICT_CHARS)
    return f"{words} ({markup.inline(job)})" if job else str(words)


def _waiting(sections: Sequence[Section], commit: str) -> str:
    """How many jobs are not in the first line: a red one of an earlier commit may still run."""
    old = sum(one.commit != commit for one in sections)
    return f"; {old} other job{'s have' if old > 1 else ' has'} no report for {commit[:7]}" if old else ""


def _table(sections: Sequence[Section], commit: str, left_out: int) -> list[str]:
    rows = ["| Job | Result | Commit |", "| --- | --- | --- |"]
    for one in sections:
        since = "" if one.commit == commit else ", nothing newer"
        rows.append(
            f"| {markup.inline(one.job, 120)} | {markup.prose_cell(line(one.verdict, 300))} | {one.commit[:7]}{since} |"
        )
    return [*rows, "", *([f"{left_out} more jobs are not shown.", ""] if left_out else [])]


def _shared(sections: Sequence[Section], commit: str) -> list[str]:
    """A line for each bug that several workloads show, as one in an allocator: in how many of them, and in which."""
    current = [one for one in sections if one.commit == commit]
    jobs: dict[str, list[str]] = {}
    messages = {id_: message for one in reversed(current) for id_, message in one.findings}
    for one in current:
        for id_ in dict(one.findings):
            jobs.setdefault(id_, []).append(line(one.job, SHORT_CHARS))
    rows = [
        f"- {markup.prose(messages[id_])}: in {len(names)} of {len(current)} jobs "
        f"({markup.inline(', '.join(names), NOTE_CHARS)})"
        for id_, names in jobs.items()
        if len(names) > 1
    ]
    more = [f"- and {len(rows) - SHARED_MAX} more"] if len(rows) > SHARED_MAX else []
    return ["One finding that several jobs have:", "", *rows[:SHARED_MAX], *more, ""] if rows else []


def _section(section: Section, folded: bool = False) -> str:
    rows = section.details.split("\n") if section.details else []
    known = {name: value for name, value in asdict(section).items() if name != "details"}
    text = json.dumps({**known, "rows": len(rows)}, sort_keys=True)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("@", "\\u0040")  # they end and mention nothing
    head = f"<!-- job {text} -->"
    if not rows:
        return head
    if not folded:
        return "\n".join((head, *rows))
    summary = f"<details><summary>{markup.html(section.job, 120)}</summary>\n"
    return "\n".join((summary, head, *rows, "", "</details>", ""))
