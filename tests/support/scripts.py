"""Recorded runs of programs that are not there: sites with static types, and the updates that they make."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.behaviours import Behaviours, find_behaviours
from crashcheck.analyzer.compile.facts import ProgramFacts, Site, TypeLayout, TypeStep, UnitFacts
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.analyzer.persistence import Options, build
from crashcheck.runtime.trace_format import Kind
from support.tracing import TraceBuilder

SOURCE = "/src/program.c"
HEADER = "/src/wrapper.h"
KEY = 77


def site(
    variable: str = "", *steps: tuple[str, str, int, int], kind: str = "store", line: int = 1, file: str = SOURCE
) -> Site:
    """A site at `line`; steps innermost first."""
    return Site(kind, (SourcePosition(file, line, 1, "work"),), variable, tuple(TypeStep(*step) for step in steps))


class Script:
    """A trace under construction. `sites` get the numbers 1, 2, … in the order given."""

    def __init__(self, folder: Path, *sites: Site, size: int = 1 << 16, layouts: tuple[TypeLayout, ...] = ()) -> None:
        self.trace = TraceBuilder(folder / "trace.cct")
        self.trace.file("f", size)
        self.trace.unit(KEY, len(sites), "/bin/program")
        unit = UnitFacts(SOURCE, "/src", "clang", "llvmlite", tuple(sites), layouts=layouts, key=KEY)
        self.facts = ProgramFacts({KEY: unit}, (), (), ())
        self.value = 0

    def at(self, number: int, offset: int, size: int = 8, delta: int | None = None, stack: int = 0) -> None:
        """Site `number` stores `size` bytes at `offset`, `delta` from the start of the recorded instance."""
        self.value += 1
        fields = {"file": 1, "offset": offset, "site": number, "stack": stack}
        if delta is not None:
            fields["instance_delta"] = delta
        self.trace.event(Kind.STORE, data=bytes([self.value % 251] * size), **fields)

    def persist(self, offset: int, size: int = 8) -> None:
        self.trace.clwb("f", offset, size)
        self.trace.sfence()

    def found(self, model: str = "px86") -> Behaviours:
        return find_behaviours(build(self.trace.trace(), model, Options()), self.facts)


Described = tuple[str, int, int, tuple[int, ...]]


def described(found: Behaviours) -> list[Described]:
    """(type, start, life, numbers of the sites) of each behaviour, by type, start and time."""
    out = []
    for number in range(len(found)):
        one = found.behaviour(number)
        sites = tuple(found.sites.sites[int(found.label[node])].site for node in one.nodes)
        out.append((one.type, one.start, one.generation, one.first, sites))
    return [(type_, start, life, sites) for type_, start, life, _, sites in sorted(out)]
