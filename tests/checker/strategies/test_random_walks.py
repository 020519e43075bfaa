"""Random walks over ideals, which count what is missing, take the steps of the plain rule."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from crashcheck.checker.strategies.numbers import WALK_STEPS
from crashcheck.checker.strategies.random_ideals import _Walk


def walked(ids: tuple[int, ...], before: list[tuple[int, ...]], chance: random.Random) -> tuple[int, ...]:
    """The rule: a piece is added if all that it needs is held, and removed if nothing held needs it."""
    kept: set[int] = set() if chance.random() < 0.5 else set(ids)
    for _ in range(WALK_STEPS * len(ids)):
        at = chance.choice(range(len(ids)))
        if chance.random() < 0.5:
            kept.update([ids[at]] if kept.issuperset(before[at]) else ())
        elif not any(other in kept and ids[at] in befores for other, befores in zip(ids, before, strict=True)):
            kept.discard(ids[at])
    return tuple(sorted(kept))


@st.composite
def orders(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Some ascending ids, and for each some of the earlier ones."""
    ids = tuple(sorted(draw(st.sets(st.integers(0, 50), min_size=1, max_size=12))))
    before = [tuple(sorted(draw(st.sets(st.sampled_from(ids[:at]))))) if at else () for at in range(len(ids))]
    return ids, before


@given(orders(), st.integers(0, 1 << 30))
def test_walks_end_where_the_plain_rule_does(order: tuple[tuple[int, ...], list[tuple[int, ...]]], seed: int) -> None:
    ids, before = order
    walk, one, other = _Walk(ids, before), random.Random(seed), random.Random(seed)
    for _ in range(3):
        assert walk(one) == walked(ids, before, other)
