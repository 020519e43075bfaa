"""Functions that do one task by system calls, from the stacks of the calls (Pathfinder §4.1).

Everything here is about the operations of one thread: updates of files and syncs, in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from crashcheck.analyzer.behaviours.numbers import APART, NEIGHBOURS
from crashcheck.analyzer.persistence.pieces import Ints

ROOT = 0  # the node above all outermost functions


@dataclass(slots=True)
class CallTree:
    """Call stacks as paths of nodes. A node is a function that was reached by certain calls (Figure 7)."""

    functions: list[Hashable] = field(default_factory=lambda: [None])  # of each node
    _nodes: dict[tuple[int, Hashable], int] = field(default_factory=dict)  # by the calls before it, and the function
    _calls: dict[tuple[int, Hashable], int] = field(default_factory=dict)  # a chain of calls, by all but the last

    def path(self, frames: Sequence[tuple[Hashable, Hashable]]) -> tuple[int, ...]:
        """The nodes of a stack, outermost first. Each frame is a function and a place in it.

        Two stacks have as many nodes in common as their longest common prefix has functions: above the deepest common
        function all frames are equal, in it they may be at different places (§4.1.1).
        """
        path, before = [ROOT], 0
        for frame in frames:
            function = frame[0]
            node = self._nodes.get((before, function))
            if node is None:
                node = self._nodes[before, function] = len(self.functions)
                self.functions.append(function)
            path.append(node)
            before = self._calls.setdefault((before, frame), len(self._calls) + 1)
        return tuple(path)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many nodes two paths have in common, without ROOT."""
    many = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        many += 1
    return many - 1


def function_ranges(prefix: Sequence[int], own: Sequence[int]) -> list[tuple[int, int, int]]:
    """Algorithm 1: ranges of a thread's operations (first, behind the last), and the depth of the function of each.

    `prefix[i]` is the length of the longest common prefix of operations i and i + 1, `own[i]` the length of i's whole
    stack. Both prefixes of an operation are prefixes of its stack, so that their lengths show which function is the
    other's parent. Unlike the paper's pseudo-code, a thread begins without a prefix of the thread before it, and its
    last behaviour is part of the result, also if it is one operation that has no next one.
    """
    out: list[tuple[int, int, int]] = []
    first, depth = 0, -1  # depth -1: the operation `first` is in no behaviour yet
    for at, length in enumerate(prefix):
        if depth < 0 or length == depth:
            depth = length
        elif length > depth:  # a function was called: the operation belongs to it
            out.append((first, at, depth))
            first, depth = at, length
        else:  # the function has ended, with the operation
            out.append((first, at + 1, depth))
            first, depth = at + 1, -1
    if first < len(own):
        out.append((first, len(own), own[first] if depth < 0 else depth))
    return out


def merged(paths: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, list[int]]]:
    """From the leaves of the call tree to its root: each function that joins several behaviours, and which (§4.1.2).

    `paths` lead to the functions of the behaviours. A function all of whose behaviours are below one function that it
    called joins nothing.
    """
    below: dict[int, list[int]] = {}
    depth: dict[int, int] = {}
    for number, path in enumerate(paths):
        for level, node in enumerate(path):
            below.setdefault(node, []).append(number)
            depth[node] = level
    whole = {
        above for path in paths for above, node in itertools.pairwise(path) if len(below[above]) == len(below[node])
    }
    for node in sorted(below, key=lambda each: (-depth[each], each)):
        if len(below[node]) > 1 and node not in whole:
            yield node, below[node]


def near(places: Ints, apart: int = APART, neighbours: int = NEIGHBOURS) -> Ints:
    """DBSCAN (Ester et al. 1996) of ascending numbers: the cluster of each from 0, -1 for what is in none.

    In one dimension a cluster is a row of dense numbers without a gap of more than `apart`, with the others in reach of
    one. One that two clusters reach is of the first. A library would take seconds to import for these lines.
    """
    low = np.searchsorted(places, places - apart)
    dense = np.flatnonzero(np.searchsorted(places, places + apart, side="right") - low >= neighbours)
    cluster = np.full(len(places), -1, dtype=np.int64)
    if not len(dense):
        return cluster
    number = np.cumsum(np.diff(places[dense], prepend=places[dense[0]]) > apart)
    before = np.maximum(np.searchsorted(dense, np.arange(len(places)), side="right") - 1, 0)
    after = np.minimum(np.searchsorted(dense, np.arange(len(places))), len(dense) - 1)
    cluster = np.where(np.abs(places - places[dense[after]]) <= apart, number[after], cluster)
    return np.where(np.abs(places - places[dense[before]]) <= apart, number[before], cluster)


def turns(calls: Sequence[int]) -> list[int]:
    """Where the turns of a loop begin: before an operation that repeats one of its turn, but not the last one.

    The stacks of two turns are equal, so that Algorithm 1 makes one behaviour of a whole loop.
    """
    begins, seen, last = [], set[int](), -1
    for at, call in enumerate(calls):
        if not at or (call in seen and call != last):
            begins.append(at)
            seen = set()
        seen.add(call)
        last = call
    return begins


def durable_turns(calls: Sequence[int], event: Sequence[int], durable: Sequence[int]) -> list[int]:
    """The same of merged behaviours, but only where what is repeated has persisted before: what may be pending at one
    time stays together. `durable`: the event from which an operation has persisted."""
    begins, latest = [], dict[int, int]()
    for at, call in enumerate(calls):
        if not at or latest.get(call, event[at] + 1) <= event[at]:
            begins.append(at)
            latest = {}
        latest[call] = max(latest.get(call, 0), durable[at])
    return begins
