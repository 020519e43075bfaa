"""Which memory accesses depend on which reads, program-wide: the functions' own dependences, closed over the calls between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from crashcheck.analyzer.ir.facts import ProgramFacts


@dataclass(frozen=True, slots=True, order=True)
class SiteRef:
    """A site of a program: its unit's key and its index among the unit's sites."""

    unit: int
    index: int


@dataclass(frozen=True, slots=True)
class SiteDependence:
    """The access at `site` depends on what the access at `on` reads (Witcher 4.3.2), through registers and calls alone.

    A pair appears once; each flag says that some path of that kind joins the two, so several may hold:
    `control`: a path with at least one control edge (`if (X) Y = 3`; RO2, RO3);
    `value`: only data edges, and what `on` reads is (part of) what `site` writes (`Y = X + 3`; RO1);
    `address`: only data edges, one of them into an address (`X->next->field = 1`, `a[X] = 1`).
    A load writes nothing: it has no `value` paths. No path leads through memory: each access on the way is
    an end of its own, so chains through memory nobody watches are for the reader of the trace to follow.
    """

    site: SiteRef  # a store, atomic, copy, fill, model call or load
    on: SiteRef  # a load, or an atomic, copy or model call, all of which read
    control: bool
    address: bool
    value: bool
    inherited: bool  # every path comes from a caller: by an argument, or by what the call itself is guarded by

    @property
    def data(self) -> bool:
        """Some path has only data edges."""
        return self.address or self.value


class Dependences(Protocol):
    """All dependences of a program, kept as sets of bits and told apart when asked for."""

    def of(self, site: SiteRef) -> tuple[SiteDependence, ...]:
        """What the access at `site` depends on, by (unit, index) of `on`; () for a site that nothing is known of."""

    def __iter__(self) -> Iterator[SiteDependence]:
        """By (unit, index) of the site, then of what it depends on."""

    def __len__(self) -> int:
        """The number of pairs."""


def site_dependences(facts: ProgramFacts, indirect: Mapping[SiteRef, frozenset[str]]) -> Dependences:
    """Close the units' dependences over the program.

    `indirect`: for call sites without a static callee, the symbols that they were seen to call. A call whose callee has no facts gives a
    result that depends on its arguments.
    """
    raise NotImplementedError
