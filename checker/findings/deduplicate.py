"""One bug, one finding: merges the causes that a single fix would fix (docs/findings.md).

1. `fixed_together` compares two causes by their `Traits` alone and is symmetric; a bug is its closure over chains of
   proved causes. An uncertain one joins the first bug that has a cause like it, and links nothing.
2. Two causes that lack a persist merge only if they lack the same one: a flush, a fence or a sync.
3. A torn store merges with a section of several stores only, never with another torn store.
4. `leader` is the cause that the finding reports: the first found of equals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

import numpy as np

from crashcheck.analyzer.persistence.pieces import DATA, IN_ORDER, LINE_BYTES, WORD_BYTES
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.flushers import FlushSite, UsualFlushes
from crashcheck.checker.findings.identity import AT, Identities, Origin, line_of
from crashcheck.checker.findings.templates import of_template
from crashcheck.checker.results import FindingKind, Location, Outcome, SourceFunction
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import Kind as EventKind


class MissingPersist(StrEnum):
    """What would have made the lost update durable in time."""

    FENCE = "fence"  # it was on its way: flushed, or stored past the caches
    FLUSH = "flush"
    SYNC = "sync"  # page-cache: one call does both


class Due(IntEnum):
    """When what was lost should have persisted."""

    AT_ONCE = 0  # before another update of the same operation
    AT_THE_END = 1  # before the operation was acknowledged, or output printed
    LATER = 2  # before an update of a later operation


@dataclass(frozen=True, slots=True)
class Traits:
    """What two causes are compared by."""

    kind: FindingKind
    lacks: MissingPersist | None  # None: no persist is missing
    lost: Origin
    kept: Origin
    object: tuple[str, ...] = ()  # function and enclosing object of what was lost; empty if not known
    line: tuple[int, int] = (-1, -1)  # crash point and granule of what was lost
    beside: frozenset[Origin] = frozenset()  # places of what one flush, early enough, would have persisted with it
    left: Origin = ()  # of the update whose value stays where X is lost
    outcome: Outcome = Outcome.FAIL
    torn: bool = False  # one store, in part
    until: Origin = ()  # of a prefix: the update with which the program is right again; empty if not known
    replaced: Origin = ()  # the update whose value that one replaces
    given_up: bool = False  # of a prefix: it may begin earlier
    signs: frozenset[str] = frozenset()
    usual: bool = False  # most places that store Y's field leave it so
    missed: frozenset[FlushSite] = frozenset()  # flushes that usually persist what X's place stores, and here did not
    lost_by: tuple[
        SourceFunction, ...
    ] = ()  # the functions whose calls led to X from where the section ends, innermost first
    kept_by: tuple[SourceFunction, ...] = ()  # … to Y
    due: Due = Due.AT_ONCE
    uncertain: bool = False  # not proved
    half_store: bool = False  # needs half of a misaligned store
    unlogged: bool = False  # its operation logs other updates before it makes them, and not X
    bare: frozenset[int] = frozenset()  # operations in which X's place stores, if none of them persists anything

    @property
    def doubts(self) -> int:
        """0: proved under its model; 1: proved, if a misaligned store can tear; 2: not proved."""
        return 2 if self.uncertain else int(self.half_store)

    @property
    def together(self) -> bool:
        """Whether two updates must persist together: no flush or fence is missing."""
        return self.lacks is None and self.kind in (FindingKind.ATOMICITY, FindingKind.RECOVERY_FAILURE)

    @property
    def section(self) -> bool:
        """Whether they are of different stores."""
        return self.together and not self.torn


def traits_of(subject: Subject, identities: Identities, flushers: UsualFlushes, cause: Cause) -> Traits:
    piece = None if cause.lost is None else subject.graph.whole(cause.lost)
    lost, kept, until = (None if one is None else subject.place(one) for one in (cause.lost, cause.kept, cause.until))
    seen = Traits(
        cause.kind,
        None,
        identities.origin(cause.lost),
        identities.origin(cause.kept),
        outcome=cause.verdict.outcome,
        signs=cause.verdict.signs,
        torn=cause.torn,
        until=() if cause.until is None else identities.origin(cause.until),
        replaced=() if cause.until is None else _left(subject, identities, subject.graph.whole(cause.until)),
        given_up=cause.given_up,
        due=_due(subject, cause),
        lost_by=callers_within(lost, until or kept),
        kept_by=callers_within(kept, until or lost),
    )
    if piece is None:
        return seen
    here = subject.provenance.of(int(subject.graph.event[piece]))
    seen = replace(seen, object=_object(here), line=(cause.state.point, int(subject.graph.granule[piece])))
    if cause.kind not in (FindingKind.ORDERING, FindingKind.UNPERSISTED) or cause.prefix:
        return seen
    lacks = missing_persist(subject, cause, piece)
    seen = replace(seen, lacks=lacks, left=_left(subject, identities, piece))
    if lacks is not MissingPersist.FLUSH:
        return seen
    missed = flushers.missed(piece, _due_at(subject, cause))
    return replace(seen, beside=_beside(subject, identities, cause, piece), missed=missed)


def _due_at(subject: Subject, cause: Cause) -> int:
    """The event before which what was lost should have persisted."""
    return subject.space.moment(cause.state.point) if cause.kept is None else subject.event_of(cause.kept)


def _due(subject: Subject, cause: Cause) -> Due:
    if cause.kept is None or cause.lost is None:
        return Due.AT_THE_END
    first, then = (subject.point_at(subject.event_of(piece)) for piece in (cause.lost, cause.kept))
    same = int(subject.space.points.acked[first]) == int(subject.space.points.acked[then])
    return Due.AT_ONCE if same else Due.LATER


def _beside(subject: Subject, identities: Identities, cause: Cause, piece: int) -> frozenset[Origin]:
    """Origins of what was pending on the lost update's line before what must persist later: of the same operation
    alone, where that must come within it."""
    graph, acked = subject.graph, subject.space.points.acked
    until = len(subject.trace.events) if cause.kept is None else subject.event_of(cause.kept)
    granule = int(graph.granule[piece])
    near = [id_ for id_ in subject.space.pending(cause.state.point) if int(graph.granule[id_]) == granule]
    if _due(subject, cause) is not Due.LATER:
        mine = int(acked[subject.point_at(int(graph.event[piece]))])
        near = [id_ for id_ in near if int(acked[subject.point_at(int(graph.event[id_]))]) == mine]
    return frozenset(identities.origin(id_) for id_ in near if int(graph.event[id_]) < until)


def _left(subject: Subject, identities: Identities, piece: int) -> Origin:
    """The place of the update before a piece at the same word; empty if there is none."""
    graph = subject.graph
    same = (graph.file[:piece] == graph.file[piece]) & (graph.kind[:piece] == DATA)
    before = np.flatnonzero(same & (graph.offset[:piece] // WORD_BYTES == graph.offset[piece] // WORD_BYTES))
    return identities.origin(int(before[-1])) if len(before) and int(graph.kind[piece]) == DATA else ()


def missing_persist(subject: Subject, cause: Cause, piece: int) -> MissingPersist:
    """What came between the lost update and the crash, or what was kept: its line's flush, or not even that."""
    graph, events = subject.graph, subject.trace.events
    if graph.family.by_sync:
        return MissingPersist.SYNC
    if int(graph.kind[piece]) == DATA and int(graph.mode[piece]) != IN_ORDER:
        return MissingPersist.FENCE
    low = int(graph.event[piece]) + 1
    between = events[low : _due_at(subject, cause)]
    line = int(graph.offset[piece]) // LINE_BYTES
    first = between["offset"].astype(np.int64) // LINE_BYTES
    last = (between["offset"].astype(np.int64) + np.maximum(between["size"].astype(np.int64), 1) - 1) // LINE_BYTES
    flushes = (between["kind"] == EventKind.FLUSH) & (between["file"] == int(graph.file[piece]))
    return MissingPersist.FENCE if bool(np.any(flushes & (first <= line) & (line <= last))) else MissingPersist.FLUSH


