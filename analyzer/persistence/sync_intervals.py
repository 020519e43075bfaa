"""Sync calls as intervals: what was recorded before the call began is what its return promises."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.persistence.pieces import PAGE_BYTES
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import SYNC_FAILED, Kind, SyncKind, WriteFlag, text_hash

# Sync kinds that order nothing (crash-model.md, page-cache rule 2).
_IDLE = (SyncKind.MSYNC_ASYNC, SyncKind.SYNC_RANGE)

# Events that name another one, with which something began, by its number.
ENDS = np.array([Kind.SYNC_END, Kind.WRITE_END], dtype=np.uint8)

# What open and ftruncate leave in a trace: calls after which Jiang et al. (C3, FSE 2016, 3.4) sync.
_AMPLIFIED = np.array([Kind.TRUNCATE, Kind.NAME_CREATE], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class SyncInterval:
    """A sync that returned. Event indices; `file` 0 means every file.

    `folder` is the hash of the folder that a CC_DIRSYNC names (see folder_hash), 0 if unknown.

    [low, high) is the byte range it covers, widened to whole pages because the kernel writes back whole
    pages (mm/filemap.c, filemap_fdatawrite_range); `high` is -1 for the whole file.
    """

    begin: int
    end: int
    kind: int
    file: int
    low: int
    high: int
    failed: bool
    folder: int = 0

    def covers(self, file: int, offset: int) -> bool:
        """Is the byte at `offset` of `file` in its range?"""
        if self.kind == SyncKind.DIRSYNC:
            return False
        return self.file in (0, file) and offset >= self.low and (self.high < 0 or offset < self.high)


def find_syncs(trace: Trace) -> list[SyncInterval]:
    """All syncs with both ends in the trace, by the event of their return; one without its begin orders nothing."""
    events = trace.events
    seqs = events["seq"]
    out = []
    for end in trace.rows(Kind.SYNC_END).tolist():
        event = events[end]
        kind = int(event["aux"])
        begin = int(np.searchsorted(seqs, event["payload"]))
        if kind in _IDLE or begin >= end or int(seqs[begin]) != int(event["payload"]):
            continue
        if int(events["kind"][begin]) != Kind.SYNC_BEGIN:
            continue
        file, offset, size = int(event["file"]), int(event["offset"]), int(event["size"])
        if file == 0 and kind not in (SyncKind.SYNC, SyncKind.DIRSYNC):
            continue
        whole = size == 0  # as of all calls that name no range
        folder = offset if kind == SyncKind.DIRSYNC else 0
        low = 0 if whole else offset // PAGE_BYTES * PAGE_BYTES
        high = -1 if whole else -(-(offset + size) // PAGE_BYTES) * PAGE_BYTES
        failed = bool(int(event["flags"]) & SYNC_FAILED)
        out.append(SyncInterval(begin, end, kind, file, low, high, failed, folder))
    return out


def write_ends(trace: Trace) -> dict[int, int]:
    """Of each write that was submitted, by its event: the event at which it had ended, or the trace's length.

    Only syncs that begin later cover it.
    """
    events = trace.events
    pending = (events["kind"] == Kind.WRITE) & (events["flags"] & WriteFlag.PENDING != 0)
    ends = dict.fromkeys(np.flatnonzero(pending).tolist(), len(events))
    for end in trace.rows(Kind.WRITE_END).tolist():
        write = int(np.searchsorted(events["seq"], events["payload"][end]))
        if write in ends and int(events["seq"][write]) == int(events["payload"][end]):
            ends[write] = end
    return ends


def syncs_of(trace: Trace, amplify: bool) -> list[SyncInterval]:
    """All syncs, and with `amplify` those that amplification adds, by their return."""
    syncs = find_syncs(trace)
    if not amplify:
        return syncs
    where = np.flatnonzero(np.isin(trace.events["kind"], _AMPLIFIED)) + 1
    added = (SyncInterval(at, at, SyncKind.SYNC, 0, 0, -1, False) for at in where[where < len(trace.events)].tolist())
    return sorted([*syncs, *added], key=lambda sync: sync.end)


def folder_hash(folder: str) -> int:
    """How a CC_DIRSYNC names a folder, by its path relative to the pool ("" is the pool itself)."""
    return text_hash(os.fsencode(folder))
