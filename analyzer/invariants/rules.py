"""Witcher's meta-rules: the orders that a dependence between accesses requires (Witcher 4.3.1, Table 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crashcheck.analyzer.arrays import distinct_rows, fresh_rows, ranges, sort_rows, take_rows
from crashcheck.analyzer.invariants.numbers import COPY_PAIRS, JOINED
from crashcheck.analyzer.invariants.ppdg import ADDRESS, CONTROL, VALUE, Accesses, Edges
from crashcheck.analyzer.invariants.variables import AccessedVariables, Variable
from crashcheck.analyzer.persistence.pieces import WORD_BYTES, Ints

RULES = ("RO1", "RO2", "RO3", "RA1")
_CHUNK = 1 << 17  # edges in one batch


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A place in the source: file, line and function; "" and 0 where unknown."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else "an unknown place"


@dataclass(frozen=True, slots=True)
class ReadEvidence:
    """The access at `access` depended on the read at `on`, `times` times; `how`: "control", "value" or "address"."""

    access: SourcePlace
    on: SourcePlace
    how: str
    times: int


@dataclass(frozen=True, slots=True)
class LikelyInvariant:
    """P(first) happens before W(then); of RA1, both persist together. Numbered from 1, the strongest first.

    `shared` is the type whose one instance holds both ("" if they belong to different instances). `times` is how often
    the rule's condition was met. `held` counts updates of `then` before which a new update of `first` had persisted;
    `violated` pairs that the model lets persist the other way round (of RA1: one without the other).
    """

    number: int
    rule: str
    first: Variable
    then: Variable
    shared: str
    times: int
    held: int
    violated: int
    reads: tuple[ReadEvidence, ...]

    @property
    def text(self) -> str:
        """One sentence for a report."""
        first, then = f"`{self.first.text}`", f"`{self.then.text}`"
        if self.first == self.then:
            first, then = f"one {first}", f"another {then}"
        elif not self.shared and self.first.type and self.first.type == self.then.type:
            then = f"{then} of another {self.then.type}"
        if self.rule == "RA1":
            claim = f"{first} and {then} must persist together"
        else:
            claim = f"{first} must persist before {then}"
        why = f": {_because(self, first, then)}" if self.reads else ""
        seen = f"held {_times(self.held)}, may be violated {_times(self.violated)}"
        return f"{claim}{why} ({self.rule}; {seen})"


def _because(invariant: LikelyInvariant, first: str, then: str) -> str:
    most = invariant.reads[0]
    if invariant.rule == "RO3":
        return f"{most.access.text} reads {first} only after {most.on.text} has tested {then}"
    if invariant.rule == "RA1":
        return f"{most.on.text} and {invariant.reads[-1].on.text} test them before they read what they guard"
    if most.how == "control":
        return f"{most.access.text} writes {then} after {most.on.text} has tested {first}"
    if most.how == "address":
        return f"{most.access.text} finds {then} by what {most.on.text} reads of {first}"
    return f"{most.access.text} writes {then} from what {most.on.text} reads of {first}"


def _times(many: int) -> str:
    return f"{many} time{'s' * (many != 1)}"


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """Conditions of Table 1 that the run met, as parallel arrays, sorted by (rule, first, then, shared, …).

    `rule` is a place in RULES; `first` and `then` are fields (Keys.names), `shared` whether both were in one instance;
    `access` and `on` sites.
    """

    rule: Ints
    first: Ints
    then: Ints
    shared: Ints
    access: Ints
    on: Ints
    how: Ints
    times: Ints


JoinedInstances = dict[tuple[int, int], tuple[Ints, Ints]]


def met_conditions(rows: Accesses, keys: AccessedVariables, edges: Edges) -> tuple[Conditions, JoinedInstances]:
    """The conditions that each edge meets, by Table 1: RO1 of a store by data, RO2 of a store by control, RO3 of a load
    by control.

    Of the fields that the two accesses touch those of the innermost instance that both belong to; without such, each
    one's innermost. An access that depends on what it reads or writes itself is left out. Also, by the fields
    (first, then) of different instances, which instances the edges joined, at most JOINED of them.
    """
    parts, bounds = [], []
    for low in range(0, len(edges), _CHUNK):
        part, bound = _chunk(rows, keys, edges, low, min(low + _CHUNK, len(edges)))
        parts.append(part)
        bounds.append(bound)
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Conditions(none, none, none, none, none, none, none, none), {}
    columns = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return Conditions(*_counted(columns[:-1], columns[-1])), _by_fields(bounds)


def _by_fields(bounds: list[tuple[Ints, ...]]) -> JoinedInstances:
    first, then, one, other = distinct_rows(*(np.concatenate(column) for column in zip(*bounds, strict=True)))
    heads = [*np.flatnonzero(fresh_rows(first, then)).tolist(), len(first)]
    out = {}
    for low, high in pairwise(heads):
        out[int(first[low]), int(then[low])] = one[low : min(high, low + JOINED)], other[low : min(high, low + JOINED)]
    return out


def _counted(columns: tuple[Ints, ...], times: Ints) -> tuple[Ints, ...]:
    """Distinct rows, sorted, and the sum of their `times`."""
    if not len(times):
        return (*columns, times)
    order, fresh = sort_rows(*columns)
    first = np.flatnonzero(fresh)
    return (*take_rows(order[first], *columns), np.add.reduceat(times[order], first))


def _chunk(
    rows: Accesses, keys: AccessedVariables, edges: Edges, low: int, high: int
) -> tuple[tuple[Ints, ...], tuple[Ints, ...]]:
    access, on, how = edges.access[low:high], edges.on[low:high], edges.how[low:high]
    edge, own, other, shared = related_fields(keys, access, on)
    columns = rows.columns
    is_load = rows.load[access]
    field, its = keys.field[own], keys.field[other]

    apart = np.flatnonzero(shared == 0)
    reads = is_load[edge[apart]]
    first = np.where(reads, own[apart], other[apart])
    then = np.where(reads, other[apart], own[apart])
    bound = distinct_rows(
        keys.field[first] * len(keys.names) + keys.field[then], keys.instance[first], keys.instance[then]
    )

    equal = np.flatnonzero(field == its)
    one, two = access[edge[equal]], on[edge[equal]]
    same = (columns.file[one] == columns.file[two]) & (
        columns.offset[one] // WORD_BYTES == columns.offset[two] // WORD_BYTES
    )
    says = np.ones(len(edge), dtype=np.bool_)
    says[equal[same]] = False
    edge, field, its, shared = take_rows(np.flatnonzero(says), edge, field, its, shared)
    load = is_load[edge].astype(np.int64)
    kinds = field, its, shared, columns.site[access[edge]], columns.site[on[edge]], how[edge], load
    field, its, shared, access, on, how, load, times = _counted(kinds, np.ones(len(edge), dtype=np.int64))
    out: list[tuple[Ints, ...]] = []
    for rule, of_load, mask in ((0, 0, VALUE), (0, 0, ADDRESS), (1, 0, CONTROL), (2, 1, CONTROL)):
        fits = (load == of_load) & (how & mask > 0)
        if mask == ADDRESS:
            fits &= how & VALUE == 0
        mine = np.flatnonzero(fits)
        named = (field[mine], its[mine]) if rule == 2 else (its[mine], field[mine])
        ends = np.full(len(mine), rule), *named, shared[mine], access[mine], on[mine], np.full(len(mine), mask)
        out.append((*ends, times[mine]))
    joined = tuple(np.concatenate(column) for column in zip(*out, strict=True))
    return _counted(joined[:-1], joined[-1]), (*np.divmod(bound[0], len(keys.names)), bound[1], bound[2])


def related_fields(keys: AccessedVariables, one: Ints, other: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """(place, row of one, row of other, shared) for pairs of accesses: the fields by which an invariant knows them."""
    many_one = keys.start[one + 1] - keys.start[one]
    many_other = keys.start[other + 1] - keys.start[other]
    none = np.zeros(0, dtype=np.int64)
    found = [(none, none, none)]
    met = np.zeros(len(one), dtype=np.bool_)
    # many edges have equally many fields at both ends: compared all together
    order, fresh = sort_rows(many_one, many_other)
    for which in np.split(order, np.flatnonzero(fresh)[1:]):
        lefts, rights = int(many_one[which[0]]), int(many_other[which[0]])
        if not 0 < lefts * rights <= COPY_PAIRS:
            continue
        left, right = keys.start[one[which]], keys.start[other[which]]
        least = np.full(len(which), 1 << 40, dtype=np.int64)
        common = []
        for i in range(lefts):
            at = left + i
            for j in range(rights):
                equal = np.flatnonzero(keys.instance[at] == keys.instance[right + j])
                common.append((equal, at[equal], right[equal] + j))
                least[equal] = np.minimum(least[equal], keys.size[at[equal]])
        for equal, at, its in common:
            smallest = keys.size[at] == least[equal]
            found.append((which[equal[smallest]], at[smallest], its[smallest]))
        met[which] = least < 1 << 40
    # nothing in common: what each touches, from the inside
    apart = np.flatnonzero(~met & (many_one > 0) & (many_other > 0))
    own_at, own_row = keys.innermost(one[apart])
    other_at, other_row = keys.innermost(other[apart])
    each = np.bincount(other_at, minlength=len(apart))
    first, many = (np.cumsum(each) - each)[own_at], each[own_at]
    shared = np.repeat([1, 0], [sum(len(place) for place, _, _ in found), int(many.sum())])
    found.append((np.repeat(apart[own_at], many), np.repeat(own_row, many), other_row[ranges(first, many)]))
    place, rows_one, rows_other = (np.concatenate(column) for column in zip(*found, strict=True))
    return place, rows_one, rows_other, shared


def find_guardians(rows: Accesses, keys: AccessedVariables, edges: Edges) -> tuple[Ints, Ints, Ints]:
    """(field, site of the guarding read, times): the fields that some read tests before another is made (RO3's X)."""
    guarded = rows.load[edges.access] & (edges.how & CONTROL > 0)
    reads, times = np.unique(edges.on[guarded], return_counts=True)
    at, row = keys.innermost(reads)
    field, site, many = _counted((keys.field[row], rows.columns.site[reads[at]]), times[at])
    return field, site, many


def by_invariant(found: Conditions) -> Iterator[tuple[tuple[int, int, int, int], slice]]:
    """(rule, first, then, shared) of each invariant, and its rows."""
    if not len(found.rule):
        return
    columns = found.rule, found.first, found.then, found.shared
    heads = distinct_rows(*columns)
    bounds = [*np.flatnonzero(fresh_rows(*columns)).tolist(), len(found.rule)]
    for number, (rule, first, then, shared) in enumerate(zip(*(column.tolist() for column in heads), strict=True)):
        yield (rule, first, then, shared), slice(bounds[number], bounds[number + 1])