def fixed_together(one: Traits, other: Traits) -> bool:
    """Whether a single fix would fix both."""
    if one.together and other.together:
        return _same_pair(one, other) or ((one.section or other.section) and _one_section(one, other))
    if one.section or other.section:
        section, loss = (one, other) if one.section else (other, one)
        return loss.lacks is not None and (_of_section(section, loss) or _not_covered(section, loss))
    return one.lacks is not None and one.lacks is other.lacks and _one_persist_fixes(one, other)


def _same_pair(one: Traits, other: Traits) -> bool:
    """The same two places; also in another use of a function that both are in, as of one that writes any file."""
    if (one.lost, one.kept) == (other.lost, other.kept):
        return True
    lost, kept = line_of(one.lost), line_of(one.kept)
    in_one_function = lost[:2] == kept[:2] and lost[-2:-1] == kept[-2:-1]
    called_between = one.lost_by or one.kept_by or other.lost_by or other.kept_by
    in_one_call = lost != kept or not called_between
    whole = in_one_function and in_one_call and not (one.torn or other.torn)
    return whole and (lost, kept) == (line_of(other.lost), line_of(other.kept))


def _one_persist_fixes(one: Traits, other: Traits) -> bool:
    """Whether the flush, fence or sync that one loss lacks would fix the other too."""
    if line_of(one.lost) == line_of(other.lost):
        return True  # persisted right after the store, it is so before whatever must come later
    if one.lost in other.beside and other.lost in one.beside:
        return True  # one flush of their line, before either is needed
    if one.missed & other.missed:
        return True  # the flush that persists both elsewhere
    if one.bare & other.bare:
        return True  # the operation stores both, and persists nothing
    if one.kind is not other.kind or line_of(one.kept) != line_of(other.kept):
        return False
    if one.kind is FindingKind.ORDERING and one.lacks is not MissingPersist.FLUSH:
        return True  # one fence (sync) before what was kept
    return one.line == other.line or (one.object == other.object != ())


