"""Crash states that a mutant of a recorded run has and the run itself does not have, each once, and how many there are.

The run and its mutants have the same updates, marks and outputs; they differ in when an update becomes durable. So all
speak here of one clock, which counts updates, marks and outputs, and of one state space: that of the run without any
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
from random import Random

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import IN_ORDER, Ints
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.images.transition import Content
from crashcheck.checker.states.granules import Choices, Granule, together
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep
from crashcheck.checker.subject import UPDATES
from crashcheck.interruption import KeepOn, always
from crashcheck.runtime.trace_format import Kind

MARKS = (Kind.MARK_BEGIN, Kind.MARK_END)
_TOLD = (Kind.MARK_END, Kind.OUTPUT)
_CHOICES_KEPT = 10_000
_NEAR = 6  # crash points tried from the first one on where an update may be lost


class CommonSpace:
    """What a run and its mutants have in common.

    `space` and `content` are those of the run without flushes, fences and syncs; `issued` gives for each piece the
    clock from which on it has been issued, `counts` whether it changes any image.
    """

    def __init__(self, space: StateSpace, content: Content) -> None:
        self.space = space
        self.content = content
        self.graph = graph = space.graph
        trace = graph.trace
        self._ticks = _ticks(trace)
        self.end = len(self._ticks)
        self.issued: Ints = np.searchsorted(self._ticks, graph.event, side="left") + 1
        kinds = trace.events["kind"][self._ticks]
        self._tells: NDArray[np.bool_] = np.concatenate([[True], np.isin(kinds, np.array(_TOLD, dtype=np.uint8))])
        # for each moment the last one at which the outside world learned something
        self._told_at = np.maximum.accumulate(np.where(self._tells, np.arange(self.end + 1), 0))
        clock = np.searchsorted(self._ticks, space.points.event, side="left")
        self._point = np.searchsorted(clock, np.arange(self.end + 1), side="left")
        self._clock = clock
        self.mixed = np.unique(graph.component[graph.mode != IN_ORDER])  # not just one event after the other
        self.counts = ~content.silent() | np.isin(graph.component, self.mixed)
        order = np.argsort(graph.component, kind="stable")
        bounds = np.flatnonzero(np.diff(graph.component[order])) + 1
        self._members = {int(graph.component[rows[0]]): rows for rows in np.split(order, bounds) if len(rows)}
        self._sweep = Sweep(space)
        self._choices: dict[Ids, Choices] = {}

    def durable(self, graph: PersistenceGraph) -> Ints:
        """For each piece the clock from which on it is durable in a mutant or in the run itself; past the end: never.

        At a clock of n stands the earliest such moment, just after the n-th update, mark or output.
        """
        if len(graph) != len(self.graph):
            raise ValueError("not a mutant of this graph")
        ticks = _ticks(graph.trace)
        return np.where(
            graph.durable_from > len(graph.trace.events),
            self.end + 1,
            np.minimum(np.searchsorted(ticks, graph.durable_from - 1, side="left") + 1, self.end + 1),
        )

    def clock(self, graph: PersistenceGraph, events: NDArray[np.int64] | int) -> Ints:
        """How much had happened before events of the run or of a mutant of it."""
        return np.asarray(np.searchsorted(_ticks(graph.trace), events, side="left"))

    def point(self, clock: int) -> int:
        """The crash point of the states that begin at a moment."""
        return int(self._point[clock])

    def told(self, clock: int) -> bool:
        """Whether the outside world has just learned something."""
        return bool(self._tells[clock])

    def told_by(self, clock: int) -> int:
        """When it last did."""
        return int(self._told_at[clock])

    def newest(self, clock: int) -> Ids:
        """Pieces of the update that has just happened, if they count."""
        low, high = np.searchsorted(self.issued, [clock, clock + 1]).tolist()
        return tuple(piece for piece in range(low, high) if self.counts[piece])

    def choices(self, pieces: Ids) -> Choices:
        """What may be lost of some pieces of one granule, ascending."""
        known = self._choices.get(pieces)
        if known is None:
            if len(self._choices) >= _CHOICES_KEPT:
                self._choices.clear()
            (ideals,) = self._sweep.ideals_of(pieces)
            known = self._choices[pieces] = Choices(ideals, self.content.difference)
        return known

    def state(self, clock: int, lost: Iterable[int]) -> CrashState:
        """The state in which all that had happened by `clock` persisted but `lost`, pieces that count, and parts."""
        point = self.point(clock)
        until = int(self._clock[point])
        out = set(lost)
        firsts: dict[int, int] = {}
        for piece in out:
            whole = self.graph.whole(piece)[0]
            component = int(self.graph.component[whole])
            firsts[component] = min(firsts.get(component, whole), whole)
        for component, first in firsts.items():
            if component in self.mixed:
                continue
            members = self._members[component]
            later = members[np.searchsorted(members, first, side="right") :]
            later = later[(self.graph.event[later] > self.graph.event[first]) & (self.issued[later] <= until)]
            out.update(later.tolist())
        low, high = np.searchsorted(self.issued, [clock + 1, until + 1]).tolist()
        return CrashState(point, True, tuple(sorted(out.union(range(low, high)))))

    def needs(self, pieces: Sequence[int], pending: Ids) -> list[tuple[int, Ids]]:
        """(piece, what it directly needs) for the pending pieces of the granules that hold `pieces`, ascending."""
        if not pieces:
            return []
        rows = np.array(pending, dtype=np.int64)
        near = np.isin(self.graph.component[rows], self.graph.component[np.array(pieces, dtype=np.int64)])
        chosen = tuple(rows[near].tolist())
        return list(zip(chosen, self.graph.direct_before(chosen), strict=True))


@dataclass(frozen=True, slots=True)
class StateCount:
    """`value`: how many new states there are, or at least so many; `whole` says which."""

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
        # after an update that counts, or when the outside world learns something: else no state begins there
        begins = np.zeros(common.end + 1, dtype=np.bool_)
        begins[common.issued[common.counts]] = True
        begins |= np.array([common.told(clock) for clock in range(common.end + 1)])
        self._known: dict[tuple[Ids, frozenset[int], frozenset[int]], Granule] = {}
        self._moments: list[int] = np.flatnonzero(open_ & begins).tolist()

    def pieces(self) -> int:
        """How many pieces persist later than they did."""
        return self._later

    @property
    def equivalent(self) -> bool:
        """Whether the mutant has no state that is new."""
        return self.count(0).value == 0

    # -- which are there

    def count(self, most: int) -> StateCount:
        """How many new states there are; where there are more than `most`, not all are counted."""
        total = 0
        for clock in self._moments:
            total += self.new_at(clock)
            if total > most:
                return StateCount(total, False)
        return StateCount(total, True)

    @cached_property
    def moments(self) -> tuple[int, ...]:
        """The clocks at which new states begin, ascending."""
        return tuple(clock for clock in self._moments if self.new_at(clock))

    def stretches(self) -> list[tuple[int, ...]]:
        """`moments`, those together in which nothing becomes durable and nothing is told.

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
        newest = () if common.told(clock) else common.newest(clock)
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
                if len(self._known) >= _CHOICES_KEPT:
                    self._known.clear()
                known = self._known[key] = Granule(common.graph, common.choices, *key)
            out.append(known)
        return out

    def all(self) -> Iterator[CrashState]:
        """Every new state: those that lack something of one granule, at all moments, then of two, and so on.

        Some of them may leave the same image, if something was as it had been before, meanwhile not.
        """
        for many in range(1, self.granules + 1):
            yield from self.lacking(many)

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

    def losses(self, many: int) -> Iterator[CrashState]:
        """New states that lack something of exactly so many of the granules that have something exposed.

        Each comes twice: with all of the other granules persisted, and with nothing else but what must have.
        """
        for clock in self._moments:
            self.keep_on()
            some = self._granules(clock)
            open_ = [each for each in some if each.all > each.alike]
            if len(open_) < many:
                continue
            others = [each for each in some if each.all == each.alike]
            begun = any(each.newest for each in others)
            gone = tuple(chain.from_iterable(each.whole for each in others if not each.newest))
            for lost in together(open_, many, begun, self.keep_on):
                yield self._common.state(clock, lost)
                if gone:
                    yield self._common.state(clock, lost + gone)

    def drawn(self) -> Iterator[CrashState | None]:
        """New states at random, from those that lack little to those that hold little, without end.

        Some come more than once; None where the dice give none.
        """
        drawing = Random(0)
        open_ = [clock for clock in self._moments if any(each.all > each.alike for each in self._granules(clock))]
        while open_:
            clock = drawing.choice(open_)
            some = self._granules(clock)
            share = drawing.random()
            chosen = [drawing.choice(each.some) if each.some and drawing.random() < share else () for each in some]
            at = drawing.choice([at for at, each in enumerate(some) if each.all > each.alike])
            exposing = [lost for lost in some[at].some if some[at].exposes(lost)]
            chosen[at] = drawing.choice(exposing) if exposing else ()
            yield self.combined(clock, chosen) if exposing else None

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
        gone, kept = {piece}, {piece}
        for id_, befores in needs:
            if any(before in gone for before in befores):
                gone.add(id_)
        for id_, befores in reversed(needs):
            if id_ in kept:
                kept.update(befores)
        without = set(open_)
        for id_, befores in self._common.needs(tuple(open_), pending):
            if any(before in without for before in befores):
                without.add(id_)
        others = open_ - kept
        alone = set(others)
        for id_, befores in self._common.needs(tuple(others), pending):
            if any(before in alone for before in befores):
                alone.add(id_)
        for lost in (gone, without, alone):
            state = self._named(clock, lost)
            if state is not None:
                yield state

    def new(self, space: StateSpace, state: CrashState) -> CrashState | None:
        """A state of the mutant's space as one of the common space; None if the run has it as well."""
        lost = space.lost(state)
        clock = int(self._common.clock(self._mutant, int(space.points.event[state.point])))
        return self._named(clock, lost)

    def _named(self, clock: int, lost: Iterable[int]) -> CrashState | None:
        """The new state that lacks `lost` of what had been issued by a moment, at its earliest moment; or None."""
        common = self._common
        gone = {common.graph.whole(piece)[0]: piece for piece in lost}
        while True:
            whole = {piece for piece, given in gone.items() if piece == given}
            held = int(np.searchsorted(common.issued, clock, side="right")) - 1
            while held >= 0 and (held in whole or not common.counts[held]):
                held -= 1
            clock = max(common.told_by(clock), int(common.issued[held]) if held >= 0 else 0)
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
            out.update((self._common.graph.whole(piece)[0], piece) for piece in same)
        return out


def _ticks(trace: Trace) -> NDArray[np.int64]:
    told = np.array([*UPDATES, *MARKS, Kind.OUTPUT], dtype=np.uint8)
    return np.flatnonzero(np.isin(trace.events["kind"], told))
