"""Static sites: an update's instruction, with enough of its callers to distinguish the uses of a wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crashcheck.analyzer.behaviours.numbers import HEADER_CALLERS, TYPED_CALLERS, UNTYPED_CALLERS
from crashcheck.analyzer.compile.facts import is_source
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.reader import Facts, Trace


@dataclass(frozen=True, slots=True)
class StaticSite:
    """A place that updates files: what makes two nodes equivalent (Pathfinder, definition 3.3).

    `site` is the trace's number of the instruction, 0 if unknown; `callers` are those of the call sites that count,
    innermost first. The place is the innermost that is in a source, or the instruction's own.
    """

    number: int
    site: int
    callers: tuple[int, ...]
    function: str
    file: str
    line: int
    variable: str


@dataclass(frozen=True, slots=True, eq=False)
class StaticSites:
    """All static sites of some events, and which event belongs to which."""

    sites: Sequence[StaticSite]
    of_event: Ints  # static site of each event that was asked about, in the order asked


class UnitSources:
    """The source file of each unit of a trace."""

    def __init__(self, trace: Trace, facts: Facts | None) -> None:
        self.trace = trace
        self.facts = facts

    def site(self, number: int) -> Any | None:
        return self.trace.site(number, self.facts) if number else None

    def in_header(self, number: int) -> bool:
        """Whether the function that holds a site comes from another file than its unit's source."""
        site = self.site(number)
        return site is not None and not self.in_source(number, site.positions[-1].file)

    def callers_into_header(self, stack: tuple[int, ...]) -> tuple[int, ...]:
        """The callers of code in a header, up to the first in a source; at most HEADER_CALLERS."""
        callers = stack[:HEADER_CALLERS]
        source = next((many for many, caller in enumerate(callers, 1) if not self.in_header(caller)), len(callers))
        return callers[:source]

    def in_source(self, number: int, file: str) -> bool:
        """Whether a file is the source of the unit that holds a site."""
        place = self.trace.place(number, self.facts)
        return place is None or is_source(place[0], file)


def find_static_sites(trace: Trace, facts: Facts | None, events: Ints) -> StaticSites:
    """The static sites of `events` (indices).

    An instruction in the unit's own source that writes a known type takes TYPED_CALLERS: the paper's site is the
    program location alone, but a helper that one operation uses rightly and another wrongly might then be tested in
    the right use only. One in a header takes its callers up to the first in a source, at most HEADER_CALLERS; one
    that knows no type takes UNTYPED_CALLERS: it may be a wrapper of memcpy. One that the trace cannot name takes its
    callers, too.
    """
    distinct, first, inverse = np.unique(trace.calls(events), return_index=True, return_inverse=True)
    units = UnitSources(trace, facts)
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    sites: list[StaticSite] = []
    number = np.zeros(len(distinct), dtype=np.int64)
    for at in np.argsort(first, kind="stable").tolist():  # numbered in the order of their first update
        site, stack = int(distinct[at]) >> 32, int(distinct[at]) & 0xFFFFFFFF
        identity = site, _callers(units, site, trace.stack(stack))
        if identity not in known:
            known[identity] = len(sites)
            sites.append(_describe(units, len(sites), *identity))
        number[at] = known[identity]
    return StaticSites(tuple(sites), number[inverse.reshape(-1)])


def _callers(units: UnitSources, site: int, stack: tuple[int, ...]) -> tuple[int, ...]:
    own = units.site(site)
    if own is not None and units.in_header(site):
        return units.callers_into_header(stack)
    if own is None or not own.variable:
        return stack[:UNTYPED_CALLERS]
    return stack[:TYPED_CALLERS]


def _describe(units: UnitSources, number: int, site: int, callers: tuple[int, ...]) -> StaticSite:
    chain = [at for at in (site, *callers) if units.site(at) is not None]
    own = units.site(site)
    variable = own.variable if own is not None else ""
    if not chain:
        return StaticSite(number, site, callers, "", "", 0, variable)
    places = [(at, place) for at in chain for place in units.site(at).positions]  # type: ignore[union-attr]
    position = next((place for at, place in places if units.in_source(at, place.file)), places[0][1])
    return StaticSite(number, site, callers, position.function, position.file, position.line, variable)
