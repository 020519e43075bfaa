"""What a recorded program in a script language writes, each with the stack of the script's functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crashcheck.analyzer.trace.reader import CallSite, Trace, read
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import Kind

Frame = tuple[str, str, int]  # file, function and line


def traced(folder: Path, *words: str) -> Trace:
    return read(record(Workload([*words], ["*"], timeout_s=60.0, recorder="syscalls"), folder / "run").trace)


def frames_of(trace: Trace, index: int) -> list[CallSite]:
    """Those of an event that have a name, innermost first."""
    event = trace.events[index]
    sites = [trace.call_sites[site] for site in (int(event["site"]), *trace.stack(int(event["stack"])))]
    return [site for site in sites if site.name]


def of_kind(trace: Trace, kind: Kind) -> Iterator[tuple[list[Frame], bytes]]:
    """Events of a kind: the frames and the bytes of each."""
    for index in trace.rows(kind).tolist():
        yield [(site.module, site.name, site.line) for site in frames_of(trace, index)], trace.data(index)
