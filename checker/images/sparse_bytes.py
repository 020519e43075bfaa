"""The bytes of one file of a crash image without its holes: in the memory of what was written, whatever its size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from crashcheck.checker.images.piecewise import FilePatch

_BLOCK = 4096
_ZEROS = bytes(_BLOCK)
_NOTHING = np.zeros(_BLOCK, dtype=np.uint8)


class SparseBytes:
    """A file's bytes in blocks; what no block holds, up to its size, is zeros."""

    def __init__(self, patches: Iterable[FilePatch] = ()) -> None:
        """What patches make of an empty file, one after the other."""
        self.size = 0
        self._blocks: dict[int, bytearray] = {}
        for patch in patches:
            self._resize(patch.size)
            for low, written in patch.writes:
                self._write(low, written)

    def _resize(self, size: int) -> None:
        if size < self.size:
            last, within = divmod(size, _BLOCK)
            for number in [number for number in self._blocks if number > last or (number == last and not within)]:
                del self._blocks[number]
            if last in self._blocks:
                self._blocks[last][within:] = bytes(_BLOCK - within)
        self.size = size

    def _write(self, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            number, within = divmod(offset + at, _BLOCK)
            many = min(_BLOCK - within, len(data) - at)
            block = self._blocks.get(number)
            if block is None:
                block = self._blocks[number] = bytearray(_BLOCK)
            block[within : within + many] = data[at : at + many]
            at += many

    def _data(self) -> Iterator[tuple[int, bytearray]]:
        """The blocks that hold something, by their numbers."""
        return ((number, self._blocks[number]) for number in sorted(self._blocks) if self._blocks[number] != _ZEROS)

    def read(self, low: int, high: int) -> bytes:
        """A range of it, as far as it goes."""
        high, out = min(high, self.size), bytearray()
        while low < high:
            number, within = divmod(low, _BLOCK)
            many = min(_BLOCK - within, high - low)
            out += self._blocks.get(number, _ZEROS)[within : within + many]
            low += many
        return bytes(out)

    def pieces(self, length: int) -> Iterator[tuple[int, bytes]]:
        """Its pieces of one length, the last one overlapping, that are not zeros alone, with their offsets."""
        last = 0
        for number, _ in self._data():
            start = max(last, number * _BLOCK // length * length)
            stop = min((number + 1) * _BLOCK, self.size)
            for at in range(start, stop, length):
                low = min(at, self.size - length)
                piece = self.read(low, low + length)
                if piece.strip(b"\0"):
                    yield low, piece
                last = at + length

    def runs(self, margin: int) -> Iterator[bytes]:
        """Its data, each stretch of blocks with so many of the zeros on both sides."""
        low = high = -1
        for number, _ in self._data():
            if number * _BLOCK - high > 2 * margin or high < 0:
                if high >= 0:
                    yield self.read(low, high + margin)
                low = max(number * _BLOCK - margin, 0)
            high = (number + 1) * _BLOCK
        if high >= 0:
            yield self.read(low, high + margin)

    def digest(self) -> bytes:
        """16 bytes; equal for equal sizes and bytes."""
        digest = hashlib.blake2b(b"%d" % self.size, digest_size=16)
        for number, block in self._data():
            digest.update(b" %d " % number)
            digest.update(block)
        return digest.digest()

    def counts(self) -> NDArray[np.int64]:
        """(256,): how often each byte value occurs."""
        out = np.zeros(256, dtype=np.int64)
        for block in self._blocks.values():
            out += np.bincount(np.frombuffer(block, dtype=np.uint8), minlength=256)
        out[0] = self.size - int(out[1:].sum())
        return out

    def lacks(self, wanted: SparseBytes) -> bool:
        """Whether a byte of `wanted` is not at its place here. Zeros are no data: a cleared range lacks nothing."""
        for number, block in wanted._data():
            there = np.frombuffer(block, dtype=np.uint8)
            mine = self._blocks.get(number)
            here = _NOTHING if mine is None else np.frombuffer(mine, dtype=np.uint8)
            if bool(((here != there) & (there != 0)).any()):
                return True
        return False
