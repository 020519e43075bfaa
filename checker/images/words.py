"""What each update makes of the 8-byte words that it writes, and what that adds to a fingerprint of the file.

A word's history is folded once for all crash states: updates of one word persist in trace order, in every model, so
what the word is after an update does not depend on the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import mix_hash, ranges
from crashcheck.analyzer.persistence.graph import STALE_BYTE, PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, WORD_BYTES, Ints
from crashcheck.checker.images.first_image import FirstImage
from crashcheck.runtime.trace_format import INLINE_BYTES, Kind

Words = NDArray[np.uint64]
MASK = (1 << 64) - 1
_KEYS = ((0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F), (0xD6E8FEB86659FD93, 0xA0761D6478BD642F))
_FILE = 0xFF51AFD7ED558CCD  # odd: files are apart in all 64 bits
_BATCH = 1 << 18  # words hashed at once


def term(lane: int, file: Words, word: Words, value: Words) -> Words:
    """One lane of the keyed hash of a word's place and value (rounds of splitmix64)."""
    key, other = _KEYS[lane]
    place = mix_hash(file * np.uint64(_FILE) + word + np.uint64(key))
    return mix_hash(place + mix_hash((value ^ np.uint64(other)) + place * np.uint64(key | 1)))


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """One row a (data piece, word), by piece: what the word is after the piece and before it, and what it adds."""

    start: Ints  # rows of piece p: start[p] .. start[p + 1]
    word: Ints
    value: Words
    before: Words  # what the word is before the piece
    lanes: tuple[Words, Words]


