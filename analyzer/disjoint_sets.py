"""Sets of things that belong together, by pairs of which that is known."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Each thing is in a set of its own until it is joined with another."""

    def __init__(self, things: Iterable[T] = ()) -> None:
        self._parents: dict[T, T] = {thing: thing for thing in things}

    def join(self, *things: T) -> None:
        """All sets of these things are one from now on; a thing that is not known is added."""
        roots = [self._root(thing) for thing in things]
        for root in roots[1:]:
            self._parents[root] = roots[0]

    def sets(self) -> list[set[T]]:
        """In the order of their first things."""
        out: dict[T, set[T]] = {}
        for thing in self._parents:
            out.setdefault(self._root(thing), set()).add(thing)
        return [*out.values()]

    def _root(self, thing: T) -> T:
        parent = self._parents.setdefault(thing, thing)
        while parent != thing:
            above = self._parents[parent]
            self._parents[thing] = above  # a path that is walked is half as long the next time
            thing, parent = parent, above
        return thing
