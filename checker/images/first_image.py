"""The first image of the watched files, read where it is needed and never as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.trace.reader import WatchedFile
from crashcheck.runtime.sparse import extents

Words = NDArray[np.uint64]
_WORD = 8
_AT_ONCE = 1 << 20


class FirstImage:
    """Files of the folder `first`; a file that is not there, or no folder, reads as zeros."""

    def __init__(self, first: Path | None, files: Mapping[int, WatchedFile], inodes: bool = False) -> None:
        """`inodes`: files are inodes: two new ones are equal if their contents are."""
        self._paths: dict[int, Path] = {}
        self._alike = np.array(sorted(n for n, file in files.items() if inodes and not file.existed), dtype=np.int64)
        for number, file in files.items():
            path = first / file.path if first is not None else None
            if file.existed and path is not None and path.is_file() and path.stat().st_size:
                self._paths[number] = path
        self._images: dict[int, tuple[Words, int]] = {}  # mapped: the whole words, and what is left of the last

    def identity(self, files: NDArray[np.int64]) -> Words:
        """Numbers for fingerprints: equal for files that begin with the same content, where names are apart."""
        if not len(self._alike):
            return files.astype(np.uint64)
        return np.where(np.isin(files, self._alike), 0, files).astype(np.uint64)

    def bytes(self, file: int, low: int, high: int) -> bytes:
        """The bytes of a range; beyond the end none."""
        path = self._paths.get(file)
        if path is None:
            return b""
        with path.open("rb") as stream:
            return os.pread(stream.fileno(), high - low, low)

    def words(self, file: int, words: NDArray[np.int64]) -> Words:
        """The 8-byte words at the given word numbers; beyond the end zeros."""
        out = np.zeros(len(words), dtype=np.uint64)
        if file not in self._paths or not len(words):
            return out
        image, tail = self._image(file)
        inside = words < len(image)
        out[inside] = image[words[inside]]
        if tail:
            out[words == len(image)] = tail
        return out

    def _image(self, file: int) -> tuple[Words, int]:
        if file not in self._images:
            image = np.asarray(np.memmap(self._paths[file], dtype=np.uint8, mode="r"))
            whole = len(image) // _WORD * _WORD
            self._images[file] = image[:whole].view(np.uint64), int.from_bytes(image[whole:].tobytes(), "little")
        return self._images[file]

    def data(self, file: int, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Byte ranges of [low, high) that may hold something other than zeros, at most 1 MiB each."""
        path = self._paths.get(file)
        if path is None:
            return
        with path.open("rb") as stream:
            handle = stream.fileno()
            high = min(high, os.fstat(handle).st_size)
            for start, stop in extents(handle, low, high):
                for at in range(start, stop, _AT_ONCE):
                    yield at, min(at + _AT_ONCE, stop)

    def nonzero_words(self, file: int, low: int) -> tuple[NDArray[np.int64], Words]:
        """(word numbers, values) of all non-zero words that end beyond byte `low`."""
        numbers, values = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint64)]
        for start, stop in self.data(file, low // _WORD * _WORD, 1 << 62):
            words = np.arange(start // _WORD, -(-stop // _WORD), dtype=np.int64)
            content = self.words(file, words)
            keep = content != 0
            numbers.append(words[keep])
            values.append(content[keep])
        return np.concatenate(numbers), np.concatenate(values)
