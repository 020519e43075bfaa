"""Digests of what the watched files held at events of the run, which the recorder took: recorder/digests.c.

1. Just before the event of a digest's number the files held what it is of, and no event of that or a higher number had
   begun. Threads may still have been about to execute earlier ones.
2. So replayed files of an equal digest are what the program left, had it been killed there. One that differs proves
   nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.runtime.patterns import watched_files
from crashcheck.runtime.sparse import CHUNK_BYTES, extents
from crashcheck.runtime.trace_format import text_hash

_RECORD_BYTES = 16  # struct digest
_WORD, _INDEX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of one recording, by the number (`seq`) of the event that each was taken just before."""

    patterns: Sequence[str] = ()  # of the watched files
    taken: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, trace: Path, patterns: Sequence[str]) -> Digests:
        """Those beside a trace; none if none were taken."""
        path = Path(f"{trace}.digests")
        if not path.is_file():
            return cls(patterns)
        held = path.read_bytes()
        records = np.frombuffer(held, dtype="<u8", count=len(held) // _RECORD_BYTES * 2).reshape(-1, 2)
        return cls(patterns, dict(records.tolist()))

    def hold(self, seq: int, image: Path) -> bool:
        """Whether the watched files of a folder are what the program's were just before an event."""
        return seq in self.taken and self.taken[seq] == digest_of(image, self.patterns)


def digest_of(folder: Path, patterns: Sequence[str]) -> int:
    """The recorder's digest of the watched files in a folder."""
    return sum(_of_file(folder / path, path) for path in watched_files(folder, patterns)) % 2**64


def _of_file(path: Path, name: str) -> int:
    seed = np.uint64(text_hash(os.fsencode(name)))
    out = 0
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for low, high in extents(file.fileno(), 0, size):
            at = low & ~7
            while at < high:
                words = _words(os.pread(file.fileno(), min(CHUNK_BYTES, high - at), at))
                some = np.flatnonzero(words)
                out += int(_mixed(words[some], some.astype(np.uint64) + np.uint64(at // 8 + 1), seed).sum())
                at += CHUNK_BYTES
    return out + int(_mixed(np.array([size], dtype=np.uint64), np.zeros(1, dtype=np.uint64), seed)[0])


def _words(data: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(data + bytes(-len(data) % 8), dtype=np.uint64)


def _mixed(word: NDArray[np.uint64], index: NDArray[np.uint64], seed: np.uint64) -> NDArray[np.uint64]:
    shift = np.uint64(32)
    mixed = word * _WORD + index * _INDEX + seed
    mixed = (mixed ^ mixed >> shift) * _FIRST
    mixed = (mixed ^ mixed >> np.uint64(29)) * _SECOND
    return mixed ^ mixed >> shift
