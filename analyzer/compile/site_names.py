"""Names of a program's sites that a rebuild keeps, so that what was learned from one build applies to the next."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crashcheck.analyzer.compile.demangling import variable_name
from crashcheck.analyzer.compile.facts import Site, UnitFacts, is_source
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition

# Where an access is written: lines, columns and functions from the one of the source inwards, and which of those there.
_Place = tuple[tuple[tuple[int, int, str], ...], int]
_LAMBDA = re.compile(r"\(lambda at [^()]*\)")  # its place in the source is no part of a name that stays
# In the id of a site, as in runtime/include/guard.h: its code changed; which of LearnedSets.settled_reads it is.
CHANGED = 1 << 63
SETTLED = 1 << 55
SETTLED_GROUPS = 255


@dataclass(frozen=True, slots=True)
class NamedSite:
    """A site, stably named: "queue.c:pop:load:2" is the second load of pop, whatever its line and
    wherever pop is inlined.

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
        self._paths: dict[tuple[str, str], str] = {}

    def named(self, unit: UnitFacts, index: int) -> NamedSite:
        """The site at `index` in the table of a unit; all inlined copies of one access have one name."""
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
        """Of each site of a unit the function it is written in, and its place among those of its kind there, from 1; of
        each function the hash.

        An inlined copy is the access that it is a copy of, as in the paper, whose ids are given before the optimiser
        runs (AI §3.1). What one copy has several times at one place are several accesses.
        """
        if facts.key not in self._tables:
            counts: Counter[object] = Counter()
            written: list[tuple[str, str, _Place]] = []  # of each site
            functions: dict[str, dict[tuple[str, _Place], Site]] = {}
            compiled: dict[str, set[str]] = {}  # in which functions of the program one is
            for site in facts.sites:
                links, copy = _written(facts, site)
                function = _LAMBDA.sub("(lambda)", links[-1].function)
                lines = tuple((link.line, link.column, link.function) for link in reversed(links))
                counts[site.kind, lines, copy] += 1
                place = lines, counts[site.kind, lines, copy]
                written.append((function, site.kind, place))
                functions.setdefault(function, {}).setdefault((site.kind, place), site)
                compiled.setdefault(function, set()).add(site.positions[-1].function)
            ordinals: dict[tuple[str, str, _Place], int] = {}
            codes = {}
            for function, its in functions.items():
                kinds: Counter[str] = Counter()
                for kind, place in sorted(its):
                    kinds[kind] += 1
                    ordinals[function, kind, place] = kinds[kind]
                known = [function] if function in facts.functions else sorted(compiled[function])
                hashes = [facts.functions.get(name, "") for name in known]
                codes[function] = _digest([*hashes, *sorted(kinds.elements())]) if all(hashes) else _hash(its)
            self._tables[facts.key] = [(access[0], ordinals[access]) for access in written], codes
        return self._tables[facts.key]

    def _relative(self, directory: str, file: str) -> str:
        if (directory, file) not in self._paths:
            path = os.path.normpath(os.path.join(directory, file))
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            is_inside = path.startswith(self._folder + os.sep)
            self._paths[directory, file] = os.path.relpath(path, self._folder) if is_inside else path
        return self._paths[directory, file]


def _written(facts: UnitFacts, site: Site) -> tuple[tuple[SourcePosition, ...], tuple[SourcePosition, ...]]:
    """The links of a site's inlining chain up to the function of the unit's source that it is written in, and those
    by which that was inlined. Where the compiler made one access of several, no inlining is known."""
    chain = site.positions
    last = next((at for at, link in enumerate(chain) if is_source(facts, link.file)), len(chain) - 1)
    if not chain[last].line:
        last = len(chain) - 1
    return chain[: last + 1], chain[last + 1 :]


def _hash(sites: Mapping[tuple[str, _Place], Site]) -> str:
    """Of a C++ function, whose symbol sites do not have: its sites, with their places relative to each other."""
    first = min(lines[0][0] for _, (lines, _) in sites)
    return _digest(
        f"{kind} {_LAMBDA.sub('', site.variable)} {site.callee} {lines[0][0] - first} {lines[0][1]}"
        for (kind, (lines, _)), site in sorted(sites.items(), key=lambda item: item[0])
    )


def _digest(lines: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
