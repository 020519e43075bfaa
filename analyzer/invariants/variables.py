"""The variables of invariants: the field of a type that an access reads or writes, or a word of a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from crashcheck.analyzer.arrays import Bools, distinct_rows, number_rows, ranges, sort_rows, take_rows, unique
from crashcheck.analyzer.behaviours.types.program_types import enclosing_structs
from crashcheck.analyzer.behaviours.types.static_types import FieldNumbers, Memberships, TypedObjects, place_by_type
from crashcheck.analyzer.behaviours.types.type_evidence import TypedUpdates
from crashcheck.analyzer.behaviours.updates import NO_ROWS, AccessColumns, FieldRows
from crashcheck.analyzer.compile.facts import Site
from crashcheck.analyzer.invariants.numbers import OUTER_TYPES, UNTYPED_WORDS
from crashcheck.analyzer.invariants.ppdg import Accesses
from crashcheck.analyzer.persistence.pieces import WORD_BYTES, Ints
from crashcheck.analyzer.trace.reader import Facts, Trace

_NO_TYPE = ""  # of a variable that is a word of a file


@dataclass(frozen=True, slots=True, order=True)
class Variable:
    """`field` of `type`, in any instance; or with `type` "" the word at byte `offset` of `file`."""

    type: str
    field: str
    file: str = ""
    offset: int = 0

    @property
    def text(self) -> str:
        if not self.type:
            return f"{self.file}+{self.offset}"
        return self.type if self.field == "*" else f"{self.type}.{self.field}"


@dataclass(frozen=True, slots=True, eq=False)
class AccessedVariables:
    """Memberships of accesses: an access reads or writes a field of an instance.

    Parallel arrays, sorted by access and from the inside out. Access i's are the rows start[i] to start[i + 1]; the
    first is the innermost struct. `field` and `instance` are
    numbers; instances are numbered over all types.
    """

    start: Ints
    access: Ints
    instance: Ints
    field: Ints
    inner: Bools  # in the innermost struct of the access
    size: Ints  # bytes of the struct, as far as it is known
    names: tuple[Variable, ...]  # by field

    def innermost(self, accesses: Ints) -> tuple[Ints, Ints]:
        """(place in `accesses`, row) of each innermost membership: a copy has several."""
        at, rows = self.of(accesses)
        keep = self.inner[rows]
        return at[keep], rows[keep]

    def of(self, accesses: Ints) -> tuple[Ints, Ints]:
        """(place in `accesses`, row) of each membership."""
        many = self.start[accesses + 1] - self.start[accesses]
        return np.repeat(np.arange(len(accesses)), many), ranges(self.start[accesses], many)


def find_variables(trace: Trace, facts: Facts | None, rows: Accesses) -> AccessedVariables:
    """What every access reads or writes.

    By its site's static type, as for updates (docs/behaviours.md). A load by a copy, and any access without a type,
    takes the type of the last typed access of each of its words, else of the first after it. What is still unknown is
    named by its place: the file and the word in it.
    """
    columns = _typed_columns(trace, facts, rows)
    names, memberships = FieldNumbers(), Memberships()
    traits = place_by_type(trace, facts, columns, names, memberships)
    by_type, objects = memberships.by_object()
    typed = np.zeros(len(rows), dtype=np.bool_)
    typed[by_type.row] = True
    found = _enclosed(by_type, objects, names, _links(_sites(trace, facts, columns)))
    if not typed.all():
        evidence = TypedUpdates(columns, traits.gives_types, *found)
        inherited = _inherited(evidence, np.flatnonzero(~typed))
        typed[inherited.row] = True
        found = found.plus(inherited)

    type_names = tuple(names.types)
    extent = np.array([traits.types.extent(name) or 1 << 30 for name in type_names] + [1], dtype=np.int64)
    variables = [Variable(type_names[number], path) for number, path in names.fields]
    places, named = _by_place(trace, columns, np.flatnonzero(~typed), len(objects.type), len(variables))
    type_of = np.concatenate([objects.type, np.full(len(named), len(type_names), dtype=np.int64)])
    return _sorted_by_access(len(rows), found.plus(places), extent, type_of, (*variables, *named))


def _typed_columns(trace: Trace, facts: Facts | None, rows: Accesses) -> AccessColumns:
    """The accesses; without the site where its type is not that of what is read."""
    site = rows.columns.site
    for number in unique(site[rows.load]).tolist():
        known = trace.site(number, facts) if number else None
        if known is not None and known.kind not in ("load", "atomic"):
            # its type is that of where it writes to
            site = np.where((site == number) & rows.load, 0, site)
    return replace(rows.columns, event=np.arange(len(rows)), site=site)


def _sites(trace: Trace, facts: Facts | None, columns: AccessColumns) -> list[Site]:
    numbers = (number for number in unique(columns.site).tolist() if number)
    return [known for number in numbers if (known := trace.site(number, facts)) is not None]


def _by_place(
    trace: Trace, columns: AccessColumns, rest: Ints, instances: int, fields: int
) -> tuple[FieldRows, list[Variable]]:
    """(access, instance, field) of the accesses `rest`, and the variables: each word that they begin in is one, and an
    instance of its own. Numbers begin at `instances` and `fields`."""
    file, word = columns.file[rest], columns.offset[rest] // WORD_BYTES
    place, heads = number_rows(file, word)
    named = [
        Variable(_NO_TYPE, "", trace.files[number].path, at * WORD_BYTES)
        for number, at in zip(file[heads].tolist(), word[heads].tolist(), strict=True)
    ]
    return FieldRows(rest, place + instances, place + fields), named


def _sorted_by_access(
    accesses: int, found: FieldRows, extent: Ints, type_of: Ints, names: tuple[Variable, ...]
) -> AccessedVariables:
    """The memberships by access and from the inside out. `extent` is by type, `type_of` by instance."""
    size = extent[type_of[found.instance]]
    order, _ = sort_rows(found.row, size, found.instance, found.field)
    row, instance, field, size = take_rows(order, *found, size)
    start = np.searchsorted(row, np.arange(accesses + 1))
    # all fields of a copy in its innermost struct are innermost
    least = np.repeat(size[np.minimum(start[:-1], max(len(size) - 1, 0))], np.diff(start)) if len(size) else size
    return AccessedVariables(start, row, instance, field, size == least, size, names)


@dataclass(frozen=True, slots=True, order=True)
class _Link:
    """Some site shows that `outer` holds `inner` at the path `prefix`: one, or an array, from `low` to `high`."""

    inner: str
    outer: str
    prefix: str
    low: int
    high: int


def _links(sites: Iterable[Site]) -> list[_Link]:
    out = set()
    for site in sites:
        chain = enclosing_structs(site)
        for inner, outer in pairwise(chain):
            prefix = outer.path.removesuffix(inner.path)
            out.add(_Link(inner.type, outer.type, prefix, outer.offset, outer.offset + outer.size))
    return sorted(out)


def _enclosed(found: FieldRows, objects: TypedObjects, names: FieldNumbers, links: list[_Link]) -> FieldRows:
    """The memberships and those that follow: a field of a struct that is part of a known instance of an outer struct.

    A site that has only a pointer to the inner struct knows nothing of the outer; others that go through it do.
    """
    around = [(link, *_pairs(link, objects, names)) for link in links if _joins_known_types(link, names)]
    around = [(link, inner, outer) for link, inner, outer in around if len(inner)]
    for _ in range(OUTER_TYPES):
        many = len(found.row)
        added = [_in_outer(found, len(objects.type), names, *each) for each in around]
        found = FieldRows(*distinct_rows(*(np.concatenate(column) for column in zip(found, *added, strict=True))))
        if len(found.row) == many:
            break
    return found


def _joins_known_types(link: _Link, names: FieldNumbers) -> bool:
    return link.inner in names.types and link.outer in names.types and link.inner != link.outer


def _pairs(link: _Link, objects: TypedObjects, names: FieldNumbers) -> tuple[Ints, Ints]:
    """(instance of the inner type, the instance of the outer type that holds it)."""
    place = objects.file << 40 | objects.start
    inner = np.flatnonzero(objects.type == names.types[link.inner])
    outer = np.flatnonzero(objects.type == names.types[link.outer])
    if not len(outer):
        return outer, outer
    outer = outer[sort_rows(place[outer])[0]]
    at = np.searchsorted(place[outer], place[inner] - link.low, side="right") - 1
    found = outer[np.maximum(at, 0)]
    fits = (at >= 0) & (place[inner] < place[found] + link.high)
    return inner[fits], found[fits]


def _in_outer(
    found: FieldRows, instances: int, names: FieldNumbers, link: _Link, inner: Ints, outer: Ints
) -> FieldRows:
    """The memberships of `inner` instances as memberships of the `outer` ones around them."""
    into = np.full(instances, -1, dtype=np.int64)
    into[inner] = outer
    rows = np.flatnonzero(into[found.instance] >= 0)
    paths = list(names.fields)
    of_field = np.full(len(paths), -1, dtype=np.int64)
    for number in unique(found.field[rows]).tolist():
        path = paths[number][1]
        whole = link.prefix.removesuffix(".") if path == "*" else link.prefix + path
        of_field[number] = names.field(names.types[link.outer], whole)
    return FieldRows(found.row[rows], into[found.instance[rows]], of_field[found.field[rows]])


def _inherited(evidence: TypedUpdates, asked: Ints) -> FieldRows:
    """(access, instance, field) of accesses without a type, by the typed accesses of their words."""
    if not len(asked) or not len(evidence.key):
        return NO_ROWS
    updates = evidence.updates
    first = updates.offset[asked] // WORD_BYTES
    many = np.clip((updates.offset[asked] + updates.size[asked] - 1) // WORD_BYTES - first + 1, 1, UNTYPED_WORDS)
    access = np.repeat(asked, many)
    word = updates.file[access] << 40 | ranges(first, many)
    place = np.searchsorted(evidence.words, word)
    hit = place < len(evidence.words)
    hit[hit] = evidence.words[place[hit]] == word[hit]
    access, place = access[hit], place[hit]
    at = np.searchsorted(evidence.key, place * evidence.span + access)
    before, after = np.maximum(at - 1, 0), np.minimum(at, len(evidence.key) - 1)
    has_before = (at > 0) & (evidence.key[before] // evidence.span == place)
    access, source = distinct_rows(access, evidence.owner[np.where(has_before, before, after)])
    low = np.searchsorted(evidence.update, source)
    many = np.searchsorted(evidence.update, source, side="right") - low
    members = ranges(low, many)
    rows = distinct_rows(np.repeat(access, many), evidence.instance[members], evidence.field[members])
    return FieldRows(*rows)
