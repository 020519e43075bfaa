"""Static types: which field of which object an update or another access belongs to, by the types of its site.

`place_by_type` numbers the types, fields and objects; for what it leaves open see `instances`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import distinct_rows, number_rows, sort_rows, take_rows, unique
from crashcheck.analyzer.behaviours.numbers import BULK_SHAPES, LARGEST_EVIDENCE
from crashcheck.analyzer.behaviours.types.program_types import (
    EnclosingStruct,
    ProgramTypes,
    enclosing_structs,
    is_bulk,
    recorded_struct,
)
from crashcheck.analyzer.behaviours.updates import AccessColumns, FieldRows
from crashcheck.analyzer.compile.facts import Site, TypeLayout
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.reader import Facts, Trace
from crashcheck.runtime.trace_format import NO_INSTANCE

PADDING = "(padding)"  # what a copy of a struct word by word writes between its fields


class FieldNumbers:
    """Numbers for types, and for fields of types."""

    def __init__(self) -> None:
        self.types: dict[str, int] = {}
        self.fields: dict[tuple[int, str], int] = {}

    def type(self, name: str) -> int:
        return self.types.setdefault(name, len(self.types))

    def field(self, type_: int, path: str) -> int:
        return self.fields.setdefault((type_, path), len(self.fields))


@dataclass(frozen=True, slots=True, eq=False)
class TypedObjects:
    """Of each instance of a known type: the type, the file, and the byte of the file at which it begins."""

    type: Ints
    file: Ints
    start: Ints


class Memberships:
    """Collects which update, or other access, writes which field of which object, by static types."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []  # update, type, file, start, field

    def add(self, update: Ints, type_: int, file: Ints, start: Ints, field: int | Ints) -> None:
        many = len(update)
        fields = np.full(many, field, dtype=np.int64) if isinstance(field, int) else field
        self.parts.append((update, np.full(many, type_, dtype=np.int64), file, start, fields))

    def by_object(self) -> tuple[FieldRows, TypedObjects]:
        """(update, instance, field), sorted and each once; and the instances, numbered by (type, file, start)."""
        none = np.zeros(0, dtype=np.int64)
        columns = (np.concatenate([none, *column]) for column in zip(*self.parts, strict=True))
        update, type_, file, start, field = distinct_rows(*columns) if self.parts else (none,) * 5
        instance, heads = number_rows(type_, file, start)
        return FieldRows(update, instance, field), TypedObjects(*take_rows(heads, type_, file, start))


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """One site's updates, and where the structs around them begin."""

    site: Site
    chain: tuple[EnclosingStruct, ...]
    rows: Ints  # places in Updates
    level: int  # whose struct begins at the recorded instance; -1: unknown
    starts: list[Ints | None]  # by level; None where not known


@dataclass(frozen=True, slots=True, eq=False)
class UpdateTraits:
    """What the site of each update shows of it, and the types of the program."""

    gives_types: NDArray[np.bool_]  # it shows which types its words have
    needs_types: NDArray[np.bool_]  # other updates, or the layout, have to show them
    is_fill: NDArray[np.bool_]
    is_bulk: NDArray[np.bool_]  # a fill, a copy, or a function that is known to do either
    types: ProgramTypes


