"""What each memory access of a function depends on in it: registers, stack slots and branches, reads at the ends.

A function's summary is a small graph between its sites, parameters, calls and return value (Witcher 4.3.2: "static
analysis to capture register-level data and control dependency").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# An atom is what a dependence can end at in its function, in one number: its sort in the low bits.
SITE, PARAMETER, RESULT, OUT, THROWN, REGION = range(6)
SORT_BITS = 3
MOST_ARGUMENTS = 64


def atom(sort: int, number: int) -> int:
    return number << SORT_BITS | sort


def out_atom(call: int, argument: int) -> int:
    """What call number `call` leaves behind the pointer that is its argument `argument`."""
    return atom(OUT, call * MOST_ARGUMENTS + argument)


Atoms = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SiteSummary:
    """An access: the region it runs in (-1: whenever the function runs), what feeds its value and its address."""

    site: int
    region: int
    value: Atoms
    address: Atoms


@dataclass(frozen=True, slots=True)
class CallSummary:
    """A call. `site` is its call site's index, -1 if it has none; `callee` "" if it is not known statically."""

    callee: str
    site: int
    region: int
    arguments: tuple[Atoms, ...]
    target: Atoms = ()  # what an indirect callee's address comes from


@dataclass(frozen=True, slots=True)
class FunctionDependences:
    """One function's dependences. Every atom set is what its place depends on by data; a REGION atom adds control."""

    symbol: str
    internal: bool = False  # only its own unit can name it
    regions: tuple[Atoms, ...] = ()  # what the branches depend on that decide a region; outer regions included
    sites: tuple[SiteSummary, ...] = ()
    calls: tuple[CallSummary, ...] = ()
    returned: Atoms = ()
    thrown: Atoms = ()  # what decides whether the function ends by an exception or not at all
    outs: Mapping[int, Atoms] = field(default_factory=dict)  # parameter → what is written behind it
