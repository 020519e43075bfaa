"""The counterpart of a crash state in another recording: the same updates lost and kept, in the same operation.

Two versions of a program are recorded apart, so events and offsets differ. What an update has in common with its
counterpart is its site signature (function, file, variable, source text, ordinal), the number of its operation, its
number among equal ones there, and which part of its store it is. A site that was renamed altogether is known by what
it writes: the same places of the same files in the same operations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

from crashcheck.analyzer.persistence.shown_names import pattern_of
from crashcheck.checker.evidence import CrashSchedule
from crashcheck.checker.findings.identity import PLACE_PARTS, Identities
from crashcheck.checker.findings.uses import callers_of
from crashcheck.checker.results import Finding, Location
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject

_TEXT = 3  # in a place: its source line
MOST_POINTS = 8  # of one operation, at which the counterpart is tried

Place = tuple[str, ...]
Signature = tuple[Place, int, int, int]  # place, operations acknowledged, number among equal ones there, part
# Of each call: operations acknowledged, kind, offset, size, and its file's name without numbers.
Written = tuple[tuple[int, int, int, int, str], ...]
_Part = Callable[[Place], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Counterpart:
    """The states of the other recording to run. `impossible`: both updates are there, and no crash parts them.

    `closest`: the one of them at which the same updates are pending. At other points a state may fail for another
    reason.
    """

    states: tuple[CrashState, ...] = ()
    impossible: bool = False
    closest: CrashState | None = None

    @property
    def deciding(self) -> tuple[CrashState, ...]:
        """Those by which a state is known to be the other version's, too."""
        return self.states if self.closest is None else (self.closest,)


class Signed:
    """The updates of a recording by signature."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._identities = Identities(subject)
        self._of: dict[int, Signature] = {}
        self._piece: dict[Signature, int] = {}
        self._callers: defaultdict[Place, set[str]] = defaultdict(set)
        self._written: dict[Place, Written] = {}
        places: dict[tuple[int, int, int], Place] = {}
        seen: Counter[tuple[Place, int]] = Counter()
        events, graph = subject.trace.events, subject.graph
        last: tuple[int, tuple[Place, int, int]] = (-1, ((), 0, 0))
        part = 0
        for piece, event in enumerate(graph.event.tolist()):
            if event != last[0]:
                row = events[event]
                call = (int(row["site"]), int(row["stack"]), int(graph.file[piece]))
                place = places.get(call)
                if place is None or place[0] == "offset":
                    place = places[call] = self._identities.place_of_files(piece)
                    self._callers[place].add(self.led_to(piece))
                which = (place, int(subject.space.points.acked[subject.point_at(event)]))
                last, part = (event, (*which, seen[which])), 0
                seen[which] += 1
            signature: Signature = (*last[1], part)
            part += 1
            self._of[piece] = signature
            self._piece[signature] = piece

    def of(self, piece: int) -> Signature:
        """The signature of a piece; of an extension's part, that of the whole."""
        return self._of[self.subject.graph.whole(piece)]

    @property
    def places(self) -> Set[Place]:
        """Where its updates come from."""
        return self._callers.keys()

    def written(self, place: Place) -> Written:
        """What a place writes: in which operations, by calls of which kind, and where in which files."""
        if place not in self._written:
            self._written[place] = tuple(map(self._what, self._firsts[place]))
        return self._written[place]

    @cached_property
    def _firsts(self) -> Mapping[Place, list[int]]:
        """By place, the first piece of each call."""
        firsts: defaultdict[Place, list[int]] = defaultdict(list)
        for piece, (place, *_, part) in self._of.items():
            if not part:
                firsts[place].append(piece)
        return firsts

    def _what(self, piece: int) -> tuple[int, int, int, int, str]:
        row = self.subject.trace.events[self.subject.event_of(piece)]
        acked, path = self._of[piece][1], pattern_of(self.subject.path_of(piece))
        return acked, int(row["kind"]), int(row["offset"]), int(row["size"]), path

    def find(self, signature: Signature, moved: Mapping[Place, Place]) -> int | None:
        """The piece of a signature of another recording, if this one has it. `moved`: places by those of the other."""
        place, acked, number, part = signature
        return self._piece.get((moved.get(place, place), acked, number, part))

    def led_to(self, piece: int) -> str:
        """The functions that led to an update, as `callers_of` gives them."""
        here = self.subject.place(piece)
        return "" if here is None else callers_of(here)

    def callers(self, place: Place) -> Set[str]:
        """What led to the updates of a place."""
        return self._callers.get(place, set())


def renamed(ours: Set[Place], theirs: Set[Place]) -> dict[Place, Place]:
    """Places of one recording that the other has under another file name or function, or where it changes another
    file, or with another text where it alone changes a file: what is equal, and unique."""
    found: dict[Place, Place] = {}
    for part in (slice(1, None), slice(2, None), slice(PLACE_PARTS), slice(PLACE_PARTS, None)):
        found |= _alike(ours, theirs, found, itemgetter(part), itemgetter(part))
    return found


