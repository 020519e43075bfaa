"""The ranked, anytime search: the states most likely to fail first, and given time everything that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np

from crashcheck.analyzer.arrays import halving_order
from crashcheck.analyzer.behaviours import BehaviourGroup, Behaviours, StaticSite, find_behaviours, find_groups
from crashcheck.analyzer.invariants import Inferred, StateQuery
from crashcheck.analyzer.invariants.ranking import SCORES, RankedGroup, Scores, rank_groups
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Left, OutOfTime, endless, within
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.signature import SiteSignatures
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.exhaustive import Exhaustive
from crashcheck.checker.strategies.leftovers import Leftovers
from crashcheck.checker.strategies.numbers import (
    EVENTS_A_STATE,
    FIRST_TURN,
    INFERENCE_SHARE,
    LONG_RUN,
    MOST_DECIDED,
    REMEMBERED,
    SITE_PARTS,
    WEIGHTS,
)
from crashcheck.checker.strategies.plain import plain_everywhere
from crashcheck.checker.strategies.plan import NOTHING, Choice, Chosen, Decided, Infer, Planned, named
from crashcheck.checker.strategies.random_ideals import Random
from crashcheck.checker.strategies.replaced import states_of_names
from crashcheck.checker.strategies.representative import Representative
from crashcheck.checker.strategies.round_robin import RoundRobin, WeightedQueue
from crashcheck.checker.strategies.violations import violating
from crashcheck.interruption import Background, KeepOn, always, both

_LAST_PART = 63  # of an update: it has fewer words than 2**55
_NOT_INFERRED = Inferred((), (), "")
_TOO_LONG = Inferred(
    (),
    (),
    "likely invariants were not inferred: to infer them would have taken more than half of the budget's seconds; "
    "the groups are ranked by their size and their order alone",
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Phases by WEIGHTS, each from the most likely group to the least likely; docs/search.md has the reasons.

    Run to its end, it has given exactly the states of the exhaustive search. `infer` gives likely invariants, `changed`
    shows which sites are new, `library` which are in the sources of a library: groups of these alone are last. Without
    facts, behaviours are named by call stack. `early`: at most so many states are tested while the groups of a long
    trace are being ranked. `on_ranking`: called when a search waits for the ranking. The last four are for measuring
    what each part of the search earns: a phase whose weight is 0 is left out; `seed` is that of the random phase;
    `similar_wait`: the rarest site signature is first; `scores` weigh the parts of a group's score.
    """

    facts: Facts | None = None
    infer: Infer | None = None
    changed: Callable[[StaticSite], bool] | None = None
    library: Callable[[StaticSite], bool] | None = None
    early: int = 0
    on_ranking: Callable[[], None] = always
    name: str = "ranked"
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    seed: int = 1
    similar_wait: bool = True
    scores: Scores = SCORES

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> RankedPlan:
        return RankedPlan(self, space, left, decided)


