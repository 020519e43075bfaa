"""Type subgraphs: which update belongs to which field of which instance of which type (Pathfinder §4.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import distinct_rows, number_rows, ranges, sort_rows, take_rows, unique
from crashcheck.analyzer.behaviours.blocks import find_blocks
from crashcheck.analyzer.behaviours.sites import StaticSites
from crashcheck.analyzer.behaviours.types.static_types import (
    PADDING,
    FieldNumbers,
    Memberships,
    TypedObjects,
    UpdateTraits,
    place_by_type,
)
from crashcheck.analyzer.behaviours.types.type_evidence import TypedUpdates
from crashcheck.analyzer.behaviours.updates import AccessColumns, FieldRows, Nodes, update_columns
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.reader import Facts


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
    """Parallel arrays. `type`, `file`, `start` (byte in the file) and `generation` are of each instance; `row_*` are
    memberships, sorted by instance and event: an update writes a field of an instance, in a node.

    Reused memory is another instance: a later generation. What has no type and
    overlaps none has the call stack for its type: `start` is the stack's id, `file` 0.
    """

    type: Ints
    file: Ints
    start: Ints
    generation: Ints
    row_instance: Ints
    row_node: Ints
    row_field: Ints
    types: tuple[str, ...]
    fields: tuple[tuple[int, str], ...]  # (type, path)

    def __len__(self) -> int:
        return len(self.type)


def find_instances(graph: PersistenceGraph, facts: Facts | None, nodes: Nodes, sites: StaticSites) -> Instances:
    """The instances that a run updated. `sites` are those of the nodes' events.

    * A site with static types: its field belongs to the innermost struct and to each enclosing one whose place is
      known; elements of arrays of structs are instances.
    * A bulk copy or fill: the fields that the layout shows it to cover, and those of typed updates at its words, if it
      has a type: of those of the same object.
    * A site without static type: the types of the last typed update of each word before it, else of the first after it;
      for a fill (memory made ready for use) the other way round.
    * An element of an array whose index was computed, so that the site does not know where the struct begins: the one
      instance of that struct that contains it.
    * An update in an instance of a declared type, at a word that no typed update ever writes: that type's field, or
      the padding between.
    * An update in memory that one update without type wrote as a whole: that block.
    * If nothing else is known: its call stack.

    A new generation begins with a fill that covers all known fields of an instance, and with a typed update of a word
    that was written in between through an object that neither contains the instance nor is part of it.
    """
    updates = update_columns(graph, nodes)
    names, memberships = FieldNumbers(), Memberships()
    traits = place_by_type(graph.trace, facts, updates, names, memberships)
    by_update, objects = memberships.by_object()
    evidence = TypedUpdates(updates, traits.gives_types, *by_update)
    run = _Run(graph, nodes, updates, np.searchsorted(updates.event, nodes.event), traits, names)
    typed = _typed_rows(run, by_update, objects, evidence)
    generation = _generations(run, typed, objects, evidence)
    own = typed.instance
    first = _Part(objects.type[own], objects.file[own], objects.start[own], generation, typed.row, typed.field)
    parts = [first, _block_part(run, by_update, typed)]
    parts.append(_stack_part(run, sites, np.concatenate([part.node for part in parts])))
    return _joined(parts, names)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """What the stages of `find_instances` share. `names` grows: the later stages add types of their own."""

    graph: PersistenceGraph
    nodes: Nodes
    updates: AccessColumns
    node_update: Ints  # of each node, its row in `updates`
    traits: UpdateTraits
    names: FieldNumbers


class _Part(NamedTuple):
    """Memberships of nodes by one stage, with their instances spelled out."""

    type: Ints
    file: Ints
    start: Ints
    generation: Ints
    node: Ints
    field: Ints


def _typed_rows(run: _Run, by_update: FieldRows, objects: TypedObjects, evidence: TypedUpdates) -> FieldRows:
    """(node, instance, field): by the update's own types, by those of other updates of its words, and by the object
    of a declared type that contains it."""
    nodes = run.nodes
    needs = run.traits.needs_types[run.node_update] & nodes.data
    inherited = evidence.inherited(run.graph, nodes, run.node_update, needs, run.traits.is_fill)
    without = needs.copy()
    without[inherited.row] = False
    without &= ~np.isin(run.updates.event[run.node_update], run.updates.event[by_update.row])
    inherited = inherited.plus(_enclosed(run, np.flatnonzero(without), objects))
    # own types hold for all nodes of an update
    event = run.updates.event[by_update.row]
    first = np.searchsorted(nodes.event, event)
    many = np.searchsorted(nodes.event, event, side="right") - first
    own = FieldRows(ranges(first, many), np.repeat(by_update.instance, many), np.repeat(by_update.field, many))
    rows = own.plus(inherited)
    return FieldRows(*take_rows(np.flatnonzero(nodes.data[rows.row]), *rows))


def _generations(run: _Run, typed: FieldRows, objects: TypedObjects, evidence: TypedUpdates) -> Ints:
    """Of each membership, the generation of its instance."""
    extent = np.array([run.traits.types.extent(name) for name in run.names.types], dtype=np.int64)
    filled = covering_fills(
        run.node_update,
        run.updates,
        run.traits.is_fill,
        typed.instance,
        typed.row,
        objects.start,
        extent[objects.type],
    )
    return number_generations(run.nodes, typed.instance, typed.row, filled, evidence.taken_over())


def _block_part(run: _Run, by_update: FieldRows, typed: FieldRows) -> _Part:
    """Nodes without a type in memory that an update without type wrote as a whole."""
    nodes, updates = run.nodes, run.updates
    rest = nodes.data.copy()
    rest[typed.row] = False
    untyped = np.zeros(len(updates.event), dtype=np.bool_)
    untyped[run.node_update[rest]] = True
    untyped[run.node_update[typed.row]] = False
    bulk = run.traits.is_bulk.copy()
    bulk[by_update.row] = False
    found = find_blocks(updates, untyped, bulk)

    asked = np.flatnonzero(rest)
    place = np.minimum(np.searchsorted(found.update, run.node_update[asked]), max(len(found.update) - 1, 0))
    in_block = found.update[place] == run.node_update[asked] if len(found.update) else np.zeros(len(asked), np.bool_)
    node, place = asked[in_block], place[in_block]
    update = run.node_update[node]
    file, start, size, generation = take_rows(place, found.file, found.start, found.size, found.generation)
    offset, written = updates.offset[update] - start, updates.size[update]
    shape, heads = number_rows(size, offset, written)
    types, fields = [], []
    for whole, at, many in zip(*(column.tolist() for column in take_rows(heads, size, offset, written)), strict=True):
        types.append(run.names.type(f"(block of {whole} bytes)"))
        fields.append((types[-1], "*" if many == whole else f"+{at}"))
    numbers = np.array([run.names.field(*field) for field in fields], dtype=np.int64)
    return _Part(np.array(types, dtype=np.int64)[shape], file, start, generation, node, numbers[shape])


def _stack_part(run: _Run, sites: StaticSites, known: Ints) -> _Part:
    """All nodes that are not `known`: by call stack."""
    rest = np.ones(len(run.nodes), dtype=np.bool_)
    rest[known] = False
    node = np.flatnonzero(rest)
    site = sites.of_event[node]
    type_, field = np.zeros(len(node), dtype=np.int64), np.zeros(len(node), dtype=np.int64)
    for number in unique(site).tolist():
        mine = site == number
        function = sites.sites[number].function or "unknown code"
        type_[mine] = own = run.names.type(f"({function})")
        field[mine] = run.names.field(own, f"@{number}")
    none = np.zeros(len(node), dtype=np.int64)
    return _Part(type_, none, run.updates.stack[run.node_update[node]], none, node, field)


def _joined(parts: list[_Part], names: FieldNumbers) -> Instances:
    """Instances numbered by (type, file, start, generation), and their memberships, each once."""
    whole = _Part(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    numbers, heads = number_rows(whole.type, whole.file, whole.start, whole.generation)
    instance, node, field = distinct_rows(numbers, whole.node, whole.field)
    return Instances(
        whole.type[heads],
        whole.file[heads],
        whole.start[heads],
        whole.generation[heads],
        instance,
        node,
        field,
        tuple(names.types),
        tuple(names.fields),
    )


def _enclosed(run: _Run, asked: Ints, objects: TypedObjects) -> FieldRows:
    """(node, instance, field) for nodes at words that no typed update wrote, but that are in instances of declared
    types; not where the innermost of these is one of several."""
    update = run.node_update[asked]
    low = run.updates.offset[update]
    high = low + run.updates.size[update]
    types, type_names = run.traits.types, tuple(run.names.types)
    fields_of: dict[tuple[int, int, int], list[int]] = {}  # by type, and range of bytes in it
    rows: list[tuple[int, int, int]] = []
    for at, instance in zip(*_innermost_first(run, objects, update), strict=True):
        type_, start = int(objects.type[instance]), int(objects.start[instance])
        shape = type_, int(low[at]) - start, int(high[at]) - start
        if shape not in fields_of:
            covered = types.covered(type_names[type_], *shape[1:]) or (PADDING,)
            fields_of[shape] = [run.names.field(type_, path) for path in covered]
        rows += [(int(asked[at]), instance, field) for field in fields_of[shape]]
    return FieldRows(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)


def _innermost_first(run: _Run, objects: TypedObjects, update: Ints) -> tuple[list[int], list[int]]:
    """(place in `update`, instance): the instances of declared types around each update, the smallest first; none if
    two of them are the smallest."""
    low, file = run.updates.offset[update], run.updates.file[update]
    high = low + run.updates.size[update]
    none = np.zeros(0, dtype=np.int64)
    parts = [(none, none, none)]
    for type_, name in enumerate(run.names.types):
        mine = np.flatnonzero(objects.type == type_)
        size = run.traits.types.size(name)
        if not size or not len(mine):
            continue
        place = objects.file[mine] << 40 | objects.start[mine]
        order = np.argsort(place)
        at = np.searchsorted(place[order], file << 40 | low, side="right") - 1
        instance = mine[order[np.maximum(at, 0)]]
        fits = (at >= 0) & (objects.file[instance] == file) & (high <= objects.start[instance] + size)
        parts.append((np.flatnonzero(fits), instance[fits], np.full(int(fits.sum()), size, dtype=np.int64)))
    at, instance, size_ = (np.concatenate(column) for column in zip(*parts, strict=True))
    order, _ = sort_rows(at, size_)
    at, instance, size_ = take_rows(order, at, instance, size_)
    heads = np.flatnonzero(np.diff(at, prepend=-1))
    after = np.minimum(heads + 1, len(at) - 1)
    tied = (after > heads) & (at[after] == at[heads]) & (size_[after] == size_[heads])
    keep = ~np.repeat(tied, np.diff(heads, append=len(at)))
    return at[keep].tolist(), instance[keep].tolist()


def covering_fills(
    node_update: Ints,
    updates: AccessColumns,
    is_fill: NDArray[np.bool_],
    row_instance: Ints,
    row_node: Ints,
    start: Ints,
    extent: Ints,
) -> list[tuple[Ints, Ints]]:
    """(instance, event): fills that cover every known field of an instance.

    `start` and `extent`, by instance: its first byte, and the bytes up to the end of its last known field.
    """
    update = node_update[row_node]
    some = np.flatnonzero(is_fill[update])
    update, instance = update[some], row_instance[some]
    low = start[instance]
    reach = extent[instance]
    covers = (
        (reach > 0) & (updates.offset[update] <= low) & (low + reach <= updates.offset[update] + updates.size[update])
    )
    return [(instance[covers], updates.event[update[covers]])]


def number_generations(
    nodes: Nodes,
    row_instance: Ints,
    row_node: Ints,
    filled: list[tuple[Ints, Ints]],
    taken_over: list[tuple[Ints, Ints]],
) -> Ints:
    """Of each membership, the generation of its instance, from 0.

    A generation begins at a fill, or at the first update of the instance after another object took its memory over.
    """
    span = int(nodes.event.max(initial=0)) + 2
    wanted = row_instance * span + nodes.event[row_node]
    begins = [instance * span + event for instance, event in filled]
    in_order = np.sort(wanted)
    for instance, event in taken_over:
        begins.append(in_order[np.searchsorted(in_order, instance * span + event, side="right")])
    if not begins:
        return np.zeros(len(row_instance), dtype=np.int64)
    key = unique(np.concatenate(begins))
    return np.searchsorted(key, wanted, side="right") - np.searchsorted(key, row_instance * span)
