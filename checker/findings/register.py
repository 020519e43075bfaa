"""Gathers the failing states of one search by what is to blame, and turns them into findings at the end.

1. Draft findings are kept in the order in which their first state was met; findings have that order.
2. There is one draft per key: kind, X and Y by their places.
3. A finding's id is made of its kind, depth and two places, never of its message; the second of equal ids gets the
   suffix -2.
4. What cannot be proved joins a proved bug of the same cause, but never links two proved ones.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.pieces import NAME
from crashcheck.checker.evidence import CrashSchedule, RecoveryCrash
from crashcheck.checker.findings import deduplicate, describe, sentence
from crashcheck.checker.findings.answered import answered_from
from crashcheck.checker.findings.callers import by_callers
from crashcheck.checker.findings.cause import CUT_SHORT, Cause
from crashcheck.checker.findings.flushers import UsualFlushes
from crashcheck.checker.findings.identity import AT, FindingKey, Identities, Origin
from crashcheck.checker.findings.prefix_proof import NO_SNAPSHOT, TRACE_ALL, PrefixProof
from crashcheck.checker.findings.programs import no_line
from crashcheck.checker.findings.schedule import Schedule
from crashcheck.checker.findings.stretches import GIVEN_UP
from crashcheck.checker.findings.undo_logs import UndoLogs
from crashcheck.checker.results import KILL_SHOWS_IT, TO_SETTLE, Finding, FindingKind, Location
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Level, Token, digest
from crashcheck.runtime.trace_format import Kind as Event
from crashcheck.runtime.trace_format import StoreFlag
from crashcheck.wording import listed

KILL_FAILS_TOO = "`kill -9` {} it, too, {}: nothing is reordered there, so no flush, fence or sync is enough"
ROBUST_MUTEX = (
    "no reordering needed; where only the process dies, the kernel marks the robust mutex that it holds (EOWNERDEAD), "
    "which no power failure does"
)
NO_KNOWN_MOMENT = "stores through a mapping may have been earlier than recorded: `kill -9` need not show it"
NEEDS_HALF_STORE = (
    "only if half of a misaligned store survives: that power loss never tears a store of at most 8 bytes is documented "
    "only for one that crosses no 8-byte boundary"
)
UNEXPLAINED = f"it touches bytes that something untraced also wrote{TO_SETTLE}{TRACE_ALL}"

# Of a mutex's kind, and of its lock's word: PTHREAD_MUTEX_ROBUST_NORMAL_NP, FUTEX_TID_MASK and FUTEX_OWNER_DIED.
_ROBUST, _HELD, _OWNER_DIED = 16, 0x3FFFFFFF, 0x40000000

MOST_CASES = 10_000
_ALSO_SHOWN = 5


@dataclass(slots=True)
class DraftFinding:
    """A cause and the failing states that it explains so far."""

    cause: Cause
    key: FindingKey
    states: int = 1  # failing states counted with it
    uncertain: str = ""  # why it is not proved
    failed_once: bool = False  # no state of it was run again
    kill_proved: bool = False  # of a cause with a moment at which `kill -9` shows it, too
    stretches: set[int] = field(default_factory=set)  # of a prefix: moments (event indices) that fail for this reason
    cases: list[CrashState] = field(default_factory=list)  # failing states of it, the first MOST_CASES
    found: tuple[int, float] = (0, 0.0)  # after how many executed states, and seconds


@dataclass(frozen=True, slots=True, eq=False)
class Bug:
    """One bug: its finding, and the draft findings merged in it, the one that it reports first.

    A proved bug has its proved drafts only.
    """

    finding: Finding
    drafts: tuple[DraftFinding, ...]


class Register:
    """All findings of one search, in the order in which they were found."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.identities = Identities(subject)

        self.drafts: list[DraftFinding] = []  # in the order in which they were found
        self.keeps_merged = False  # whether a finding holds what is merged in it: a change is compared with its base
        self._pieces: dict[Origin, NDArray[np.int64]] = {}  # known so far

    @cached_property
    def _digest(self) -> bytes:
        return digest(self.subject.trace)

    def causes(self) -> Iterator[Cause]:
        """Those that are proved so far."""
        return (draft.cause for draft in self.drafts if not draft.uncertain)

    def knows(self, cause: Cause) -> bool:
        """Whether a cause belongs to a finding already made."""
        draft = self._with_key(cause)
        return draft is not None and not self._surer(cause, draft)

    def add(self, cause: Cause) -> tuple[DraftFinding, bool]:
        """Count a failing state with its cause; returns its finding and whether that is new, or surer than it was."""
        draft = self._with_key(cause)
        if draft is None:
            draft = DraftFinding(cause, self.identities.finding(cause.kind, cause.lost, cause.kept))
            self.drafts.append(draft)
            return draft, True
        draft.states += 1
        if not self._surer(cause, draft):
            return draft, False
        draft.cause, draft.uncertain = cause, ""
        return draft, True

    def merge(self, draft: DraftFinding, into: DraftFinding) -> None:
        """Count the states of one draft with another, which explains them."""
        self.drafts.remove(draft)
        into.states += draft.states
        into.cases = [*draft.cases, *into.cases][:MOST_CASES]
        into.found = draft.found

    def _with_key(self, cause: Cause) -> DraftFinding | None:
        key = self.identities.finding(cause.kind, cause.lost, cause.kept)
        return next((draft for draft in self.drafts if draft.key == key), None)

    def _surer(self, cause: Cause, draft: DraftFinding) -> bool:
        """Whether a cause needs no half of a misaligned store, and the draft's does; or the draft's was not minimised
        to the end, and this one was, or further."""
        if not self.covers(draft, cause.state):
            return True
        lost = self.subject.space.lost
        return not draft.cause.complete and (cause.complete or len(lost(cause.state)) < len(lost(draft.cause.state)))

    def covers(self, draft: DraftFinding, state: CrashState) -> bool:
        """Whether a draft may be why a state fails: what needs half of a misaligned store explains no other state."""
        return not self.subject.torn(draft.cause.state) or bool(self.subject.torn(state))

    def by_moment(self, moment: int) -> DraftFinding | None:
        """The prefix finding whose failing stretch holds a moment."""
        return next((draft for draft in self.drafts if moment in draft.stretches), None)

    # -- is a known finding the reason of a failing state?

    def applicable(self, state: CrashState) -> list[tuple[DraftFinding, tuple[int, ...]]]:
        """Findings whose relation a state shows, each with the pieces X of it that the state lost.

        That is: a piece of X's place is lost, and a later piece of Y's place has persisted; where no Y is needed,
        something was promised since.
        Whether that is the reason is decided by a counterfactual run: the same state with those pieces of X.
        """
        subject = self.subject
        lost = subject.space.lost(state)
        whole = bisect_left(lost, len(subject.graph))  # parts of extensions are behind
        rows, parts = np.array(lost[:whole], dtype=np.int64), lost[whole:]

        def at(place: Origin) -> list[int]:
            mine: list[int] = np.intersect1d(rows, self._pieces_of(place), assume_unique=True).tolist()
            return mine + [part for part in parts if self.identities.origin(part) == place]

        covering = (draft for draft in self.drafts if self.covers(draft, state))
        shown = ((draft, self._shown(draft, state, at(draft.key[1]), lost)) for draft in covering)
        return [(draft, pieces) for draft, pieces in shown if pieces]

    def _shown(self, draft: DraftFinding, state: CrashState, mine: list[int], lost: Collection[int]) -> tuple[int, ...]:
        """Of the pieces of X's place that a state lost, those by which it shows a finding's relation."""
        subject, (kind, _, kept_place) = self.subject, draft.key
        if draft.cause.prefix:
            return () if kind is FindingKind.UNPERSISTED or len(mine) > 1 else tuple(mine)
        if kind is FindingKind.UNPERSISTED:
            # Where nothing was promised since, something else needs it.
            return tuple(piece for piece in mine if subject.acknowledged_between(subject.event_of(piece), state.point))
        if mine and draft.cause.kept is not None:
            first = min(subject.event_of(piece) for piece in mine)
            if not self._persisted_since(state, kept_place, first, set(lost)):
                return ()
        return tuple(mine)

    def with_persisted(self, state: CrashState, pieces: Iterable[int]) -> CrashState:
        """The state with some of its lost pieces, and all that they need, persisted as well."""
        return self.subject.space.keep_too(state, pieces)

    def _persisted_since(self, state: CrashState, place: Origin, event: int, lost: set[int]) -> bool:
        pieces = self._pieces_of(place)
        until = self.subject.space.moment(state.point)
        low, high = np.searchsorted(self.subject.graph.event[pieces], [event, until])
        return any(int(piece) not in lost for piece in pieces[low:high])

    def _pieces_of(self, place: Origin) -> NDArray[np.int64]:
        """All pieces of a place, found by looking once at each pair of site and stack."""
        if place not in self._pieces:
            rows, inverse = self._by_call
            mine = np.zeros(len(rows), dtype=np.bool_)
            loose = []
            for index, row in enumerate(rows.tolist()):
                here = self.identities.origin(row)
                if here[0] == AT:
                    mine[index] = here == place
                elif place[0] != AT:
                    loose += self.identities.of_place(np.flatnonzero(inverse == index), place).tolist()
            chosen = mine[inverse]
            chosen[np.array(loose, dtype=np.int64)] = True
            self._pieces[place] = np.flatnonzero(chosen)
        return self._pieces[place]

    @cached_property
    def _by_call(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The first piece of each pair of site and stack, and the pair's index here for each piece."""
        calls = self.subject.trace.calls(self.subject.graph.event)
        _, firsts, inverse = np.unique(calls, return_index=True, return_inverse=True)
        return firsts, inverse.reshape(-1)

    def _storing(self, variable: str) -> int:
        """How many places store a field."""
        places = {self.identities.origin(first) for first in self._by_call[0].tolist()}
        return sum(place[0] == AT and place[-1] == variable for place in places)

    # -- what cannot be proved

    def doubt(self, draft: DraftFinding, proof: PrefixProof | None, folder: Path) -> None:
        """Set `uncertain` where the trace does not carry the finding (crash-model.md, "Is the trace whole?").

        A prefix that is proved on real files needs no trace. `folder` is empty, and may be written to.
        """
        cause = draft.cause
        # Of system calls each moment is recorded: what is replayed is what `kill -9` leaves.
        by_calls = self.subject.graph.family.names
        if cause.prefix and not by_calls:
            draft.uncertain = NO_SNAPSHOT if proof is None else proof.missing(cause, folder)
        if cause.killed is not None:
            killed = replace(cause, state=self.subject.prefix(cause.killed), prefix=True, moment=cause.killed)
            draft.kill_proved = by_calls or (proof is not None and not proof.missing(killed, folder))
        if draft.uncertain or not cause.prefix:
            culprits = [piece for piece in (cause.lost, cause.kept) if piece is not None]
            if any(self.subject.is_unexplained(piece) for piece in culprits):
                draft.uncertain = UNEXPLAINED

    # -- values for the reports

    def bugs(self, *, depth: int = 1, outer: tuple[Level, ...] = ()) -> list[Bug]:
        """All findings, proved or not, with what they were made of.

        `outer`: levels of the token before this one, for a crash of the check.
        """
        out: list[Bug] = []
        taken: dict[str, int] = {}
        for draft, others in self._bugs():
            finding = self._value(draft, others, depth, outer)
            count = taken[finding.id] = taken.get(finding.id, 0) + 1
            if count > 1:
                finding = replace(finding, id=f"{finding.id}-{count}")
            sure = [other for other in others if bool(other.uncertain) is bool(draft.uncertain)]
            out.append(Bug(finding, (draft, *sure)))
        return out

    def _bugs(self) -> list[tuple[DraftFinding, list[DraftFinding]]]:
        """Each bug's draft, with the others that the same fix would fix."""
        flushers = UsualFlushes(self.subject)
        traits = []
        for draft in self.drafts:
            one = deduplicate.traits_of(self.subject, self.identities, flushers, draft.cause)
            bare = self._bare(one.lost) if one.lacks is not None else frozenset()
            half = bool(self.subject.torn(draft.cause.state))
            traits.append(replace(one, uncertain=bool(draft.uncertain), half_store=half, bare=bare))
        traits = deduplicate.mark_usual(self._mark_unlogged(traits), self._storing)
        out = []
        for members in deduplicate.bugs_of(traits):
            first = deduplicate.leader(traits, members)
            out.append((self.drafts[first], [self.drafts[index] for index in members if index != first]))
        return out

    def _mark_unlogged(self, traits: list[deduplicate.Traits]) -> list[deduplicate.Traits]:
        """The traits, with the losses marked that are of a section's store which its operation does not log."""
        logs = UndoLogs(self.subject)
        places = {place for one in traits if one.section for place in (one.kept, one.lost)}
        out = []
        for draft, one in zip(self.drafts, traits, strict=True):
            lost = draft.cause.lost
            asked = lost is not None and one.lacks is not None and one.lost in places
            missing = logs.missing(self.subject.event_of(lost)) if asked and lost is not None else None
            out.append(replace(one, unlogged=missing is not None))
        return out

    def _bare(self, place: Origin) -> frozenset[int]:
        """The operations in which a place stores; none if one of them flushes or syncs anything."""
        points = self.subject.space.points
        ends = points.event[points.acknowledged_more]
        persists = self.subject.trace.rows(Event.FLUSH, Event.SYNC_BEGIN)
        persisting = np.searchsorted(ends, persists, side="right")
        storing = np.unique(np.searchsorted(ends, self.subject.graph.event[self._pieces_of(place)], side="right"))
        return frozenset() if np.isin(storing, persisting).any() else frozenset(storing.tolist())

    def token(self, state: CrashState, outer: tuple[Level, ...] = ()) -> str:
        graph = self.subject.graph
        return str(Token(graph.model, graph.options, (*outer, Level(self._digest, state))))

    def _value(self, draft: DraftFinding, others: list[DraftFinding], depth: int, outer: tuple[Level, ...]) -> Finding:
        subject, cause = self.subject, draft.cause
        schedule = Schedule(subject, cause)
        nodes, edges = schedule.graph()
        words, place = describe.crash_point(subject, cause)
        location, other = self._locations(cause)
        shown_by = CrashSchedule if depth == 1 else RecoveryCrash
        return Finding(
            id=self.identities.stable(cause.kind, cause.lost, cause.kept, depth),
            kind=cause.kind if depth == 1 else FindingKind.RECOVERY_FAILURE,
            model=subject.model_needed(cause.state),
            message=sentence.message(subject, cause),
            location=location,
            evidence=shown_by(cause.verdict, other, words, place, schedule.steps(), nodes, edges),
            replay=self.token(cause.state, outer),
            states=draft.states + sum(other.states for other in others if not other.failed_once),
            uncertain=draft.uncertain,
            note="; ".join((*self._caveats(draft), *self._instantiations(draft), *self._related(draft, others))),
            likenesses=self._likenesses(cause, [other.cause for other in others], depth),
            merged=tuple(self._merged(draft, others, depth, outer)),
            elsewhere=tuple(self._elsewhere(draft, depth, outer)),
        )

    def _merged(
        self, draft: DraftFinding, others: Iterable[DraftFinding], depth: int, outer: tuple[Level, ...]
    ) -> Iterator[Finding]:
        """The others, as sure as the draft, as findings of their own."""
        for other in others if self.keeps_merged else ():
            if draft.uncertain or not other.uncertain:
                yield self._value(other, [], depth, outer)

    def _elsewhere(self, draft: DraftFinding, depth: int, outer: tuple[Level, ...]) -> Iterator[Finding]:
        """The draft by the functions that led to its lost update."""
        cause = draft.cause
        if not self.keeps_merged or not draft.cases or cause.no_sync_helps or draft.key[1][0] != AT:
            return
        lost, kept = (self._pieces_of(place) for place in draft.key[1:])
        for one in by_callers(self.subject, cause, draft.cases, lost, kept):
            yield self._value(replace(draft, cause=one, cases=[]), [], depth, outer)

    def _caveats(self, draft: DraftFinding) -> Iterator[str]:
        """What limits a finding."""
        cause = draft.cause
        if cause.prefix and not draft.uncertain:
            known = cause.moment is None or self.subject.is_known_moment(cause.moment)
            marked = cause.moment is not None and _holds_robust_mutex(self.subject, cause.moment)
            yield (ROBUST_MUTEX if marked else KILL_SHOWS_IT) if known else NO_KNOWN_MOMENT
            if section := describe.until(self.subject, cause):
                yield section
        if (
            cause.killed is not None
            and not draft.uncertain
            and self.subject.is_known_moment(cause.killed)
            and not _holds_robust_mutex(self.subject, cause.killed)
        ):
            shows = "shows" if draft.kill_proved else "probably shows"
            yield KILL_FAILS_TOO.format(shows, describe.just_before(self.subject, cause.killed))
        if self.subject.torn(cause.state):
            yield NEEDS_HALF_STORE
        if not cause.complete:
            yield CUT_SHORT
        if cause.given_up:
            yield GIVEN_UP
        if answered := answered_from(self.subject, cause):
            yield answered
        if why := self._no_line(cause):
            yield why

    def _no_line(self, cause: Cause) -> str:
        """Why a finding in a script's file has no line."""
        piece = cause.kept if cause.kept is not None else cause.lost
        if piece is None or any(location.line for location in self._locations(cause) if location is not None):
            return ""
        return no_line(self.subject.trace, self.subject.event_of(piece))

    def _instantiations(self, draft: DraftFinding) -> Iterator[str]:
        """The instantiations of a template in whose failing states an update of the blamed place is lost, or kept."""
        space, provenance = self.subject.space, self.subject.provenance
        for place, losing in ((draft.key[1], True), (draft.key[2], False)):
            if place[0] != AT:
                continue
            pieces = self._pieces_of(place).tolist()
            here = {piece: provenance.of(self.subject.event_of(piece)) for piece in pieces}
            function_of = {piece: at.function for piece, at in here.items() if at is not None}
            every = set(function_of.values())
            shown: dict[str, None] = {}
            for state in (draft.cause.state, *draft.cases) if len(every) > 1 else ():
                lost, until = set(space.lost(state)), space.moment(state.point)
                issued = (piece for piece in pieces if self.subject.event_of(piece) < until)
                shown |= dict.fromkeys(function_of[piece] for piece in issued if (piece in lost) is losing)
                if len(shown) == len(every):
                    break
            names = [f"`{name}`" for name in shown]
            if len(names) > 1:
                yield f"{len(names)} instantiations of a template have it: {listed(names, _ALSO_SHOWN)}"
                return

    def _related(self, draft: DraftFinding, others: list[DraftFinding]) -> Iterator[str]:
        """The other drafts that are shown with a finding, by what they have in common with it."""
        doubted = [other for other in others if other.uncertain and not draft.uncertain]
        proved = [other for other in others if other not in doubted]
        covered = [other for other in proved if self._covers(draft, other.cause)]
        apart = [other for other in proved if other not in covered]
        atomic = [other for other in apart if other.cause.no_sync_helps]
        own = sentence.message(self.subject, draft.cause)
        for words, which in (
            ("the same fix also fixes", covered),
            ("other syncs are missing, too", [other for other in apart if other not in atomic]),
            ("other crashes, which no sync prevents, fail too", atomic),
            ("probably for the same reason, not proved", doubted),
        ):
            also = dict.fromkeys(sentence.message(self.subject, other.cause) for other in which)
            also.pop(own, None)
            if also:
                yield f"{words}: {listed(list(also), _ALSO_SHOWN)}"

    def _covers(self, draft: DraftFinding, other: Cause) -> bool:
        """Whether the sync that fixes a draft fixes another cause: before each update of Y's place, or each report."""
        subject, cause = self.subject, draft.cause
        if self._synced(other) != self._synced(cause):
            return False
        if not subject.graph.family.names or cause.no_sync_helps:
            return True
        if other.lost is None or other.no_sync_helps:
            return False
        lost = subject.event_of(other.lost)
        due = subject.space.moment(other.state.point) if other.kept is None else subject.event_of(other.kept)
        if cause.kept is None:
            return subject.acknowledged_between(lost, subject.point_at(due))
        events = subject.graph.event[self._pieces_of(draft.key[2])]
        syncs: list[int] = events[(lost < events) & (events <= due)].tolist()
        if other.kept is None:  # other crashes of it come right after the first report
            return any(not subject.acknowledged_between(lost, subject.point_at(sync)) for sync in syncs)
        return bool(syncs)

    def _synced(self, cause: Cause) -> frozenset[int]:
        """Files or directories whose sync covers a loss; none where flushes do, or where all is one file."""
        graph, piece = self.subject.graph, cause.kept if cause.lost is None else cause.lost
        if not graph.family.names or piece is None:
            return frozenset()
        row = graph.whole(piece)
        if graph.kind[row] != NAME:
            return frozenset([int(graph.file[row])])
        entries = graph.name_change(row).entries
        return frozenset(-folder for (folder, _), _ in entries)

    def _likenesses(self, cause: Cause, others: Sequence[Cause], depth: int) -> tuple[str, ...]:
        """The further fingerprints of a bug, and the ids and fingerprints of what was merged in it: another run may
        report these."""
        known = [self.identities.likenesses(one.kind, one.lost, one.kept, depth) for one in (cause, *others)]
        merged = (self.identities.stable(other.kind, other.lost, other.kept, depth) for other in others)
        former = (
            self.identities.stable(FindingKind.ORDERING, one.former, one.kept, depth)
            for one in (cause, *others)
            if one.former is not None
        )
        return tuple(dict.fromkeys((*known[0], *merged, *former, *(each for more in known[1:] for each in more))))

    def _locations(self, cause: Cause) -> tuple[Location, Location | None]:
        """The place to annotate first: of an ordering bug the store that is too early, else the one lost."""
        subject = self.subject
        end = describe.section_end(subject, cause)
        lost = describe.location_of(subject, end) if end is not None else None
        kept = describe.location_of(subject, cause.kept) if cause.kept is not None else None
        if kept is not None:
            return kept, None if cause.torn else lost
        if lost is not None:
            return lost, None
        return Location("", 0, 0, "", "", ()), None


def _holds_robust_mutex(subject: Subject, moment: int) -> bool:
    """Whether a thread holds a robust mutex in a watched file just before an event.

    Of atomic updates only those of mutexes that are not plain have a mutex's 40 bytes: the lock's word first, its kind
    at offset 16 (glibc, `struct __pthread_mutex_s`; the kernel's robust-futex-ABI has the bits of the word).
    """
    events = subject.trace.events[:moment]
    mutexes = (events["kind"] == Event.STORE) & ((events["flags"] & StoreFlag.ATOMIC) != 0) & (events["size"] == 40)
    latest = {(int(events["file"][at]), int(events["offset"][at])): at for at in np.flatnonzero(mutexes).tolist()}
    for at in latest.values():
        word, kind = struct.unpack_from("<I12xI", subject.trace.data(at))
        if kind & _ROBUST and word & _HELD and not word & _OWNER_DIED:
            return True
    return False
