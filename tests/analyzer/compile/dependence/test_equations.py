"""Equations between sets are solved as the smallest sets that satisfy them."""

from __future__ import annotations

import random

from crashcheck.analyzer.compile.dependence.equations import Equations


def smallest(equations: dict[int, int], inner: int) -> dict[int, int]:
    """By their definition: sets grow until nothing changes."""
    sets = dict(equations)
    changed = True
    while changed:
        changed = False
        for made, meaning in sets.items():
            grown = meaning
            for other, held in sets.items():
                grown |= held if meaning & other else 0
            changed |= grown != meaning
            sets[made] = grown
    return {made: held & ~inner for made, held in sets.items()}


def test_random_systems_with_loops_have_their_smallest_solution() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        places = rng.sample(range(40), 40)
        inner_places = places[: rng.randint(1, 20)]
        inner = sum(1 << place for place in inner_places)
        equations = {
            1 << place: sum({1 << place for place in rng.choices(range(40), k=rng.randint(0, 4))})
            for place in inner_places
        }
        atoms = list(range(100, 140))
        solved = Equations(atoms, dict(equations), inner)
        expected = smallest(equations, inner)
        for made in equations:
            assert solved.resolve(made) == tuple(100 + place for place in range(40) if expected[made] >> place & 1)


def test_a_long_chain_is_solved_without_deep_recursion() -> None:
    many = 20_000
    equations = {1 << place: 1 << place + 1 for place in range(many)}
    assert Equations([7] * (many + 1), equations, (1 << many) - 1).resolve(1) == (7,)
