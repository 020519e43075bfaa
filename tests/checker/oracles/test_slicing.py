"""What was done, what was under way and what may legally follow, against brute force."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.checker.execution.tasks import FINAL, FIRST
from crashcheck.checker.oracles.histories import MOST_OPEN, History, Operations, Standing, Standings
from crashcheck.checker.states.space import StateSpace
from support.tracing import TraceBuilder

FIVE = Operations.of(b"a\nb\nc\nd\ne\n")


def test_lines_of_white_space_are_no_operations() -> None:
    assert Operations.of(b"put 1\n\n  \nget 1").lines == (b"put 1", b"get 1")
    assert Operations.of(b"put 1\n\n  \nget 1").text((2, 1)) == b"get 1\nput 1\n"


def test_a_crash_in_an_operation_has_two_legal_histories_for_the_whole_rest() -> None:
    assert list(FIVE.legal(Standing((1, 2), (3,)))) == [History((1, 2, 3), (4, 5)), History((1, 2), (4, 5))]


def test_a_crash_between_operations_has_one_legal_history() -> None:
    assert list(FIVE.legal(Standing((1, 2), ()))) == [History((1, 2), (3, 4, 5))]


def test_a_crash_in_the_last_operation_leaves_an_empty_rest() -> None:
    assert list(FIVE.legal(Standing((1, 2, 3, 4), (5,)))) == [History((1, 2, 3, 4, 5), ()), History((1, 2, 3, 4), ())]


@pytest.mark.parametrize(("under_way", "histories"), [(0, 1), (1, 2), (2, 5), (3, 16), (4, 65)])
def test_the_number_of_legal_histories_is_the_sum_of_the_permutations(under_way: int, histories: int) -> None:
    standing = Standing((), tuple(range(1, under_way + 1)))
    assert len(set(FIVE.legal(standing))) == histories
    assert under_way <= MOST_OPEN


def states_by_brute_force(before: dict[int, int], writes: list[tuple[int, int]]) -> set[tuple[tuple[int, int], ...]]:
    """Every content of a map after any of the writes, each at most once, in any order: by trying all short words."""
    out = set()
    for length in range(len(writes) + 1):
        for word in product(range(len(writes)), repeat=length):
            if len(set(word)) == len(word):
                after = dict(before)
                for index in word:
                    after[writes[index][0]] = writes[index][1]
                out.add(tuple(sorted(after.items())))
    return out


@given(
    done=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=4),
    under_way=st.lists(st.tuples(st.integers(0, 2), st.integers(10, 19)), max_size=3),
    later=st.integers(0, 3),
)
def test_the_legal_histories_reach_exactly_the_states_of_brute_force(
    done: list[tuple[int, int]], under_way: list[tuple[int, int]], later: int
) -> None:
    writes = [*done, *under_way, *[(0, 99)] * later]
    operations = Operations(tuple(f"{key} {value}".encode() for key, value in writes))
    first = len(done) + 1
    standing = Standing(tuple(range(1, first)), tuple(range(first, first + len(under_way))))
    reached = set()
    for history in operations.legal(standing):
        assert history.rest == tuple(range(first + len(under_way), len(writes) + 1))
        after: dict[int, int] = {}
        for line in operations.text(history.before).splitlines():
            key, value = map(int, line.split())
            after[key] = value
        reached.add(tuple(sorted(after.items())))
    assert reached == states_by_brute_force(dict(done), under_way)


def standings(folder: Path) -> Standings:
    """Two overlapping operations, which end in the other order, and then one alone."""
    trace = TraceBuilder(folder / "t.cct")
    trace.file("p", size=4096)
    trace.begin(1)
    with trace.thread(2):
        trace.begin(2)
        trace.store("p", 0, 8, 1)
        trace.end(2)
    trace.store("p", 64, 8, 1)
    trace.end(1)
    trace.begin(3)
    trace.store("p", 128, 8, 1)
    trace.end(3)
    read = trace.trace()
    return Standings(read, StateSpace(build(read, "px86", Options())).points)


def test_operations_have_begun_and_ended_by_their_marks_before_the_crash(tmp_path: Path) -> None:
    here = standings(tmp_path)
    assert [here.after(count) for count in range(7)] == [
        Standing((), ()),
        Standing((), (1,)),
        Standing((), (1, 2)),
        Standing((), (1,), (2,)),
        Standing((2, 1), ()),
        Standing((2, 1), (3,)),
        Standing((2, 1, 3), ()),
    ]
    assert here.at(FIRST) == Standing((), ())
    assert here.at(FINAL) == Standing((2, 1, 3), ())
    assert (here.begun, here.ended) == (3, 3)


def test_a_crash_point_just_before_a_mark_is_before_it(tmp_path: Path) -> None:
    here = standings(tmp_path)
    shown = [here.at(point) for point in range(7)]
    assert shown == [here.after(count) for count in range(7)]
    assert [here.at(point).done for point in here.quiet()] == [(2, 1), (2, 1, 3)]


def test_what_ended_among_others_under_way_took_effect_somewhere_among_them() -> None:
    """Two ended, one after the other; a third is under way since before."""
    standing = Standing((), (1,), (2, 3), frozenset({(2, 3)}))
    assert {history.before for history in FIVE.legal(standing)} == {(1, 2, 3), (2, 1, 3), (2, 3, 1), (2, 3)}


def test_the_order_of_overlapping_operations_is_open_until_it_is_settled(tmp_path: Path) -> None:
    here = standings(tmp_path)
    boundary, last = here.quiet()
    assert here.overlapping(boundary) == [(2, 1), (1, 2)]
    assert here.overlapping(last) == []
    here.settle(boundary, (1, 2))
    assert [here.at(point).done for point in here.quiet()] == [(1, 2), (1, 2, 3)]
