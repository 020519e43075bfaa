"""Crash states that a mutant of a recorded run has and the run itself does not have, each once, and how many there are.

The run and its mutants have the same updates, marks and outputs; they differ in when an update becomes durable. So all
use one clock here, which counts updates, marks and outputs, and of one state space: that of the run without any
flush, fence or sync, in which nothing has to persist, so that it has every state of every mutant (`CommonSpace`).

A state is known by what it lost and by its earliest moment: just after the last update that it holds, or after the last
acknowledgement. It is one of the run's own states unless the run had something that it lost durable at that moment.
An update that writes what was there already leaves the same image whether it persisted or not, and counts as neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod

import numpy as np

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.mutation.common_space import CHOICES_KEPT, CommonSpace
from crashcheck.checker.states.granules import Granule, together
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.interruption import KeepOn, always

_NEAR = 6  # crash points tried from the first one on where an update may be lost


@dataclass(frozen=True, slots=True)
class NewStates:
    """`value`: the number of new states; a lower bound of it unless `whole`."""

    value: int
    whole: bool


class MutantStates:
    """What a mutant leaves open that the run does not: the pieces that persist later, and from when to when.

    `keep_on` is called while states are gone through of which few may be new; what it raises ends that.
    """

    def __init__(self, common: CommonSpace, original: PersistenceGraph, mutant: PersistenceGraph) -> None:
        self.keep_on: KeepOn = always
        self._common = common
        self._mutant = mutant
        self._before = common.durable(original)
        self._after = common.durable(mutant)
        later = self._before < self._after
        self._later = int(later.sum())
        self.exposed: Ints = np.flatnonzero(later & common.counts)
        steps = np.zeros(common.end + 2, dtype=np.int64)
        np.add.at(steps, self._before[self.exposed], 1)
        np.add.at(steps, self._after[self.exposed], -1)
        open_ = np.cumsum(steps)[: common.end + 1] > 0
        # after an update that counts, or when something is acknowledged or printed: else no state begins there
        begins = np.zeros(common.end + 1, dtype=np.bool_)
        begins[common.issued[common.counts]] = True
        begins |= np.array([common.shown(clock) for clock in range(common.end + 1)])
        self._known: dict[tuple[Ids, frozenset[int], frozenset[int]], Granule] = {}
        self._moments: list[int] = np.flatnonzero(open_ & begins).tolist()

    def pieces(self) -> int:
        """How many pieces persist later than they did."""
        return self._later

    # -- which are there

    def count(self, most: int) -> NewStates:
        """How many new states there are; where there are more than `most`, not all are counted."""
        total = 0
        for clock in self._moments:
            total += self.new_at(clock)
            if total > most:
                return NewStates(total, False)
        return NewStates(total, True)

    @cached_property
    def moments(self) -> tuple[int, ...]:
        """The clocks at which new states begin, ascending."""
        return tuple(clock for clock in self._moments if self.new_at(clock))

    def stretches(self) -> list[tuple[int, ...]]:
        """`moments`, those together in which nothing becomes durable and nothing is acknowledged or printed.

        Each image of an earlier one is an image of the last: with what was issued in between lost.
        """
        durable = np.unique(self._after[self._common.counts])
        found: dict[tuple[int, ...], list[int]] = {}
        for clock in self.moments:
            self.keep_on()
            point = self._common.space.points[self._common.point(clock)]
            since = int(np.searchsorted(durable, clock, side="right"))
            found.setdefault((since, point.acked, point.begun, point.stdout_bytes), []).append(clock)
        return [tuple(clocks) for clocks in found.values()]

    def new_at(self, clock: int) -> int:
        """How many new states begin at a moment."""
        some = self._granules(clock)
        total = prod(each.all for each in some) - prod(each.alike for each in some)
        if any(each.newest for each in some):
            total -= prod(each.older for each in some) - prod(each.older_alike for each in some)
        return total

    def all_at(self, clock: int) -> int:
        """How many states there are at a moment, new or not."""
        return prod(each.all for each in self._granules(clock))

    def at(self, clock: int) -> Iterator[CrashState]:
        """The new states that begin at a moment."""
        some = self._granules(clock)
        for many in range(1, len(some) + 1):
            for lost in together(some, many, keep_on=self.keep_on):
                yield self._common.state(clock, lost)

    def losses_at(self, clock: int) -> list[tuple[Ids, ...] | None]:
        """Of each granule with something pending, what may be lost of it, "nothing" first; None: too many to list.

        Each state of the moment loses one of these of each granule.
        """
        return [((), *each) if each.listed else None for each in self._granules(clock)]

    def whole_at(self, clock: int) -> list[Ids]:
        """The same in the same order: all that may be lost of it."""
        return [each.whole for each in self._granules(clock)]

    def combined(self, clock: int, chosen: Sequence[Ids]) -> CrashState | None:
        """The state that loses these of the granules; None if it is not new, or does not begin at the moment."""
        pairs = list(zip(self._granules(clock), chosen, strict=True))
        newest = [each.drops(lost) for each, lost in pairs if each.newest]
        if (newest and all(newest)) or not any(each.exposes(lost) for each, lost in pairs):
            return None
        return self._common.state(clock, chain.from_iterable(chosen))

    def _at(self, clock: int) -> tuple[Ids, frozenset[int], frozenset[int]]:
        """Pieces that count at a moment: those pending in the mutant, those of them that are exposed, the newest.

        Each state that begins there holds some of the newest; there are none where it begins whatever it holds.
        """
        common = self._common
        issued = int(np.searchsorted(common.issued, clock, side="right"))
        pending = np.flatnonzero((self._after[:issued] > clock) & common.counts[:issued])
        open_ = pending[self._before[pending] <= clock]
        newest = () if common.shown(clock) else common.newest(clock)
        if any(self._after[piece] <= clock for piece in newest):
            newest = ()
        return tuple(pending.tolist()), frozenset(open_.tolist()), frozenset(newest)

    def _granules(self, clock: int) -> list[Granule]:
        """Of each granule with something pending, what may be lost of it."""
        pending, open_, newest = self._at(clock)
        common = self._common
        split: dict[int, list[int]] = {}
        for piece, component in zip(pending, common.graph.component[list(pending)].tolist(), strict=True):
            split.setdefault(component, []).append(piece)
        out = []
        for component in sorted(split):
            ids = tuple(split[component])
            key = (ids, open_.intersection(ids), newest.intersection(ids))
            known = self._known.get(key)
            if known is None:
                if len(self._known) >= CHOICES_KEPT:
                    self._known.clear()
                known = self._known[key] = Granule(common.graph, common.choices, *key)
            out.append(known)
        return out

    @cached_property
    def granules(self) -> int:
        """How many granules a new state may lack something of, at most."""
        return max((len(self._granules(clock)) for clock in self._moments), default=0)

    def lacking(self, many: int) -> Iterator[CrashState]:
        """The new states that lack something of exactly so many granules."""
        for clock in self._moments:
            self.keep_on()
            some = self._granules(clock)
            if len(some) >= many and any(each.all > each.alike for each in some):
                for lost in together(some, many, keep_on=self.keep_on):
                    yield self._common.state(clock, lost)

    # -- where to look first

    def aimed(self) -> Iterator[CrashState]:
        """New states, each place in the program first once, then twice, and so on.

        Of each update that persists later, at some of the crash points where that shows: with it lost and all else
        persisted; with all lost that persists later; and with it the only one of those that persisted.
        """
        graph, events = self._mutant, self._mutant.trace.events
        clocks = np.unique(self._common.clock(graph, StateSpace(graph).points.event))
        lows = np.searchsorted(clocks, self._before[self.exposed], side="left").tolist()
        highs = np.searchsorted(clocks, self._after[self.exposed], side="left").tolist()
        rounds: dict[int, list[int]] = {}
        seen: dict[tuple[int, int], int] = {}
        for index, piece in enumerate(self.exposed.tolist()):
            event = events[int(graph.event[piece])]
            place = (int(event["site"]), int(event["stack"]))
            rounds.setdefault(seen.setdefault(place, 0), []).append(index)
            seen[place] += 1
        for number in sorted(rounds):
            for index in rounds[number]:
                low, high = lows[index], highs[index]
                for at in sorted({*range(low, min(high, low + _NEAR)), (low + high) // 2, high - 1}):
                    if low <= at < high:
                        yield from self._around(int(clocks[at]), int(self.exposed[index]))

    def _around(self, clock: int, piece: int) -> Iterator[CrashState]:
        pending, open_, _ = self._at(clock)
        needs = self._common.needs((piece,), pending)
        kept = {piece}
        for id_, befores in reversed(needs):
            if id_ in kept:
                kept.update(befores)
        others = open_ - kept
        for lost in (
            _lost_with({piece}, needs),
            _lost_with(open_, self._common.needs(tuple(open_), pending)),
            _lost_with(others, self._common.needs(tuple(others), pending)),
        ):
            state = self._named(clock, lost)
            if state is not None:
                yield state

    def _named(self, clock: int, lost: Iterable[int]) -> CrashState | None:
        """The new state that lacks `lost` of what had been issued by a moment, at its earliest moment; or None."""
        common = self._common
        gone = {common.graph.whole(piece): piece for piece in lost}
        while True:
            whole = {piece for piece, given in gone.items() if piece == given}
            held = int(np.searchsorted(common.issued, clock, side="right")) - 1
            while held >= 0 and (held in whole or not common.counts[held]):
                held -= 1
            clock = max(common.last_shown(clock), int(common.issued[held]) if held >= 0 else 0)
            some = {
                piece: part for piece, part in gone.items() if common.counts[piece] and common.issued[piece] <= clock
            }
            if not any(self._before[piece] <= clock for piece in some):
                return None
            gone = self._with_fewest(clock, some)
            if gone == some:
                return common.state(clock, gone.values())

    def _with_fewest(self, clock: int, gone: dict[int, int]) -> dict[int, int]:
        """What leaves the same image at a moment, and is fewer pieces."""
        pending, _, _ = self._at(clock)
        component = self._common.graph.component
        out: dict[int, int] = {}
        for number in {int(component[piece]) for piece in gone}:
            mine = tuple(sorted(part for piece, part in gone.items() if component[piece] == number))
            ids = tuple(piece for piece in pending if component[piece] == number)
            same = self._common.choices(ids).same(mine)
            out.update((self._common.graph.whole(piece), piece) for piece in same)
        return out


def _lost_with(pieces: Iterable[int], needs: Iterable[tuple[int, Ids]]) -> set[int]:
    """`pieces` and all that cannot persist without them."""
    lost = set(pieces)
    for id_, befores in needs:
        if any(before in lost for before in befores):
            lost.add(id_)
    return lost
