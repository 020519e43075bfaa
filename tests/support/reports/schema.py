"""The published schema of the JSON report, generated from the dataclasses of a run.

What each field means in words is kept in the published file itself, and carried over when it is generated again.
"""

from __future__ import annotations

import json
from inspect import cleandoc
from typing import Any

import msgspec

from crashcheck.reports.formats.json_report import MOST_DIGITS, Document
from support.paths import ROOT

PATH = ROOT / "reports" / "schema" / "crashcheck-report.schema.json"
BIG = {"type": "string", "pattern": "^[1-9][0-9]{15,}$", "maxLength": MOST_DIGITS}


def published() -> dict[str, Any]:
    """The schema (Draft 2020-12) that every document obeys."""
    loaded: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
    return loaded


def generated() -> str:
    """The text of the schema that follows from the dataclasses, with the words of the published one."""
    described = published()
    _, parts = msgspec.json.schema_components([Document])
    del parts["Verdict"]["properties"]["signs"]  # of use during the search only
    parts["FindingRow"]["properties"]["level"] = {"enum": ["error", "warning", "note"]}  # derived
    small = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
    unbounded = [
        ("StateCounts", "feasible"),
        ("StateCounts", "explored"),
        ("StateCounts", "reused"),
        ("NotExplored", "left"),
        ("GroupRow", "feasible"),
    ]
    for name, field in unbounded:
        parts[name]["properties"][field] |= {"anyOf": [small, BIG]}
        for bound in ("type", "minimum"):
            del parts[name]["properties"][field][bound]
    top = parts.pop("Document")
    _describe(top, described)
    for name, part in parts.items():
        _describe(part, described["$defs"].get("Finding" if name == "FindingRow" else name, {}))
    head = {name: described[name] for name in ("$schema", "$id", "title")}
    text = json.dumps({**head, **{k: v for k, v in top.items() if k != "title"}, "$defs": parts}, indent=2) + "\n"
    return text.replace("FindingRow", "Finding")  # its name since version 1


def _describe(part: dict[str, Any], described: dict[str, Any]) -> None:
    if "description" in part:
        part["description"] = cleandoc(part["description"])  # msgspec does from 0.23 on
    for name, field in part.get("properties", {}).items():
        words = described.get("properties", {}).get(name, {}).get("description")
        if words:
            field["description"] = words
    if "properties" in part:
        part["additionalProperties"] = True
