"""Behaviours from call stacks agree with what the paper defines, found by brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours.calls.call_stacks import (
    ROOT,
    CallTree,
    common,
    durable_turns,
    function_ranges,
    merged,
    near,
    turns,
)
from support.examples_tried import examples

SETTINGS = settings(max_examples=examples(80), deadline=None, derandomize=True)
Stack = tuple[tuple[str, int], ...]  # (function, place in it), outermost first

STACKS = st.lists(st.tuples(st.sampled_from("fgh"), st.integers(0, 1)), min_size=1, max_size=4).map(tuple)
THREADS = st.lists(STACKS, min_size=1, max_size=9)


def longest_common_prefix(one: Stack, other: Stack) -> Stack:
    """The deepest common function, where all frames above it are exactly the same (§4.1.1), without its own place."""
    best: Stack = ()
    for many in range(1, min(len(one), len(other)) + 1):
        if one[: many - 1] == other[: many - 1] and one[many - 1][0] == other[many - 1][0]:
            best = (*one[: many - 1], (one[many - 1][0], -1))
    return best


def algorithm_1(stacks: list[Stack]) -> list[tuple[Stack, frozenset[int]]]:
    """The paper's pseudo-code line by line, with sets, and with the last behaviour."""
    found: list[tuple[Stack, frozenset[int]]] = []
    behaviour: set[int] = set()
    before: Stack = ()
    for at in range(len(stacks) - 1):
        prefix = longest_common_prefix(stacks[at], stacks[at + 1])
        if at not in behaviour:
            behaviour = {at, at + 1}
        elif before == prefix:
            behaviour |= {at + 1}
        elif len(before) < len(prefix):
            found.append((before, frozenset(behaviour - {at})))
            behaviour = {at, at + 1}
        else:
            found.append((before, frozenset(behaviour)))
            behaviour = set()
        before = prefix
    last = len(stacks) - 1
    if last in behaviour:
        found.append((before, frozenset(behaviour)))
    else:
        found.append(((*stacks[last][:-1], (stacks[last][-1][0], -1)), frozenset({last})))
    return found


def ranges_of(stacks: list[Stack]) -> tuple[list[tuple[int, ...]], list[tuple[int, int, int]]]:
    tree = CallTree()
    paths = [tree.path(stack) for stack in stacks]
    return paths, function_ranges([common(*pair) for pair in pairwise(paths)], [len(path) - 1 for path in paths])


@SETTINGS
@given(THREADS)
def test_behaviours_of_functions_are_those_of_algorithm_1(stacks: list[Stack]) -> None:
    _, found = ranges_of(stacks)
    expected = [(len(prefix), operations) for prefix, operations in algorithm_1(stacks)]
    assert [(depth, frozenset(range(first, stop))) for first, stop, depth in found] == expected


@SETTINGS
@given(THREADS)
def test_every_operation_is_in_one_behaviour(stacks: list[Stack]) -> None:
    _, found = ranges_of(stacks)
    assert [at for first, stop, _ in found for at in range(first, stop)] == list(range(len(stacks)))


@SETTINGS
@given(STACKS, STACKS)
def test_paths_have_as_much_in_common_as_the_stacks(one: Stack, other: Stack) -> None:
    tree = CallTree()
    assert common(tree.path(one), tree.path(other)) == len(longest_common_prefix(one, other))


@SETTINGS
@given(THREADS)
def test_functions_join_what_is_below_them_and_below_no_single_callee(stacks: list[Stack]) -> None:
    tree = CallTree()
    paths = [tree.path(stack) for stack in stacks]
    expected = {}
    for node in {node for path in paths for node in path}:
        below = [number for number, path in enumerate(paths) if node in path]
        depth = paths[below[0]].index(node)
        callees = {paths[number][depth + 1 : depth + 2] for number in below}
        if len(below) > 1 and (len(callees) > 1 or callees == {()}):
            expected[node] = below
    found = list(merged(paths))
    assert dict(found) == expected
    depths = [next(path.index(node) for path in paths if node in path) for node, _ in found]
    assert depths == sorted(depths, reverse=True)


