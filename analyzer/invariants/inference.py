"""From a run with its loads to likely invariants and to the crash states that would violate them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.compile.dependence.interprocedural import Dependences
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.invariants.check_reads import CheckReads
from crashcheck.analyzer.invariants.indirect_calls import dependences_that_ran
from crashcheck.analyzer.invariants.numbers import EVIDENCE
from crashcheck.analyzer.invariants.pairs import Pairs, ordered_pairs, parted_pairs
from crashcheck.analyzer.invariants.ppdg import (
    ADDRESS,
    CONTROL,
    VALUE,
    Binder,
    collect_accesses,
    find_edges,
    keep_informative,
)
from crashcheck.analyzer.invariants.queries import Queries, RunStores, StateQuery, guardians_together, order_queries
from crashcheck.analyzer.invariants.rules import (
    RULES,
    Conditions,
    JoinedInstances,
    LikelyInvariant,
    ReadEvidence,
    SourcePlace,
    by_invariant,
    find_guardians,
    met_conditions,
)
from crashcheck.analyzer.invariants.variables import Variable, find_variables
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.reader import Facts, Trace
from crashcheck.interruption import KeepOn, always

Part = TypeVar("Part")
_HOW = {CONTROL: "control", ADDRESS: "address", VALUE: "value"}


@dataclass(frozen=True, slots=True)
class Inferred:
    """The likely invariants of a run, the strongest first. `note`: why there are none; else empty.

    `queries` are the states that would violate one, as far as the model lets updates persist in that order; they can
    be asked for again and again.
    """

    invariants: tuple[LikelyInvariant, ...]
    queries: Queries | Sequence[StateQuery]
    note: str


def infer(
    found: Behaviours, facts: Facts | None, reads: CheckReads | None = None, *, keep_on: KeepOn = always
) -> Inferred:
    """The likely invariants of a run whose loads were recorded. `facts` are those of its program (ProgramFacts).

    `reads`: what the check read; it is evidence for what must persist before what as well. `keep_on` is
    called now and then; what it raises ends the inference.
    """
    trace = found.graph.trace
    if not len(trace.loads) and reads is None:
        return Inferred((), (), "no likely invariants: no reads of watched files were recorded")
    if not isinstance(facts, ProgramFacts):
        return Inferred((), (), "no likely invariants: the program has no facts (build it with crashcheck-cc)")
    return infer_from(found, facts, dependences_that_ran(trace, facts, keep_on), reads, keep_on)


def infer_from(
    found: Behaviours,
    facts: ProgramFacts,
    dependences: Dependences,
    reads: CheckReads | None = None,
    keep_on: KeepOn = always,
) -> Inferred:
    """The same from dependences that are known already. Near-linear in the trace."""
    trace = found.graph.trace
    nodes = found.nodes
    every = collect_accesses(trace, unique(nodes.event[nodes.data]))
    joined = find_edges(Binder(trace, every, dependences), keep_on)
    if not len(joined) and (reads is None or not len(reads.joined)):
        return Inferred((), (), _nothing_joined(trace, facts))
    rows, joined = keep_informative(every, joined)
    del every
    if reads is not None:
        trace, rows, joined = reads.after(trace, rows, joined)
        facts = reads.known_with(facts)
    keep_on()
    known = find_variables(trace, facts, rows)
    keep_on()
    met, bound = met_conditions(rows, known, joined)
    guards = find_guardians(rows, known, joined)
    keep_on()
    updates, names = RunStores(found, rows, known), known.names
    del rows, known, joined  # they are large
    drafts = [
        *_ordered(trace, facts, names, met, bound, updates, keep_on),
        *_together(trace, facts, names, guards, updates, keep_on),
    ]
    drafts.sort(key=lambda draft: draft.order)
    invariants = tuple(draft.invariant(number) for number, draft in enumerate(drafts, 1))
    sizes = [len(draft.pairs.first) for draft in drafts]

    def joint(columns: list[Ints]) -> Ints:
        return np.concatenate([np.zeros(0, dtype=np.int64), *columns])

    asked = order_queries(
        updates,
        RULES,
        np.repeat(np.array([draft.rule for draft in drafts], dtype=np.int64), sizes),
        joint([draft.pairs.first for draft in drafts]),
        joint([draft.pairs.then for draft in drafts]),
        np.repeat(np.arange(1, len(drafts) + 1), sizes),
    )
    note = "" if invariants else "no likely invariants: no recorded update is one that a read depends on"
    return Inferred(invariants, asked, note)


def _nothing_joined(trace: Trace, facts: ProgramFacts) -> str:
    seen = [unit for unit in trace.units if facts.unit(unit.key) is not None]
    if not seen:
        return "no likely invariants: the units that ran have no facts"
    return "no likely invariants: no recorded access depends on a recorded read"


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """An invariant before it has a number."""

    rule: int
    first: int
    then: int
    shared: str
    is_shared: int
    times: int
    weight: float
    pairs: Pairs
    names: tuple[Variable, ...]
    reads: tuple[ReadEvidence, ...]

    @property
    def strength(self) -> float:
        held, violated = self.pairs.held, self.pairs.violated
        return self.weight * (1 + (held + 1) / (held + violated + 2))

    @property
    def order(self) -> tuple[float, int, int, int, int]:
        return (-round(self.strength, 9), self.rule, self.first, self.then, self.is_shared)

    def invariant(self, number: int) -> LikelyInvariant:
        names = self.names
        return LikelyInvariant(
            number,
            RULES[self.rule],
            names[self.first],
            names[self.then],
            self.shared,
            self.times,
            self.pairs.held,
            self.pairs.violated,
            self.reads,
        )


def _place(trace: Trace, facts: ProgramFacts, site: int) -> SourcePlace:
    known = trace.site(site, facts) if site else None
    return SourcePlace(known.file, known.line, known.function) if known is not None else SourcePlace("", 0, "")


def _ordered(
    trace: Trace,
    facts: ProgramFacts,
    names: tuple[Variable, ...],
    met: Conditions,
    bound: JoinedInstances,
    updates: RunStores,
    keep_on: KeepOn,
) -> list[_Draft]:
    found = list(by_invariant(met))
    asked = sorted({(first, then, shared) for (_, first, then, shared), _ in found})
    columns = np.array(asked, dtype=np.int64).reshape(-1, 3).T
    made = ordered_pairs(updates, columns[0], columns[1], columns[2] > 0, bound)
    all_pairs = {}
    for fields, pairs in zip(asked, made, strict=True):
        keep_on()
        all_pairs[fields] = pairs
    drafts = []
    for (rule, first, then, shared), where in found:
        pairs = all_pairs[first, then, shared]
        if not pairs.held and not pairs.violated:
            continue  # the run never updates both
        by_times = np.argsort(-met.times[where], kind="stable")[:EVIDENCE] + where.start
        reads = tuple(
            ReadEvidence(
                _place(trace, facts, int(met.access[at])),
                _place(trace, facts, int(met.on[at])),
                _HOW[int(met.how[at])],
                int(met.times[at]),
            )
            for at in by_times.tolist()
        )
        drafts.append(
            _Draft(
                rule,
                first,
                then,
                _shared_type(names, first, shared),
                shared,
                int(met.times[where].sum()),
                _weight(rule, met.how[where], where.stop - where.start, bool(shared))
                * (1.0 if names[first].type and names[then].type else 0.5),
                pairs,
                names,
                reads,
            )
        )
    return drafts


def _weight(rule: int, how: Ints, sites: int, shared: bool) -> float:
    """How much an invariant is believed before it is held against the updates.

    A test before a read is made on purpose (RO3); what is written from a value rests on it (RO1); a condition or an
    address may be met by chance. Several places of evidence, and one instance, raise it.
    """
    if RULES[rule] == "RO3":
        own = 3.0
    elif RULES[rule] == "RO1":
        own = 2.0 if bool((how == VALUE).any()) else 1.0
    else:
        own = 1.5
    return own * (1 + min(sites, 4) / 8) * (1.5 if shared else 1.0)


def _shared_type(names: tuple[Variable, ...], field: int, shared: int) -> str:
    return names[field].type if shared else ""


def _together(
    trace: Trace,
    facts: ProgramFacts,
    names: tuple[Variable, ...],
    guards: tuple[Ints, Ints, Ints],
    updates: RunStores,
    keep_on: KeepOn,
) -> list[_Draft]:
    """RA1: two guardians that one operation updates should persist together."""
    field, site, times = guards
    tests = {
        each_: [(int(s), int(t)) for s, t in zip(site[field == each_], times[field == each_], strict=True)]
        for each_ in unique(field).tolist()
    }
    drafts = []
    fields = unique(field)
    for relation, pairs in parted_pairs(updates, _kept_on(guardians_together(updates, fields), keep_on)):
        keep_on()
        (one, other), shared = divmod(relation >> 1, len(fields)), relation & 1
        x, y = int(fields[one]), int(fields[other])
        reads = []
        for guard in dict.fromkeys((x, y)):
            most, many = max(tests[guard], key=lambda test: (test[1], -test[0]))
            place = _place(trace, facts, most)
            reads.append(ReadEvidence(place, place, "control", many))
        sites = min(len(tests[x]), len(tests[y]))
        drafts.append(
            _Draft(
                RULES.index("RA1"),
                x,
                y,
                _shared_type(names, x, shared),
                shared,
                min(sum(many for _, many in tests[x]), sum(many for _, many in tests[y])),
                1.0 * (1 + min(sites, 4) / 8),
                pairs,
                names,
                tuple(reads),
            )
        )
    return drafts


def _kept_on(parts: Iterable[Part], keep_on: KeepOn) -> Iterator[Part]:
    for part in parts:
        keep_on()
        yield part
