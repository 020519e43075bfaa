"""Crash states at random: every other strategy is compared with them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crashcheck.checker.budget import Left, endless
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.ideals import Chain, Ideals, Ids, Layers
from crashcheck.checker.states.partial_order import Order
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep
from crashcheck.checker.strategies.exhaustive import Exhaustive
from crashcheck.checker.strategies.numbers import MOST_WALK_STEPS, REMEMBERED, REPEATS, WALK_STEPS
from crashcheck.checker.strategies.plan import NOTHING, Choice, Chosen, Decided, Listed


@dataclass(frozen=True, slots=True)
class Random:
    """Uniformly random crash points, and at each a uniformly random ideal of what is pending; each state once.

    The same `seed` gives the same states in the same order. When new ones have become rare, the rest follow in the
    order of the exhaustive search. Ideals of orders that are neither chains nor layers (non-temporal stores, eADR) come
    from a random walk, and are nearly uniform.
    """

    seed: int = 1
    name: str = "random"

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> Listed:
        return Listed(self.states(space))

    def states(self, space: StateSpace) -> Iterator[CrashState]:
        chosen = Chosen()
        yield from self.drawn(space, chosen)
        for state in Exhaustive().states(space):
            if chosen.place(state) is None:
                yield state

    def drawn(self, space: StateSpace, chosen: Chosen) -> Iterator[CrashState]:
        """Those that chance gives, while new ones are not rare; `chosen` remembers them."""
        canonical, sweep, chance = CanonicalStates(space), Sweep(space), random.Random(self.seed)
        repeats = 0
        while repeats < REPEATS and len(chosen) < REMEMBERED:
            point = chance.randrange(len(space.points))
            kept: set[int] = set()
            for ideals in sweep.ideals_of(space.pending(point)):
                kept.update(_any(ideals, sweep, chance))
            choice = Choice(canonical.state(point, kept))
            repeats += 1
            if chosen.new(choice, None):
                repeats = 0
                yield choice.state


def _any(ideals: Ideals, sweep: Sweep, chance: random.Random) -> Ids:
    if isinstance(ideals, Chain):
        return next(ideals.kept(chance.randrange(ideals.size + 1)))
    if isinstance(ideals, Layers):
        at = chance.randrange(1 + sum((1 << len(layer)) - 1 for layer in ideals.layers))
        below: Ids = ()
        for layer in ideals.layers:
            if at < 1 << len(layer):
                break  # what is below, and of this layer the part whose bits are set
            at -= (1 << len(layer)) - 1
            below += layer
        return below + tuple(id_ for place, id_ in enumerate(layer) if at >> place & 1)
    if isinstance(ideals, Order):
        return _walked(ideals.ids, ideals.before, chance)
    ids = tuple(sorted(ideals.newer(0)))
    return _walked(ids, sweep.graph.direct_before(ids), chance)


def _walked(ids: Ids, before: Sequence[Ids], chance: random.Random) -> Ids:
    """Where a random walk ends that adds and removes single pieces. `before`: what each piece directly needs."""
    place = {id_: at for at, id_ in enumerate(ids)}
    after: list[list[int]] = [[] for _ in ids]
    for id_, befores in zip(ids, before, strict=True):
        for other in befores:
            after[place[other]].append(id_)
    kept: set[int] = set() if chance.random() < 0.5 else set(ids)
    many, coin, bits = len(ids), chance.random, chance.getrandbits
    width = many.bit_length()
    for _ in range(min(WALK_STEPS * many, MOST_WALK_STEPS)):
        while (at := bits(width)) >= many:  # as chance.choice does, without its calls
            pass
        if coin() < 0.5:
            if kept.issuperset(before[at]):
                kept.add(ids[at])
        elif kept.isdisjoint(after[at]):
            kept.discard(ids[at])
    return tuple(sorted(kept))