def _one_section(one: Traits, other: Traits) -> bool:
    """A chain of updates, each of which must persist with the next; or what one update leaves is not repaired, whatever
    follows it; or the same pair, ended in another way or written once more for another branch; or the rest of a section
    whose beginning was looked for no further, and another that the same update ends."""
    if _linked(one, other) or _linked(other, one):
        return True
    if not (one.section and other.section):
        return False
    rest = one.given_up is not other.given_up and one.until == other.until != ()
    return rest or _same_left(one, other) or _written_twice(one, other)


def _linked(one: Traits, other: Traits) -> bool:
    """Whether X of the one is Y of the other, called by the same functions as far as both are known: a helper is part
    of a section of each function that calls it."""
    return one.lost == other.kept and all(mine == its for mine, its in zip(one.lost_by, other.kept_by, strict=False))


def callers_within(here: Location | None, end: Location | None) -> tuple[SourceFunction, ...]:
    """The functions that called a place, from the innermost that led to `end` as well, innermost first, each once."""
    if here is None or end is None:
        return ()
    mine, its = ([(frame.file, frame.line, frame.function) for frame in at.stack] for at in (here, end))
    shared = 0
    while shared < min(len(mine), len(its)) and mine[-1 - shared] == its[-1 - shared]:
        shared += 1
    own = mine[: len(mine) - shared]
    return tuple(dict.fromkeys(SourceFunction(file, of_template(function)) for file, _, function in own))


def _same_left(one: Traits, other: Traits) -> bool:
    """What one update leaves; or, until the same update makes it right, what most updates of one field leave, or what
    the one's leaves in both."""
    if one.kept == other.kept:
        return _named(one.kept)
    if one.until != other.until or not one.until:
        return False
    if one.usual and other.usual and one.kept[-1] == other.kept[-1]:
        return True
    left = [trait.kept for trait, then in ((one, other), (other, one)) if trait.kept == then.replaced]
    return any(map(_named, left)) and _same_harm(one, other)


def _written_twice(one: Traits, other: Traits) -> bool:
    """The same two fields, in one function, with the same harm: of two branches that mirror each other."""
    places = (one.kept, one.lost, other.kept, other.lost)
    if not all(map(_named, places)) or len({place[1] for place in places}) > 1 or len({p[-2] for p in places}) > 1:
        return False
    if {one.kept, one.lost} & {other.kept, other.lost}:
        return False  # another run of one branch
    fields = [{trait.kept[-1], trait.lost[-1]} for trait in (one, other)]
    return fields[0] == fields[1] and len(fields[0]) > 1 and _same_harm(one, other)