def entries_of(graph: PersistenceGraph, first: FirstImage) -> Entries:
    """Every word of every data piece, with its history folded in."""
    low = graph.offset // WORD_BYTES
    many = np.where(graph.kind == DATA, (graph.offset + graph.size - 1) // WORD_BYTES - low + 1, 0)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(many)])
    word = np.empty(start[-1], dtype=np.int64)
    value, before, *lanes = (np.empty(start[-1], dtype=np.uint64) for _ in range(4))
    out = Entries(start, word, value, before, (lanes[0], lanes[1]))
    for pieces in _apart(graph.file, low, many):
        rows, piece = ranges(start[pieces], many[pieces]), np.repeat(pieces, many[pieces])
        word[rows] = low[piece] + rows - start[piece]
        _fold_histories(out, graph, first, rows, piece)
    return out


def _apart(file: Ints, low: Ints, many: Ints) -> Iterator[Ints]:
    """The data pieces in batches without a word in common, so that only one needs memory at a time."""
    ids = np.flatnonzero(many)
    ids = ids[np.lexsort((low[ids], file[ids]))]
    if not len(ids):
        return
    base = np.cumsum(np.diff(file[ids], prepend=file[ids[0]]) != 0) << 50  # beyond any word of the file before
    begins, ends = base + low[ids], base + low[ids] + many[ids]
    shared = np.concatenate([[False], begins[1:] < np.maximum.accumulate(ends)[:-1]])
    rows = np.cumsum(many[ids]) - many[ids]
    batch = rows[np.maximum.accumulate(np.where(shared, 0, np.arange(len(ids))))] // _BATCH
    for some in np.split(ids, np.flatnonzero(np.diff(batch)) + 1):
        yield np.sort(some)


def _fold_histories(out: Entries, graph: PersistenceGraph, first: FirstImage, rows: Ints, piece: Ints) -> None:
    """Fill some rows in; all rows of their words are among them, in program order."""
    file, word = graph.file[piece], out.word[rows]
    data, mask = np.empty(len(rows), dtype=np.uint64), np.empty(len(rows), dtype=np.uint64)
    for low in range(0, len(rows), _BATCH):
        some = slice(low, low + _BATCH)
        data[some], mask[some] = _words_of(graph, piece[some], word[some])
    order = np.lexsort((word, file))  # stable
    at = np.arange(len(order))
    rows, file, word = rows[order], file[order], word[order]
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (np.diff(word) != 0) | (np.diff(file) != 0)
    group = np.maximum.accumulate(np.where(opens, at, 0))  # row of the word's first update
    original = _first_words(first, file, word, opens)[group]
    value = _fold(data[order], mask[order], group, original)
    for lane in (0, 1):
        hashed = term(lane, first.identity(file), word.astype(np.uint64), value)
        hashed[value == original] = 0
        before = np.zeros(len(order), dtype=np.uint64)
        before[1:] = hashed[:-1]
        before[opens] = 0
        out.lanes[lane][rows] = hashed - before
    out.value[rows] = value
    previous = original.copy()
    previous[1:][~opens[1:]] = value[:-1][~opens[1:]]
    out.before[rows] = previous


def _fold(data: Words, mask: Words, group: Ints, original: Words) -> Words:
    """The word after each update: each byte from the latest update of its group that wrote it."""
    out = np.zeros(len(data), dtype=np.uint64)
    at = np.arange(len(data))
    for lane in range(WORD_BYTES):
        byte = np.uint64(0xFF << (8 * lane))
        latest = np.maximum.accumulate(np.where((mask & byte) != 0, at, -1))
        out |= np.where(latest >= group, data[latest], original) & byte
    return out


def _first_words(first: FirstImage, file: Ints, word: Ints, opens: NDArray[np.bool_]) -> Words:
    out = np.zeros(len(file), dtype=np.uint64)
    for number in np.unique(file).tolist():
        rows = np.flatnonzero(opens & (file == number))
        out[rows] = first.words(number, word[rows])
    return out


def _words_of(graph: PersistenceGraph, piece: Ints, word: Ints) -> tuple[Words, Words]:
    """(bytes in place, mask of the bytes written) for the given words of the given pieces."""
    source = graph.source[piece]
    data, mask = _carried_in(graph, piece, word, source)
    if graph.continued:
        several = np.flatnonzero(np.isin(source, list(graph.continued)))
        for at in several.tolist():
            for event in graph.continued[int(source[at])]:
                one = slice(at, at + 1)
                more, where = _carried_in(graph, piece[one], word[one], np.array([event]))
                data[one] = data[one] & ~where | more
                mask[one] |= where
    fresh = graph.fresh[piece]
    mask[fresh] = _in_piece(graph, piece[fresh], word[fresh])
    stale = graph.stale[piece]
    data[stale] = mask[stale] & np.uint64(STALE_BYTE * 0x0101010101010101)
    return data, mask


def _in_piece(graph: PersistenceGraph, piece: Ints, word: Ints) -> Words:
    """Masks of the bytes of words that are in the range of pieces."""
    base = word * WORD_BYTES
    return _ones(graph.offset[piece] + graph.size[piece] - base) & ~_ones(graph.offset[piece] - base)


def _carried_in(graph: PersistenceGraph, piece: Ints, word: Ints, rows: Ints) -> tuple[Words, Words]:
    """What these events write of those words of those pieces: (bytes in place, their mask)."""
    events = graph.trace.events
    base = word * WORD_BYTES
    low = np.maximum(base, graph.offset[piece])
    high = np.minimum(base + WORD_BYTES, graph.offset[piece] + graph.size[piece])
    kind = events["kind"][rows]
    carries = (kind == Kind.STORE) | (kind == Kind.WRITE) | (kind == Kind.CONTENT)
    begin = events["offset"][rows].astype(np.int64)
    size = np.where(carries, events["size"][rows].astype(np.int64), 0)
    a, b = np.maximum(low, begin), np.minimum(high, begin + size)
    written = _ones(b - base) & ~_ones(a - base)  # none where b <= a
    inline = size <= INLINE_BYTES
    payload = events["payload"][rows]
    # bytes of the payload from file offset `base` on, whichever side of it the event begins
    shift = (np.clip(begin - base, -7, 7) * 8).astype(np.int64)
    right = np.where(shift < 0, -shift, 0).astype(np.uint64)
    left = np.where(shift > 0, shift, 0).astype(np.uint64)
    data = (payload >> right) << left
    far = np.flatnonzero(~inline & (b > a))
    if len(far):
        source = payload[far].astype(np.int64) + a[far] - begin[far]
        index = source[:, None] + np.arange(WORD_BYTES)
        index = np.minimum(index, len(graph.trace.raw) - 1)
        gathered = np.ascontiguousarray(graph.trace.raw[index]).view(np.uint64).reshape(-1)
        data[far] = gathered << ((a[far] - base[far]) * 8).astype(np.uint64)
    return data & written, written


def _ones(many: Ints) -> Words:
    """Masks of the lowest `many` bytes (0 to 8)."""
    many = np.clip(many, 0, WORD_BYTES).astype(np.uint64)
    shift = np.where(many == 0, np.uint64(0), (np.uint64(8) - many) * np.uint64(8))
    return np.where(many == 0, np.uint64(0), np.uint64(MASK) >> shift)