def place_by_type(
    trace: Trace, facts: Facts | None, updates: AccessColumns, names: FieldNumbers, rows: Memberships
) -> UpdateTraits:
    """Add to `rows` the memberships of updates by static types, or those of other accesses in the same columns."""
    known: dict[int, Site] = {}
    members: dict[int, Ints] = {}
    order, fresh = sort_rows(updates.site)
    bounds = np.append(np.flatnonzero(fresh), len(order))
    for at, number in enumerate(updates.site[order[bounds[:-1]]].tolist()):
        site = trace.site(number, facts) if number else None
        if site is not None:
            known[number] = site
            members[number] = order[bounds[at] : bounds[at + 1]]
    layout = ProgramTypes(known.values(), _declared(trace, facts))
    none = np.zeros(len(updates.event), dtype=np.bool_)
    traits = UpdateTraits(none.copy(), ~none, none.copy(), none, layout)
    for number, site in known.items():
        _place(site, members[number], updates, layout)  # the layout learns how large elements are
    placed = []
    for number, site in known.items():
        mine = members[number]
        traits.is_fill[mine] = site.kind == "fill"
        traits.is_bulk[mine] = is_bulk(site)
        if not site.variable:
            continue
        placed.append(_place(site, mine, updates, layout))
        if not is_bulk(site):
            traits.needs_types[mine] = False
            traits.gives_types[mine] = updates.size[mine] <= LARGEST_EVIDENCE
    placed = list(_located(placed, updates, layout))
    _place_outer(placed, updates)
    for one in placed:
        _add_memberships(one, updates, layout, names, rows)
    return traits


def _declared(trace: Trace, facts: Facts | None) -> list[TypeLayout]:
    """Types that the units of a run declare; not those that share a name."""
    found: dict[str, TypeLayout] = {}
    twice: set[str] = set()
    for key in sorted({unit.key for unit in trace.units}) if facts is not None else ():
        unit = facts.unit(key) if facts is not None else None
        for layout in getattr(unit, "layouts", ()):
            if found.setdefault(layout.name, layout) != layout:
                twice.add(layout.name)
    return [layout for name, layout in sorted(found.items()) if name not in twice]


def _place(site: Site, mine: Ints, updates: AccessColumns, layout: ProgramTypes) -> _Placed:
    """Where the structs around a site's updates begin, out to the recorded instance."""
    chain = enclosing_structs(site)
    offset, delta = updates.offset[mine], updates.delta[mine]
    known = delta != NO_INSTANCE
    starts: list[Ints | None] = [None] * len(chain)
    if not chain:
        return _Placed(site, chain, mine, -1, [np.where(known, offset - delta, offset)])
    level = recorded_struct(chain, int(delta.min()), int(delta.max())) if bool(known.all()) else -1
    at = offset  # from the inside, as long as no array element's number is asked for
    for number, step in enumerate(chain):
        if step.array:
            break
        at = at - step.offset
        starts[number] = at
    if level < 0:
        return _Placed(site, chain, mine, level, starts)
    _inwards(chain, level, offset - delta, offset, starts, layout)
    return _Placed(site, chain, mine, level, starts)


def _inwards(
    chain: tuple[EnclosingStruct, ...],
    level: int,
    start: Ints,
    offset: Ints,
    starts: list[Ints | None],
    layout: ProgramTypes,
) -> None:
    """Fill in `starts` of a level and of those within it: elements of arrays by their distance."""
    starts[level] = start
    for number in range(level, 0, -1):
        step, inner = chain[number], starts[number - 1]
        base = start + step.offset
        if inner is None:
            stride = layout.stride(step, chain[number - 1].type) if step.array else 0
            inner = base + (offset - base) // stride * stride if stride else base
        elif step.array:
            layout.learn(step, int(np.gcd.reduce(inner - base)))
        starts[number - 1] = start = inner


def _starts(placed: list[_Placed], updates: AccessColumns) -> dict[str, Ints]:
    """By type, where its instances begin as far as sites know, sorted, with the file."""
    known: dict[str, list[Ints]] = {}
    for one in placed:
        for level, start in zip(one.chain, one.starts, strict=False):
            if start is not None:
                known.setdefault(level.type, []).append(updates.file[one.rows] << 40 | start)
    return {name: unique(np.concatenate(keys)) for name, keys in known.items()}


