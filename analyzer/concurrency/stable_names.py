"""Names of a program's sites that a rebuild keeps, so that what was learned from one build applies to the next."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Any

from crashcheck.analyzer.behaviours.sites import UnitSources
from crashcheck.analyzer.compile.facts import Site
from crashcheck.analyzer.trace.reader import Facts, Trace

UNKNOWN = "unknown"  # code that was not instrumented
_LAMBDA = re.compile(r"\(lambda at [^()]*\)")  # its place in the source is no part of a name that stays


@dataclass(frozen=True, slots=True)
class NamedSite:
    """A site, stably named: "queue.c:pop:load:2" is the second load of pop, whatever its line. Calls that lead to it
    follow, innermost first: "lock.h:take:atomic:1 < queue.c:pop:call:1".

    `functions` are the functions ("queue.c:pop") in the name: it holds as long as their code is the same.
    `where` ("queue.c:41"), `function` and `variable` ("queue.head") are for readers; empty if not known.
    """

    name: str
    functions: tuple[str, ...]
    where: str
    function: str
    variable: str

    def __str__(self) -> str:
        return " ".join(text for text in (self.where or self.name, self.function, self.variable) if text)


class Namer:
    """The names of a trace's sites. Sources inside `folder` are named relative to it."""

    def __init__(self, trace: Trace, facts: Facts | None, folder: str | os.PathLike[str]) -> None:
        self._trace = trace
        self._facts = facts
        self._units = UnitSources(trace, facts)
        self._folder = os.path.realpath(folder)
        self._tables: dict[int, tuple[list[tuple[str, int]], dict[str, str]]] = {}

    def named(self, site: int, callers: tuple[int, ...]) -> NamedSite:
        """A site (the trace's number) with the call sites that distinguish it from other uses."""
        chain = [self._name(at) for at in (site, *callers)]
        name = " < ".join(text for text, _ in chain)
        functions = tuple(dict.fromkeys(function for _, function in chain if function))
        own = self._units.site(site)
        variable = own.variable if own is not None else ""
        known = [at for at in (site, *callers) if self._units.site(at) is not None]
        if not known:
            return NamedSite(name, functions, "", "", variable)
        links = [(at, link) for at in known for link in self._units.site(at).positions]  # type: ignore[union-attr]
        at, link = next(((at, link) for at, link in links if self._units.in_source(at, link.file)), links[0])
        where = f"{self._relative(self._unit(at).directory, link.file)}:{link.line}"
        return NamedSite(name, functions, where, link.function, variable)

    def codes(self) -> dict[str, str]:
        """The hash of the code of every function with sites in the units that ran."""
        out = {}
        for unit in self._trace.units:
            facts = self._facts.unit(unit.key) if self._facts is not None else None
            if facts is not None:
                source = self._relative(facts.directory, facts.source)
                out.update({f"{source}:{function}": code for function, code in self._table(facts)[1].items()})
        return out

    def _name(self, site: int) -> tuple[str, str]:
        """ "queue.c:pop:load:2" and "queue.c:pop"."""
        own, unit = self._units.site(site), self._trace.unit_of(site)
        if own is None or unit is None:
            return UNKNOWN, ""
        facts = self._unit(site)
        function, ordinal = self._table(facts)[0][site - unit.base]
        function = f"{self._relative(facts.directory, facts.source)}:{function}"
        return f"{function}:{own.kind}:{ordinal}", function

    def _unit(self, site: int) -> Any:
        unit = self._trace.unit_of(site)
        assert unit is not None
        assert self._facts is not None
        return self._facts.unit(unit.key)

    def _table(self, facts: Any) -> tuple[list[tuple[str, int]], dict[str, str]]:
        """Of each site of a unit its function, and its place among those of its kind there; of each function the hash.

        C++ facts know functions by symbols that sites do not have: there the sites themselves are hashed, with their
        places in the source relative to each other.
        """
        if facts.key not in self._tables:
            counts: dict[tuple[str, str], int] = {}
            places: list[tuple[str, int]] = []
            members: dict[str, list[Site]] = {}
            for site in facts.sites:
                function = _LAMBDA.sub("(lambda)", site.positions[-1].function)
                counts[function, site.kind] = counts.get((function, site.kind), 0) + 1
                places.append((function, counts[function, site.kind]))
                members.setdefault(function, []).append(site)
            codes = {function: facts.functions.get(function) or _hash(sites) for function, sites in members.items()}
            self._tables[facts.key] = places, codes
        return self._tables[facts.key]

    def _relative(self, directory: str, file: str) -> str:
        path = os.path.normpath(os.path.join(directory, file))
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return os.path.relpath(path, self._folder) if path.startswith(self._folder + os.sep) else path


def _hash(sites: list[Site]) -> str:
    first = min(site.positions[-1].line for site in sites)
    lines = [
        f"{site.kind} {_LAMBDA.sub('', site.variable)} {site.callee} {site.positions[-1].line - first} "
        f"{site.positions[-1].column}"
        for site in sites
    ]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
