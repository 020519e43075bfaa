"""Update behaviours of mapped files: the updates of one instance in one epoch (Pathfinder §4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import fresh_rows, mix_hash, number_rows
from crashcheck.analyzer.behaviours.epochs import split_epochs
from crashcheck.analyzer.behaviours.instances import Instances, find_instances
from crashcheck.analyzer.behaviours.sites import StaticSites, find_static_sites
from crashcheck.analyzer.behaviours.updates import Nodes, build_nodes
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.runtime.trace_format import Kind


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One update behaviour (definition 3.1).

    `type` names a struct, or in parentheses the function at whose call stack an unknown type was written. `file` is the
    path of the file that holds the instance ("" for a call stack), `start` the byte where it begins there. `pieces` are
    its updates' pieces, ascending; `first` and `last` the events of its first and last update; `operation` the ordinal
    of the marked operation under way at the first, 0 before any.
    """

    id: int
    type: str
    file: str
    start: int
    generation: int
    nodes: tuple[int, ...]
    pieces: tuple[int, ...]
    first: int
    last: int
    operation: int

    @property
    def instance(self) -> str:
        """The instance in words: "table.pm+448", and "#2" for its second generation."""
        if not self.file:
            return ""
        return f"{self.file}+{self.start}" + (f" #{self.generation}" if self.generation > 1 else "")


@dataclass(frozen=True, slots=True, eq=False)
class PersistOrder:
    """What orders the nodes of each behaviour, a value per row of `Behaviours.row_node`. Places count from 0 within the
    behaviour.

    A node persists before a later one of its behaviour whose place is at least `reach`, or that has the same `chain`.
    """

    owner: Ints  # the behaviour
    place: Ints
    reach: Ints  # how many of the behaviour's nodes were issued before this one has persisted
    chain: Ints  # the place of the behaviour's first node in the granule, where order is kept in it; else the own place
    same_update: NDArray[np.bool_]  # of the same update as the node before it


def _persist_order(found: Behaviours) -> PersistOrder:
    start, node = found.start[:-1], found.row_node
    owner = np.repeat(np.arange(len(start)), np.diff(found.start))
    event, durable = found.nodes.event[node], found.nodes.durable_from[node]
    latest = int(found.nodes.event[-1]) + 2
    place = np.arange(len(node)) - start[owner]
    reach = np.searchsorted(owner * latest + event, owner * latest + np.minimum(durable, latest - 1)) - start[owner]
    granule = np.where(found.nodes.ordered[node], found.nodes.granule[node], -1 - place)
    same, heads = number_rows(owner, granule)
    same_update = np.zeros(len(node), dtype=np.bool_)
    same_update[1:] = (owner[1:] == owner[:-1]) & (event[1:] == event[:-1])
    return PersistOrder(owner, place, reach, place[heads][same], same_update)


@dataclass(frozen=True, eq=False)
class Behaviours:
    """All update behaviours of a run as parallel arrays, and single ones as values.

    `row_node` are the nodes of the behaviours one after the other, each node once in a behaviour and in
    trace order; behaviour i's are row_node[start[i]:start[i + 1]].
    """

    graph: PersistenceGraph
    nodes: Nodes
    sites: StaticSites
    instances: Instances
    instance: Ints
    start: Ints
    row_node: Ints
    level: Ints | None = None  # of each; only those of one level represent one another. None: all of one
    note: str = ""  # for reports: how they were found, if not as usual

    def __len__(self) -> int:
        return len(self.instance)

    @cached_property
    def label(self) -> Ints:
        """The static site of each node."""
        return self.sites.of_event

    @cached_property
    def acknowledged(self) -> Ints:
        """Of each node, the event of the first acknowledgement (operation's end, output) after it; else a large one."""
        when = np.append(self.graph.trace.rows(Kind.MARK_END, Kind.OUTPUT), 1 << 61)
        return when[np.searchsorted(when, self.nodes.event)]

    @cached_property
    def _operations(self) -> tuple[Ints, Ints]:
        trace = self.graph.trace
        begins = trace.rows(Kind.MARK_BEGIN)
        return begins, trace.events["aux"][begins].astype(np.int64)

    @cached_property
    def order(self) -> PersistOrder:
        """The persist order within each behaviour."""
        return _persist_order(self)

    def hashes(self, *columns: Ints | NDArray[np.bool_]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """128 bits per behaviour, in two halves: equal if its nodes have equal values in the columns (by row_node)."""
        halves = []
        for half in range(2):
            mixed = np.full(len(self.row_node), 0x9E3779B97F4A7C15 + half, dtype=np.uint64)
            for column in columns:
                mixed = mix_hash(mixed ^ column.astype(np.uint64))
            halves.append(np.add.reduceat(mixed, self.start[:-1]))
        return halves[0], halves[1]

    def nodes_of(self, behaviour: int) -> Ints:
        return self.row_node[int(self.start[behaviour]) : int(self.start[behaviour + 1])]

    def behaviour(self, number: int) -> Behaviour:
        """One behaviour as a value. Raises IndexError for a number that there is not."""
        number = range(len(self))[number]
        own = self.nodes_of(number)
        instance = int(self.instance[number])
        first = int(self.nodes.event[own[0]])
        begins, ordinals = self._operations
        at = int(np.searchsorted(begins, first)) - 1
        file = int(self.instances.file[instance])
        return Behaviour(
            number,
            self.instances.types[int(self.instances.type[instance])],
            self.graph.trace.files[file].path if file else "",
            int(self.instances.start[instance]),
            int(self.instances.generation[instance]),
            tuple(own.tolist()),
            tuple(sorted(piece for node in own.tolist() for piece in self.nodes.pieces(node))),
            first,
            int(self.nodes.event[own[-1]]),
            int(ordinals[at]) if at >= 0 else 0,
        )


def find_typed_behaviours(graph: PersistenceGraph, facts: Facts | None) -> Behaviours:
    """The update behaviours of a graph: its type subgraphs by instance, cut into epochs. Near-linear in the trace."""
    all_nodes = build_nodes(graph)
    sites = find_static_sites(graph.trace, facts, all_nodes.event)
    found = find_instances(graph, facts, all_nodes, sites)
    thread = graph.trace.events["thread"][all_nodes.event].astype(np.int64)
    begins = split_epochs(found, all_nodes, thread)
    owner = np.searchsorted(begins, np.arange(len(found.row_node)), side="right") - 1
    # a node with several fields is one node of the behaviour; rows are sorted by it already
    keep = fresh_rows(owner, found.row_node)
    owner, row_node = owner[keep], found.row_node[keep]
    return Behaviours(
        graph,
        all_nodes,
        sites,
        found,
        found.row_instance[begins],
        np.searchsorted(owner, np.arange(len(begins) + 1)),
        row_node,
    )
