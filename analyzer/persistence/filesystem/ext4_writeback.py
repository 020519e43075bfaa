"""ext4 with data=writeback: as ext4, and a new block may hold what the disk held there before (rule 8).

Sources: Documentation/admin-guide/ext4.rst of Linux ("a crash+recovery can cause incorrect data to appear in files
which were written shortly before the crash"); Pillai et al., OSDI 2014, table 1, column ext4-writeback. Not seen on
kernels 6.1, 6.12 and 6.18: there dioread_nolock, a default, keeps such bytes away.
"""

from __future__ import annotations

from crashcheck.analyzer.persistence.filesystem.ext4 import journaled
from crashcheck.analyzer.persistence.filesystem.updates import updates_of
from crashcheck.analyzer.persistence.filesystem.written_blocks import at_once
from crashcheck.analyzer.persistence.graph import Options, PersistenceGraph
from crashcheck.analyzer.trace.reader import Trace


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The ext4-writeback persistence graph of a trace of system calls."""
    updates, _ = at_once(updates_of(trace, options, replacing=True, stale=True))
    return journaled("ext4-writeback", updates, options)
