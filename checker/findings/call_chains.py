"""The source places that led to an event, innermost first, and where in them the helpers that only persist end.

A program flushes, fences and syncs through helpers of its own (`persist(addr, size)`). Such a helper is not where a
flush is missing or redundant: its caller is. So a flush, fence or sync is reported at the innermost place
in a function that updates a file, or calls what does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from crashcheck.analyzer.trace.reader import Facts, Trace
from crashcheck.checker.results import Location, SourceFunction
from crashcheck.checker.subject import UPDATES

CallChains = Callable[[int], tuple[Location, ...]]  # of an event, by index in the trace


def call_chains(trace: Trace, facts: Facts, relative: Callable[[str], str]) -> CallChains:
    """Call chains from program facts: inlined functions, then callers. `relative`: how reports name a file."""
    known: dict[tuple[int, int], tuple[Location, ...]] = {}
    named = cache(relative)

    def places(site: int, stack: int) -> tuple[Location, ...]:
        sites = [
            found for found in (trace.site(id_, facts) for id_ in (site, *trace.stack(stack))) if found is not None
        ]
        return tuple(
            Location(named(at.file), at.line, at.column, at.function, "", ())
            for found in sites
            for at in found.positions
        )

    def chain(row: int) -> tuple[Location, ...]:
        key = (int(trace.events["site"][row]), int(trace.events["stack"][row]))
        if key not in known:
            known[key] = places(*key)
        return known[key]

    return chain


def storing_functions(trace: Trace, chain: CallChains) -> frozenset[SourceFunction]:
    """The functions that update a file, or call what does."""
    updates = trace.rows(*UPDATES)
    firsts = trace.one_of_each_call(updates)
    return frozenset(place.owner for first in firsts for place in chain(first))


def outside_helpers(places: tuple[Location, ...], storing: frozenset[SourceFunction]) -> int:
    """Index of the innermost place in one of the `storing` functions, or else of the outermost; -1 if there is none."""
    return next((i for i, place in enumerate(places) if place.owner in storing), len(places) - 1)
