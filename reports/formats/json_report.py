"""The report for other programs: one JSON document, as schema/crashcheck-report.schema.json says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from crashcheck.checker.results import (
    Finding,
    Fix,
    GraphEdge,
    GraphNode,
    GroupRow,
    Location,
    RunResult,
    ScheduleStep,
    Verdict,
)
from crashcheck.reports.formats import json_reading
from crashcheck.reports.view import words
from crashcheck.reports.view.numbers import json_count
from crashcheck.reports.view.text import valid

SCHEMA_VERSION = 1  # bump when a field is removed, renamed or changes its meaning; a new field needs none
OUTPUT_CHARS = 16 * 1024
TEXT_CHARS = 1000
STACK_FRAMES = 32  # of each stack, the innermost; recursion makes stacks without end


def render(result: RunResult) -> str:
    """The document as text, ending in a newline; the same result gives the same bytes."""
    return json.dumps(document(result), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def load(text: str) -> RunResult:
    """The run that a document tells of; `load(render(result)) == result` where nothing had to be cut or rounded.

    `text` may come from anywhere. Raises CrashcheckError(report-unreadable, report-version).
    """
    return json_reading.load(text, SCHEMA_VERSION)


def schema() -> Mapping[str, Any]:
    """The JSON schema (Draft 2020-12) that every document obeys."""
    path = files("crashcheck.reports") / "schema" / "crashcheck-report.schema.json"
    loaded: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return loaded


def document(result: RunResult) -> dict[str, Any]:
    """The document as a value. Key order is part of the format: it is the order in which fields are made here."""
    return {
        "schema": SCHEMA_VERSION,
        "tool": {"name": "crashcheck", "version": _text(result.version)},
        "run": _run(result),
        "findings": [_finding(finding) for finding in result.findings],
        "uncertain": [_finding(finding) for finding in result.uncertain],
        "groups": [_group(row) for row in result.groups],
    }


def _text(text: str) -> str:
    return valid(text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 1] + "…")


def _run(result: RunResult) -> dict[str, Any]:
    states, trace = result.states, result.trace
    return {
        "summary": words.headline(result),
        "caveats": list(words.caveats(result)),
        "stop_reason": result.stop_reason.value,
        "config": _text(result.config_path),
        "model": _text(result.model),
        "strategy": _text(result.strategy),
        "states": {
            "feasible": json_count(states.feasible),
            "feasible_exact": states.feasible_is_exact,
            "feasible_note": _text(states.feasible_note),
            "executed": json_count(states.executed),
            "pruned": json_count(states.pruned),
            "skipped": json_count(states.skipped),
            "failing": json_count(states.failing),
            "flaky": json_count(states.flaky),
            "uncertain": json_count(states.uncertain),
            "put_off": json_count(states.put_off),
        },
        "trace": {
            "path": _text(trace.path),
            "events": trace.events,
            "stores": trace.stores,
            "flushes": trace.flushes,
            "fences": trace.fences,
            "syncs": trace.syncs,
            "threads": trace.threads,
            "processes": trace.processes,
            "operations": trace.operations,
            "files": [_text(name) for name in trace.files],
            "explained_bytes": trace.explained_bytes,
            "unexplained_bytes": trace.unexplained_bytes,
            "unmodelled_calls": [_text(call) for call in trace.unmodelled_calls],
            "truncated": _text(trace.truncated) or None,
        },
        "not_instrumented": [{"unit": _text(u.unit), "what": _text(u.what)} for u in result.not_instrumented],
        "warnings": [_text(warning) for warning in result.warnings],
        "notes": [
            {"waste": note.waste, "location": _location(note.location), "count": note.count, "total": note.total}
            for note in result.notes
        ],
        "seconds": round(result.seconds, 3),
        "unexercised": [
            {"function": _text(one.function), "file": _text(one.file), "line": one.line, "stores": one.stores}
            for one in result.unexercised
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": _text(finding.id),
        "kind": finding.kind.value,
        "model": _text(finding.model),
        "message": _text(finding.message),
        "location": _location(finding.location),
        "other": _maybe_location(finding.other),
        "crash_point": _text(finding.crash_point),
        "crash_location": _maybe_location(finding.crash_location),
        "verdict": _verdict(finding.verdict),
        "schedule": [_step(step) for step in finding.schedule],
        "graph": _graph(finding.nodes, finding.edges),
        "replay": valid(finding.replay),
        "states": json_count(finding.states),
        "depth": finding.depth,
        "uncertain": _text(finding.uncertain) or None,
        "note": _text(finding.note) or None,
        "level": finding.level,
        "new": finding.new,
        "suppressed": _text(finding.suppressed) or None,
        "fix": _fix(finding.fix) if finding.fix is not None else None,
        "likenesses": list(finding.likenesses),
        "in_diff": finding.in_diff,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    # A shortened line must never be put into a source file.
    whole = all(len(edit.text) <= TEXT_CHARS and len(edit.replaces) <= TEXT_CHARS for edit in fix.edits)
    return {
        "kind": _text(fix.kind),
        "words": _text(fix.words),
        "edits": [
            {
                "file": _text(edit.file),
                "line": edit.line,
                "insert_before": edit.insert_before,
                "text": _text(edit.text),
                "replaces": _text(edit.replaces) or None,
            }
            for edit in (fix.edits if whole else ())
        ],
        "before_failing": json_count(fix.before_failing),
        "after_failing": json_count(fix.after_failing),
        "verified": _text(fix.verified) or None,
        "extra_flushes": json_count(fix.extra_flushes),
        "extra_fences": json_count(fix.extra_fences),
        "extra_syncs": json_count(fix.extra_syncs),
        "no_edit": _text(fix.no_edit or ("" if whole else "its lines are too long for a report")) or None,
    }


def _graph(nodes: tuple[GraphNode, ...], edges: tuple[GraphEdge, ...]) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "id": node.id,
                "label": _text(node.label),
                "state": node.state or None,
                "granule": node.granule if node.granule >= 0 else None,
                "location": _maybe_location(node.location),
            }
            for node in nodes
        ],
        "edges": [{"source": edge.source, "target": edge.target, "reason": _text(edge.reason)} for edge in edges],
    }


def _group(row: GroupRow) -> dict[str, Any]:
    return {
        "rank": row.number,
        "types": [_text(name) for name in row.types],
        "instance": _text(row.instance) or None,
        "operation": row.operation,
        "members": row.members,
        "updates": row.updates,
        "score": row.score,
        "because": [_text(reason) for reason in row.because],
        "feasible": json_count(row.feasible),
        "feasible_exact": row.feasible_is_exact,
        "executed": json_count(row.executed),
        "failing": json_count(row.failing),
        "complete": row.complete,
        "verdict": row.verdict.value,
        "sites": [_location(place) for place in row.sites],
        "graph": _graph(row.nodes, row.edges),
    }


def _location(place: Location) -> dict[str, Any]:
    return {
        "file": _text(place.file),
        "line": place.line,
        "column": place.column,
        "function": _text(place.function),
        "variable": _text(place.variable),
        "text": _text(place.text),
        "expression": _text(place.expression),
        "stack": [
            {"function": _text(frame.function), "file": _text(frame.file), "line": frame.line}
            for frame in place.stack[:STACK_FRAMES]
        ],
    }


def _maybe_location(place: Location | None) -> dict[str, Any] | None:
    return None if place is None else _location(place)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    output = verdict.output
    return {
        "outcome": verdict.outcome.value,
        "exit_code": verdict.exit_code,
        "signal": verdict.signal,
        "output": valid(output[:OUTPUT_CHARS]),
        "output_truncated": verdict.output_truncated or len(output) > OUTPUT_CHARS,
        "seconds": round(verdict.seconds, 3),
    }


def _step(step: ScheduleStep) -> dict[str, Any]:
    return {
        "event": step.event,
        "thread": step.thread,
        "what": _text(step.what),
        "state": step.state or None,
        "detail": _text(step.detail),
        "file": _text(step.file) or None,
        "offset": step.offset,
        "size": step.size,
        "granule": step.granule if step.granule >= 0 else None,
        "location": _maybe_location(step.location),
        "role": step.role or None,
        "durable_from": step.durable_from if step.durable_from >= 0 else None,
    }
