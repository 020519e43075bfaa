"""Operations and crashes: which operations had ended at a crash, which were under way, and what may follow legally.

Witcher (SOSP 2021), 4.5 and 4.7: after a crash, what was under way is done or not done, in some order, all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, pairwise, permutations
from operator import eq
from typing import TYPE_CHECKING

import numpy as np

from crashcheck.checker.execution.tasks import FINAL, FIRST
from crashcheck.runtime.trace_format import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crashcheck.analyzer.trace.reader import Trace
    from crashcheck.checker.states.points import CrashPoint

MOST_OPEN = 4  # operations that overlap and are still judged: 65 legal outcomes if none of them has ended

Ordinals = tuple[int, ...]


@dataclass(frozen=True)
class Standing:
    """Operations by ordinal, from 1.

    `done`: in the order in which they took effect. `open`: begun and not ended, by ordinal. `recent`: ended since there
    was last none under way, in an order that is not known except `before`: pairs of an operation that had ended and
    one that began after it.
    """

    done: Ordinals
    open: Ordinals
    recent: Ordinals = ()
    before: frozenset[tuple[int, int]] = frozenset()

    @property
    def unsettled(self) -> int:
        return len(self.open) + len(self.recent)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.done, self.open, self.recent, self.before))

    @cached_property
    def in_file_order(self) -> bool:
        """Whether what began is the file's beginning, and what is done was done in the file's order."""
        begun = range(1, len(self.done) + self.unsettled + 1)
        return all(map(eq, self.done, begun)) and {*self.recent, *self.open} == {*begun[len(self.done) :]}


@dataclass(frozen=True)
class History:
    """Operations that ran one after another in a process of their own, and those left for the next."""

    before: Ordinals
    rest: Ordinals

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.before, self.rest))

    @cached_property
    def in_file_order(self) -> bool:
        """Whether both together are the beginning of a file, in its order."""
        return self.before + self.rest == tuple(range(1, len(self.before) + len(self.rest) + 1))


@dataclass(frozen=True)
class Operations:
    """The lines of an operation file; the k-th to begin is line k."""

    lines: tuple[bytes, ...]

    @staticmethod
    def of(text: bytes) -> Operations:
        """One a line; lines of white space are none."""
        return Operations(tuple(line for line in text.split(b"\n") if line.strip()))

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, ordinals: Sequence[int]) -> bytes:
        """The file of some of them, in the order given."""
        if ordinals and tuple(ordinals) == tuple(range(ordinals[0], ordinals[-1] + 1)):
            starts, text = self._file
            return text[starts[ordinals[0] - 1] : starts[ordinals[-1]]]
        return b"".join(self.lines[ordinal - 1] + b"\n" for ordinal in ordinals)

    @cached_property
    def _file(self) -> tuple[list[int], bytes]:
        """Where each of them starts in the file of all, with its end; and that file."""
        starts = [0, *accumulate(len(line) + 1 for line in self.lines)]
        return starts, b"".join(line + b"\n" for line in self.lines)

    def shown(self, ordinal: int) -> str:
        return self.lines[ordinal - 1].decode("utf-8", "replace").strip()

    def rest(self, standing: Standing) -> Ordinals:
        """What had not begun by a crash, in the file's order."""
        if standing.in_file_order:
            return tuple(range(len(standing.done) + standing.unsettled + 1, len(self) + 1))
        begun = {*standing.done, *standing.recent, *standing.open}
        return tuple(ordinal for ordinal in range(1, len(self) + 1) if ordinal not in begun)

    def text_of_rest(self, standing: Standing) -> bytes:
        """The file of what had not begun by a crash."""
        if standing.in_file_order:
            starts, text = self._file
            return text[starts[len(standing.done) + standing.unsettled] :]
        return self.text(self.rest(standing))

    def legal(self, standing: Standing) -> Iterator[History]:
        """What a crash may have left, "all done" first: every order of every subset of what was under way.

        With M operations under way, P(M,0) + ... + P(M,M) histories: 1, 2, 5, 16, 65 for M = 0 to 4. What ended
        recently is in each of them, nowhere before what it began after.
        """
        rest = self.rest(standing)
        for count in range(len(standing.open), -1, -1):
            for some in combinations(standing.open, count):
                for order in orders((*standing.recent, *some), standing.before):
                    yield History((*standing.done, *order), rest)

    def boundary(self, ordinal: int) -> History:
        """The first `ordinal` operations, then the others."""
        return History(tuple(range(1, ordinal + 1)), tuple(range(ordinal + 1, len(self) + 1)))


def orders(operations: Ordinals, before: frozenset[tuple[int, int]]) -> Iterator[Ordinals]:
    """The permutations that keep `before`, the given order first if it does."""
    for order in permutations(operations):
        place = {ordinal: index for index, ordinal in enumerate(order)}
        if all(place[one] < place[other] for one, other in before if one in place and other in place):
            yield order


