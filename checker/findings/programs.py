"""Which program made a call, and why a call of a script has no line: one sentence for each interpreter."""

from __future__ import annotations

import os
import re

import numpy as np

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind

_REASONS = (
    (re.compile(r"^((da|z|k|mk|a|fi)?sh|busybox)$"), "{program} keeps no line that can be read; bash does"),
    (re.compile(r"^(deno|bunx?)(\.exe)?$"), "{program} keeps no line that can be read; node does"),
    (re.compile(r"^java$"), "no method of the program was on the stack of the call"),
    (
        re.compile(r"^(python|pypy|node|nodejs|perl|php|ruby|bash)[\d.-]*$"),
        "this build of {program} is none whose functions are known (docs/limits.md)",
    ),
)


def program_of(trace: Trace, event: int) -> str:
    """What the process of an event had executed by then, or the process that it was forked from; "" if not known."""
    events, pid = trace.events[:event], int(trace.events["pid"][event])
    while True:
        own = np.flatnonzero((events["kind"] == Kind.EXEC) & (events["pid"] == pid))
        if len(own):
            return os.path.basename(os.fsdecode(trace.data(int(own[-1]))))
        forks = np.flatnonzero((events["kind"] == Kind.FORK) & (events["payload"] == pid))
        if not len(forks):
            return ""
        events, pid = events[: int(forks[-1])], int(events["pid"][forks[-1]])


def no_line(trace: Trace, event: int) -> str:
    """Why a call of an interpreter has no line, "" for other programs."""
    program = program_of(trace, event)
    reason = next((reason for named, reason in _REASONS if named.search(program)), "")
    row = trace.events[event]
    known = map(trace.call_sites.get, (int(row["site"]), *trace.stack(int(row["stack"]))))
    if reason and any(site is not None and site.name for site in known):
        reason = "no function of the program was on the stack of the call"
    return f"no line is known: {reason.format(program=program)}" if reason else ""
