"""The states that representative testing tests, and their order."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours import find_behaviours, find_groups, find_operations
from crashcheck.analyzer.persistence import Options, build
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies import strategy
from crashcheck.checker.strategies.plan import select_states
from crashcheck.checker.strategies.representative import Representative
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import Script, site

A = site("pair.a", ("pair", "a", 0, 8), line=1)
B = site("pair.b", ("pair", "b", 64, 8), line=2)
C = site("pair.c", ("pair", "c", 72, 8), line=3)
OTHER = site("other.x", ("other", "x", 0, 8), line=4)


def space_of(script: Script, model: str = "px86") -> StateSpace:
    return StateSpace(build(script.trace.trace(), model, Options()))


def states_of(script: Script, model: str = "px86") -> tuple[StateSpace, list[CrashState]]:
    space = space_of(script, model)
    return space, list(select_states(space, strategy("pathfinder", facts=script.facts)))


@pytest.mark.parametrize("model", ["px86", "eadr", "page-cache"])
@SETTINGS
@given(steps=runs())
def test_every_state_is_one_of_the_exhaustive_search_and_is_tested_once(model: str, steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space, states = states_of(script_of(Path(folder), steps), model)
        assert len(set(states)) == len(states)
        for state in states:
            assert space.state(state.point, space.persisted(state)) == state
        assert set(states) <= set(select_states(space, strategy("exhaustive")))


@SETTINGS
@given(steps=runs(), model=st.sampled_from(["px86", "page-cache"]))
def test_all_states_of_a_representative_are_the_sets_of_its_updates_that_may_persist(
    model: str, steps: list[Step]
) -> None:
    """At each of its points, every way in which a state of the whole space can meet the behaviour is met."""
    with tempfile.TemporaryDirectory() as folder:
        script = script_of(Path(folder), steps)
        space = space_of(script, model)
        canonical = CanonicalStates(space)
        everything = list(select_states(space, strategy("exhaustive")))
        for group in find_groups(find_behaviours(space.graph, script.facts)):
            mine = set(group.representative.pieces)
            one = Representative(canonical, group.representative)
            met = {seen(space, state, mine) for state in one.ideals()}
            near = {int(space.points.acked[p]) for p in one.near if mine & set(space.pending(p))}
            printed = {int(space.points.stdout_bytes[p]) for p in one.near if mine & set(space.pending(p))}
            possible = {
                seen(space, state, mine)
                for state in everything
                if space.points[state.point].acked in near
                and space.points[state.point].stdout_bytes in printed
                and any(
                    mine & set(space.pending(p))
                    for p in one.near
                    if p >= state.point
                    and space.points[p].acked == space.points[state.point].acked
                    and space.points[p].stdout_bytes == space.points[state.point].stdout_bytes
                    and feasible_at(space, state, p)
                )
            }
            assert met == possible
            value, exact = one.feasible()
            assert exact
            assert value == len(met)


def held(space: StateSpace, state: CrashState) -> frozenset[int]:
    return frozenset(space.durable(state.point).tolist()) | frozenset(space.persisted(state))


def seen(space: StateSpace, state: CrashState, mine: set[int]) -> tuple[int, int, frozenset[int]]:
    point = space.points[state.point]
    return point.acked, point.stdout_bytes, held(space, state) & mine


def feasible_at(space: StateSpace, state: CrashState, point: int) -> bool:
    own = {piece for piece in held(space, state) if piece < len(space.graph)}
    return own == held(space, state) and set(space.durable(point).tolist()) <= own


def test_the_order_is_ends_then_single_stores_then_lines_cut_back_then_pairs(tmp_path: Path) -> None:
    """a is in one line, b and c are in another; nothing else happens. Pieces 0, 1, 2."""
    script = Script(tmp_path, A, B, C)
    script.at(1, 0, delta=0)
    script.at(2, 64, delta=64)
    script.at(3, 72, delta=72)
    script.persist(0, 80)
    space, states = states_of(script)
    assert [space.persisted(state) for state in states] == [
        (0, 1, 2),  # everything
        (),  # nothing
        (0,),
        (1,),
        (1, 2),
        (0, 1),  # everything but c, which ends its line
    ]


def test_what_precedes_the_behaviour_has_persisted_in_all_its_sparse_states(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C, OTHER)
    script.at(4, 4096, delta=0)  # never flushed
    script.at(1, 0, delta=0)
    script.at(2, 64, delta=64)
    script.persist(0, 80)
    space = space_of(script)
    groups_ = find_groups(find_behaviours(space.graph, script.facts))
    pair = next(group for group in groups_ if group.types == ("pair",))
    one = Representative(CanonicalStates(space), pair.representative)
    assert {space.persisted(state) for state in one.ideals()} == {(0,), (0, 1), (0, 2), (0, 1, 2)}


def test_interleaved_updates_are_added_where_the_line_requires_them_and_only_there(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C, OTHER)
    script.at(1, 0, delta=0)
    script.at(4, 128, delta=0)  # another object, in no line of the pair
    script.at(4, 80, delta=0)  # another object, in the line of b and c
    script.at(2, 64, delta=64)
    script.persist(0, 256)
    space = space_of(script)
    pair = next(group for group in find_groups(find_behaviours(space.graph, script.facts)) if group.types == ("pair",))
    one = Representative(CanonicalStates(space), pair.representative)
    assert {space.persisted(state) for state in one.ideals()} == {(), (0,), (2, 3), (0, 2, 3)}
    assert {space.lost(state) for state in one.cut()} == {(0,), (3,)}


def test_what_an_operation_leaves_unpersisted_is_varied_after_later_operations_too(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C)
    for operation in (1, 2, 3):
        script.trace.begin(operation)
        if operation == 1:
            script.at(1, 0, delta=0)
        script.trace.end(operation)
    space, states = states_of(script)
    lacking = [space.points[state.point].acked for state in states if 0 in space.lost(state)]
    assert lacking == [1, 2, 3]  # before the first ends, lacking it is as if it had not been issued


def test_without_facts_behaviours_are_distinguished_by_call_stack(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C)
    script.at(1, 0, delta=0)
    script.at(2, 64, delta=64)
    script.persist(0, 128)
    space = space_of(script)
    assert set(select_states(space, strategy("pathfinder"))) == set(select_states(space, strategy("exhaustive")))


LOG = site("log.on", ("log", "on", 0, 8), line=5)


def put_in_three(script: Script, marked: bool) -> None:
    """Twice, one store to each of three instances that no type joins, in any order."""
    for ordinal, base in enumerate((0, 1024), 1):
        if marked:
            script.trace.begin(ordinal)
        script.at(1, base, delta=0)
        script.at(4, base + 512, delta=0)
        script.at(5, base + 768, delta=0)
        script.persist(base, 1024)
        if marked:
            script.trace.end(ordinal)


@pytest.mark.parametrize("marked", [True, False])
def test_orders_between_instances_that_no_type_joins_are_varied_within_a_marked_operation(
    tmp_path: Path, marked: bool
) -> None:
    """Only the second of three has persisted: no state of one instance's behaviour, but one of the operation's."""
    script = Script(tmp_path, A, B, C, OTHER, LOG)
    put_in_three(script, marked)
    space, states = states_of(script)
    assert any(space.lost(state) == (0, 2) for state in states) is marked


def test_operations_are_represented_as_behaviours_of_instances_are(tmp_path: Path) -> None:
    """Of two equal operations only one is varied."""
    script = Script(tmp_path, A, B, C, OTHER, LOG)
    put_in_three(script, True)
    found = find_behaviours(space_of(script).graph, script.facts)
    operations = find_operations(found)
    assert [operations.behaviour(number).operation for number in range(len(operations))] == [1, 2]
    (group,) = find_groups(operations)
    assert (group.members, group.size, group.types) == (2, 3, ("(operation)",))


def test_what_another_thread_updates_meanwhile_is_no_part_of_an_operation(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B, C, OTHER)
    script.trace.begin(1)
    script.at(1, 0, delta=0)
    with script.trace.thread(2):
        script.at(4, 512, delta=0)
    script.trace.end(1)
    script.at(2, 64, delta=64)
    operations = find_operations(find_behaviours(space_of(script).graph, script.facts))
    assert [len(operations.nodes_of(number)) for number in range(len(operations))] == [1]
