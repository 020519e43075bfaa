"""Runs of programs that are not there: with loads, and with dependences that are given instead of analysed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crashcheck.analyzer.compile.dependence.interprocedural import SiteDependence, SiteRef
from crashcheck.analyzer.compile.facts import Site
from crashcheck.analyzer.invariants.inference import Inferred, infer_from
from crashcheck.analyzer.invariants.rules import LikelyInvariant
from crashcheck.runtime.trace_format import NO_INSTANCE
from support.scripts import KEY, Script


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
