"""By which fields two accesses know one another: those of the innermost instance in common, else each one's own."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.invariants.rules import related_fields
from crashcheck.analyzer.invariants.variables import AccessedVariables
from support.random_runs import SETTINGS

SIZE_OF = (8, 16, 16, 64)  # by instance
Member = tuple[int, int]  # instance, field
ACCESSES = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=4, unique=True), min_size=1, max_size=8
)


def keys_of(accesses: list[list[Member]]) -> AccessedVariables:
    rows = [(at, *member) for at, members in enumerate(accesses) for member in sorted(members, key=from_inside)]
    access, instance, field = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    size = np.array(SIZE_OF)[instance]
    inner = np.array([SIZE_OF[i] == least(accesses[at]) for at, i, _ in rows], dtype=np.bool_)
    start = np.searchsorted(access, np.arange(len(accesses) + 1))
    return AccessedVariables(start, access, instance, field, inner, size, ())


def from_inside(member: Member) -> tuple[int, int, int]:
    return SIZE_OF[member[0]], *member


def least(members: list[Member]) -> int:
    return min(SIZE_OF[instance] for instance, _ in members)


def by_definition(one: list[Member], other: list[Member], most: int) -> set[tuple[Member, Member, int]]:
    pairs = [(a, b) for a in one for b in other]
    common = [(a, b) for a, b in pairs if a[0] == b[0]]
    if common and len(pairs) <= most:
        size = least([a for a, _ in common])
        return {(a, b, 1) for a, b in common if SIZE_OF[a[0]] == size}
    return {(a, b, 0) for a, b in pairs if SIZE_OF[a[0]] == least(one) and SIZE_OF[b[0]] == least(other)}


@SETTINGS
@given(accesses=ACCESSES, most=st.sampled_from([2, 6, 64]))
def test_accesses_are_related_as_defined(accesses: list[list[Member]], most: int) -> None:
    keys = keys_of(accesses)
    one, other = (each.reshape(-1) for each in np.indices((len(accesses), len(accesses))))
    with patch("crashcheck.analyzer.invariants.rules.COPY_PAIRS", most):
        place, left, right, shared = related_fields(keys, one, other)
    found = [
        (
            int(one[at]),
            int(other[at]),
            *((int(keys.instance[row]), int(keys.field[row])) for row in rows),
            int(is_shared),
        )
        for at, *rows, is_shared in zip(place, left, right, shared, strict=True)
    ]
    wanted = {
        (x, y, *pair)
        for x, a in enumerate(accesses)
        for y, b in enumerate(accesses)
        for pair in by_definition(a, b, most)
    }
    assert len(found) == len(set(found))
    assert set(found) == wanted
