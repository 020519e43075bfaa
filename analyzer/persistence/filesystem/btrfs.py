"""btrfs by table 1 of Pillai et al., OSDI 2014 (ALICE), column btrfs: an approximation, not compared with a kernel.

Transactions hold names and sizes in order, but an fsync logs a file alone: the table has a failure of "dir op -> any
op". What an fsync covers persists with it, and what was before it need not: the names of the file or the directory's
entries, and what they need themselves (earlier changes of the same names, directories that are new). A size persists
after the data that it shows, sizes of one file in order, and a block is old or new: blocks are never overwritten, and
the table has no failure of "single block overwrite" and of appends up to a prefix.

Not as in the table, but as Linux is: data need not be in the transaction of a later change of names (noflushoncommit,
the default since commit dccae9999508), nor precede a rename (commit "btrfs: disable strict file flushes for renames and
truncates", 3.17; the table is of kernels before it).

Approximations: before its fsync returns, what it covers may persist without what was before it, also where the call
has not begun; a full commit, which some kernels make instead (last_unlink_trans, fs/btrfs/tree-log.c), is not assumed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.filesystem.ext4_strict import data_first
from crashcheck.analyzer.persistence.filesystem.updates import Updates, updates_of
from crashcheck.analyzer.persistence.graph import NEVER, Options, PersistenceGraph, assemble
from crashcheck.analyzer.persistence.names import Slot
from crashcheck.analyzer.persistence.pieces import DATA, IN_ORDER, LOOSE, LOOSE_AFTER, NAME, Ints
from crashcheck.analyzer.trace.reader import Trace


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The btrfs persistence graph of a trace of system calls."""
    options = replace(options, tear=0)
    updates = updates_of(trace, options, by_block=True)
    pieces, log = updates.pieces, _Log(updates)
    log.run()
    data = pieces.kind == DATA
    graph = assemble(
        trace,
        "btrfs",
        options,
        pieces,
        np.where(data, updates.granule, 0),
        np.where(data, updates.durable_from, log.durable_from),
        log.mode,
        updates.granule_bytes,
        updates.fresh,
        updates.names,
    )
    return graph.with_order([*data_first(updates, appended=True), *log.order()])


@dataclass(slots=True)
class _Log:
    """Which changes of names and sizes an fsync logs out of order, and what they need."""

    updates: Updates
    durable_from: Ints = field(init=False)
    mode: NDArray[np.uint8] = field(init=False)
    rows: list[int] = field(init=False)  # names and sizes
    needs: dict[int, tuple[int, ...]] = field(default_factory=dict)  # of each: earlier ones of its names and files
    of_inode: dict[int, list[int]] = field(default_factory=dict)
    of_folder: dict[int, list[int]] = field(default_factory=dict)  # with an entry in it
    logged: dict[int, int] = field(default_factory=dict)  # where the fsync begins that logs it

    def __post_init__(self) -> None:
        pieces = self.updates.pieces
        self.durable_from = np.full(len(pieces), NEVER, dtype=np.int64)
        self.mode = np.full(len(pieces), IN_ORDER, dtype=np.uint8)
        self.mode[self.updates.grows] = LOOSE_AFTER
        self.rows = np.flatnonzero(pieces.kind != DATA).tolist()
        last_of_slot: dict[Slot, int] = {}
        last_set: dict[int, int] = {}  # of each inode: the last name, or size that a call set
        for row in self.rows:
            entries = self._entries(row)
            inodes = {int(pieces.file[row]), *(inode for _, inode in entries if inode)}
            named = [last_of_slot[slot] for slot, _ in entries if slot in last_of_slot]
            named += [last_set[of] for of in (*inodes, *(folder for (folder, _), _ in entries)) if of in last_set]
            self.needs[row] = tuple(dict.fromkeys(named))
            for of in sorted(inodes):
                self.of_inode.setdefault(of, []).append(row)
                if not self.updates.grows[row]:
                    last_set[of] = row
            for slot, _ in entries:
                last_of_slot[slot] = row
                self.of_folder.setdefault(slot[0], []).append(row)

    def _entries(self, row: int) -> tuple[tuple[Slot, int], ...]:
        pieces = self.updates.pieces
        if pieces.kind[row] != NAME:
            return ()
        return self.updates.names.changes[int(pieces.offset[row])].entries

    def run(self) -> None:
        """Find what each sync makes durable, in order of their returns: what one covers, no later one needs to."""
        event = self.updates.pieces.event
        done: dict[tuple[int, int], int] = {}  # of each list, how many rows earlier syncs covered
        for sync in self.updates.syncs:
            if sync.failed:
                continue
            before = int(np.searchsorted(event, sync.begin))
            lists = [self.of_inode.get(sync.file, []), self.of_folder.get(sync.file, [])] if sync.file else [self.rows]
            covered = []
            for which, rows in enumerate(lists):
                upto = bisect_left(rows, before)
                covered += rows[done.get((sync.file, which), 0) : upto]
                done[sync.file, which] = max(upto, done.get((sync.file, which), 0))
            while covered:
                row = covered.pop()
                if self.durable_from[row] <= sync.end + 1:
                    continue
                if sync.file:
                    self.logged.setdefault(row, sync.begin)
                    self.mode[row] = LOOSE
                    covered += self.needs[row]
                self.durable_from[row] = sync.end + 1

    def _durable_by(self, bound: int, now: int, alive: list[int], latest: list[int]) -> Iterator[int]:
        """What becomes durable after event `now` and until `bound`, the latest first.

        What an earlier fsync logs needs what was durable before that fsync by itself.
        """
        for at in range(len(alive) - 1, -1, -1):
            if latest[at] <= now:
                return
            before, when = alive[at], int(self.durable_from[alive[at]])
            if now < when <= bound:
                yield before
                now = max(now, self.logged.get(before, 0))

    def order(self) -> Iterator[tuple[int, int]]:
        """(before, after) across what is logged and the rest."""
        durable_from, event = self.durable_from, self.updates.pieces.event
        alone: list[int] = []  # logged, since the last change that keeps the order
        alive: list[int] = []  # that some sync makes durable
        latest: list[int] = []  # of those up to each, when the last one is
        together: dict[int, int] = {}  # of each fsync, the last one that it logs
        for row in self.rows:
            now = int(event[row])
            if row in self.logged:
                yield from ((before, row) for before in self.needs[row] if durable_from[before] > now)
                bound = self.logged[row]
                if bound in together:
                    yield together[bound], row
                yield from ((before, row) for before in self._durable_by(bound, now, alive, latest))
                if not self.updates.grows[row]:
                    alone.append(row)
                    together[bound] = row
            else:
                alone = [before for before in alone if durable_from[before] > now]
                yield from ((before, row) for before in alone)
                if self.mode[row] == IN_ORDER:
                    alone = []
            if durable_from[row] < NEVER:
                alive.append(row)
                latest.append(max(int(durable_from[row]), latest[-1] if latest else 0))
