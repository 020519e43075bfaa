"""Reads a recorded trace and returns a `Trace`: the events of all threads in one order, with files, stacks and sites.

`chunks` reads the file for `reader`. `dump` prints a trace as text; `completeness` compares what it replays to with the
image that the workload left, and `replay` does the same for a trace of system calls. `calls` has one value for each
event about a name; `functions` names the functions of call sites, and `native_lines` finds their lines; of programs in
Go `go_table` knows both. `content` compares what two recordings hold. `digests` reads what the files held while the run
was recorded.

Other rooms import `accesses`, `calls`, `completeness`, `content`, `digests`, `dump`, `functions`, `native_lines`,
`reader` and `replay`.
"""

from crashcheck.analyzer.trace.reader import CallSite, Facts, Inode, Trace, WatchedFile, read

__all__ = ["CallSite", "Facts", "Inode", "Trace", "WatchedFile", "read"]
