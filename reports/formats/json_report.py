"""The report for other programs: one JSON document, written, read and checked by msgspec.

Its shape is that of `RunResult` and the dataclasses in it, and its published schema is generated from them. `document`
cuts what a reader could not hold. What is read may come from anywhere, so `load` checks every type and range. Version 1
kept the nodes and edges of a graph in an object, and wrote null for "" and -1.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from crashcheck.checker.results import (
    Amount,
    Base,
    Discovery,
    Earlier,
    FailOn,
    GroupRow,
    Note,
    NotInstrumented,
    Phase,
    RunResult,
    StateCounts,
    StopReason,
    TraceSummary,
    Unexercised,
)
from crashcheck.errors import CrashcheckError
from crashcheck.reports.formats.json_finding import FindingRow, finding_of, row_of
from crashcheck.reports.view import sentences
from crashcheck.reports.view.numbers import from_digits, json_count
from crashcheck.reports.view.text import line, valid

SCHEMA_VERSION = 2  # bump when a field is removed, renamed or changes its meaning; a new field needs none
OUTPUT_CHARS = 16 * 1024
TEXT_CHARS = 1000
STACK_FRAMES = 32  # of each stack, the innermost; recursion makes stacks without end
MOST_CHARS = 256 << 20  # of a document to read
_WHOLE = ("replay", "commands")
_UNBOUNDED = ("feasible", "explored", "reused", "left")  # counts of crash states
MOST_DIGITS = 1_000_000  # of one count; the time to read more grows with its square


class Tool(msgspec.Struct, kw_only=True):
    """What wrote the report."""

    name: Literal["crashcheck"]
    version: str


class RunReport(msgspec.Struct, kw_only=True):
    """The run as a whole; key order is part of the format. `summary` and `caveats` follow from the rest."""

    summary: str
    caveats: tuple[str, ...]
    stop_reason: StopReason
    config: str
    model: str
    strategy: str
    states: StateCounts
    trace: TraceSummary
    not_instrumented: tuple[NotInstrumented, ...]
    warnings: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    seconds: Amount
    unexercised: tuple[Unexercised, ...] = ()
    fail_on: FailOn = "warning"
    name: str = ""
    base: Base | None = None
    phases: tuple[Phase, ...] = ()
    discoveries: tuple[Discovery, ...] = ()
    first_state_s: Amount | None = None
    again: tuple[Earlier, ...] = ()
    unreached: tuple[str, ...] = ()


_SAME = [name for name in RunReport.__struct_fields__ if name in RunResult.__slots__]  # of both


class Document(msgspec.Struct, kw_only=True):
    """A report."""

    schema: Literal[2]
    tool: Tool
    run: RunReport
    findings: tuple[FindingRow, ...]
    uncertain: tuple[FindingRow, ...]
    groups: tuple[GroupRow, ...] = ()


def render(result: RunResult) -> str:
    """The document as text, ending in a newline; the same result gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(document(result)), indent=2).decode() + "\n"


def document(result: RunResult) -> dict[str, Any]:
    """The document as plain lists and dictionaries, its texts, stacks and numbers bounded."""
    whole = Document(
        schema=2,
        tool=Tool(name="crashcheck", version=result.version),
        run=RunReport(
            summary=sentences.headline(result),
            caveats=sentences.caveats(result),
            config=result.config_path,
            **{name: getattr(result, name) for name in _SAME},
        ),
        findings=tuple(map(row_of, result.findings)),
        uncertain=tuple(map(row_of, result.uncertain)),
        groups=result.groups,
    )
    plain: dict[str, Any] = msgspec.to_builtins(whole)
    if sentences.of_crashes(result):
        del plain["run"]["states"]["unit"]  # the default
    written = zip(result.all_findings, (*plain["findings"], *plain["uncertain"]), strict=True)
    for finding, fields in written:
        fields["level"] = finding.level
        verdict = fields["verdict"]
        del verdict["signs"]  # of use during the search only
        verdict["output_truncated"] |= len(verdict["output"]) > OUTPUT_CHARS
        if fields["fix"] is not None and not fields["fix"]["recipe"]:
            del fields["fix"]["recipe"]  # the default
        if fields["fix"] is not None and not _is_whole(fields["fix"]["edits"]):
            fields["fix"]["edits"] = []
            fields["fix"]["no_edit"] = fields["fix"]["no_edit"] or "its lines are too long for a report"
    bounded: dict[str, Any] = _bounded(plain)
    return bounded


