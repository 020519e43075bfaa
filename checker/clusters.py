"""One bug, one finding: causes that a single fix would mend are told as one (docs/findings.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from crashcheck.analyzer.persistence.pieces import DATA, IN_ORDER, LINE_BYTES, WORD_BYTES
from crashcheck.analyzer.trace.format import Kind as EventKind
from crashcheck.checker.identity import AT, Identities, PlaceKey
from crashcheck.checker.kinds import Cause
from crashcheck.checker.result import Kind, Location, Outcome
from crashcheck.checker.subject import Subject


class Lacks(StrEnum):
    """What would have made the lost update durable in time."""

    FENCE = "fence"  # it was on its way: flushed, or stored past the caches
    FLUSH = "flush"
    SYNC = "sync"  # page-cache: one call does both


@dataclass(frozen=True, slots=True)
class Trait:
    """What two causes are compared by."""

    kind: Kind
    lacks: Lacks | None  # None: no persist is missing
    lost: PlaceKey
    kept: PlaceKey
    object: tuple[str, ...]  # function and enclosing object of what was lost; empty if not known
    line: tuple[int, int]  # crash point and granule of what was lost
    beside: frozenset[PlaceKey] = frozenset()  # places of what one flush, early enough, would have persisted with it
    left: PlaceKey = ()  # of the update whose value stays where X is lost
    outcome: Outcome = Outcome.FAIL

    @property
    def together(self) -> bool:
        """Whether two updates must persist together: no flush or fence is missing."""
        return self.lacks is None and self.kind in (Kind.ATOMICITY, Kind.RECOVERY_FAILURE)

    @property
    def section(self) -> bool:
        """Whether they are of different stores."""
        return self.together and self.lost != self.kept


def trait(subject: Subject, identities: Identities, cause: Cause) -> Trait:
    lost, kept = identities.place(cause.lost), identities.place(cause.kept)
    piece = None if cause.lost is None else subject.graph.whole(cause.lost)[0]
    here = None if piece is None else subject.places.of(int(subject.graph.event[piece]))
    missing = cause.kind in (Kind.ORDERING, Kind.UNPERSISTED) and not cause.prefix and piece is not None
    line = (-1, -1) if piece is None else (cause.state.point, int(subject.graph.granule[piece]))
    lacks = lacking(subject, cause, piece) if missing and piece is not None else None
    beside = _beside(subject, identities, cause, piece) if lacks is Lacks.FLUSH and piece is not None else frozenset()
    left = () if piece is None or not missing else _left(subject, identities, piece)
    return Trait(cause.kind, lacks, lost, kept, _object(here), line, beside, left, cause.verdict.outcome)


def _beside(subject: Subject, identities: Identities, cause: Cause, piece: int) -> frozenset[PlaceKey]:
    """Places of what was pending on the lost update's line before what must come later."""
    graph = subject.graph
    until = len(subject.trace.events) if cause.kept is None else subject.event_of(cause.kept)
    granule = int(graph.granule[piece])
    near = (id_ for id_ in subject.space.pending(cause.state.point) if int(graph.granule[id_]) == granule)
    return frozenset(identities.place(id_) for id_ in near if int(graph.event[id_]) < until)


def _left(subject: Subject, identities: Identities, piece: int) -> PlaceKey:
    """The place of the update before the lost one at the same word; empty if there is none."""
    graph = subject.graph
    same = (graph.file[:piece] == graph.file[piece]) & (graph.kind[:piece] == DATA)
    before = np.flatnonzero(same & (graph.offset[:piece] // WORD_BYTES == graph.offset[piece] // WORD_BYTES))
    return identities.place(int(before[-1])) if len(before) and int(graph.kind[piece]) == DATA else ()


def lacking(subject: Subject, cause: Cause, piece: int) -> Lacks:
    """What came between the lost update and the crash, or what was kept: its line's flush, or not even that."""
    graph, events = subject.graph, subject.trace.events
    if graph.model == "page-cache":
        return Lacks.SYNC
    if int(graph.kind[piece]) == DATA and int(graph.mode[piece]) != IN_ORDER:
        return Lacks.FENCE
    low = int(graph.event[piece]) + 1
    high = int(subject.space.points[cause.state.point].event) if cause.kept is None else subject.event_of(cause.kept)
    between = events[low:high]
    line = int(graph.offset[piece]) // LINE_BYTES
    first = between["offset"].astype(np.int64) // LINE_BYTES
    last = (between["offset"].astype(np.int64) + np.maximum(between["size"].astype(np.int64), 1) - 1) // LINE_BYTES
    flushes = (between["kind"] == EventKind.FLUSH) & (between["file"] == int(graph.file[piece]))
    return Lacks.FENCE if bool(np.any(flushes & (first <= line) & (line <= last))) else Lacks.FLUSH


def alike(one: Trait, other: Trait) -> bool:
    """Whether a single fix would mend both."""
    if one.together and other.together:
        return (one.section or other.section) and _one_section(one, other)
    if one.section or other.section:
        section, loss = (one, other) if one.section else (other, one)
        return loss.lacks is not None and _of_section(section, loss)
    if one.lacks is None or one.lacks is not other.lacks:
        return False
    if one.lost == other.lost:
        return True  # persisted right after the store, it is so before whatever must come later
    if one.lost in other.beside and other.lost in one.beside:
        return True  # one flush of their line, before either is needed
    if one.kind is not other.kind or one.kept != other.kept:
        return False
    if one.kind is Kind.ORDERING and one.lacks is not Lacks.FLUSH:
        return True  # one fence (sync) before what was kept
    return one.line == other.line or (one.object == other.object != ())


def _one_section(one: Trait, other: Trait) -> bool:
    """A chain of updates, each of which must persist with the next; or what one update leaves is not mended, whatever
    comes after it."""
    if one.lost == other.kept or other.lost == one.kept:
        return True
    return one.section and other.section and one.kept == other.kept and _named(one.kept)


def _of_section(section: Trait, loss: Trait) -> bool:
    """A lost update whose loss is the same harm: of two that must persist together the other one, or what should have
    replaced the value that the section's first update leaves."""
    if {section.lost, section.kept} == {loss.lost, loss.kept}:
        return True
    replaced = loss.left == section.kept != loss.lost and _named(loss.left)
    return replaced and section.outcome is loss.outcome


def _named(place: PlaceKey) -> bool:
    """Whether a place says which variable it changes: helpers that store through any pointer do not."""
    return place[:1] == (AT,) and place[-1] != ""


def groups(traits: Sequence[Trait]) -> list[list[int]]:
    """Indices of causes that are one bug, by first member; alike is closed over chains."""
    root = list(range(len(traits)))
    for index, one in enumerate(traits):
        for before in range(index):
            if alike(traits[before], one):
                a, b = _root(root, before), _root(root, index)
                root[max(a, b)] = min(a, b)
    found: dict[int, list[int]] = {}
    for index in range(len(traits)):
        found.setdefault(_root(root, index), []).append(index)
    return list(found.values())


def head(traits: Sequence[Trait], members: Sequence[int]) -> int:
    """The member to tell the bug by: of a chain its beginning, else the first one found."""
    lost = {traits[index].lost for index in members}
    return next((i for i in members if traits[i].lacks is None and traits[i].kept not in lost), members[0])


def _root(root: list[int], index: int) -> int:
    while root[index] != index:
        index = root[index]
    return index


def _object(here: Location | None) -> tuple[str, ...]:
    if here is None or "." not in here.variable:
        return ()
    return (here.file, here.function, here.variable.rpartition(".")[0])
