"""xfs by table 1 of Pillai et al., OSDI 2014 (ALICE), column xfs: an approximation, not compared with a kernel.

One log holds all names and sizes in order, as ext4's journal does. A size persists after the data that it shows, and
sizes of one file in order: the table has no failure of "single block append", "multi-block prefix append" and
"append -> append (same file)" (xfs_setfilesize, fs/xfs/xfs_aops.c, sets a size when the data are on the disk). Nor has
it one of "[append, rename] -> any op": a rename over a file needs the data of what it renames. Overwrites, and appends
before other operations, are not ordered: the table has failures of both.
"""

from __future__ import annotations

from crashcheck.analyzer.persistence.filesystem.ext4 import journaled
from crashcheck.analyzer.persistence.filesystem.ext4_strict import data_first
from crashcheck.analyzer.persistence.filesystem.updates import updates_of
from crashcheck.analyzer.persistence.graph import Options, PersistenceGraph
from crashcheck.analyzer.trace.reader import Trace


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The xfs persistence graph of a trace of system calls."""
    updates = updates_of(trace, options, replacing=True, by_block=True)
    return journaled("xfs", updates, options).with_order(data_first(updates, appended=True))