def load(text: str) -> RunResult:
    """The run that a document describes; `load(render(result)) == result` where nothing had to be cut or rounded.

    Fields that are unknown are ignored; fields that came later than the first version may be missing. Raises
    CrashcheckError(report-unreadable) for what is no such document, (report-version) for one of another version.
    """
    if len(text) > MOST_CHARS:
        raise _refused(f"it has {len(text):,} characters; the most is {MOST_CHARS:,}")
    try:
        plain = msgspec.json.decode(text)
        version = plain.get("schema") if isinstance(plain, dict) else None
        if type(version) is not int:
            raise _refused("its schema version is missing")
        if version not in (1, SCHEMA_VERSION):
            raise CrashcheckError(
                "report-version",
                f"the report is of version {version}; this crashcheck reads versions 1 and {SCHEMA_VERSION}.",
                "Make it again with this crashcheck, or use the one that made it.",
            )
        current = plain if version == SCHEMA_VERSION else {**_upgraded(plain), "schema": SCHEMA_VERSION}
        return _run(msgspec.convert(_with_counts(current), Document))
    except RecursionError as error:
        raise _refused("it is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        reason, _, place = str(error).partition(" - at `$")
        at = place.rstrip("`").lstrip(".")
        raise _refused(f"at {line(at)}: {line(reason)}" if at else line(reason)) from error


def _refused(why: str) -> CrashcheckError:
    return CrashcheckError(
        "report-unreadable",
        f"this is no JSON report of crashcheck: {why}.",
        "`crashcheck run --format json=report.json` writes one.",
    )


def _run(whole: Document) -> RunResult:
    return RunResult(
        config_path=whole.run.config,
        findings=tuple(map(finding_of, whole.findings)),
        uncertain=tuple(map(finding_of, whole.uncertain)),
        version=whole.tool.version,
        groups=whole.groups,
        **{name: getattr(whole.run, name) for name in _SAME},
    )


def _is_whole(edits: list[dict[str, Any]]) -> bool:
    """Whether no line of an edit would be shortened: a shortened line must never be put into a source file."""
    return all(len(edit[name]) <= TEXT_CHARS for edit in edits for name in ("text", "replaces"))


def _bounded(value: Any, name: str = "") -> Any:
    """`value`, of the field `name`, within what every JSON reader keeps; what a user has to type is never cut."""
    match value:
        case dict():
            return {key: _bounded(inner, key) for key, inner in value.items()}
        case list() | tuple():
            return [_bounded(inner, name) for inner in (value[:STACK_FRAMES] if name == "stack" else value)]
        case str() if name == "output":
            return valid(value[:OUTPUT_CHARS])
        case str():
            return valid(value if len(value) <= TEXT_CHARS or name in _WHOLE else value[: TEXT_CHARS - 1] + "…")
        case float() if name == "seconds":
            return round(value, 3)
        case int() if not isinstance(value, bool):
            return json_count(value)
    return value


def _with_counts(plain: dict[str, Any]) -> dict[str, Any]:
    """`plain` with the counts that `numbers.json_count` wrote as digits read back into integers."""
    run, groups = plain.get("run"), plain.get("groups")
    states = run.get("states") if isinstance(run, dict) else None
    reasons = states.get("not_explored") if isinstance(states, dict) else None
    for counts in (states, *(part for parts in (groups, reasons) if isinstance(parts, list) for part in parts)):
        for name in _UNBOUNDED if isinstance(counts, dict) else ():
            number = counts.get(name)
            if isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) <= MOST_DIGITS:
                counts[name] = from_digits(number)
    return plain


_NULL = {"granule": -1, "durable_from": -1} | dict.fromkeys(
    ("uncertain", "note", "suppressed", "truncated", "verified", "no_edit", "replaces")
    + ("instance", "state", "file", "role"),
    "",
)


def _upgraded(value: Any) -> Any:
    """A value of a document of version 1 as version 2 has it."""
    if isinstance(value, list):
        return [_upgraded(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    fields = {key: _NULL.get(key) if inner is None else _upgraded(inner) for key, inner in value.items()}
    if "members" in fields:  # a group; its graph came later
        fields = {"nodes": [], "edges": [], **fields}
    graph = fields.pop("graph", None)
    return {**fields, **graph} if isinstance(graph, dict) else fields