def _moved(here: Signed, there: Signed) -> dict[Place, Place]:
    """Places that are renamed, or that have nothing in common but what they alone write."""
    found = renamed(here.places, there.places)
    return found | _alike(here.places, there.places, found, here.written, there.written)


def _alike(
    ours: Set[Place], theirs: Set[Place], found: Mapping[Place, Place], mine: _Part, its: _Part
) -> dict[Place, Place]:
    """The same of places that one recording alone has, and for which nothing was found, by parts of both."""
    left, right = _unique(ours - theirs - found.keys(), mine), _unique(theirs - ours - set(found.values()), its)
    return {left[key]: right[key] for key in left.keys() & right.keys()}


def _unique(places: Iterable[Place], part: _Part) -> dict[tuple[Any, ...], Place]:
    """Places in the source by a part of what names them, which no other of them shares."""
    by_part: dict[tuple[Any, ...], list[Place]] = {}
    for place in places:
        if len(place) >= PLACE_PARTS and place[_TEXT] and (key := part(place)):
            by_part.setdefault(key, []).append(place)
    return {key: same[0] for key, same in by_part.items() if len(same) == 1}


@dataclass(frozen=True, slots=True)
class Described:
    """What a finding's crash state loses and keeps, by signature, so that it can be found in another recording."""

    losing: tuple[Signature, ...]  # the blamed update, each time that the state loses it
    keeping: Signature | None  # the other update
    rest: tuple[Signature, ...]  # all that is lost
    marks: tuple[int, int]  # operations acknowledged and begun at the crash
    prefix: bool  # what is lost follows: the state is the run until `keeping`
    pending: tuple[Signature, ...] = ()  # all that is pending at the crash, as far as it is known


@dataclass(frozen=True, slots=True)
class Parted:
    """The same as pieces of the other recording."""

    losing: tuple[int, ...]
    keeping: int | None
    rest: tuple[int, ...]
    marks: tuple[int, int]
    pending: frozenset[int] = frozenset()  # empty if a part of it has none


def counterpart(finding: Finding, state: CrashState, here: Signed, there: Signed) -> Counterpart:
    """The counterparts of a finding's failing state of one recording in another; none if the updates have none."""
    what = described(finding, state, here)
    return Counterpart() if what is None else counterpart_of(what, _moved(here, there), there)


def counterpart_of(what: Described, moved: Mapping[Place, Place], there: Signed) -> Counterpart:
    """As `counterpart`, of a state that was described; `moved`: places of this recording by those of the state's."""
    if what.prefix and what.keeping is not None:
        keeping = there.find(what.keeping, moved)
        subject = there.subject
        return Counterpart() if keeping is None else Counterpart((subject.prefix(subject.event_of(keeping) + 1),))
    pair = _located(what, moved, there)
    return Counterpart() if pair is None else states_that_part(there.subject, pair)


def parted(finding: Finding, state: CrashState, here: Signed, there: Signed) -> Parted | None:
    """What a failing state of one recording loses and keeps, in another; None if the updates have no counterpart."""
    what = described(finding, state, here)
    return None if what is None or what.prefix else _located(what, _moved(here, there), there)


@dataclass(frozen=True, slots=True)
class Callers:
    """What leads to a blamed update and to its counterpart, and to all updates of its place in both recordings."""

    mine: str
    its: str | None  # None: there is no counterpart
    ours: Set[str]
    theirs: Set[str]

    @property
    def new(self) -> bool:
        """Whether it is not the other recording's under another name: as many others have no counterpart."""
        return self.mine not in self.theirs and len(self.ours - self.theirs) > len(self.theirs - self.ours)

    @property
    def compared(self) -> bool:
        """Whether the counterpart is called by the same, perhaps under another name."""
        renamed = self.mine not in self.theirs and self.its not in self.ours
        return self.its is not None and (self.its == self.mine or renamed)


def callers(finding: Finding, state: CrashState, here: Signed, there: Signed) -> Callers | None:
    """None if a failing state's updates are not known."""
    what = described(finding, state, here)
    if what is None or not what.losing:
        return None
    moved, blamed = _moved(here, there), what.losing[0]
    mine, its = here.find(blamed, {}), there.find(blamed, moved)
    return Callers(
        "" if mine is None else here.led_to(mine),
        None if its is None else there.led_to(its),
        here.callers(blamed[0]),
        there.callers(moved.get(blamed[0], blamed[0])),
    )


