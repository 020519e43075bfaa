"""Crash states at random: every other strategy is compared with them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress

import numpy as np

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.checker.budget import Left, endless
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.ideals import Chain, Ideals, Ids, Layers
from crashcheck.checker.states.partial_order import Order
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep
from crashcheck.checker.strategies.exhaustive import Exhaustive
from crashcheck.checker.strategies.numbers import MOST_PENDING, MOST_WALK_STEPS, REMEMBERED, REPEATS, WALK_STEPS
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
        canonical, points, chance = CanonicalStates(space), _Points(space), random.Random(self.seed)
        repeats = 0
        while repeats < REPEATS and len(chosen) < REMEMBERED:
            point = chance.randrange(len(space.points))
            kept = [id_ for draw in points.draws(point) for id_ in draw(chance)]
            choice = Choice(canonical.state(point, kept))
            repeats += 1
            if chosen.new(choice, None):
                repeats = 0
                yield choice.state


_Draw = Callable[[random.Random], Ids]  # a random ideal of the pending pieces of one factor


class _Points:
    """What is drawn from at crash points; of those used last it is kept, as chance comes back to them."""

    def __init__(self, space: StateSpace) -> None:
        self._space = space
        self._sweep = Sweep(space)
        self._known: dict[int, list[_Draw]] = {}  # by point, those used last at the end
        self._kept = 0  # pieces that are pending at these, in sum

    def draws(self, point: int) -> list[_Draw]:
        known = self._known.pop(point, None)
        if known is None:
            pending = self._space.pending_rows(point)
            free = self._sweep.unordered(pending)
            others = self._sweep.ideals_of(tuple(pending[~free].tolist()))
            known = [
                partial(_of_unordered, tuple(pending[free].tolist())),
                *(_draw(each, self._space.graph) for each in others),
            ]
            self._kept += len(pending)
        self._known[point] = known
        while self._kept > MOST_PENDING and len(self._known) > 1:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._kept -= len(self._space.pending_rows(oldest))
        return known


def _draw(ideals: Ideals, graph: PersistenceGraph) -> _Draw:
    if isinstance(ideals, Chain):
        return partial(_of_chain, ideals)
    if isinstance(ideals, Layers):
        return partial(_of_layers, ideals)
    if isinstance(ideals, Order):
        return _Walk(ideals.ids, ideals.before)
    ids = tuple(sorted(ideals.newer(0)))
    return _Walk(ids, graph.direct_before(ids))


def _of_unordered(ids: Ids, chance: random.Random) -> Ids:
    return _some(ids, chance.getrandbits(len(ids)))


def _some(ids: Ids, chosen: int) -> Ids:
    """Those whose bits are set in a number, which may have a hundred thousand of them."""
    octets = np.frombuffer(chosen.to_bytes(-(-len(ids) // 8), "little"), dtype=np.uint8)
    return tuple(compress(ids, np.unpackbits(octets, bitorder="little").tolist()))


def _of_chain(ideals: Chain, chance: random.Random) -> Ids:
    return next(ideals.kept(chance.randrange(ideals.size + 1)))


def _of_layers(ideals: Layers, chance: random.Random) -> Ids:
    at = chance.randrange(1 + sum((1 << len(layer)) - 1 for layer in ideals.layers))
    below: Ids = ()
    for layer in ideals.layers:
        if at < 1 << len(layer):
            break  # what is below, and of this layer the part whose bits are set
        at -= (1 << len(layer)) - 1
        below += layer
    return below + _some(layer, at)


class _Walk:
    """Random walks over the ideals of pieces: each begins with none or all, and adds and removes single ones."""

    def __init__(self, ids: Ids, before: Sequence[Ids]) -> None:
        """`before`: what each piece directly needs."""
        place = {id_: at for at, id_ in enumerate(ids)}
        self._ids = ids
        self._before = [[place[other] for other in befores] for befores in before]
        self._after: list[list[int]] = [[] for _ in ids]
        for at, befores in enumerate(self._before):
            for other in befores:
                self._after[other].append(at)

    def __call__(self, chance: random.Random) -> Ids:
        """Where a walk ends."""
        before, after, many = self._before, self._after, len(self._ids)
        coin, bits = chance.random, chance.getrandbits
        begins_with_all = coin() >= 0.5
        held = [begins_with_all] * many
        # of each piece: how many that it needs are missing, and how many are held that need it
        missing = [0] * many if begins_with_all else list(map(len, before))
        needed = list(map(len, after)) if begins_with_all else [0] * many
        width = many.bit_length()
        for _ in range(min(WALK_STEPS * many, MOST_WALK_STEPS)):
            while (at := bits(width)) >= many:  # as chance.choice does, without its calls
                pass
            if coin() < 0.5:
                if not (held[at] or missing[at]):
                    held[at] = True
                    for other in after[at]:
                        missing[other] -= 1
                    for other in before[at]:
                        needed[other] += 1
            elif held[at] and not needed[at]:
                held[at] = False
                for other in after[at]:
                    missing[other] += 1
                for other in before[at]:
                    needed[other] -= 1
        return tuple(compress(self._ids, held))
