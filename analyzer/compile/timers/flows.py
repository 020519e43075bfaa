"""How numbers flow through a program, as far as times do: by sums, differences, scaling, memory, calls.

A node is a place that holds a number: "P:f:0" a parameter of f, "R:f" its result, "A:f:0" what its pointer parameter
points to, "F:T:1" a field of all structs of a type, "G:g" a global, "L:f:%x" a local; a part of a struct has its index
behind it ("A:f:0.1"). "C:9" is a clock that counts units of 1e9 ns. A name that is a unit's own ends with "#".
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

_MOST_MEANINGS = 8  # of a node: more are no time, but a sum that a loop scales again and again
HELD = ("F:", "G:")  # memory that keeps an earlier time
DIFFTIME = "difftime"

# Functions that read a clock: what they return, and what they write behind which argument; in ns for each unit.
# Those that are not libc's are of libraries that are rarely built with the program.
CLOCK_RESULTS: Mapping[str, int] = {
    "time": 10**9,
    "times": 10**7,
    "uv_now": 10**6,
    "uv_hrtime": 1,
    "g_get_monotonic_time": 10**3,
    "g_get_real_time": 10**3,
    "apr_time_now": 10**3,
    "_ZNSt6chrono3_V212steady_clock3nowEv": 1,
    "_ZNSt6chrono3_V212system_clock3nowEv": 1,
    "_ZNSt3__16chrono12steady_clock3nowEv": 1,
    "_ZNSt3__16chrono12system_clock3nowEv": 10**3,
}
CLOCK_WRITES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "clock_gettime": (1, {".0": 10**9, ".1": 1}),
    "timespec_get": (0, {".0": 10**9, ".1": 1}),
    "gettimeofday": (0, {".0": 10**9, ".1": 10**3}),
    "time": (0, {"": 10**9}),
    "ftime": (0, {".0": 10**9, ".1": 10**6}),
}


class Term(NamedTuple):
    """A part of a sum: `scale` times what a node holds; of a difference what is taken away has a scale below 0."""

    node: str
    scale: Fraction


class Edge(NamedTuple):
    """What `target` holds may be a sum with this term."""

    target: str
    term: Term


class Comparison(NamedTuple):
    """Two sums that are compared. `how`: enum cc_comparison of hooks.h; `place`: "function (file:line)"."""

    how: int
    place: str
    left: tuple[Term, ...]
    right: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class UnitFlows:
    """The flows of a unit. A comparison's number is that of its hook."""

    edges: tuple[Edge, ...] = ()
    comparisons: tuple[Comparison, ...] = ()


class Meaning(NamedTuple):
    """What a number may be: a time in units of `unit_ns`, or, if `unit_ns` is below 0, one that is taken away."""

    unit_ns: Fraction
    fresh: bool  # it was read since the function, or one that it calls, began: no memory of an earlier step


class ImplicitTimer(NamedTuple):
    """A comparison that time decides: in what unit, and whether left - right can grow, or shrink, as time passes."""

    unit_ns: float
    grows: bool
    shrinks: bool


Meanings = Mapping[str, frozenset[Meaning]]


def follow(edges: Iterable[Edge]) -> Meanings:
    """What the nodes that clocks reach may hold."""
    following: dict[str, list[Edge]] = defaultdict(list)
    meanings: dict[str, set[Meaning]] = defaultdict(set)
    for edge in edges:
        following[edge.term.node].append(edge)
        if edge.term.node.startswith("C:"):
            meanings[edge.term.node] = {Meaning(Fraction(int(edge.term.node[2:])), True)}
    waiting = sorted(meanings)
    while waiting:
        node = waiting.pop()
        for edge in following[node]:
            known = meanings[edge.target]
            found = _scaled(meanings[node], edge.term.scale, edge.target.startswith(HELD)) - known
            if found and len(known) < _MOST_MEANINGS:
                known |= found
                waiting.append(edge.target)
    return {node: frozenset(found) for node, found in meanings.items()}


def _scaled(meanings: Iterable[Meaning], scale: Fraction, held: bool) -> set[Meaning]:
    return {Meaning(one.unit_ns / scale, one.fresh and not held) for one in meanings}


def timer_of(comparison: Comparison, meanings: Meanings) -> ImplicitTimer | None:
    """What time has to do with a comparison; None: nothing that is known.

    If one side is read from a clock just now, what is compared with it is an earlier time, which stays as it is. Times
    in different units are no timer: what one of them decides, the other does not.
    """
    found: set[Meaning] = set()
    for terms, sign in ((comparison.left, 1), (comparison.right, -1)):
        for term in terms:
            found |= _scaled(meanings.get(term.node, ()), term.scale * sign, False)
    found = {one for one in found if one.fresh} or found
    units = {abs(one.unit_ns) for one in found}
    if len(units) != 1:
        return None
    return ImplicitTimer(
        float(units.pop()), any(one.unit_ns > 0 for one in found), any(one.unit_ns < 0 for one in found)
    )


def open_nodes(edges: Iterable[Edge], roots: Iterable[str]) -> set[str]:
    """The nodes that some of these, of which the unit does not know all, reach."""
    following: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        following[edge.term.node].append(edge.target)
    reached = set(roots)
    waiting = list(reached)
    while waiting:
        for target in following[waiting.pop()]:
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return reached


def pack(flows: UnitFlows) -> str:
    """The text in a unit's facts; empty if there are none."""
    if not flows.edges and not flows.comparisons:
        return ""
    names: dict[str, int] = {}

    def packed(term: Term) -> list[int]:
        number = names.setdefault(term.node, len(names))
        return [number, term.scale.numerator, term.scale.denominator]

    edges = [
        number for edge in flows.edges for number in (names.setdefault(edge.target, len(names)), *packed(edge.term))
    ]
    comparisons = [[[packed(term) for term in side] for side in (one.left, one.right)] for one in flows.comparisons]
    return json.dumps([list(names), edges, comparisons], separators=(",", ":"))


def unpack(text: str, unit: int) -> UnitFlows:
    """What `pack` was given, without how and where is compared. `unit`: a number that makes its own names unique."""
    if not text:
        return UnitFlows()
    names, edges, comparisons = json.loads(text)
    names = [name.replace("#", f"#{unit}") for name in names]

    def term(number: int, numerator: int, denominator: int) -> Term:
        return Term(names[number], Fraction(numerator, denominator))

    return UnitFlows(
        tuple(Edge(names[edges[at]], term(*edges[at + 1 : at + 4])) for at in range(0, len(edges), 4)),
        tuple(Comparison(0, "", *(tuple(term(*one) for one in side) for side in sides)) for sides in comparisons),
    )


def timers_of(units: Sequence[UnitFlows]) -> list[list[ImplicitTimer | None]]:
    """For each comparison of each unit of a program, what time has to do with it."""
    meanings = follow(edge for unit in units for edge in unit.edges)
    return [[timer_of(one, meanings) for one in unit.comparisons] for unit in units]
