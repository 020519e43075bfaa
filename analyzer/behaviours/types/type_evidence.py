"""Types by overlap: what typed updates show of the memory that untyped and bulk updates write (Pathfinder §4.2.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import distinct_rows, number_rows, ranges, sort_rows, take_rows, unique
from crashcheck.analyzer.behaviours.updates import NO_ROWS, AccessColumns, FieldRows, Nodes
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import WORD_BYTES, Ints


class TypedUpdates:
    """Typed updates in the order of (word, event): which object a word belonged to at which time."""

    def __init__(
        self, updates: AccessColumns, gives_types: NDArray[np.bool_], update: Ints, instance: Ints, field: Ints
    ) -> None:
        self.updates = updates
        self.update, self.instance, self.field = update, instance, field  # memberships, sorted by update
        self._members = unique(update * (int(instance.max(initial=0)) + 1) + instance)
        which = np.flatnonzero(gives_types)
        first = updates.offset[which] // WORD_BYTES
        many = (updates.offset[which] + updates.size[which] - 1) // WORD_BYTES - first + 1
        owner = np.repeat(which, many)
        word = updates.file[owner] << 40 | ranges(first, many)
        order, _ = sort_rows(word, owner)
        self.owner, self.word = take_rows(order, owner, word)
        at, heads = number_rows(self.word)
        self.words = self.word[heads]
        self.span = len(updates.event) + 1
        self.key = at * self.span + self.owner

    def inherited(
        self,
        graph: PersistenceGraph,
        nodes: Nodes,
        node_update: Ints,
        needs: NDArray[np.bool_],
        fill: NDArray[np.bool_],
    ) -> FieldRows:
        """(node, instance, field) for nodes that need types, from the typed updates of their words."""
        asked = np.flatnonzero(needs)
        if not len(asked) or not len(self.key):
            return NO_ROWS
        pieces_of = nodes.start[asked + 1] - nodes.start[asked]
        piece = nodes.piece[ranges(nodes.start[asked], pieces_of)]
        node = np.repeat(asked, pieces_of)
        first = graph.offset[piece] // WORD_BYTES
        many = (graph.offset[piece] + graph.size[piece] - 1) // WORD_BYTES - first + 1
        node = np.repeat(node, many)
        word = np.repeat(graph.file[piece], many) << 40 | ranges(first, many)
        place = np.searchsorted(self.words, word)
        hit = place < len(self.words)
        hit[hit] = self.words[place[hit]] == word[hit]
        node, place = node[hit], place[hit]
        update = node_update[node]
        at = np.searchsorted(self.key, place * self.span + update)
        before, after = np.maximum(at - 1, 0), np.minimum(at, len(self.key) - 1)
        has_before = (at > 0) & (self.key[before] // self.span == place)
        has_after = (at < len(self.key)) & (self.key[after] // self.span == place)
        later = np.where(fill[update], has_after, ~has_before)
        node, source = distinct_rows(node, self.owner[np.where(later, after, before)])
        # what has types of its own may overwrite another object, of which it is no part
        fits = ~self._typed(node_update[node]) | self._related(node_update[node], source)
        node, source = node[fits], source[fits]
        low = np.searchsorted(self.update, source)
        many = np.searchsorted(self.update, source, side="right") - low
        rows = ranges(low, many)
        return FieldRows(*distinct_rows(np.repeat(node, many), self.instance[rows], self.field[rows]))

    def taken_over(self) -> list[tuple[Ints, Ints]]:
        """(instance, event): a typed update of the instance writes a word that the typed update at the event wrote
        before it, and the two share no instance."""
        if len(self.key) < 2:
            return []
        same = self.word[1:] == self.word[:-1]
        earlier, later = self.owner[:-1][same], self.owner[1:][same]
        earlier, later = distinct_rows(earlier, later)
        foreign = ~self._related(earlier, later)
        earlier, later = earlier[foreign], later[foreign]
        low = np.searchsorted(self.update, later)
        many = np.searchsorted(self.update, later, side="right") - low
        return [(self.instance[ranges(low, many)], np.repeat(self.updates.event[earlier], many))]

    def _typed(self, updates: Ints) -> NDArray[np.bool_]:
        return np.searchsorted(self.update, updates, side="right") > np.searchsorted(self.update, updates)

    def _related(self, one: Ints, other: Ints) -> NDArray[np.bool_]:
        """Of each pair of updates, whether they belong to an instance in common."""
        low = np.searchsorted(self.update, other)
        many = np.searchsorted(self.update, other, side="right") - low
        pair = np.repeat(np.arange(len(other)), many)
        if not len(pair):
            return np.zeros(len(other), dtype=np.bool_)
        width = int(self.instance.max(initial=0)) + 1
        wanted = one[pair] * width + self.instance[ranges(low, many)]
        at = np.minimum(np.searchsorted(self._members, wanted), len(self._members) - 1)
        return np.bincount(pair[self._members[at] == wanted], minlength=len(other)) > 0
