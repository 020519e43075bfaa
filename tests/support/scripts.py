"""Recorded runs of programs that are not there: sites with types, updates, loads and dependences given by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crashcheck.analyzer.behaviours import Behaviours, find_behaviours
from crashcheck.analyzer.compile.dependence.interprocedural import SiteDependence, SiteRef
from crashcheck.analyzer.compile.facts import ProgramFacts, Site, TypeLayout, TypeStep, UnitFacts
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.analyzer.invariants.inference import Inferred, infer_from
from crashcheck.analyzer.invariants.rules import LikelyInvariant
from crashcheck.analyzer.persistence import Options, build
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies.plan import Infer
from crashcheck.interruption import KeepOn
from crashcheck.runtime.trace_format import NO_INSTANCE, Kind
from support.tracing import TraceBuilder

SOURCE = "/src/program.c"
HEADER = "/src/wrapper.h"
KEY = 77
Described = tuple[str, int, int, tuple[int, ...]]


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
        self.facts = ProgramFacts({KEY: unit}, (), ())
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


def described(found: Behaviours) -> list[Described]:
    """(type, start, life, numbers of the sites) of each behaviour, by type, start and time."""
    out = []
    for number in range(len(found)):
        one = found.behaviour(number)
        sites = tuple(found.sites.sites[int(found.label[node])].site for node in one.nodes)
        out.append((one.type, one.start, one.generation, one.first, sites))
    return [(type_, start, life, sites) for type_, start, life, _, sites in sorted(out)]


A = site("pair.a", ("pair", "a", 0, 8), line=1)
B = site("pair.b", ("pair", "b", 64, 8), line=2)
X = site("other.x", ("other", "x", 0, 8), line=3)
Y = site("third.y", ("third", "y", 0, 8), line=4)


@dataclass(frozen=True)
class Wanted:
    """A query; also the invariant that it violates."""

    persisted: tuple[int, ...]
    unpersisted: tuple[int, ...]
    event: int = 0
    invariant: int = 1
    signature: object = 1
    held: int = 9
    violated: int = 1

    @property
    def number(self) -> int:
        return self.invariant

    @property
    def text(self) -> str:
        return f"invariant {self.invariant}"


@dataclass(frozen=True)
class ByHand:
    invariants: tuple[Wanted, ...]
    queries: tuple[Wanted, ...]
    note: str = ""


def evidence(*wanted: Wanted) -> Infer:
    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> ByHand:
        return ByHand(tuple({each.number: each for each in wanted}.values()), wanted)

    return infer


def space_of(script: Script, model: str = "px86") -> StateSpace:
    return StateSpace(build(script.trace.trace(), model, Options()))


@dataclass(frozen=True)
class Given:
    """Dependences by site number (from 1)."""

    table: dict[int, tuple[SiteDependence, ...]]

    def of(self, site: SiteRef) -> tuple[SiteDependence, ...]:
        return self.table.get(site.index + 1, ()) if site.unit == KEY else ()


def dependence(site: int, on: int, how: str, inherited: bool = False) -> SiteDependence:
    """`how`: some of c(ontrol), a(ddress), v(alue)."""
    return SiteDependence(SiteRef(KEY, site - 1), SiteRef(KEY, on - 1), "c" in how, "a" in how, "v" in how, inherited)


def given(*dependences: SiteDependence) -> Given:
    table: dict[int, tuple[SiteDependence, ...]] = {}
    for one in dependences:
        table[one.site.index + 1] = (*table.get(one.site.index + 1, ()), one)
    return Given(table)


class Run(Script):
    """A script whose sites depend on one another as given: {site: {load: how}}."""

    def __init__(self, folder: Path, *sites: Site, depends: dict[int, dict[int, str]]) -> None:
        super().__init__(folder, *sites)
        self.given = given(*(dependence(site, on, how) for site, ons in depends.items() for on, how in ons.items()))

    def load(self, number: int, offset: int, delta: int = NO_INSTANCE, stack: int = 0, size: int = 8) -> None:
        self.trace.load("f", offset, size, site=number, stack=stack, instance_delta=delta)

    def inferred(self, model: str = "px86") -> Inferred:
        return infer_from(self.found(model), self.facts, self.given)


def claim(one: LikelyInvariant) -> tuple[str, str, str, int, int]:
    return one.rule, one.first.text, one.then.text, one.held, one.violated


def claims(inferred: Inferred) -> list[tuple[str, str, str, int, int]]:
    """(rule, first, then, held, violated), sorted."""
    return sorted(claim(one) for one in inferred.invariants)
