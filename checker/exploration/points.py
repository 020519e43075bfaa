"""Decides whole stretches of crash points: all their states pass if the explored runs of the last point pass."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import halving_order
from crashcheck.checker.budget import Left, OutOfTime, within
from crashcheck.checker.exploration.product import Losses, Product, product_of
from crashcheck.checker.exploration.runs import ExploredLimit, explored_runs, failing_ends
from crashcheck.checker.kept.keys import product_key
from crashcheck.checker.results import NotExplored
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.counting import StateCount, Stretch
from crashcheck.checker.states.granules import Choices
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.verdict_source import VerdictSource
from crashcheck.interruption import KeepOn
from crashcheck.runtime.exploration import MOST_ENDS, End, Explored

_FEW = 16  # new states of a stretch that are run rather than explored: that costs about as much
_BATCH = 4  # stretches explored before states are run again, whatever the number of workers
_PAUSE = 16  # states that the search runs between two batches
_PASSES = 16  # through the run, each with other stretches: a budget that ends early has decided something everywhere
# For the runs that decide one stretch: seconds; where the search has no limit of seconds, how many of them end, so that
# no result depends on how fast they are. A stretch that was not decided in one limit is explored with the next one when
# all others were tried. The first one is short: states are not run meanwhile.
_LIMITS_S = (0.5, 2.0, 20.0, 60.0)
_LIMITS_ENDS = (16, 128, 1024, MOST_ENDS)
_LAST = len(_LIMITS_S) - 1
_ENDS_IN_TIME = 4  # of runs that are counted, in the time limit of one: that is ten times what the check needs
_COUNT_SHARE = 0.25  # of the seconds that are left when exploring begins: for counting the states of each stretch
_REFUSED = 32  # stretches in sequence that were refused: no more are tried
_TOO_LATE = "its time was over"
_NO_TURN = "the search ended before it was explored for longer"
_AFTERWARDS = "nothing was explored after that"
_SETS_KEPT = 1 << 16  # of what may be lost of granules
_SAMPLES = 32  # stretches of which a decided state is run as well; afterwards ever fewer


class DecidedPoints:
    """Crash points at which every state is known to pass. `settled`: no other point will be decided."""

    def __init__(self, space: StateSpace) -> None:
        self.passed: NDArray[np.bool_] = np.zeros(len(space.points), dtype=np.bool_)
        self.settled = False

    def __contains__(self, point: object, /) -> bool:
        return isinstance(point, int) and bool(self.passed[point])


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of exploring. `states`: decided by that alone; `ends`: of the explored runs that decided them.

    `left`: reasons why states are not decided, and how many they are. `reused`: states that explored runs of the search
    that is resumed decided.
    """

    states: int
    ends: int
    left: tuple[NotExplored, ...]
    reused: int = 0


