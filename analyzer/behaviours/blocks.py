"""Blocks: memory that a fill or a copy made ready, for updates of it that have no type.

They stand for allocations: a persistent allocator is a function of the program's own, which the trace does not know. It
knows what was written as a whole before it was written in parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.behaviours.updates import Updates, numbered, ranges
from crashcheck.analyzer.persistence.pieces import WORD_BYTES, Ints

LEAST_BYTES = 2 * WORD_BYTES
MOST_BYTES = 4096  # what is larger is an area in which objects lie


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Parallel arrays, a row an update that belongs to a block: the block's first byte and size, and its life."""

    update: Ints
    file: Ints
    start: Ints
    size: Ints
    life: Ints


def blocks(updates: Updates, untyped: NDArray[np.bool_], bulk: NDArray[np.bool_]) -> Blocks:
    """The blocks of the updates `untyped`, of which no word has a type. `bulk`: those whose own site has none.

    A bulk update begins one, unless it lies within a larger one. Any other untyped update belongs to the block of the
    latest bulk update before it that wrote its first and its last word, if it lies in that block as a whole. The
    same bytes filled anew are a new life. Blocks that no other untyped update writes are left out.
    """
    low, high = updates.offset, updates.offset + updates.size
    whole = np.flatnonzero(bulk & (updates.size >= LEAST_BYTES) & (updates.size <= MOST_BYTES))
    first = low[whole] // WORD_BYTES
    many = (high[whole] - 1) // WORD_BYTES - first + 1
    word = np.repeat(updates.file[whole], many) << 40 | ranges(first, many)
    owner = np.repeat(whole, many)
    order = np.lexsort((owner, word))
    words, at = np.unique(word[order], return_inverse=True)
    span = len(updates.event) + 1
    owner = owner[order]
    key = at.reshape(-1) * span + owner

    def latest(rows: Ints, byte: Ints) -> Ints:
        """The latest bulk update before each of `rows` that wrote a word; -1 for none."""
        wanted = updates.file[rows] << 40 | byte // WORD_BYTES
        place = np.minimum(np.searchsorted(words, wanted), max(len(words) - 1, 0))
        known = words[place] == wanted if len(words) else np.zeros(len(rows), dtype=np.bool_)
        before = np.searchsorted(key, place * span + rows) - 1
        known &= before >= 0
        known[known] = key[before[known]] // span == place[known]
        out = np.full(len(rows), -1, dtype=np.int64)
        out[known] = owner[before[known]]
        return out

    block = np.full(len(updates.event), -1, dtype=np.int64)
    for one, begin, end in zip(
        whole.tolist(), latest(whole, low[whole]).tolist(), latest(whole, high[whole] - 1).tolist(), strict=True
    ):
        around = int(block[begin]) if begin >= 0 and end >= 0 and block[begin] == block[end] else -1
        within = around >= 0 and low[around] <= low[one] and high[one] <= high[around]
        block[one] = around if within and updates.size[one] < updates.size[around] else one
    rest = np.flatnonzero(untyped & (block < 0) & (updates.size > 0))
    begin, end = latest(rest, low[rest]), latest(rest, high[rest] - 1)
    found = (begin >= 0) & (end >= 0)
    rest, begin, end = rest[found], block[begin[found]], block[end[found]]
    fits = (begin == end) & (low[begin] <= low[rest]) & (high[rest] <= high[begin])
    block[rest[fits]] = begin[fits]

    member = np.flatnonzero(block >= 0)
    used = np.zeros(len(block), dtype=np.bool_)
    used[block[member[member != block[member]]]] = True
    member = member[used[block[member]]]
    own = block[member]
    return Blocks(
        member, updates.file[own], low[own], updates.size[own], _lives(updates, whole[block[whole] == whole])[own]
    )


def _lives(updates: Updates, begins: Ints) -> Ints:
    """By update that begins a block: how many began one of the same bytes before it."""
    out = np.zeros(len(updates.event), dtype=np.int64)
    if len(begins):
        extent, _ = numbered(updates.file[begins], updates.offset[begins], updates.size[begins])
        order = np.argsort(extent, kind="stable")
        fresh = np.concatenate([[True], extent[order][1:] != extent[order][:-1]])
        heads = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
        out[begins[order]] = np.arange(len(order)) - heads
    return out


__all__ = ["Blocks", "blocks"]
