"""Blocks: memory that a fill or a copy made ready, for updates of it that have no type.

They are a substitute for allocations: a persistent allocator is a function of the program's own, which the trace does
not know. It knows what was written as a whole before it was written in parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import occurrence_numbers, ranges, unique
from crashcheck.analyzer.behaviours.numbers import LEAST_BLOCK, MOST_BLOCK
from crashcheck.analyzer.behaviours.updates import AccessColumns
from crashcheck.analyzer.persistence.pieces import WORD_BYTES, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Parallel arrays, a row an update that belongs to a block: its block's first byte, size and generation."""

    update: Ints
    file: Ints
    start: Ints
    size: Ints
    generation: Ints


def find_blocks(updates: AccessColumns, untyped: NDArray[np.bool_], bulk: NDArray[np.bool_]) -> Blocks:
    """The blocks of the updates `untyped`, of which no word has a type. `bulk`: those whose own site has none.

    A bulk update begins one, unless it is inside a larger one. Any other untyped update belongs to the block of the
    latest bulk update before it that wrote its first and its last word, if the whole update is in that block. The
    same bytes filled again are a new generation. Blocks that no other untyped update writes are left out.
    """
    low, high = updates.offset, updates.offset + updates.size
    whole = np.flatnonzero(bulk & (updates.size >= LEAST_BLOCK) & (updates.size <= MOST_BLOCK))

    def word(rows: Ints, byte: Ints) -> Ints:
        return updates.file[rows] << 40 | byte[rows] // WORD_BYTES

    last = high - 1
    asked = np.flatnonzero((untyped | bulk) & (updates.size > 0))
    words = unique(np.concatenate([word(asked, low), word(asked, last)]))  # no others: a page has hundreds
    begins = np.searchsorted(words, word(whole, low))
    many = np.searchsorted(words, word(whole, last), side="right") - begins
    span = len(updates.event) + 1
    key = np.sort(np.append(ranges(begins, many) * span + np.repeat(whole, many), -1))

    def latest(rows: Ints, byte: Ints) -> Ints:
        """The latest bulk update before each of `rows`, all `asked`, that wrote a word; -1 for none."""
        place = np.searchsorted(words, word(rows, byte))
        found = key[np.searchsorted(key, place * span + rows) - 1]
        return np.where(found // span == place, found % span, -1)

    block = np.full(len(updates.event), -1, dtype=np.int64)
    for one, begin, end in zip(whole.tolist(), latest(whole, low).tolist(), latest(whole, last).tolist(), strict=True):
        around = int(block[begin]) if begin >= 0 and end >= 0 and block[begin] == block[end] else -1
        within = around >= 0 and low[around] <= low[one] and high[one] <= high[around]
        block[one] = around if within and updates.size[one] < updates.size[around] else one
    rest = np.flatnonzero(untyped & (block < 0) & (updates.size > 0))
    begin, end = latest(rest, low), latest(rest, last)
    found = (begin >= 0) & (end >= 0)
    rest, begin, end = rest[found], block[begin[found]], block[end[found]]
    fits = (begin == end) & (low[begin] <= low[rest]) & (high[rest] <= high[begin])
    block[rest[fits]] = begin[fits]

    member = np.flatnonzero(block >= 0)
    used = np.zeros(len(block), dtype=np.bool_)
    used[block[member[member != block[member]]]] = True
    member = member[used[block[member]]]
    own = block[member]
    generation = np.zeros(len(block), dtype=np.int64)
    heads = whole[block[whole] == whole]
    generation[heads] = occurrence_numbers(updates.file[heads], low[heads], updates.size[heads])
    return Blocks(member, updates.file[own], low[own], updates.size[own], generation[own])
