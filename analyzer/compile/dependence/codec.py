"""A unit's dependences as text for its facts: each set of atoms once, by the difference to the number before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from crashcheck.analyzer.compile.dependence.summaries import Atoms, CallSummary, FunctionDependences, SiteSummary


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