def described(finding: Finding, state: CrashState, here: Signed) -> Described | None:
    """A finding's failing state; None where its updates are not known, or it has none."""
    crash = finding.evidence
    if not isinstance(crash, CrashSchedule):
        return None
    subject = here.subject
    point = subject.space.points[state.point]
    lost, blamed, kept = _roles(finding.location, crash, state, subject)
    prefix = kept is not None and all(subject.event_of(kept) < subject.event_of(each) for each in lost)
    if not prefix and (not blamed or (crash.other is not None and kept is None)):
        return None
    keeping = here.of(kept) if kept is not None else None
    losing, rest = (tuple(map(here.of, pieces)) for pieces in (blamed, lost))
    pending = tuple(map(here.of, subject.space.pending(state.point)))
    return Described(losing, keeping, rest, (point.acked, point.begun), prefix, pending)


def _located(what: Described, moved: Mapping[Place, Place], there: Signed) -> Parted | None:
    def found(signatures: Iterable[Signature]) -> tuple[int, ...]:
        return tuple(piece for each in signatures if (piece := there.find(each, moved)) is not None)

    losing, keeping = found(what.losing), there.find(what.keeping, moved) if what.keeping is not None else None
    if not losing or (what.keeping is not None and keeping is None):
        return None
    rest, pending = found(what.rest), found(what.pending)
    whole = len(pending) == len(what.pending) and len(rest) == len(what.rest)
    return Parted(losing, keeping, rest, what.marks, frozenset(pending) if whole else frozenset())


def _roles(
    location: Location, crash: CrashSchedule, state: CrashState, subject: Subject
) -> tuple[list[int], list[int], int | None]:
    """Of a failing state: what it loses, the blamed updates among that, and the other update, which it keeps."""
    lost = [piece for piece in subject.space.lost(state) if piece < len(subject.graph)]
    until = subject.update_from(subject.space.moment(state.point))
    end = len(subject.graph) if until is None else until
    blamed, other = _culprits(location, crash, subject)
    gone = set(lost)
    kept = next((piece for piece in range(end - 1, -1, -1) if piece not in gone and other(piece)), None)
    return lost, [piece for piece in lost if blamed(piece)], kept


def _culprits(
    location: Location, crash: CrashSchedule, subject: Subject
) -> tuple[Callable[[int], bool], Callable[[int], bool]]:
    """Which pieces are the blamed update, and which the other one: by their places in the source, or as the events that
    the schedule marks, where a recorded call has none, or another one: of a large program not all debug information is
    read, so what is known of a call depends on which others are asked for."""

    def is_at(place: Location) -> Callable[[int], bool]:
        def same(piece: int) -> bool:
            found = subject.place(piece)
            return found is not None and (found.point, found.owner) == (place.point, place.owner)

        return same

    def happens_as(*fates: str) -> Callable[[int], bool]:
        events = {step.event for step in crash.schedule if step.role and step.state in fates}
        return lambda piece: subject.event_of(piece) in events

    def culprit(place: Location, *fates: str) -> Callable[[int], bool]:
        at = is_at(place)
        return at if any(map(at, range(len(subject.graph)))) else happens_as(*fates)

    if not location.line:
        return happens_as("lost"), happens_as("persisted")
    if crash.other is None:
        return culprit(location, "lost"), lambda piece: False
    return culprit(crash.other, "lost", "unreached"), culprit(location, "persisted", "durable")


def states_that_part(subject: Subject, pair: Parted) -> Counterpart:
    """The states that lose one of `losing` and keep `keeping`, of the points with the same operations acknowledged."""
    losing, keeping, rest, marks = pair.losing, pair.keeping, pair.rest, pair.marks
    after = max(subject.event_of(piece) for piece in (*losing, *([keeping] if keeping is not None else [])))
    space = subject.space
    states: dict[CrashState, None] = {}
    closest: CrashState | None = None
    parted = False  # whether a point was met at which one of `losing` is pending
    for number in range(subject.point_at(after + 1), len(space.points)):
        pending = set(space.pending(number))
        point = space.points[number]
        if not pending.intersection(losing):  # durable from here on
            impossible = not states and (point.acked, point.begun) <= marks
            return Counterpart(tuple(states), impossible, closest)
        if (point.acked, point.begun) > marks or len(states) >= MOST_POINTS:
            break
        if (point.acked, point.begun) != marks:
            continue
        parted = True
        if closest is None and pending == pair.pending:
            same = space.drop(number, rest)
            closest = same if set(space.lost(same)) == set(rest) else None
        for wanted in ([piece for piece in rest if piece in pending], [piece for piece in losing if piece in pending]):
            state = space.drop(number, wanted)
            if keeping is None or keeping not in space.lost(state):
                states[state] = None
    return Counterpart(tuple(states), parted and not states, closest)


def lost_once_acknowledged(subject: Subject, pair: Parted) -> bool:
    """Whether a crash can lose one of `losing` after the first acknowledgement that follows it."""
    numbers = range(len(subject.space.points))
    for piece in pair.losing:
        event = subject.event_of(piece)
        acknowledged = partial(subject.acknowledged_between, event)
        first = bisect_left(numbers, True, lo=subject.point_at(event), key=acknowledged)
        if first < len(numbers) and piece in subject.space.pending(first):
            return True
    return False