def _located(placed: list[_Placed], updates: AccessColumns, layout: ProgramTypes) -> Iterator[_Placed]:
    """Elements of an array whose index was computed: in the instance of the array's struct that contains them.

    Such a site knows the type, and not how far it is from where the struct begins; other sites know where its instances
    begin. Where these overlap, as when memory was reused, none is taken.
    """
    known = _starts(placed, updates)
    for one in placed:
        rest = one.rows
        for number, step in enumerate(one.chain if all(start is None for start in one.starts) else ()):
            candidates = known.get(step.type)
            if candidates is None:
                continue
            key = (updates.file[rest] << 40 | updates.offset[rest]) - step.offset
            place = np.searchsorted(candidates, key, side="right") - 1
            fits = (place >= 0) & (key - candidates[np.maximum(place, 0)] < step.size)
            fits &= (place < 1) | (key - candidates[np.maximum(place - 1, 0)] >= step.size)
            if not fits.any():
                continue
            starts: list[Ints | None] = [None] * len(one.chain)
            start = candidates[place[fits]] & ((1 << 40) - 1)
            _inwards(one.chain, number, start, updates.offset[rest[fits]], starts, layout)
            yield _Placed(one.site, one.chain, rest[fits], number, starts)
            rest = rest[~fits]
        if len(rest):
            yield replace(one, rows=rest)


def _place_outer(placed: list[_Placed], updates: AccessColumns) -> None:
    """Further out than the recorded instance: by a fixed offset, or by a known instance of a type that contains it."""
    known = _starts(placed, updates)
    for one in placed:
        for number in range(1, len(one.chain)):
            inner, step = one.starts[number - 1], one.chain[number]
            if one.starts[number] is not None or inner is None:
                continue
            at = inner - step.offset
            if not step.array:
                one.starts[number] = at
                continue
            around = _around(known.get(step.type), updates.file[one.rows], at, step.size)
            if around is None:
                break
            one.starts[number] = around


def _around(candidates: Ints | None, file: Ints, at: Ints, size: int) -> Ints | None:
    """Where the struct begins that has each byte `at` in its `size` bytes; None unless every one has such a struct.

    `candidates`: file << 40 | first byte of known ones, sorted.
    """
    if candidates is None:
        return None
    key = file << 40 | np.maximum(at, 0)
    place = np.searchsorted(candidates, key, side="right") - 1
    found = candidates[np.maximum(place, 0)]
    fits = (place >= 0) & (at >= 0) & (key - found < size) & (found >> 40 == file)
    return found & ((1 << 40) - 1) if bool(fits.all()) else None


def _add_memberships(
    one: _Placed, updates: AccessColumns, layout: ProgramTypes, names: FieldNumbers, rows: Memberships
) -> None:
    """Add the memberships of one site's updates."""
    file, bulk = updates.file[one.rows], is_bulk(one.site)
    if not one.chain:
        type_ = names.type(one.site.variable)
        start = one.starts[0]
        assert start is not None
        _add_fields(one, updates, layout, names, rows, one.site.variable, type_, start, "*")
        return
    if bulk and one.chain[0].array:
        # an element of an array, copied as a whole: an instance of what the array holds
        type_ = names.type(one.site.variable)
        rows.add(one.rows, type_, file, updates.offset[one.rows], names.field(type_, "*"))
    for level, start in zip(one.chain, one.starts, strict=True):
        if start is None:
            continue
        type_ = names.type(level.type)
        if bulk:
            _add_fields(one, updates, layout, names, rows, level.type, type_, start, level.path)
        else:
            rows.add(one.rows, type_, file, start, names.field(type_, level.path))


def _add_fields(
    one: _Placed,
    updates: AccessColumns,
    layout: ProgramTypes,
    names: FieldNumbers,
    rows: Memberships,
    name: str,
    type_: int,
    start: Ints,
    own: str,
) -> None:
    """The fields that bulk updates cover, where the layout shows them; else the one that the site names."""
    low = updates.offset[one.rows] - start
    high = low + updates.size[one.rows]
    shape, heads = number_rows(low, high)
    if len(heads) > BULK_SHAPES:
        rows.add(one.rows, type_, updates.file[one.rows], start, names.field(type_, own))
        return
    for number, head in enumerate(heads.tolist()):
        mine = shape == number
        for path in layout.covered(name, int(low[head]), int(high[head])) or (own,):
            chosen = one.rows[mine]
            rows.add(chosen, type_, updates.file[chosen], start[mine], names.field(type_, path))
