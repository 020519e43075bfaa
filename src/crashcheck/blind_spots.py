"""Blind spots of a workload: functions that can write the files' data structures, but wrote nothing in this run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from crashcheck.analyzer.compile.facts import STORES, ProgramFacts, Site
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.findings.provenance import Project
from crashcheck.checker.results import Unexercised
from crashcheck.runtime.trace_format import Kind


def find_blind_spots(trace: Trace, facts: ProgramFacts, folder: Path) -> tuple[Unexercised, ...]:
    """Functions that store to a type that is in the files, although neither they nor what they call stored to it there.

    Those with the most stores come first. Stores through pointers of unknown type do not count, and a run that writes
    the files by system calls only has no blind spots.
    """
    project = Project(facts, folder)
    kinds = trace.events["kind"]
    stored = list(_known(trace, facts, np.unique(trace.events["site"][kinds == Kind.STORE]).tolist()))
    updates = np.isin(kinds, np.array([Kind.STORE, Kind.WRITE], dtype=np.uint8))
    stacks = np.unique(trace.events["stack"][updates]).tolist()
    calls = list(_known(trace, facts, {call for stack in stacks for call in trace.stack(stack)}))
    types = {step.type for site in stored for step in site.steps}
    reached = {(place.file, place.function) for site in (*stored, *calls) for place in site.positions}
    found: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for unit in facts.units.values():
        for site in unit.sites:
            key = (site.file, site.function)
            if site.kind in STORES and key not in reached and site.line and _type(site) in types:
                found.setdefault(key, set()).add((site.line, site.column))
    spots = [
        Unexercised(function, project.file(file), min(at)[0], len(at))
        for (file, function), at in found.items()
        if project.has(file)
    ]
    return tuple(sorted(spots, key=lambda one: (-one.stores, one.file, one.line, one.function)))


def _known(trace: Trace, facts: ProgramFacts, ids: Iterable[int]) -> Iterator[Site]:
    return (site for site in (trace.site(id_, facts) for id_ in ids) if site is not None)


def _type(site: Site) -> str:
    """The innermost type that has a name; "" if there is none."""
    return next((step.type for step in site.steps if not step.type.startswith("(")), "")