def dbscan(places: list[int], apart: int, neighbours: int) -> list[int]:
    """Ester et al. 1996, figure 4: each point expands a cluster if it is dense."""
    cluster, number = [-1] * len(places), 0
    region = [[at for at, other in enumerate(places) if abs(other - place) <= apart] for place in places]
    for start in range(len(places)):
        if cluster[start] >= 0 or len(region[start]) < neighbours:
            continue
        seeds = [start]
        while seeds:
            at = seeds.pop()
            if cluster[at] < 0:
                cluster[at] = number
                if len(region[at]) >= neighbours:
                    seeds += region[at]
        number += 1
    return cluster


@SETTINGS
@given(st.sets(st.integers(0, 60), max_size=20).map(sorted), st.integers(1, 6), st.integers(1, 4))
def test_what_is_near_in_time_is_what_dbscan_clusters(places: list[int], apart: int, neighbours: int) -> None:
    found = near(np.array(places, dtype=np.int64), apart, neighbours)
    assert found.tolist() == dbscan(places, apart, neighbours)


CALLS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@SETTINGS
@given(CALLS)
def test_a_turn_repeats_a_call_only_in_a_row(calls: list[int]) -> None:
    for low, high in pairwise([*turns(calls), len(calls)]):
        row = [call for at, call in enumerate(calls[low:high]) if not at or call != calls[low + at - 1]]
        assert len(set(row)) == len(row)
        if high < len(calls):
            assert calls[high] in calls[low : high - 1]


@SETTINGS
@given(CALLS, st.lists(st.integers(1, 9), min_size=12, max_size=12))
def test_a_merged_turn_repeats_no_call_that_has_persisted(calls: list[int], delay: list[int]) -> None:
    event = list(range(len(calls)))
    durable = [at + wait for at, wait in zip(event, delay, strict=False)]
    begins = durable_turns(calls, event, durable)
    for low, high in pairwise([*begins, len(calls)]):
        for at in range(low, high):
            earlier = [other for other in range(low, at) if calls[other] == calls[at]]
            assert not earlier or max(durable[other] for other in earlier) > at
        if high < len(calls):
            assert all(durable[other] <= high for other in range(low, high) if calls[other] == calls[high])


def test_the_paper_s_example_is_grouped_as_its_figures_show() -> None:
    """Figures 4 and 7: Fn1 calls Fn2 (operations 1 and 2) and Fn3, which calls Fn4 (3 to 5) and Fn5 (6 and 7)."""
    calls = {"Fn2": (("Fn1", 1), ("Fn2", 0)), "Fn4": (("Fn1", 2), ("Fn3", 1), ("Fn4", 0))}
    calls["Fn5"] = (("Fn1", 2), ("Fn3", 2), ("Fn5", 0))
    stacks = [(*calls[name], ("write", 0)) for name, many in (("Fn2", 2), ("Fn4", 3), ("Fn5", 2)) for _ in range(many)]
    stacks = [(*stack[:-2], (stack[-2][0], number), stack[-1]) for number, stack in enumerate(stacks)]
    tree = CallTree()
    paths = [tree.path(stack) for stack in stacks]
    found = function_ranges([common(*pair) for pair in pairwise(paths)], [len(path) - 1 for path in paths])
    named = [(tree.functions[paths[first][depth]], first + 1, stop) for first, stop, depth in found]
    assert named == [("Fn2", 1, 2), ("Fn4", 3, 5), ("Fn5", 6, 7)]
    joined = merged([paths[first][: depth + 1] for first, _, depth in found])
    assert [(tree.functions[node], numbers) for node, numbers in joined] == [("Fn3", [1, 2]), ("Fn1", [0, 1, 2])]


def test_a_thread_s_only_operation_is_a_behaviour_of_its_function() -> None:
    assert function_ranges([], [3]) == [(0, 1, 3)]
    assert function_ranges([], []) == []
    assert common((ROOT,), (ROOT,)) == 0
