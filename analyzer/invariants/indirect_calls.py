"""What a run adds to its program's dependences: which reads ran, and what calls through pointers called."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.compile.dependence.interprocedural import Dependences, SiteRef, site_dependences
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.trace.reader import Trace, calls_of
from crashcheck.interruption import KeepOn, always


def dependences_that_ran(trace: Trace, facts: ProgramFacts, keep_on: KeepOn = always) -> Dependences:
    """The dependences on reads of `trace`, a run of the program of `facts`. Raises as `site_dependences`."""
    reads = unique(trace.loads["site"].astype(np.int64))
    units = ((site, trace.unit_of(site)) for site in reads.tolist())
    ran = {SiteRef(unit.key, site - unit.base) for site, unit in units if unit is not None}
    return site_dependences(facts, find_indirect_calls(trace, facts), ran, keep_on)


def find_indirect_calls(trace: Trace, facts: ProgramFacts) -> Mapping[SiteRef, frozenset[str]]:
    """The functions that each call without a static callee called: those of the accesses and calls right below it."""
    bases = {unit.base: unit for unit in trace.units}
    called: dict[SiteRef, set[str]] = {}
    pairs = unique(np.concatenate([calls_of(rows).astype(np.int64) for rows in (trace.events, trace.loads)]))
    found = {(pair >> 32, pair & 0xFFFFFFFF) for pair in pairs.tolist()}
    for stack in sorted({stack for _, stack in found}):
        chain = trace.stack(stack)
        found.update(zip(chain, (0,) * len(chain), strict=True))
        for inner, outer in pairwise(chain):
            _called(trace, facts, bases, inner, outer, called)
    for site, stack in sorted(found):
        callers = trace.stack(stack)
        if callers:
            _called(trace, facts, bases, site, callers[0], called)
    return {site: frozenset(names) for site, names in sorted(called.items())}


def _called(
    trace: Trace, facts: ProgramFacts, bases: Mapping[int, Any], site: int, caller: int, called: dict[SiteRef, set[str]]
) -> None:
    outer, inner = trace.site(caller, facts), trace.site(site, facts)
    unit = trace.unit_of(caller)
    if outer is None or inner is None or unit is None or outer.kind != "call" or outer.callee:
        return
    called.setdefault(SiteRef(unit.key, caller - unit.base), set()).add(inner.positions[-1].function)
