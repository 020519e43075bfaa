"""Type subgraphs: which update belongs to which field of which instance of which type (Pathfinder §4.2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import distinct_rows, number_rows, ranges, sort_rows, take_rows, unique
from crashcheck.analyzer.behaviours.blocks import Blocks, find_blocks
from crashcheck.analyzer.behaviours.generations import covering_fills, number_generations
from crashcheck.analyzer.behaviours.layout import (
    EnclosingStruct,
    ProgramTypes,
    enclosing_structs,
    is_bulk,
    recorded_struct,
)
from crashcheck.analyzer.behaviours.nodes import Nodes
from crashcheck.analyzer.behaviours.sites import StaticSites
from crashcheck.analyzer.behaviours.type_evidence import TypedUpdates
from crashcheck.analyzer.behaviours.updates import AccessColumns, update_columns
from crashcheck.analyzer.compile.facts import Site, TypeLayout
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.reader import Facts, Trace
from crashcheck.runtime.trace_format import NO_INSTANCE

_LARGEST_EVIDENCE = 64  # bytes: a wider typed update says nothing about the types of its words
PADDING = "(padding)"  # what a copy of a struct word by word writes between its fields
_SHAPES = 256  # distinct ranges of one bulk site whose fields are told apart


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
    """Parallel arrays. `type`, `file`, `start` (byte in the file) and `life` are of each instance; `row_*` are
    memberships, sorted by instance and event: an update writes a field of an instance, in a node.

    A life is the time dimension: an instance whose memory was used anew is another instance. What has no type and
    overlaps none has the call stack for its type: `start` is the stack's id, `file` 0.
    """

    type: Ints
    file: Ints
    start: Ints
    life: Ints
    row_instance: Ints
    row_node: Ints
    row_field: Ints
    types: tuple[str, ...]
    fields: tuple[tuple[int, str], ...]  # (type, path)
    stacked: int  # types from this number on are call stacks

    def __len__(self) -> int:
        return len(self.type)


class FieldNumbers:
    """Numbers for types, and for fields of types."""

    def __init__(self) -> None:
        self.types: dict[str, int] = {}
        self.fields: dict[tuple[int, str], int] = {}

    def type(self, name: str) -> int:
        return self.types.setdefault(name, len(self.types))

    def field(self, type_: int, path: str) -> int:
        return self.fields.setdefault((type_, path), len(self.fields))


class Memberships:
    """Memberships of updates (events), column by column: update, type, file, start, field."""

    def __init__(self) -> None:
        self.parts: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []

    def add(self, update: Ints, type_: int, file: Ints, start: Ints, field: int | Ints) -> None:
        many = len(update)
        fields = np.full(many, field, dtype=np.int64) if isinstance(field, int) else field
        self.parts.append((update, np.full(many, type_, dtype=np.int64), file, start, fields))

    def columns(self) -> tuple[Ints, ...]:
        if not self.parts:
            return tuple(np.zeros(0, dtype=np.int64) for _ in range(5))
        return tuple(np.concatenate(column) for column in zip(*self.parts, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """One site's updates, and where the structs around them begin."""

    site: Site
    chain: tuple[EnclosingStruct, ...]
    rows: Ints  # places in Updates
    level: int  # whose struct begins at the recorded instance; -1: unknown
    starts: list[Ints | None]  # by level; None where not known


