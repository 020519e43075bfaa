"""All parts, in the order of the page."""

from __future__ import annotations

from typing import Any

from bench.papers.parts import Part, calls, coverage, executions, invariants, left_out, partial_orders, pmreorder

PARTS: tuple[Part[Any], ...] = (
    left_out.PART,
    invariants.PART,
    coverage.PART,
    executions.PART,
    pmreorder.PART,
    calls.PART,
    partial_orders.PART,
)
