"""What may have changed watched files without being recorded, so that a run without findings proves nothing.

Only of traces of system calls: there every change of a file is expected in the trace. Each reason comes with a way out.
"""

from __future__ import annotations

from collections.abc import Iterator

from crashcheck.analyzer.trace.calls import Allocate, allocations
from crashcheck.analyzer.trace.completeness import Completeness
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.results import NotFollowed
from crashcheck.runtime.trace_format import Kind, Recorder

MOVES_RANGE = "fallocate that collapses or inserts a range"
_UNACCOUNTED = "start what writes to the folder by the workload's command, and let nothing else write there meanwhile"
_OTHER = "let the program use a call that is followed (docs/limits.md)"
_WAYS = (  # by how the name of a call begins
    ("io_uring", 'without [record] io_uring = "allow" programs are refused io_uring, and most then use other calls'),
    ("32-bit", "build the program for x86-64"),
    ("x32", "build the program for x86-64"),
    ("a descriptor passed to", "let the workload's command start the process that gets the file"),
    ("mount", "mount in [setup], and watch a folder below the mount point"),
)


def not_followed(trace: Trace, completeness: Completeness) -> tuple[NotFollowed, ...]:
    """Why a run without findings would have no verdict, each reason once; empty if every change is in the trace."""
    if trace.recorder is not Recorder.SYSCALLS:
        return ()
    names = sorted(set(_calls(trace)))
    found = [NotFollowed(name, _way(name)) for name in names]
    found += [NotFollowed(f"a change of {path}", _UNACCOUNTED) for path in _unaccounted(completeness)]
    return tuple(found)


def _calls(trace: Trace) -> Iterator[str]:
    for index in trace.rows(Kind.UNMODELLED).tolist():
        yield trace.data(index).decode("utf-8", "replace")
    if any(one.mode & (Allocate.COLLAPSE_RANGE | Allocate.INSERT_RANGE) for one in allocations(trace)):
        yield MOVES_RANGE


def _way(name: str) -> str:
    return next((way for start, way in _WAYS if name.startswith(start)), _OTHER)


def _unaccounted(completeness: Completeness) -> Iterator[str]:
    for file in completeness.files:
        if file.unexplained or file.exists != file.replayed_exists or file.size != file.replayed_size:
            yield file.path