def find_instances(graph: PersistenceGraph, facts: Facts | None, nodes: Nodes, sites: StaticSites) -> Instances:
    """The instances that a run updated. `sites` are those of the nodes' events.

    * A site with static types: its field belongs to the innermost struct and to each enclosing one whose place is
      known; elements of arrays of structs are instances.
    * A bulk copy or fill: the fields that the layout shows it to cover, and those of typed updates at its words, if it
      has a type: of those of the same object.
    * A site without static type: the types of the last typed update of each word before it, else of the first after it;
      for a fill (memory made ready for use) the other way round.
    * An element of an array whose index was computed, so that the site cannot tell where the struct begins: the one
      instance of that struct that lies around it.
    * What lies in an instance of a declared type, at a word that no typed update ever writes: that type's field, or
      the padding between.
    * What lies in memory that an update without type wrote as a whole: that block.
    * What is still unknown: its call stack.

    A new life begins with a fill that covers all known fields of an instance, and with a typed update of a word that an
    object which neither contains nor lies in the instance wrote in between.
    """
    names = FieldNumbers()
    updates = update_columns(graph, nodes)
    rows = Memberships()
    kinds = place_by_type(graph.trace, facts, updates, names, rows)
    columns = rows.columns()
    update, type_, file, start, field = distinct_rows(*columns)
    instance, heads = number_rows(type_, file, start)
    heads_type, heads_file, heads_start = type_[heads], file[heads], start[heads]

    # typed evidence, word by word, for what has no type of its own, and for what bulk updates cover
    evidence = TypedUpdates(updates, kinds.evidence, update, instance, field)
    node_update = np.searchsorted(updates.event, nodes.event)
    wants = kinds.wants[node_update] & nodes.data
    found_node, found_instance, found_field = evidence.inherited(graph, nodes, node_update, wants, kinds.fill)

    bare = wants.copy()
    bare[found_node] = False
    bare &= ~np.isin(updates.event[node_update], updates.event[update])
    more = _enclosed(
        np.flatnonzero(bare), node_update, updates, (heads_type, heads_file, heads_start), kinds.layout, names
    )
    found_node, found_instance, found_field = (
        np.concatenate([old, new]) for old, new in zip((found_node, found_instance, found_field), more, strict=True)
    )

    # own types hold for all nodes of an update
    first = np.searchsorted(nodes.event, updates.event[update])
    many = np.searchsorted(nodes.event, updates.event[update], side="right") - first
    own_node = ranges(first, many)
    row_instance = np.concatenate([np.repeat(instance, many), found_instance])
    row_node = np.concatenate([own_node, found_node])
    row_field = np.concatenate([np.repeat(field, many), found_field])
    own_data = nodes.data[row_node]
    row_instance, row_node, row_field = row_instance[own_data], row_node[own_data], row_field[own_data]

    # lives
    extent = np.array([kinds.layout.extent(name) for name in names.types], dtype=np.int64)
    filled = covering_fills(node_update, updates, kinds.fill, row_instance, row_node, heads_type, heads_start, extent)
    row_life = number_generations(nodes, row_instance, row_node, filled, evidence.taken_over())

    # blocks that were made ready as a whole
    rest = np.ones(len(nodes), dtype=np.bool_)
    rest[row_node] = False
    untyped = np.zeros(len(updates.event), dtype=np.bool_)
    untyped[node_update[rest & nodes.data]] = True
    untyped[node_update[row_node]] = False
    bulk = kinds.bulk.copy()
    bulk[update] = False
    block_node, block_type, block_field, made = _blocks(
        np.flatnonzero(rest & nodes.data), node_update, updates, find_blocks(updates, untyped, bulk), names
    )

    # the rest, by call stack
    rest[block_node] = False
    rest_node = np.flatnonzero(rest)
    stacked = len(names.types)
    rest_site = sites.of_event[rest_node]
    rest_type = np.zeros(len(rest_node), dtype=np.int64)
    rest_field = np.zeros(len(rest_node), dtype=np.int64)
    for site in unique(rest_site).tolist():
        mine = rest_site == site
        known = sites.sites[site]
        rest_type[mine] = names.type(f"({known.function or 'unknown code'})")
        rest_field[mine] = names.field(int(rest_type[mine][0]), f"@{site}")
    rest_stack = updates.stack[node_update[rest_node]]

    all_type = np.concatenate([heads_type[row_instance], block_type, rest_type])
    all_file = np.concatenate([heads_file[row_instance], made.file, np.zeros(len(rest_node), dtype=np.int64)])
    all_start = np.concatenate([heads_start[row_instance], made.start, rest_stack])
    all_life = np.concatenate([row_life, made.life, np.zeros(len(rest_node), dtype=np.int64)])
    all_node = np.concatenate([row_node, block_node, rest_node])
    all_field = np.concatenate([row_field, block_field, rest_field])
    number, heads = number_rows(all_type, all_file, all_start, all_life)
    number, all_node, all_field = distinct_rows(number, all_node, all_field)
    return Instances(
        all_type[heads],
        all_file[heads],
        all_start[heads],
        all_life[heads],
        number,
        all_node,
        all_field,
        tuple(names.types),
        tuple(names.fields),
        stacked,
    )


