"""Reads a recorded trace and returns a `Trace`: the events of all threads in one order, with files, stacks and sites.

`dump` prints one as text; `completeness` compares what it replays to with the image that the workload left.

`calls` has the names that a program's system calls change, one value per event.

Other rooms import `accesses`, `completeness`, `dump` and `reader`.
"""

from crashcheck.analyzer.trace.reader import CallSite, Facts, Inode, Trace, WatchedFile, read

__all__ = ["CallSite", "Facts", "Inode", "Trace", "WatchedFile", "read"]