def _of_section(section: Traits, loss: Traits) -> bool:
    """A lost update whose loss is the same bug: of two that must persist together the first one, whatever harm the
    other half does; or with the same harm the second one, or what should have replaced the value that the section's
    first update leaves."""
    others = (section.lost, section.until)
    if loss.lost == section.kept and loss.kept in others:
        return True
    same = loss.kept == section.kept and loss.lost in others
    replaced = loss.left == section.kept != loss.lost and _named(loss.left)
    return (same or replaced) and _same_harm(section, loss)


def _not_covered(section: Traits, loss: Traits) -> bool:
    """A section, and the loss of one of its two stores: a store that no log entry covers shows in both ways.

    Either the trace shows that it is not logged, as others are; or the section is not proved, and the loss is.
    """
    same = _named(loss.lost) and loss.lost in (section.kept, section.lost)
    return same and (loss.unlogged or (section.uncertain and not loss.uncertain))


def _same_harm(one: Traits, other: Traits) -> bool:
    shown_equal = bool(one.signs & other.signs) or not (one.signs or other.signs)
    return one.outcome is other.outcome and shown_equal


def _named(place: Origin) -> bool:
    """Whether a place shows which variable it changes: helpers that store through any pointer do not."""
    return place[:1] == (AT,) and place[-1] != ""


def mark_usual(traits: Sequence[Traits], storing: Callable[[str], int]) -> list[Traits]:
    """The traits, marked where most places that store Y's field leave it until the same update: recovery forgets it.

    `storing`: how many places of the program store a field.
    """
    leaving: dict[tuple[str, Origin, bool], set[Origin]] = {}
    for one in traits:
        if one.section and one.until and _named(one.kept):
            leaving.setdefault((one.kept[-1], one.until, one.uncertain), set()).add(one.kept)
    rules = {key for key, places in leaving.items() if len(places) > 1 and 2 * len(places) > storing(key[0])}
    return [replace(one, usual=one.section and (one.kept[-1], one.until, one.uncertain) in rules) for one in traits]


def bugs_of(traits: Sequence[Traits]) -> list[list[int]]:
    """Indices of causes that are one bug, the first member's order, each bug's in order.

    Proved causes: fixed_together, closed over chains. Those with more doubts, by how many, join the first bug with a
    surer cause like them; what is left of them is closed over chains of its own.
    """
    found: list[list[int]] = []
    for doubts in sorted({one.doubts for one in traits}):
        surer = [tuple(bug) for bug in found]
        left: list[int] = []
        for index in (at for at, one in enumerate(traits) if one.doubts == doubts):
            one = traits[index]
            at = next((at for at, bug in enumerate(surer) if any(fixed_together(traits[of], one) for of in bug)), None)
            (left if at is None else found[at]).append(index)
        found += _closed(traits, left)
    return sorted(found)


def _closed(traits: Sequence[Traits], some: Sequence[int]) -> list[list[int]]:
    """Some of the causes, gathered by fixed_together, closed over chains."""
    root = list(range(len(traits)))
    for at, index in enumerate(some):
        for before in some[:at]:
            if fixed_together(traits[before], traits[index]):
                a, b = _root(root, before), _root(root, index)
                root[max(a, b)] = min(a, b)
    found: dict[int, list[int]] = {}
    for index in some:
        found.setdefault(_root(root, index), []).append(index)
    return list(found.values())


def leader(traits: Sequence[Traits], members: Sequence[int]) -> int:
    """The member that the finding reports, the first one found of equals; of those with the fewest doubts.

    Of updates that must persist together the beginning of a chain, before all one whose beginning is known, then one
    that the check reported; of a missing persist the one that is due first.
    """
    fewest = min(traits[index].doubts for index in members)
    members = [index for index in members if traits[index].doubts == fewest]
    together = [index for index in members if traits[index].lacks is None]
    if not together:
        return min(members, key=lambda index: traits[index].due)
    lost = {traits[index].lost for index in members}

    def rank(index: int) -> tuple[bool, bool, bool]:
        one = traits[index]
        return one.given_up, one.kind is not FindingKind.ATOMICITY, one.kept in lost

    return min(together, key=rank)


def _root(root: list[int], index: int) -> int:
    while root[index] != index:
        index = root[index]
    return index


def _object(here: Location | None) -> tuple[str, ...]:
    if here is None or "." not in here.variable:
        return ()
    return (here.file, of_template(here.function), here.variable.rpartition(".")[0])