# -- static types


@dataclass(frozen=True, slots=True, eq=False)
class UpdateTraits:
    """Of each update: whether it tells the types of its words, wants to be told, is a fill, or any bulk update. And the
    layout."""

    evidence: NDArray[np.bool_]
    wants: NDArray[np.bool_]
    fill: NDArray[np.bool_]
    bulk: NDArray[np.bool_]
    layout: ProgramTypes


def place_by_type(
    trace: Trace, facts: Facts | None, updates: AccessColumns, names: FieldNumbers, rows: Memberships
) -> UpdateTraits:
    """Add to `rows` what static types say of updates, or of other accesses told in the same columns."""
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
    kinds = UpdateTraits(none.copy(), ~none, none.copy(), none, layout)
    for number, site in known.items():
        _place(site, members[number], updates, layout)  # teaches the layout how large elements are
    placed = []
    for number, site in known.items():
        mine = members[number]
        kinds.fill[mine] = site.kind == "fill"
        kinds.bulk[mine] = is_bulk(site)
        if not site.variable:
            continue
        placed.append(_place(site, mine, updates, layout))
        if not is_bulk(site):
            kinds.wants[mine] = False
            kinds.evidence[mine] = updates.size[mine] <= _LARGEST_EVIDENCE
    placed = list(_located(placed, updates, layout))
    _place_outer(placed, updates)
    for one in placed:
        _tell(one, updates, layout, names, rows)
    return kinds


def _enclosed(
    asked: Ints,
    node_update: Ints,
    updates: AccessColumns,
    heads: tuple[Ints, Ints, Ints],
    layout: ProgramTypes,
    names: FieldNumbers,
) -> tuple[Ints, Ints, Ints]:
    """(node, instance, field) for nodes at words that no typed update wrote, but that lie in instances of declared
    types; not where the innermost of these is one of several."""
    update = node_update[asked]
    low, high = updates.offset[update], updates.offset[update] + updates.size[update]
    parts = []
    for type_, name in enumerate(list(names.types)):
        mine = np.flatnonzero(heads[0] == type_)
        size = layout.size(name)
        if not size or not len(mine) or not len(asked):
            continue
        key = heads[1][mine] << 40 | heads[2][mine]
        order = np.argsort(key)
        at = np.searchsorted(key[order], updates.file[update] << 40 | low, side="right") - 1
        instance = mine[order[np.maximum(at, 0)]]
        fits = (at >= 0) & (heads[1][instance] == updates.file[update]) & (high <= heads[2][instance] + size)
        parts.append((np.flatnonzero(fits), instance[fits], np.full(int(fits.sum()), size, dtype=np.int64)))
    rows: list[tuple[int, int, int]] = []
    which, instance, size_ = (np.concatenate([np.zeros(0, dtype=np.int64), *column]) for column in _columns(parts))
    order, _ = sort_rows(which, size_)
    paths: dict[tuple[int, int, int], list[int]] = {}
    previous = -1
    for place, row in enumerate(order.tolist()):
        node = int(which[row])
        if node != previous:
            previous = node
            follower = order[place + 1] if place + 1 < len(order) else row
            unique_ = follower == row or which[follower] != node or size_[follower] != size_[row]
        if not unique_:
            continue
        type_, start = int(heads[0][instance[row]]), int(heads[2][instance[row]])
        shape = type_, int(low[node]) - start, int(high[node]) - start
        if shape not in paths:
            covered = layout.covered(tuple(names.types)[type_], *shape[1:]) or (PADDING,)
            paths[shape] = [names.field(type_, path) for path in covered]
        rows += [(int(asked[node]), int(instance[row]), field) for field in paths[shape]]
    out = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return out[:, 0], out[:, 1], out[:, 2]