class PointExploration:
    """Explores the stretches of a search, a few at a time. Keeps images until `close`."""

    def __init__(
        self,
        subject: Subject,
        source: VerdictSource,
        decided: DecidedPoints,
        count: StateCount,
        left: Left,
    ) -> None:
        # constant
        self._space, self._content = subject.space, subject.content
        self._source = source
        self._executor = source.executor
        self._count = count
        self._left = left
        self._timed = left() is not None
        self._sweep = Sweep(subject.space)
        self._canonical = CanonicalStates(subject.space)
        # changing
        self.decided = decided
        self.contradiction = ""  # a state that failed although explored runs had shown that it passes
        self._ends = 0
        self._explored = 0  # stretches that are decided
        self._states = 0  # theirs, except those that were run by themselves
        self._reused = 0  # the same of stretches that the search before decided
        self._is_reused: NDArray[np.bool_] = np.zeros(len(decided.passed), dtype=np.bool_)  # of each point
        self._run: NDArray[np.int64] = np.zeros(len(decided.passed), dtype=np.int64)  # states of each point
        self._failed: dict[int, str] = {}  # by crash point, the token of a state that failed
        self._why: Counter[str] = Counter()  # stretches' states
        self._refused = 0  # in sequence
        # by the pending pieces of a granule: what is never flushed is pending at each later point
        self._losses_of: dict[Ids, Losses] = {}
        self._sets = 0  # in these
        self._images = [_Image(source.executor, number) for number in range(_BATCH)]
        self._todo = self._in_passes()
        self._limit = 0  # which of these limits
        self._late: list[Stretch] = []  # not decided in it
        self.pause = _PAUSE  # states to be run before the next batch

    def close(self) -> None:
        """Remove the images."""
        for image in self._images:
            image.remove()

    def batch(self) -> list[CrashState]:
        """Explore some stretches, and give states that should fail, and some that should pass."""
        some = self._next()
        if not some:
            self.decided.settled = True
            return []
        some = self._without_others(some)
        left_s = self._left()
        until_s = None if left_s is None else time.monotonic() + left_s
        prepared = [self._prepared(stretch, image) for stretch, image in zip(some, self._images, strict=False)]
        keys = [self._key(one) for one in prepared]
        known = [self._known_result(key) for key in keys]
        products = [
            (one if isinstance(one, Product) and there is None else None, image.folder)
            for one, there, image in zip(prepared, known, self._images, strict=False)
        ]
        results = explored_runs(self._executor, products, self._may_take(), until_s)
        out: list[CrashState] = []
        late = False
        each = zip(some, prepared, results, known, keys, self._images, strict=False)
        for stretch, one, own, there, key, image in each:
            result, folder = there or (own, image.folder)
            late = late or (result is not None and result.late)
            if key is not None and own is not None:
                self._source.explored(self._with_limit(key, own), own, folder)
            out += self._taken(stretch, one, result, folder, resumed=there is not None)
        self._adapt(late)
        return out

    def _may_take(self) -> ExploredLimit:
        """What the runs of a stretch may take now; where they are counted, only a run that hangs takes so long."""
        if self._timed:
            return ExploredLimit(_LIMITS_S[self._limit])
        ends, short = _LIMITS_ENDS[self._limit], self._executor.short
        one_s = self._executor.workers.limits.timeout_s if short is None else short.wall_s
        return ExploredLimit(min(_LIMITS_S[_LAST], one_s * ends / _ENDS_IN_TIME), ends)

    def _known_result(self, key: bytes | None) -> tuple[Explored, Path] | None:
        """What another search has found out about a product, in the time that this one would give it."""
        if key is None:
            return None
        return self._source.product(key) or self._source.product(self._with_limit(key))

    def _with_limit(self, key: bytes, result: Explored | None = None) -> bytes:
        """The key of a result: of one that came too late, or of which none is given, with the present limit."""
        return key if result is not None and not result.late else key + bytes([self._timed, self._limit])

    def _without_others(self, some: list[Stretch]) -> list[Stretch]:
        """The stretches that are not another shard's. Those of others count as decided: they run what is not."""
        mine = []
        for stretch in some:
            if not self._source.is_elsewhere(self._count.stretch_at(stretch.last)):
                mine.append(stretch)
                continue
            refused = self._refused
            self._decide(stretch, reused=True)
            self._refused = refused
            self._explored += 1
        return mine

    def _next(self) -> list[Stretch]:
        """The next stretches; those that took too long again, with more time, after all others."""
        some = list(islice(self._todo, _BATCH))
        if not some and self._late:
            self._limit = min(self._limit + 1, _LAST)
            self._todo, self._late = iter(self._late), []
            some = list(islice(self._todo, _BATCH))
        return some

    def _adapt(self, late: bool) -> None:
        """Explore less often where runs end at their limit, with more time where the check is slow, or no more."""
        # What ends at its limit has cost as much as dozens of states and decided nothing.
        self.pause = self.pause * 2 if late else max(self.pause // 2, _PAUSE)
        if late and self._limit == _LAST:
            self._give_up(_TOO_LATE)
        elif self._refused >= _REFUSED and self._late and self._limit < _LAST:
            self._limit, self._refused = self._limit + 1, 0  # the check is slow
        elif self._refused >= _REFUSED:
            self._give_up("similar to those that could not be explored")

    def executed(self, state: CrashState) -> None:
        """Take note that a state was run by itself, or is equal to one that was."""
        self._run[state.point] += 1
        if state.point in self.decided:
            reused = bool(self._is_reused[state.point])
            self._reused -= reused
            self._states -= not reused

    def failed(self, state: CrashState, token: str) -> None:
        """Take note that a state failed, twice, by itself. If it was decided, nothing that was explored counts."""
        self._failed[state.point] = token
        if state.point in self.decided:
            self._contradicted(token)

    def _contradicted(self, token: str) -> None:
        self.contradiction = token
        self._why[f"explored runs do not count, because the state {token} failed that should pass by them"] += int(
            self._states + self._reused + self._run[self.decided.passed].sum()
        )
        self.decided.passed[:] = False
        self._ends = self._explored = self._states = self._reused = 0
        self._give_up(_AFTERWARDS)

    def tried(self) -> Tried:
        """The result so far."""
        reasons = self._why.copy()
        if self._late:
            reasons[_NO_TURN] += sum(stretch.states for stretch in self._late)
        left = tuple(
            NotExplored(why, many) for why, many in sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
        )
        return Tried(self._states, self._ends, left, self._reused)

    # -- one batch

    def _in_passes(self) -> Iterator[Stretch]:
        """The stretches that are worth exploring, every sixteenth first, then those half-way between, and so on."""
        try:
            self._count.advance(within(self._left, _COUNT_SHARE))
        except OutOfTime:
            self._why["to count the states took too long"] = self._count.feasible().value
            return
        every = [each for each in self._count.stretches if each.states > _FEW]
        for first in halving_order(_PASSES):
            yield from every[first::_PASSES]

    def _prepared(self, stretch: Stretch, image: _Image) -> Product | str:
        image.move(stretch.last)
        losses = self._losses(stretch.last, within(self._left))
        try:
            return product_of(self._content, stretch.last, losses, image.pool)
        except OutOfTime:
            return _TOO_LATE

    def _losses(self, point: int, keep_on: KeepOn) -> Iterator[Losses]:
        for pieces in self._sweep.factors_of(self._space.pending(point)):
            keep_on()
            known = self._losses_of.get(pieces)
            if known is None:
                (ideals,) = self._sweep.ideals_of(pieces)
                choices = Choices(ideals, self._content.difference)
                whole = choices.same(next(ideals.lost(ideals.size)))
                known = Losses(((), *choices) if choices.listed else None, whole)
                many = 1 if known.some is None else len(known.some)
                if self._sets + many > _SETS_KEPT:
                    self._losses_of.clear()
                    self._sets = 0
                self._losses_of[pieces] = known
                self._sets += many
            yield known

    def _taken(
        self, stretch: Stretch, one: Product | str, result: Explored | None, folder: Path, *, resumed: bool
    ) -> list[CrashState]:
        """Take the result of one stretch over; states of it to be run. `resumed`: it is one of another search."""
        if self.contradiction:
            self._why[_AFTERWARDS] += stretch.states
            return []
        if isinstance(one, str) or result is None:
            self._refuse(stretch, one if isinstance(one, str) else "")
            return []
        failing = failing_ends(self._executor, result, stretch.last, folder)
        if result.late and self._limit < _LAST:
            self._refused += 1
            self._late.append(stretch)
        elif result.why:
            self._refuse(stretch, result.why)
        elif failing:
            self._refused = 0
            self._why["an explored run failed there: the states are run one by one"] += stretch.states
        else:
            self._refused = 0
            self._ends += len(result.ends)
            self._explored += 1
            if not self._decide(stretch, reused=resumed and bool(self._source.since)):
                return []
            # one of each stretch at first, then fewer and fewer
            if self._explored <= _SAMPLES or not self._explored & (self._explored - 1):
                return [self._drawn(one)]
        return [self._state(one, end) for end, _ in failing]

    def _key(self, one: Product | str) -> bytes | None:
        """Under which a product is kept; None if it is not."""
        if not self._source.keeps or isinstance(one, str):
            return None
        full = self._content.fingerprint(self._space.full(one.point))
        return product_key(one.granules, full, self._executor.oracle.context(one.point))

    def _decide(self, stretch: Stretch, *, reused: bool = False) -> bool:
        """Note that all states of a stretch pass; False if one has failed."""
        points = slice(stretch.first, stretch.last + 1)
        more = stretch.states - int(self._run[points].sum())
        self._reused += more if reused else 0
        self._states += 0 if reused else more
        self.decided.passed[points] = True
        self._is_reused[points] = reused
        self._refused = 0
        for point in range(stretch.first, stretch.last + 1):
            if point in self._failed:
                self._contradicted(self._failed[point])
                return False
        return True

    def _refuse(self, stretch: Stretch, why: str) -> None:
        self._refused += 1
        self._why[why] += stretch.states

    def _give_up(self, why: str) -> None:
        for stretch in [*self._todo, *self._late]:
            self._why[why] += stretch.states
        self._late = []
        self.decided.settled = True

    def _drawn(self, product: Product) -> CrashState:
        """A state of a product at random, always the same one."""
        drawing = Random(product.point)
        return self._canonical.without(product.point, {id_ for each in product.losses for id_ in drawing.choice(each)})

    def _state(self, product: Product, end: End) -> CrashState:
        """A state that ends so; of what the run did not read nothing is lost."""
        lost: set[int] = set()
        for losses, which in zip(product.losses, end.choices, strict=True):
            lost.update(losses[which] if which is not None else ())
        return self._canonical.without(product.point, lost)


class _Image:
    """The image with everything persisted that was issued by a crash point, in a folder of its own."""

    def __init__(self, executor: Executor, number: int) -> None:
        self._executor = executor
        self.folder = executor.home / f"explored{number}"
        self._point: int | None = None

    @property
    def pool(self) -> Path:
        return self.folder / "pool"

    def move(self, point: int) -> None:
        """To another crash point; forward costs what was issued in between."""
        if self._point is not None and self._point > point:
            self.remove()
        if self._point is None:
            self.folder.mkdir()
        self._executor.images.write_issued(self._point, point, self.pool)
        self._point = point

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._point = None


NOT_TRIED = Tried(0, 0, ())

__all__ = ["NOT_TRIED", "DecidedPoints", "PointExploration", "Tried"]
