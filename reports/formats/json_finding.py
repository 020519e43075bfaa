"""A finding as the JSON report has it: the head and, flat beside it, what a crash leaves; other evidence is an object.

Version 2 had evidence of crashes only. So its fields are there for every finding, empty where there was no crash, and
a reader that knows no other evidence still shows the head.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from crashcheck.checker.evidence import REOPENED, CleanReopen, CrashSchedule, RecoveryCrash, ScheduleStep
from crashcheck.checker.results import (
    Compared,
    Count,
    Evidence,
    Finding,
    FindingKind,
    Fix,
    GraphEdge,
    GraphNode,
    Location,
    Number,
    Verdict,
)
from crashcheck.reports.view.evidence import kind_named, renderer_of

_HEAD = [field.name for field in fields(Finding) if field.name not in ("evidence", "merged", "elsewhere")]
_CRASH = [field.name for field in fields(CrashSchedule)]


class FindingRow(msgspec.Struct, kw_only=True):
    """A finding; key order is part of the format."""

    id: str
    kind: FindingKind
    model: str
    message: str
    location: Location
    other: Location | None
    crash_point: str
    crash_location: Location | None
    verdict: Verdict
    schedule: tuple[ScheduleStep, ...]
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    replay: str
    states: Count
    depth: Number = 1  # 2: needs a crash of the recovery as well
    uncertain: str = ""
    note: str = ""
    new: bool = True
    suppressed: str = ""
    fix: Fix | None = None
    likenesses: tuple[str, ...] = ()
    compared: Compared = ""
    in_diff: bool = False
    evidence: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


def row_of(finding: Finding) -> FindingRow:
    """The finding as it is written."""
    head = {name: getattr(finding, name) for name in _HEAD}
    shown = finding.evidence
    if isinstance(shown, CrashSchedule):
        crash = {name: getattr(shown, name) for name in _CRASH}
        return FindingRow(**head, **crash, depth=2 if isinstance(shown, RecoveryCrash) else 1)
    rest = msgspec.to_builtins(shown)
    del rest["verdict"]
    empty = CrashSchedule(shown.verdict, None, shown.summary, None, (), (), ())
    crash = {name: getattr(empty, name) for name in _CRASH}
    return FindingRow(**head, **crash, evidence={"type": renderer_of(shown).name, **rest})


def finding_of(row: FindingRow) -> Finding:
    """The finding that was written. Raises msgspec.ValidationError."""
    return Finding(**{name: getattr(row, name) for name in _HEAD}, evidence=_evidence(row))


def _evidence(row: FindingRow) -> Evidence:
    if row.evidence is not msgspec.UNSET:
        kind = kind_named(str(row.evidence.get("type")))
        if kind is not None:
            return msgspec.convert({**row.evidence, "verdict": msgspec.to_builtins(row.verdict)}, kind)
    if row.crash_point.startswith(REOPENED):  # of an earlier version
        return CleanReopen(row.verdict, row.crash_point.removeprefix(REOPENED), row.replay)
    crash = {name: getattr(row, name) for name in _CRASH}
    return RecoveryCrash(**crash) if row.depth > 1 else CrashSchedule(**crash)