def _blocks(
    asked: Ints, node_update: Ints, updates: AccessColumns, found: Blocks, names: FieldNumbers
) -> tuple[Ints, Ints, Ints, Blocks]:
    """(node, type, field) of the nodes of updates that belong to blocks, and the blocks, a row a node."""
    place = np.minimum(np.searchsorted(found.update, node_update[asked]), max(len(found.update) - 1, 0))
    mine = found.update[place] == node_update[asked] if len(found.update) else np.zeros(len(asked), dtype=np.bool_)
    node, place = asked[mine], place[mine]
    update = node_update[node]
    made = Blocks(*take_rows(place, found.update, found.file, found.start, found.size, found.life))
    shape, heads = number_rows(made.size, updates.offset[update] - made.start, updates.size[update])
    types = [names.type(f"(block of {size} bytes)") for size in made.size[heads].tolist()]
    fields = [
        names.field(type_, "*" if many == size else f"+{offset}")
        for type_, size, offset, many in zip(
            types,
            made.size[heads].tolist(),
            (updates.offset[update] - made.start)[heads].tolist(),
            updates.size[update][heads].tolist(),
            strict=True,
        )
    ]
    return node, np.array(types, dtype=np.int64)[shape], np.array(fields, dtype=np.int64)[shape], made


def _columns(parts: list[tuple[Ints, Ints, Ints]]) -> tuple[list[Ints], list[Ints], list[Ints]]:
    return [part[0] for part in parts], [part[1] for part in parts], [part[2] for part in parts]


def _declared(trace: Trace, facts: Facts | None) -> list[TypeLayout]:
    """Types that the units of a run declare; not those whose name stands for several."""
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
    """Elements of an array whose index was computed: in the instance of the array's struct that lies around them.

    Such a site knows the type, and not how far it is from where the struct begins; other sites know where its instances
    begin. Where these overlap, as when memory was used anew, none is taken.
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
    """Further out than the recorded instance: by a fixed offset, or by an instance of the type known to lie around."""
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
            candidates = known.get(step.type)
            if candidates is None:
                break
            key = updates.file[one.rows] << 40 | np.maximum(at, 0)
            place = np.searchsorted(candidates, key, side="right") - 1
            found = candidates[np.maximum(place, 0)]
            fits = (place >= 0) & (at >= 0) & (key - found < step.size) & (found >> 40 == updates.file[one.rows])
            if not bool(fits.all()):
                break
            one.starts[number] = found & ((1 << 40) - 1)


def _tell(one: _Placed, updates: AccessColumns, layout: ProgramTypes, names: FieldNumbers, rows: Memberships) -> None:
    """Add a site's memberships."""
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
    """The fields that bulk updates cover, where the layout tells; else the one that the site names."""
    low = updates.offset[one.rows] - start
    high = low + updates.size[one.rows]
    shape, heads = number_rows(low, high)
    if len(heads) > _SHAPES:
        rows.add(one.rows, type_, updates.file[one.rows], start, names.field(type_, own))
        return
    for number, head in enumerate(heads.tolist()):
        mine = shape == number
        for path in layout.covered(name, int(low[head]), int(high[head])) or (own,):
            chosen = one.rows[mine]
            rows.add(chosen, type_, updates.file[chosen], start[mine], names.field(type_, path))


__all__ = ["FieldNumbers", "Instances", "Memberships", "UpdateTraits", "find_instances", "place_by_type"]
