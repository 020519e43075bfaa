"""Sorting rows by columns, against Python's own sorting."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from crashcheck.analyzer.arrays import distinct_rows, number_rows, occurrence_numbers, ranges, sort_rows, unique
from support.random_runs import SETTINGS

NUMBERS = st.one_of(st.integers(-3, 3), st.integers(0, 1 << 40), st.sampled_from([-(1 << 63), (1 << 63) - 1]))
HASHES = st.one_of(st.integers(0, 3), st.integers(0, (1 << 64) - 1))
ROWS = st.integers(1, 4).flatmap(lambda many: st.lists(st.tuples(HASHES, *[NUMBERS] * many), min_size=1))


def columns(rows: list[tuple[int, ...]]) -> list[np.ndarray]:
    hashes, *numbers = zip(*rows, strict=True)
    return [np.array(hashes, dtype=np.uint64), *(np.array(column, dtype=np.int64) for column in numbers)]


@SETTINGS
@given(rows=ROWS)
def test_rows_are_sorted_and_equal_ones_stay_in_order(rows: list[tuple[int, ...]]) -> None:
    order, fresh = sort_rows(*columns(rows))
    assert order.tolist() == sorted(range(len(rows)), key=lambda at: (rows[at], at))
    in_order = sorted(rows)
    assert fresh.tolist() == [not at or in_order[at] != in_order[at - 1] for at in range(len(rows))]


@SETTINGS
@given(rows=ROWS)
@example(rows=[((1 << 64) - 1, 0)])
@example(rows=[((1 << 63) + 1, -3), ((1 << 63) + 2, 0), ((1 << 63) + 1, -3)])
def test_distinct_rows_are_those_of_a_set(rows: list[tuple[int, ...]]) -> None:
    table = columns(rows)
    found = distinct_rows(*table)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == sorted(set(rows))
    assert [column.dtype for column in found] == [column.dtype for column in table]
    assert unique(table[0]).tolist() == sorted(set(table[0].tolist()))


@SETTINGS
@given(rows=ROWS)
def test_equal_rows_have_one_number_and_are_counted(rows: list[tuple[int, ...]]) -> None:
    table = columns(rows)
    number, heads = number_rows(*table)
    assert number.tolist() == [sorted(set(rows)).index(row) for row in rows]
    assert heads.tolist() == [rows.index(row) for row in sorted(set(rows))]
    assert occurrence_numbers(*table).tolist() == [rows[:at].count(row) for at, row in enumerate(rows)]


def test_no_rows_stay_none() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert [
        len(column) for column in (*sort_rows(none, none), *distinct_rows(none, none), *number_rows(none, none))
    ] == [0] * 6
    assert len(unique(none)) == len(occurrence_numbers(none, none)) == 0


@SETTINGS
@given(rows=st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 4))))
def test_ranges_follow_one_another(rows: list[tuple[int, int]]) -> None:
    first, many = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    assert ranges(first, many).tolist() == [low + at for low, much in rows for at in range(much)]