class RankedPlan:
    """One search; what it needs is found when it is first asked."""

    whole = True

    def __init__(self, options: Ranked, space: StateSpace, left: Left, decided: Decided) -> None:
        self._options = options
        self._space = space
        self._left = left
        self._decided = decided
        self._keep_on = within(left)
        self._canonical = CanonicalStates(space)
        self._plain = plain_everywhere(self._canonical)
        self._chosen = Chosen()
        self._evidence: Inferred = _NOT_INFERRED
        self._planned: tuple[Planned, ...] = ()
        self._found: Behaviours | None = None
        trace = space.graph.trace
        sites = sum(unit.sites for unit in trace.units)
        self._early = min(options.early, (len(trace.events) + sites) // EVENTS_A_STATE)
        if len(trace.events) + len(trace.loads) + sites < LONG_RUN:
            self._early = 0

    @property
    def groups(self) -> tuple[Planned, ...]:
        return self._planned

    @property
    def notes(self) -> tuple[str, ...]:
        if self._early and self._found is None:
            return ("the search ended before the groups were ranked: raise the budget",)
        grouped = (self._found.note,) if self._found is not None and self._found.note else ()
        return (*grouped, *((self._evidence.note,) if self._evidence is _TOO_LONG else ()))

    @property
    def without(self) -> str:
        """Why the groups are ranked without likely invariants; empty if they are not."""
        self._prepare()
        return self._evidence.note

    def rank(self) -> tuple[Planned, ...]:
        """The groups in the order in which they are tested."""
        self._prepare()
        return self._planned

    @property
    def behaviours(self) -> int:
        """How many update behaviours there are."""
        self._prepare()
        return len(self._found) if self._found is not None else 0

    def choices(self) -> Iterator[Choice]:
        if self._early and self._found is None:
            yield from self._while_ranking()
        if self._found is None:
            self._options.on_ranking()
            self._prepare()
        assert self._found is not None
        by_number = {planned.number: planned for planned in self._planned}

        def fresh(choice: Choice) -> bool:
            self._keep_on()
            return not self._chosen.again(choice, by_number.get(choice.group))

        rest = Exhaustive().states(self._space, self._decided)
        weights, similar_wait = self._options.weights, self._options.similar_wait
        phases = {
            name: WeightedQueue(
                each, weights[name], name == "all sets", name == "rest", similar_too=name in ("names", "plain")
            )
            for name, each in self._phases(rest).items()
            if weights[name]
        }
        signatures = part_by_part(self._space, self._found)
        signature = signatures.of if similar_wait else lambda _state: b""
        decided = 0  # in sequence, once no further point will be decided
        for choice in RoundRobin(phases, fresh, signature, signatures.pending).choices():
            self._chosen.new(choice, None)
            decided = decided + 1 if self._decided.settled and choice.state.point in self._decided else 0
            if not decided:
                yield choice
            if len(self._chosen) >= REMEMBERED or decided > MOST_DECIDED:
                break
        for state in chain((choice.state for choice in phases["rest"].queued()), rest):
            self._keep_on()
            if self._chosen.place(state) is None:
                yield Choice(state, 0, "rest")
        for planned in self._planned:
            planned.complete = True

    def _while_ranking(self) -> Iterator[Choice]:
        """The first plain states, as many whatever the time; from the first one on, a thread ranks the groups.

        The first check does not wait for the ranking, and what is tested does not depend on how long that takes.
        """
        ranking: Background | None = None
        try:
            for state in islice(self._plain, self._early):
                if self._chosen.new(choice := Choice(state, 0, "early"), None):
                    yield choice
                ranking = ranking or Background(self._prepare)
            if ranking is not None:
                self._options.on_ranking()
                ranking.wait()
        finally:
            if ranking is not None:
                ranking.end()

    def _prepare(self, keep_on: KeepOn = always) -> None:
        if self._found is not None:
            return
        whole, part = (both(keep_on, within(self._left, share)) for share in (1.0, INFERENCE_SHARE))
        ranking = ranking_of(self._options, self._space, part, whole)
        self._evidence = ranking.evidence
        self._planned = tuple(
            Planned(each, Representative(self._canonical, each.group.representative)) for each in ranking.groups
        )
        self._found = ranking.found

    def _phases(self, rest: Iterator[CrashState]) -> dict[str, Iterator[Choice]]:
        assert self._found is not None
        found, representatives = self._found, [(planned.number, planned.representative) for planned in self._planned]
        violations = violating(self._canonical, self._evidence.queries, self._keep_on)
        leftovers = Leftovers(self._canonical, found)
        names = (Choice(state, 0, "name") for state in states_of_names(self._canonical))
        return {
            "invariants": (Choice(state, 0, "invariant") for state in violations),
            "random": (Choice(state, 0, "random") for state in Random(self._options.seed).drawn(self._space, Chosen())),
            "cheap": _in_turns([(number, one.cheap()) for number, one in representatives]),
            **({"names": names} if self._space.graph.names.changes else {}),  # an empty phase would take a turn
            "plain": (Choice(state, 0, "plain") for state in self._plain),
            "carry": (Choice(state, 0, "carry") for state in leftovers.states()),
            "members": self._members(),
            "all sets": self._all_sets(),
            "rest": (Choice(state, 0, "rest") for state in rest),
        }

    def _members(self) -> Iterator[Choice]:
        """The cheap states of one more member of each group, then of the next: by signature, not by operation."""
        assert self._found is not None
        found = self._found
        waiting = [(planned.number, _spread(planned.ranked.group)) for planned in self._planned]
        while waiting:
            still = []
            for number, members in waiting:
                member = next(members, None)
                if member is None:
                    continue
                still.append((number, members))
                for family, state in Representative(self._canonical, found.behaviour(member)).cheap():
                    yield Choice(state, number, f"member {family}")
            waiting = still

    def _all_sets(self) -> Iterator[Choice]:
        def to_the_end(planned: Planned) -> Iterator[tuple[str, CrashState]]:
            one = planned.representative
            yield from one.cheap()
            yield from named("all sets", one.ideals())
            planned.complete = True

        yield from _in_turns([(planned.number, to_the_end(planned)) for planned in self._planned])


@dataclass(frozen=True, slots=True)
class Ranking:
    """The behaviours of a run, the evidence that ranks their groups, and the groups in the order of the search."""

    found: Behaviours
    evidence: Inferred
    groups: tuple[RankedGroup, ...]


def ranking_of(options: Ranked, space: StateSpace, keep_on: KeepOn, whole: KeepOn = always) -> Ranking:
    """Rank the groups of a run; without likely invariants where `keep_on` raises OutOfTime.

    Where `whole` raises, between two steps, that ends it without a result.
    """
    found = find_behaviours(space.graph, options.facts)
    whole()
    made = find_groups(found)
    whole()

    def in_order_of(evidence: Inferred) -> tuple[RankedGroup, ...]:
        invariants, queries = evidence.invariants, _while(keep_on, evidence.queries)
        return rank_groups(
            found,
            made,
            invariants=invariants,
            queries=queries,
            changed=options.changed,
            scores=options.scores,
        )

    evidence = _NOT_INFERRED
    try:
        keep_on()
        if options.infer is not None:
            evidence = options.infer(found, options.facts, keep_on=keep_on)
        in_order = in_order_of(evidence)
    except OutOfTime:
        whole()
        evidence = _TOO_LONG
        in_order = in_order_of(evidence)
    if options.library is not None:
        in_order = libraries_last(in_order, options.library)
    return Ranking(found, evidence, in_order)


def libraries_last(groups: Sequence[RankedGroup], library: Callable[[StaticSite], bool]) -> tuple[RankedGroup, ...]:
    """Ranked groups, numbered again: those whose representatives only a library's sources update are below all others.

    An allocator's groups are small and violate invariants of their own, so that they would be first; a search of the
    project's own code should not end before it has begun.
    """
    of_library = [all(map(library, each.group.sites)) for each in groups]
    order = sorted(range(len(groups)), key=lambda at: of_library[at])
    return tuple(
        replace(
            groups[at],
            group=replace(groups[at].group, number=number),
            because=(*groups[at].because, *(("in a library",) if of_library[at] else ())),
        )
        for number, at in enumerate(order, 1)
    )


def part_by_part(space: StateSpace, found: Behaviours) -> SiteSignatures:
    """A site is that of a behaviour's node, and of one update, which of its words: of the first ones each, then twice
    as many words together as before, and the last one, where a checksum or a mark may be."""
    graph = space.graph

    def site() -> Ints:
        rows = np.arange(len(graph))
        part = rows - np.searchsorted(graph.event, graph.event, side="left")
        doubled = SITE_PARTS - 1 + np.frexp(part / SITE_PARTS)[1]
        last = rows + 1 == np.searchsorted(graph.event, graph.event, side="right")
        part = np.where(part < SITE_PARTS, part, np.where(last, _LAST_PART, doubled))
        numbers: Ints = found.nodes.of_pieces(found.label) * (_LAST_PART + 1) + part
        return numbers

    return SiteSignatures(space, site)


def _while(keep_on: KeepOn, queries: Iterable[StateQuery]) -> Iterator[StateQuery]:
    """They come fast, but there may be millions of them without a new state."""
    for query in queries:
        keep_on()
        yield query


def _in_turns(groups_: list[tuple[int, Iterator[tuple[str, CrashState]]]]) -> Iterator[Choice]:
    """Some states of each group, then more of each that has more."""
    many = FIRST_TURN
    while groups_:
        still: list[tuple[int, Iterator[tuple[str, CrashState]]]] = []
        for number, states in groups_:
            for _, (family, state) in zip(range(many), states, strict=False):
                yield Choice(state, number, family)
            first = next(states, None)
            if first is not None:
                still.append((number, chain([first], states)))
        groups_ = still
        many *= 2


def _spread(group: BehaviourGroup) -> Iterator[int]:
    """Members but the representative: one of each set of equal members, then a second one of each. Equal members are in
    an order in which each prefix is spread evenly over instances and time."""
    left = [(np.sort(members), halving_order(len(members))) for members in group.members_by_pattern]
    while left:
        still = []
        for members, places in left:
            place = next(places, None)
            if place is None:
                continue
            still.append((members, places))
            member = int(members[place])
            if member != group.representative.id:
                yield member
        left = still
