"""Layouts of a unit's structs, classes and unions: what is where in them, from debug metadata."""

from __future__ import annotations

from collections.abc import Iterable

from crashcheck.analyzer.compile.facts import FieldLayout, Site, TypeLayout
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo, Member

_MOST_TYPES = 1024
_MOST_FIELDS = 256
ANONYMOUS = "(anonymous)"


def layouts_of(debug: DebugInfo, sites: Iterable[Site]) -> tuple[TypeLayout, ...]:
    """Of the types that sites name, and of those that are their members or are pointed to by these, by name.

    A name of two layouts (templates, types of functions) is left out: which one is meant is not known. At
    most 1024 types of at most 256 fields.
    """
    wanted: dict[str, None] = {}
    for site in sites:
        for step in site.steps:
            wanted[step.type] = None
        if site.variable and not site.steps:
            wanted[site.variable.removesuffix("[]")] = None
    found: dict[str, TypeLayout] = {}
    twice: set[str] = set()
    seen: set[tuple[int, str]] = set()
    work = [(number, name) for name in wanted for number in debug.named_composites(name)]
    for number, name in work:  # grows
        if (number, name) in seen:
            continue
        if len(seen) == _MOST_TYPES:
            break
        seen.add((number, name))
        layout, further = _layout(debug, number, name)
        if layout is not None and found.setdefault(name, layout) != layout:
            twice.add(name)
        work += further
    return tuple(found[name] for name in sorted(found.keys() - twice))


def _layout(debug: DebugInfo, number: int, name: str) -> tuple[TypeLayout | None, list[tuple[int, str]]]:
    """A type's layout, None if it has too many fields; and the types that belong to it."""
    members = debug.members(number)
    fields = []
    further = []
    for member in members[:_MOST_FIELDS]:
        inner = debug.strip(member.type)
        pointed = (
            debug.strip(debug.reference(inner, "baseType")) if inner is not None and debug.is_pointer(inner) else None
        )
        if pointed is not None and debug.is_composite(pointed) and debug.name_of(pointed) != ANONYMOUS:
            further.append((pointed, debug.name_of(pointed)))
        type_ = ""
        if inner is not None and debug.is_composite(inner):
            type_ = debug.name_of(inner)
            if type_ == ANONYMOUS:  # it has the name of what it is a part of
                type_ = f"{name}.{member.name or ANONYMOUS}"
            further.append((inner, type_))
        fields.append(_field(debug, member, inner, type_))
    size = debug.integer(number, "size") // 8
    return (TypeLayout(name, size, tuple(fields)) if size and len(members) <= _MOST_FIELDS else None), further


def _field(debug: DebugInfo, member: Member, inner: int | None, type_: str) -> FieldLayout:
    size = -(-(member.offset % 8 + member.size) // 8)
    element = debug.integer(inner, "size") // 8 if inner is not None and debug.is_array(member.type) else 0
    count = size // element if element else 0
    return FieldLayout(member.name, member.offset // 8, size, type_, count)
