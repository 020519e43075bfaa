"""Finds checks that ask what was acknowledged before the crash, if the workload acknowledges nothing in time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.subject import UPDATES
from crashcheck.command import Command
from crashcheck.runtime.trace_format import Kind

PRINTED_NOTHING = (
    "the workload printed nothing. What goes to /dev/null or to a file in the watched folder does not count as printed"
)


def never_acknowledged(check: Command, trace: Trace, stdout: Path | None) -> tuple[str, ...]:
    """A remark for {acked} without marks, and one for {stdout} that is empty, or written only at the end.

    In these cases a check that is otherwise right accepts states in which finished operations are lost. `stdout`: all
    that the workload printed.
    """
    asked = () if check.folders_at else check.placeholders()  # it is given both, whether it reads them or not
    remarks = []
    if "acked" in asked and not (trace.events["kind"] == Kind.MARK_END).any():
        remarks.append(
            "the check asks for {acked}, but the workload marked the end of no operation: it is 0 in every crash "
            "state, and a state that lost finished operations passes. Mark operations (crashcheck.h, [workload] "
            "operations), or let the workload print each one that is done, and the check read {stdout}"
        )
    printed = stdout.read_bytes() if "stdout" in asked and stdout is not None else None
    if printed == b"":
        remarks.append("the check reads {stdout}, which is empty in every crash state: " + PRINTED_NOTHING)
    lines = printed.count(b"\n") if printed else 0
    if lines > 1 and not _printed_early(trace):
        remarks.append(
            f"the check reads {{stdout}}, but the workload wrote its {lines} lines after its last update: they are in "
            "no earlier crash state. Flush standard output after each line"
        )
    return tuple(remarks)


def _printed_early(trace: Trace) -> bool:
    """Whether anything was written to standard output before the last update."""
    events = trace.events
    printed = np.flatnonzero((events["kind"] == Kind.OUTPUT) & (events["offset"] > 0))
    updates = trace.rows(*UPDATES)
    return not len(updates) or bool(len(printed) and printed[0] < updates[-1])
