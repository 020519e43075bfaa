"""What each memory access of a function depends on in it: registers, stack slots and branches, reads at the ends.

A function's summary is a small graph between its sites, parameters, calls and return value (Witcher 4.3.2: "static
analysis to capture register-level data and control dependency"). `pack` and `unpack` are its text in a unit's facts:
each set of atoms once, by the difference to the number before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# An atom is what a dependence can end at in its function, in one number: its sort in the low bits.
SITE, PARAMETER, RESULT, OUT, THROWN, REGION = range(6)
SORT_BITS = 3
MOST_ARGUMENTS = 64
Atoms = tuple[int, ...]


def atom(sort: int, number: int) -> int:
    return number << SORT_BITS | sort


def out_atom(call: int, argument: int) -> int:
    """What call number `call` leaves behind the pointer that is its argument `argument`."""
    return atom(OUT, call * MOST_ARGUMENTS + argument)


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


def pack(functions: Iterable[FunctionDependences]) -> str:
    """Functions that have neither a site nor a call nor a result that depends on anything are left out."""
    sets: dict[Atoms, int] = {(): 0}

    def put(atoms: Atoms) -> int:
        return sets.setdefault(atoms, len(sets))

    packed: list[list[Any]] = []
    for one in functions:
        if not (one.sites or one.calls or one.returned or one.outs or one.thrown):
            continue
        sites: list[int] = []
        before = 0
        for site in one.sites:
            sites += (site.site - before, site.region, put(site.value), put(site.address))
            before = site.site
        packed.append(
            [
                one.symbol,
                int(one.internal),
                [put(atoms) for atoms in one.regions],
                sites,
                [
                    [call.callee, call.site, call.region, put(call.target), *(put(atoms) for atoms in call.arguments)]
                    for call in one.calls
                ],
                put(one.returned),
                put(one.thrown),
                [number for index, atoms in one.outs.items() for number in (index, put(atoms))],
            ]
        )
    return json.dumps([[_steps(atoms) for atoms in sets], packed], separators=(",", ":"), ensure_ascii=True)


def unpack(text: str) -> tuple[FunctionDependences, ...]:
    """What `pack` was given. Raises ValueError if the text is not of its making."""
    if not text:
        return ()
    try:
        packed_sets, packed = json.loads(text)
        sets = [_sums(steps) for steps in packed_sets]
        return tuple(_function(entry, sets) for entry in packed)
    except (IndexError, TypeError, KeyError) as error:
        raise ValueError(f"dependences cannot be read: {error}") from error


def _function(entry: list[Any], sets: list[Atoms]) -> FunctionDependences:
    symbol, internal, regions, flat, calls, returned, thrown, outs = entry
    sites = []
    site = 0
    for at in range(0, len(flat), 4):
        site += flat[at]
        sites.append(SiteSummary(site, flat[at + 1], sets[flat[at + 2]], sets[flat[at + 3]]))
    return FunctionDependences(
        symbol,
        bool(internal),
        tuple(sets[number] for number in regions),
        tuple(sites),
        tuple(
            CallSummary(callee, at, region, tuple(sets[number] for number in arguments), sets[target])
            for callee, at, region, target, *arguments in calls
        ),
        sets[returned],
        sets[thrown],
        {outs[at]: sets[outs[at + 1]] for at in range(0, len(outs), 2)},
    )


def _steps(atoms: Atoms) -> list[int]:
    return [number - before for before, number in zip((0, *atoms), atoms, strict=False)]


def _sums(steps: list[int]) -> Atoms:
    total = 0
    result = []
    for step in steps:
        total += step
        result.append(total)
    return tuple(result)
