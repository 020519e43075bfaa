"""Which files of a crash state may differ from what the program last saw, or from each version that they had.

All others are whole, and are not read: a state costs what is open at its crash point, not what the folder holds.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import NAME, Ints
from crashcheck.checker.oracles.versions import Versions


class OpenFiles:
    """Files by crash event. *Pending* is one with updates that may be lost; *open*, too, is one that was changed since
    it had a version with a name.
    """

    def __init__(self, graph: PersistenceGraph, versions: Versions) -> None:
        pieces: Ints = np.flatnonzero(graph.kind != NAME)
        self._pending = _Stretches(graph.file[pieces], graph.event[pieces], graph.durable_from[pieces])
        stretches = [(inode, *versions.named_after(inode)) for inode in versions.changes]
        files = [np.full(len(begin), inode, dtype=np.int64) for inode, begin, _ in stretches]
        none = np.zeros(0, dtype=np.int64)
        self._changed = _Stretches(
            np.concatenate([none, *files]),
            np.concatenate([none, *(begin for _, begin, _ in stretches)]),
            np.concatenate([none, *(end for _, _, end in stretches)]),
        )
        self.pending = lru_cache(maxsize=2)(self._pending.at)  # states of one crash point follow one another
        self._changed_at = lru_cache(maxsize=2)(self._changed.at)

    def at(self, crash: int) -> frozenset[int]:
        """The open files at a crash."""
        return self.pending(crash) | self._changed_at(crash)


class _Stretches:
    """Files, each with events after which it is in and until which."""

    def __init__(self, file: Ints, begin: Ints, end: Ints) -> None:
        order = np.argsort(begin, kind="stable")
        self._file, self._begin, self._end = file[order], begin[order], end[order]

    def at(self, crash: int) -> frozenset[int]:
        until = int(self._begin.searchsorted(crash))
        inside: NDArray[np.bool_] = self._end[:until] > crash
        return frozenset(np.unique(self._file[:until][inside]).tolist())
