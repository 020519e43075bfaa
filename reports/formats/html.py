"""The report for a browser: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from crashcheck.reports.formats import templates
from crashcheck.reports.view import diagrams
from crashcheck.reports.view.numbers import superscript
from crashcheck.reports.view.run_view import FindingView, RunView

OPEN_FINDINGS = 5  # further ones start folded
DRAWN_FINDINGS = 20  # further ones have their steps as a table only: a page of 100 findings is to stay below 1 MiB


def render(view: RunView) -> str:
    """The whole page; the same view gives the same bytes."""
    environment = _environment()
    style, script = _asset("report.css"), _asset("report.js")
    page = environment.get_template("report.html.j2").render(
        view=view,
        style=Markup(style),
        script=Markup(script),
        # Only our own style and script may act: whatever a program smuggled into a name stays text.
        policy=f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        open_findings=OPEN_FINDINGS,
        drawn_findings=DRAWN_FINDINGS,
    )
    return page if page.endswith("\n") else page + "\n"


@cache
def _environment() -> Environment:
    environment = templates.environment()
    environment.filters["code"] = _code
    environment.filters["sup"] = superscript
    environment.filters["of"] = _of
    environment.filters["by_file"] = _by_file
    environment.globals["schedule_picture"] = diagrams.schedule_picture
    environment.globals["graph_picture"] = diagrams.graph_picture
    return environment


def _of(index: int, values: Sequence[Any]) -> Any:
    return values[index]


def _by_file(findings: Sequence[FindingView]) -> list[tuple[str, list[FindingView]]]:
    """Findings by the file of their store; the file of the first finding is first."""
    files: dict[str, list[FindingView]] = {}
    for finding in findings:
        files.setdefault(finding.file, []).append(finding)
    return list(files.items())


def _asset(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0].strip()


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _code(text: str) -> Markup:
    """Text whose `quoted` parts are set as code."""
    parts = re.split(r"`([^`]*)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if odd % 2 else escape(part) for odd, part in enumerate(parts)
    )
