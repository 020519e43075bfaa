"""What represents a behaviour has a counterpart for each of its crash states, and groups are made of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours import represents as module
from crashcheck.analyzer.behaviours.represents import BehaviourOrder, group_represented
from support.examples_tried import examples

SETTINGS = settings(max_examples=examples(150), deadline=None, derandomize=True)
NEVER = 99
TOLD = 12  # the event of the acknowledgement; updates are issued before it

State = tuple[Counter[int], Counter[int], bool]  # updates lost and kept, by site, and whether it was acknowledged


def shape(*updates: tuple[int, int, int, int]) -> BehaviourOrder:
    """Of updates (site, issued, durable, line), oldest first."""
    site, issued, durable, line = (np.array(column, dtype=np.int64) for column in zip(*updates, strict=True))
    return BehaviourOrder(site, issued, durable, line, durable <= TOLD)


@st.composite
def shapes(draw: Any, most: int = 5) -> BehaviourOrder:
    many = draw(st.integers(1, most))
    updates: list[tuple[int, int, int, int]] = []
    for at in range(many):
        line = draw(st.integers(0, 2))
        # a fence follows what it makes durable, and a line keeps its order
        earliest = max([2 * at + 2, *(durable for _, _, durable, other in updates if other == line)])
        later = [moment for moment in range(2, TOLD + 3, 2) if moment >= earliest]
        durable = draw(st.sampled_from([*later, NEVER]))
        updates.append((draw(st.integers(0, 2)), 2 * at, durable, line))
    return shape(*updates)


def states(of: BehaviourOrder, *, unissued: bool = False) -> Iterator[State]:
    """Every crash state by the definition: a downward-closed set of what was issued, with all that is durable.

    `unissued`: what was not issued yet counts as lost, as an image does not differ by that.
    """
    order = of.precedes(np.arange(len(of)))
    for crash in range(TOLD + 3):
        issued = [at for at in range(len(of)) if int(of.issued[at]) < crash]
        for chosen in product([False, True], repeat=len(issued)):
            kept = {at for at, chose in zip(issued, chosen, strict=True) if chose}
            lost = set(issued) - kept
            if any(int(of.durable[at]) <= crash for at in lost):
                continue
            if any(order[before, after] for before in lost for after in kept):
                continue
            missing = lost | set(range(len(of))) - set(issued) if unissued else lost
            yield (
                Counter(int(of.site[at]) for at in missing),
                Counter(int(of.site[at]) for at in kept),
                crash > TOLD,
            )


def has_counterpart(state: State, others: list[State]) -> bool:
    lost, kept, acknowledged = state
    return any(
        lost <= more_lost and kept <= more_kept and theirs == acknowledged for more_lost, more_kept, theirs in others
    )


@pytest.mark.parametrize("matched", [module.MATCHED, 0], ids=["by match", "by sites alone"])
@SETTINGS
@given(one=shapes(), other=shapes(4))
def test_each_state_in_which_something_is_lost_has_a_counterpart_at_the_representative(
    matched: int, one: BehaviourOrder, other: BehaviourOrder
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MATCHED", matched)
        represents = one.represents(other)
    if represents:
        counterparts = list(states(one, unissued=True))
        for state in states(other):
            assert not state[0] or has_counterpart(state, counterparts)


@SETTINGS
@given(shapes())
def test_every_behaviour_represents_itself(one: BehaviourOrder) -> None:
    assert one.represents(one)


@SETTINGS
@given(shapes(), st.data())
def test_what_persists_later_represents_what_persists_sooner(one: BehaviourOrder, data: st.DataObject) -> None:
    later = np.array([NEVER if data.draw(st.booleans()) else int(durable) for durable in one.durable])
    freer = BehaviourOrder(one.site, one.issued, later, one.line, later <= TOLD)
    assert freer.represents(one)


@SETTINGS
@given(st.lists(shapes(4), max_size=8))
def test_groups_are_all_that_a_maximal_behaviour_represents(all_: list[BehaviourOrder]) -> None:
    groups = group_represented(all_)
    heads = [head for head, _ in groups]
    for head, members in groups:
        assert all(all_[head].represents(all_[member]) for member in members)
        assert not any(all_[other].represents(all_[head]) for other in heads if other != head)
    assert {member for _, members in groups for member in members} == set(range(len(all_)))


def test_a_short_correct_run_of_a_loop_does_not_stand_for_a_longer_one_that_forgets_a_flush() -> None:
    """One item, persisted, then the flag; and three items of which the last is never flushed."""
    short = shape((0, 0, 2, 0), (1, 4, 6, 9))
    forgetful = shape((0, 0, 8, 0), (0, 2, 8, 0), (0, 4, NEVER, 1), (1, 8, 10, 9))
    assert not short.represents(forgetful)
    assert forgetful.represents(short)
    assert group_represented([short, forgetful]) == [(1, [1, 0])]


def test_a_longer_run_of_a_loop_stands_for_the_shorter_ones() -> None:
    def turns(count: int) -> BehaviourOrder:
        flag = 2 * count
        return shape(*((0, 2 * at, flag, at) for at in range(count)), (1, flag, flag + 2, 9))

    assert group_represented([turns(2), turns(4), turns(3)]) == [(1, [1, 2, 0])]


def test_insert_represents_insert_ordered_and_not_the_other_way_round() -> None:
    """Listing 2 of the paper: key, value and valid unordered; key persisted first."""
    insert = shape((0, 0, 8, 0), (1, 2, 8, 1), (2, 4, 8, 2))
    ordered = shape((0, 0, 2, 0), (1, 2, 8, 1), (2, 4, 8, 2))
    assert insert.represents(ordered)
    assert not ordered.represents(insert)
    assert group_represented([ordered, insert]) == [(1, [1, 0])]


def test_a_behaviour_of_other_sites_is_not_represented() -> None:
    """Figure 6: write, write and rename represent write and write, but not what has another call."""
    with_rename = shape((0, 0, 2, 0), (1, 2, 4, 1), (2, 4, 8, 2))
    assert with_rename.represents(shape((0, 0, 2, 0), (1, 2, 4, 1)))
    assert not with_rename.represents(shape((0, 0, 4, 0), (1, 2, 4, 1)))
    assert not with_rename.represents(shape((0, 0, 8, 0), (3, 2, 8, 1)))
