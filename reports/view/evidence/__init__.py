"""One renderer for each kind of evidence: what reports show of it, beside the head that all findings have.

Other rooms import `values`.
"""

from __future__ import annotations

from typing import Any

from crashcheck.checker.results import Evidence
from crashcheck.reports.view.evidence import action_order, clean_reopen, crash_schedule
from crashcheck.reports.view.evidence.values import Renderer

_RENDERERS: dict[type[Evidence], Renderer[Any]] = {}


def register(*renderers: Renderer[Any]) -> None:
    """Make kinds of evidence known to all formats."""
    _RENDERERS.update({one.kind: one for one in renderers})


def renderer_of(evidence: Evidence) -> Renderer[Any]:
    """The renderer of a kind that is registered."""
    return _RENDERERS[type(evidence)]


def kind_named(name: str) -> type[Evidence] | None:
    """The kind of evidence that JSON names; None if this version has none of that name."""
    return next((one.kind for one in _RENDERERS.values() if one.name == name), None)


register(crash_schedule.CRASH, crash_schedule.RECOVERY, clean_reopen.RENDERER, action_order.RENDERER)
