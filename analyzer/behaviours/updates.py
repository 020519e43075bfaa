"""The updates of a run as columns, and what is done with columns: rows sorted, distinct, numbered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.behaviours.nodes import Nodes
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """The updates of a graph: their events, and what the trace says of them."""

    event: Ints
    site: Ints
    stack: Ints
    file: Ints
    offset: Ints
    size: Ints
    delta: Ints


def taken(rows: Ints, *columns: Ints) -> tuple[Ints, ...]:
    return tuple(column[rows] for column in columns)


def ranges(first: Ints, many: Ints) -> Ints:
    """first[0], first[0] + 1, … (many[0] numbers), first[1], …"""
    total = int(many.sum())
    return np.arange(total) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)


def sorting(*columns: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """What sorts the rows by the columns, and which sorted rows differ from the one before."""
    packed = pack(columns)
    order = np.lexsort(packed[::-1]) if len(packed) > 1 else np.argsort(packed[0], kind="stable")
    fresh = np.ones(len(order), dtype=np.bool_)
    if len(order):
        in_order = [column[order] for column in packed]
        fresh[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in in_order])
    return order, fresh


def pack(columns: tuple[Ints, ...]) -> list[Ints]:
    """Fewer columns that sort the same rows the same way: sorting by one is much faster than by several."""
    out: list[Ints] = []
    room = 0
    for column in columns:
        if len(column) and int(column.min()) < 0:
            out.append(column)
            room = 0
            continue
        bits = int(column.max(initial=0)).bit_length()
        if out and bits <= room:
            out[-1] = out[-1] << bits | column
            room -= bits
        else:
            out.append(column)
            room = 62 - bits
    return out


def distinct(*columns: Ints) -> tuple[Ints, ...]:
    """The distinct rows, sorted."""
    order, fresh = sorting(*columns)
    return taken(order[fresh], *columns)


def unique(values: Ints) -> Ints:
    """The distinct values, sorted; by sorting, which for millions of numbers takes a third of numpy's own hashing."""
    (out,) = distinct(values)
    return out


def numbered(*columns: Ints) -> tuple[Ints, Ints]:
    """A number for each distinct row, in sorted order, and a row of each number."""
    order, fresh = sorting(*columns)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(fresh) - 1
    return number, order[fresh]


def occurrence(*columns: Ints) -> Ints:
    """How many rows before each one equal it."""
    if not len(columns[0]):
        return columns[0]
    order, fresh = sorting(*columns)
    heads = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order)) - heads
    return out


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: for hashes of rows, a column at a time."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def updates_of(graph: PersistenceGraph, nodes: Nodes) -> Updates:
    event = unique(nodes.event)
    rows = graph.trace.events[event]

    def column(name: str) -> Ints:
        return rows[name].astype(np.int64)

    return Updates(event, *(column(n) for n in ("site", "stack", "file", "offset", "size", "instance_delta")))
