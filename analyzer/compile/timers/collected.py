"""Collects the flows of a unit's functions, and leaves out the comparisons that no clock can reach."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from crashcheck.analyzer.compile.ir.text import split_commas
from crashcheck.analyzer.compile.timers.flows import (
    HELD,
    Comparison,
    Edge,
    Term,
    UnitFlows,
    follow,
    open_nodes,
    timer_of,
)

_PART = re.compile(r"(?:\.\d+)+$")
_MOST_ARGUMENTS = 6  # of a function that is called through a pointer
_PARTS = ("", ".0", ".1")  # of what may be copied as a whole

Terms = tuple[Term, ...]


@dataclass(slots=True)
class ReadFlows:
    """What a unit's text has: its flows, and which line of which function is which comparison of them."""

    flows: UnitFlows
    lines: dict[str, dict[int, int]] = field(default_factory=dict)  # lines count from 0 after `define`


@dataclass(slots=True)
class CollectedFlows:
    """What is collected of all functions."""

    own: set[str]
    defined: set[str]
    types: dict[str, str]  # of structs that have a name
    edges: dict[Edge, None] = field(default_factory=dict)
    found: list[tuple[str, int, str, Comparison]] = field(default_factory=list)  # function, line, type, what
    copies: list[tuple[str, str]] = field(default_factory=list)  # roots whose parts are the same
    targets: dict[tuple[str, str], None] = field(default_factory=dict)  # where a function's address is kept, and whose

    def members(self, type_: str) -> list[str]:
        """Types of the members of a struct that has a name; none of others."""
        body = self.types.get(type_, "").strip("<>")
        return split_commas(body.strip()[1:-1]) if body.startswith("{") else []

    def name(self, symbol: str) -> str:
        return symbol + "#" if symbol in self.own else symbol

    def flow(self, target: str, terms: Terms) -> None:
        for term in terms:
            if term.node != target:
                self.edges[Edge(target, term)] = None

    def result(self) -> ReadFlows:
        """Without comparisons that no clock can reach, whatever other units do."""
        one = Fraction(1)
        for place, function in self.targets:  # who calls through the pointer may call the function
            self.copies.append((f"R:*{place}", f"R:{function}"))
            for number in range(_MOST_ARGUMENTS):
                self.flow(f"P:{function}:{number}", (Term(f"P:*{place}:{number}", one),))
                called, function_own = f"A:*{place}:{number}", f"A:{function}:{number}"
                self.copies += [(called, function_own), (function_own, called)]
        for left, right in self.copies:
            for part in _PARTS:
                self.flow(left + part, (Term(right + part, one),))
        edges = tuple(self.edges)
        known = follow(edges)
        nodes = {edge.target for edge in edges} | {edge.term.node for edge in edges}
        nodes |= {term.node for *_, what in self.found for term in (*what.left, *what.right)}
        fresh = open_nodes(edges, [node for node in nodes if self._from_outside(node)])
        held = fresh | open_nodes(edges, [node for node in nodes if node.startswith(HELD)])
        kept: list[Comparison] = []
        lines: dict[str, dict[int, int]] = {}
        for function, line, type_, what in self.found:
            sides = [{term.node for term in side} for side in (what.left, what.right)]
            possible = any(side & fresh for side in sides) or all(side & held for side in sides)
            if timer_of(what, known) is None and not (possible and type_ != "i32"):
                continue
            lines.setdefault(function, {})[line] = len(kept)
            kept.append(what)
        return ReadFlows(UnitFlows(edges, tuple(kept)), lines)

    def _from_outside(self, node: str) -> bool:
        kind, _, rest = node.partition(":")
        symbol = _PART.sub("", rest) if kind == "R" else rest.rpartition(":")[0]
        return kind in "RPA" and not symbol.endswith("#") and not (kind == "R" and symbol in self.defined)
