"""Operations on parallel arrays: sort, number, count and spread their rows; distinct rows. A column is one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BITS = 63  # of a number that is not negative


def take_rows(rows: Ints, *columns: Ints) -> tuple[Ints, ...]:
    """These rows of each column."""
    return tuple(column[rows] for column in columns)


def ranges(first: Ints, many: Ints) -> Ints:
    """first[0], first[0] + 1, … (many[0] numbers), first[1], …"""
    ends = np.cumsum(many)
    out = np.repeat(first - ends + many, many)
    out += np.arange(len(out))
    return out


def among(column: NDArray[Any], values: Iterable[int]) -> Bools:
    """Which rows of a column hold one of some values."""
    return np.isin(column, np.array([*values], dtype=column.dtype))


def sort_rows(*columns: NDArray[Any]) -> tuple[Ints, NDArray[np.bool_]]:
    """The order that sorts the rows, and which sorted rows differ from the one before. Equal rows stay in order.

    Sorting numbers is many times as fast as finding the order that sorts them: columns become one number per row, with
    the row in its low bits.
    """
    bits = len(columns[0]).bit_length()
    key, width = _shifted(columns[0])
    for column in columns[1:]:
        key, width = _joined(key, width, *_shifted(column))
    if width + bits > _BITS:
        key, width = _places(key)
    key = key << bits
    key |= np.arange(len(key))
    key.sort()
    order = key & (1 << bits) - 1
    key >>= bits
    return order, fresh_rows(key)


def _span(column: NDArray[Any]) -> tuple[int, int]:
    """(smallest, bits of the difference to the largest) of a column."""
    if not len(column):
        return 0, 0
    low = int(column.min())
    return low, (int(column.max()) - low).bit_length()


def _shifted(column: NDArray[Any]) -> tuple[Ints, int]:
    """Numbers from 0 on that sort as the column does, and their bits."""
    low, width = _span(column)
    return _places(column) if width > _BITS else (_from(low, column), width)


def _from(low: int, column: NDArray[Any]) -> Ints:
    if column.dtype.kind != "u":
        column = column.astype(np.int64, copy=False)
    return (column - low if low else column).astype(np.int64, copy=False)


def _joined(key: Ints, width: int, column: Ints, bits: int) -> tuple[Ints, int]:
    """One number per row that sorts as the two do."""
    if width + bits > _BITS:
        key, width = _places(key)
    if width + bits > _BITS:
        column, bits = _places(column)
    return key << bits | column, width + bits


def _places(column: NDArray[Any]) -> tuple[Ints, int]:
    """For each value the number of distinct smaller ones; and the bits of that."""
    order = np.argsort(column)
    fresh = fresh_rows(column[order])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(fresh) - 1
    return place, len(order).bit_length()


def fresh_rows(first: NDArray[Any], *more: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows differ from the one before."""
    out = np.ones(len(first), dtype=np.bool_)
    np.not_equal(first[1:], first[:-1], out=out[1:])
    for column in more:
        out[1:] |= column[1:] != column[:-1]
    return out


def distinct_rows(*columns: Ints) -> tuple[Ints, ...]:
    """The distinct rows, sorted."""
    spans = [_span(column) for column in columns]
    if sum(bits for _, bits in spans) > _BITS:
        order, fresh = sort_rows(*columns)
        return take_rows(order[fresh], *columns)
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column, (low, bits) in zip(columns, spans, strict=True):
        key <<= bits
        key |= _from(low, column)
    key.sort()
    key = key[fresh_rows(key)]
    out = []
    for column, (low, bits) in zip(columns[::-1], spans[::-1], strict=True):
        out.append((key & (1 << bits) - 1).astype(column.dtype, copy=False) + column.dtype.type(low))
        key >>= bits
    return tuple(out[::-1])


def unique(values: Ints) -> Ints:
    """The distinct values, sorted; by sorting, which for millions of numbers takes a third of numpy's own hashing."""
    values = np.sort(values)
    return values[fresh_rows(values)]


def number_rows(*columns: NDArray[Any]) -> tuple[Ints, Ints]:
    """A number for each distinct row, in sorted order, and a row of each number."""
    order, fresh = sort_rows(*columns)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(fresh) - 1
    return number, order[fresh]


def occurrence_numbers(*columns: Ints) -> Ints:
    """How many rows before each one equal it."""
    if not len(columns[0]):
        return columns[0]
    order, fresh = sort_rows(*columns)
    place = np.arange(len(order))
    out = np.empty(len(order), dtype=np.int64)
    out[order] = place - np.maximum.accumulate(place * fresh)
    return out


def mix_hash(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: for hashes of rows, a column at a time."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def halving_order(many: int) -> Iterator[int]:
    """All numbers below `many`: 0, its half, its quarters, … (bits in reverse)."""
    bits = max(1, (many - 1).bit_length())
    for number in range(1 << bits):
        place = int(f"{number:0{bits}b}"[::-1], 2)
        if place < many:
            yield place
