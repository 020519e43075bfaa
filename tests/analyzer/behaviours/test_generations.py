"""Which fills cover an instance, and how memberships are numbered by them, against the rule applied one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from crashcheck.analyzer.behaviours.instances import covering_fills, number_generations
from crashcheck.analyzer.behaviours.updates import AccessColumns, Nodes
from crashcheck.analyzer.persistence.pieces import Ints

NONE = np.zeros(0, dtype=np.int64)


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def nodes_at(events: Ints) -> Nodes:
    return Nodes(events, NONE, NONE, NONE.astype(bool), NONE.astype(bool), NONE, NONE)


@pytest.mark.parametrize(
    ("offset", "size", "covers"),
    [
        (128, 96, True),
        (120, 104, True),
        (128, 95, False),
        (128, 32, False),  # 64 bytes too few
        (64, 96, False),
        (129, 96, False),
        (128, 97, True),
    ],
)
def test_a_fill_covers_an_instance_only_if_it_reaches_from_its_first_to_its_last_byte(
    offset: int, size: int, covers: bool
) -> None:
    updates = AccessColumns(ints(7), *(ints(0) for _ in range(3)), ints(offset), ints(size), ints(0))
    ((instance, event),) = covering_fills(
        ints(0), updates, np.array([True]), ints(1), ints(0), start=ints(0, 128), extent=ints(8, 96)
    )
    assert (instance.tolist(), event.tolist()) == (([1], [7]) if covers else ([], []))


def test_no_fill_covers_an_instance_without_a_known_field_and_no_other_update_is_a_fill() -> None:
    updates = AccessColumns(ints(7, 9), *(NONE for _ in range(3)), ints(0, 0), ints(64, 64), NONE)
    is_fill = np.array([True, False])
    ((instance, event),) = covering_fills(
        ints(0, 1), updates, is_fill, ints(0, 1, 1), ints(0, 0, 1), start=ints(0, 0), extent=ints(0, 1)
    )
    assert (instance.tolist(), event.tolist()) == ([1], [7])


@pytest.mark.parametrize("seed", range(20))
def test_a_generation_begins_at_a_fill_or_at_the_first_update_after_a_takeover(seed: int) -> None:
    chance = random.Random(seed)
    events = ints(*sorted(chance.sample(range(40), 12)))
    members = sorted({(chance.randrange(3), chance.randrange(12)) for _ in range(24)})
    chance.shuffle(members)
    instance, node = ints(*(i for i, _ in members)), ints(*(n for _, n in members))
    used = {i: sorted(int(events[n]) for j, n in members if j == i) for i in range(3)}
    fills = sorted({(i, int(events[n])) for i, n in chance.sample(members, len(members) // 4)})
    # Another object takes over only memory that is updated again: at an event before some update.
    takeovers = [(i, chance.randrange(used[i][-1])) for i in used if used[i] and used[i][-1] and chance.random() < 0.6]
    begins = {*fills, *((i, next(event for event in used[i] if event > taken)) for i, taken in takeovers)}
    expected = [sum(j == i and begin <= events[n] for j, begin in begins) for i, n in members]
    pairs = [
        [(ints(*(i for i, _ in each)), ints(*(e for _, e in each)))] if each else [] for each in (fills, takeovers)
    ]
    assert number_generations(nodes_at(events), instance, node, *pairs).tolist() == expected
