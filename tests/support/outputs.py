"""What the world outside saw, as a trace has it."""

from __future__ import annotations

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind, OutputKind


def outputs(trace: Trace) -> list[tuple[OutputKind, bytes]]:
    """Each acknowledgement in order, with its first bytes (of OutputKind.NAME a path)."""
    return [(OutputKind(int(trace.events["aux"][row])), trace.data(row)) for row in trace.rows(Kind.OUTPUT).tolist()]
