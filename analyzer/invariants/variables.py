"""What an invariant speaks about: the field of a type that an access reads or writes, or a place in a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from crashcheck.analyzer.arrays import distinct_rows, number_rows, ranges, sort_rows, unique
from crashcheck.analyzer.behaviours.instances import FieldNumbers, Memberships, place_by_type
from crashcheck.analyzer.behaviours.layout import enclosing_structs
from crashcheck.analyzer.behaviours.type_evidence import TypedUpdates
from crashcheck.analyzer.compile.facts import Site
from crashcheck.analyzer.invariants.ppdg import Accesses, Bools
from crashcheck.analyzer.persistence.pieces import WORD_BYTES, Ints
from crashcheck.analyzer.trace.reader import Facts, Trace

_WORDS = 64  # words of an access without a type whose types are looked up
_NESTED = 4  # structs around a struct that are looked for
_PLACE = ""  # the type of what has none


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
    type_of: Ints  # by instance
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
    """What every access to watched memory reads or writes.

    By its site's static type, as for updates (docs/behaviours.md). A load by a copy, and any access without a type,
    takes what the last typed access of each of its words says, else the first after it; what is still unknown is told
    by place.
    """
    columns = rows.columns
    watched = np.flatnonzero(~rows.volatile)
    site = columns.site[watched]
    for number in unique(site[rows.load[watched]]).tolist():
        known = trace.site(number, facts) if number else None
        if known is not None and known.kind not in ("load", "atomic"):
            # its type is that of where it writes to
            site = np.where((site == number) & rows.load[watched], 0, site)
    updates = replace(
        columns,
        event=watched,
        site=site,
        stack=columns.stack[watched],
        file=columns.file[watched],
        offset=columns.offset[watched],
        size=columns.size[watched],
        delta=columns.delta[watched],
    )
    names, told = FieldNumbers(), Memberships()
    kinds = place_by_type(trace, facts, updates, names, told)
    update, type_, file, start, field = distinct_rows(*told.columns())
    instance, heads = number_rows(type_, file, start)
    typed = np.zeros(len(watched), dtype=np.bool_)
    typed[update] = True
    sites = [known for number in unique(site).tolist() if number and (known := trace.site(number, facts)) is not None]
    known_heads = _Heads(type_[heads], file[heads], start[heads])
    update, instance, field = _enclosed(update, instance, field, known_heads, names, _links(sites))
    found = found_instance = found_field = np.zeros(0, dtype=np.int64)
    if not typed.all():
        evidence = TypedUpdates(updates, kinds.evidence, update, instance, field)
        found, found_instance, found_field = _inherited(evidence, np.flatnonzero(~typed))
    typed[found] = True
    update = np.concatenate([update, found])
    instance = np.concatenate([instance, found_instance])
    field = np.concatenate([field, found_field])

    # the rest, by place
    rest = np.flatnonzero(~typed)
    place, place_heads = number_rows(updates.file[rest], updates.offset[rest] // WORD_BYTES)
    type_names = tuple(names.types)
    extent = np.array([kinds.layout.extent(name) or 1 << 30 for name in type_names] + [1], dtype=np.int64)
    all_types = np.concatenate([type_[heads], np.full(len(place_heads), len(type_names), dtype=np.int64)])
    named = [Variable(type_names[number], path) for number, path in names.fields]
    places = rest[place_heads]
    for number, offset in zip(
        updates.file[places].tolist(), (updates.offset[places] // WORD_BYTES).tolist(), strict=True
    ):
        named.append(Variable(_PLACE, "", trace.files[number].path, offset * WORD_BYTES))
    update = np.concatenate([update, rest])
    instance = np.concatenate([instance, place + len(heads)])
    field = np.concatenate([field, place + len(names.fields)])

    size = extent[all_types[instance]]
    order, _ = sort_rows(update, size, instance, field)
    update, instance, field, size = update[order], instance[order], field[order], size[order]
    bounds = np.searchsorted(update, np.arange(len(watched) + 1))
    # all fields of a copy in its innermost struct are innermost
    counts = np.diff(bounds)
    leading = np.repeat(size[np.minimum(bounds[:-1], max(len(size) - 1, 0))], counts) if len(size) else size
    row_access = watched[update]
    return AccessedVariables(
        np.searchsorted(row_access, np.arange(len(rows) + 1)),
        row_access,
        instance,
        field,
        size == leading,
        size,
        all_types,
        tuple(named),
    )


@dataclass(frozen=True, slots=True, order=True)
class _Link:
    """Some site shows that `inner` lies in `outer` by the path `prefix`: one, or an array, from `low` to `high`."""

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


@dataclass(frozen=True, slots=True, eq=False)
class _Heads:
    """Of each instance its type, file and first byte."""

    type: Ints
    file: Ints
    start: Ints


def _enclosed(
    update: Ints, instance: Ints, field: Ints, heads: _Heads, names: FieldNumbers, links: list[_Link]
) -> tuple[Ints, Ints, Ints]:
    """The memberships and those that follow: what lies in a struct that lies in a known instance of another.

    A site that has only a pointer to the inner struct knows nothing of the outer; others that go through it do.
    """
    place = heads.file << 40 | heads.start
    outer_of: list[tuple[int, str, Ints, Ints]] = []  # inner type, prefix, instances of it, the one each lies in
    for link in links:
        if link.inner not in names.types or link.outer not in names.types or link.inner == link.outer:
            continue
        inner = np.flatnonzero(heads.type == names.types[link.inner])
        outer = np.flatnonzero(heads.type == names.types[link.outer])
        outer = outer[sort_rows(place[outer])[0]]
        at = np.searchsorted(place[outer], place[inner] - link.low, side="right") - 1
        found = outer[np.maximum(at, 0)] if len(outer) else inner
        fits = (at >= 0) & (place[inner] < place[found] + link.high) if len(outer) else np.zeros(0, dtype=np.bool_)
        if fits.any():
            outer_of.append((names.types[link.outer], link.prefix, inner[fits], found[fits]))
    for _ in range(_NESTED):
        added = []
        for type_, prefix, inner, outer in outer_of:
            into = np.full(len(place), -1, dtype=np.int64)
            into[inner] = outer
            rows = np.flatnonzero(into[instance] >= 0)
            paths = list(names.fields)
            of_field = np.full(len(paths), -1, dtype=np.int64)
            for number in unique(field[rows]).tolist():
                path = paths[number][1]
                of_field[number] = names.field(type_, prefix.removesuffix(".") if path == "*" else prefix + path)
            added.append((update[rows], into[instance[rows]], of_field[field[rows]]))
        many = len(update)
        update, instance, field = distinct_rows(
            *(np.concatenate(column) for column in zip((update, instance, field), *added, strict=True))
        )
        if len(update) == many:
            break
    return update, instance, field


def _inherited(evidence: TypedUpdates, asked: Ints) -> tuple[Ints, Ints, Ints]:
    """(access, instance, field) of accesses without a type, by the typed accesses of their words."""
    none = np.zeros(0, dtype=np.int64)
    if not len(asked) or not len(evidence.key):
        return none, none, none
    updates = evidence.updates
    first = updates.offset[asked] // WORD_BYTES
    many = np.clip((updates.offset[asked] + updates.size[asked] - 1) // WORD_BYTES - first + 1, 1, _WORDS)
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
    return distinct_rows(np.repeat(access, many), evidence.instance[members], evidence.field[members])  # type: ignore[return-value]


__all__ = ["AccessedVariables", "Variable", "find_variables"]