class Standings:
    """Which operations of a recorded run had begun and ended at each crash point."""

    def __init__(self, trace: Trace, points: Sequence[CrashPoint]) -> None:
        marks = trace.rows(Kind.MARK_BEGIN, Kind.MARK_END)
        begins, ordinals = trace.events["kind"][marks] == Kind.MARK_BEGIN, trace.events["aux"][marks]
        self._marks: list[tuple[bool, int]] = list(zip(begins.tolist(), ordinals.tolist(), strict=True))
        self._events = marks
        self._points = points
        self._known: dict[int, Standing] = {}
        self._settled: dict[int, Ordinals] = {}
        self._under_way = np.cumsum([0, *(1 if begins else -1 for begins, _ in self._marks)])
        self._quiet = np.flatnonzero(self._under_way == 0)  # numbers of marks with none under way after them
        self._effect: tuple[Ordinals, list[int]] | None = None  # order of effect, and how many of it at each of _quiet

    @property
    def begun(self) -> int:
        return sum(begins for begins, _ in self._marks)

    @property
    def ended(self) -> int:
        return len(self._marks) - self.begun

    def at(self, point: int) -> Standing:
        """At a crash point, or before (FIRST) or after (FINAL) the workload."""
        return self.after(self.marks(point))

    def marks(self, point: int) -> int:
        """How many of the marks are before a crash point."""
        if point == FIRST:
            return 0
        return len(self._marks) if point == FINAL else self._marks_before(point)

    def after(self, marks: int) -> Standing:
        """After so many of the marks."""
        known = self._known.get(marks)
        if known is None:
            if len(self._known) > 256:
                self._known.clear()
            known = self._known[marks] = self._standing(marks)
        return known

    def _standing(self, marks: int) -> Standing:
        """`done` is the beginning of one order of effect; what came since the last quiet moment is gone through."""
        if self._effect is None:
            self._effect = self._order_of_effect()
        order, counts = self._effect
        last = int(np.searchsorted(self._quiet, marks, side="right")) - 1
        open_: set[int] = set()
        recent: list[int] = []
        before: set[tuple[int, int]] = set()
        for begins, ordinal in self._marks[int(self._quiet[last]) : marks]:
            if begins:
                before.update((ended, ordinal) for ended in recent)
                open_.add(ordinal)
            else:
                open_.discard(ordinal)
                recent.append(ordinal)
        return Standing(order[: counts[last]], tuple(sorted(open_)), tuple(recent), frozenset(before))

    def _order_of_effect(self) -> tuple[Ordinals, list[int]]:
        order: list[int] = []
        counts = [0]
        for low, high in pairwise(self._quiet.tolist()):
            ended = [ordinal for begins, ordinal in self._marks[low:high] if not begins]
            order += self._settled.get(high, ended)
            counts.append(len(order))
        return tuple(order), counts

    def overlapping(self, point: int) -> list[Ordinals]:
        """At a boundary: the orders in which the operations that ended since the last one may have taken effect.

        Empty if there is but one order, or if there are more than MOST_OPEN operations.
        """
        marks = self._marks_before(point)
        if marks == 2 or not self._under_way[marks - 2]:
            return []  # one that was alone
        last = self.after(marks - 1)
        if last.unsettled < 2 or last.unsettled > MOST_OPEN:
            return []
        return list(orders((*last.recent, *last.open), last.before))

    def settle(self, point: int, order: Ordinals) -> None:
        """At a boundary: this is the order in which they did."""
        self._settled[self._marks_before(point)] = order
        self._known.clear()
        self._effect = None

    def _marks_before(self, point: int) -> int:
        return int(self._events.searchsorted(self._points[point].event))

    def alone(self) -> list[tuple[int, int]]:
        """(operation, crash point) at which that operation alone is under way, in order."""
        ordinals = self._only_one()
        rows = np.array([int(point.event) for point in self._points], dtype=np.int64)
        marks = np.searchsorted(self._events, rows, side="left").tolist()
        return [(ordinals[count], point) for point, count in enumerate(marks) if ordinals[count]]

    def updating(self, updates: Sequence[int]) -> frozenset[int]:
        """The operations that make some of the updates (rows of the trace) while no other is under way."""
        ordinals = np.array(self._only_one())
        return frozenset(ordinals[np.searchsorted(self._events, np.asarray(updates))].tolist()) - {0}

    def _only_one(self) -> list[int]:
        """After so many of the marks: the operation under way if there is one alone, else 0."""
        found, open_ = [0], set[int]()
        for _, ordinal in self._marks:
            open_ ^= {ordinal}
            found.append(next(iter(open_)) if len(open_) == 1 else 0)
        return found

    def quiet(self) -> list[int]:
        """Crash points just after an operation's end with none under way: the operations' boundaries."""
        found: dict[int, int] = {}
        marks = np.searchsorted(self._events, np.array([int(point.event) for point in self._points]), side="left")
        for point, count in enumerate(marks.tolist()):
            if count and not self._under_way[count] and count not in found:
                found[count] = point
        return [found[count] for count in sorted(found)]
