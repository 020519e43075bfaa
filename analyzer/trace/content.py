"""A digest of a trace: equal for two recordings of runs that did the same in the same order.

Unlike a token's digest it covers everything that is read of a trace: sites, call stacks, reads. What differs from run
to run without meaning anything does not count: process numbers, gaps in the order, where in the file bytes are.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.trace.accesses import Events
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import Kind

_ALIGNED = 8  # bytes: where payloads begin; between two of them are zeros
_COLUMNS = tuple(name for name in fmt.EVENT.names or () if name not in ("seq", "pid", "payload"))


def content_digest(trace: Trace) -> bytes:
    """16 bytes."""
    digest = hashlib.blake2b(digest_size=16)
    seq = trace.events["seq"]
    pids = _in_order(trace.events["pid"])
    for rows in (trace.events, trace.loads, trace.gaps):
        digest.update(repr((len(rows), _COLUMNS)).encode())
        digest.update(np.searchsorted(seq, rows["seq"]).astype(np.int64).tobytes())
        digest.update(_numbered(rows["pid"], pids).tobytes())
        for name in _COLUMNS:
            digest.update(np.ascontiguousarray(rows[name]).tobytes())
        digest.update(_payloads(rows, seq, pids).tobytes())
    carries = among(trace.events["kind"], fmt.PAYLOAD_KINDS)
    large = trace.events[carries & (trace.events["size"] > fmt.INLINE_BYTES)]
    for low, high in _pieces(large["payload"].astype(np.int64), large["size"].astype(np.int64)):
        digest.update(trace.raw[low:high].data)
    known = (trace.units, trace.files, trace.truncated, trace.recorder, trace.inodes, trace.call_sites)
    digest.update(repr((known, sorted(trace.stacks.items()))).encode("utf-8", "surrogateescape"))
    return digest.digest()


def _in_order(numbers: NDArray[np.generic]) -> NDArray[np.int64]:
    """The distinct ones, by their first place."""
    distinct, first = np.unique(numbers, return_index=True)
    in_order: NDArray[np.int64] = distinct[np.argsort(first)].astype(np.int64)
    return in_order


def _numbered(numbers: NDArray[np.generic], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each in `known`; -1 for one that is not there."""
    order = np.argsort(known)
    if not len(known):
        return np.full(len(numbers), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(known, numbers, sorter=order), len(known) - 1)
    return np.where(known[order[at]] == numbers, order[at], -1)


def _payloads(rows: Events, seq: NDArray[np.uint64], pids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """What payloads mean that are in their records: numbers of events and processes as their places."""
    kinds, payload = rows["kind"], rows["payload"].copy()
    ends = kinds == Kind.SYNC_END
    payload[ends] = np.searchsorted(seq, payload[ends])
    processes = among(kinds, (Kind.THREAD_START, Kind.FORK))
    payload[processes] = _numbered(payload[processes].astype(np.int64), pids).astype(np.uint64)
    carries = among(kinds, fmt.PAYLOAD_KINDS)
    payload[carries & (rows["size"] > fmt.INLINE_BYTES)] = 0
    return payload


def _pieces(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges [low, high) of the file that hold payloads, in order; neighbours as one."""
    if not len(starts):
        return []
    cuts = np.flatnonzero(starts[1:] != starts[:-1] + (sizes[:-1] + _ALIGNED - 1) // _ALIGNED * _ALIGNED) + 1
    firsts, lasts = np.concatenate(([0], cuts)), np.concatenate((cuts - 1, [len(starts) - 1]))
    return list(zip(starts[firsts].tolist(), (starts[lasts] + sizes[lasts]).tolist(), strict=True))
