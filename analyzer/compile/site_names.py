"""Names of a program's sites that a rebuild keeps, so that what was learned from one build applies to the next."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from crashcheck.analyzer.compile.demangling import variable_name
from crashcheck.analyzer.compile.facts import Site, UnitFacts, is_source

_LAMBDA = re.compile(r"\(lambda at [^()]*\)")  # its place in the source is no part of a name that stays
# In the id of a site, as in runtime/include/guard.h: its code changed; which of LearnedSets.settled_reads it is.
CHANGED = 1 << 63
SETTLED = 1 << 55
SETTLED_GROUPS = 255


@dataclass(frozen=True, slots=True)
class NamedSite:
    """A site, stably named: "queue.c:pop:load:2" is the second load of pop, whatever its line.

    `code` is its function ("queue.c:pop"): the name holds as long as the code of that is the same. `where`
    ("queue.c:41", without the line if the compiler made one access of several), `function` and `variable`
    ("queue.head") are for readers; empty if not known.
    """

    name: str
    code: str
    where: str
    function: str
    variable: str

    def __str__(self) -> str:
        return " ".join(text for text in (self.where or self.name, self.function, self.variable) if text)


def site_id(name: str) -> int:
    """The number of a site in a guarded program: below SETTLED, and never 0, which is nil."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % SETTLED or 1


class Namer:
    """The names of a program's sites, from its facts alone. Sources inside `folder` are named relative to it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.path.realpath(folder)
        self._tables: dict[int, tuple[list[tuple[str, int]], dict[str, str]]] = {}

    def named(self, unit: UnitFacts, index: int) -> NamedSite:
        """The site at `index` in the table of a unit."""
        site = unit.sites[index]
        function, ordinal = self._table(unit)[0][index]
        code = f"{self._relative(unit.directory, unit.source)}:{function}"
        link = next((link for link in site.positions if is_source(unit, link.file)), site.positions[0])
        where = self._relative(unit.directory, link.file) + (f":{link.line}" if link.line else "")
        return NamedSite(f"{code}:{site.kind}:{ordinal}", code, where, link.function, variable_name(site.variable))

    def codes(self, units: Iterable[UnitFacts]) -> dict[str, str]:
        """The hash of the code of every function with sites in these units."""
        return {
            f"{self._relative(unit.directory, unit.source)}:{function}": code
            for unit in units
            for function, code in self._table(unit)[1].items()
        }

    def _table(self, facts: UnitFacts) -> tuple[list[tuple[str, int]], dict[str, str]]:
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
