"""The types of a program, by its debug metadata and its sites: fields, their offsets, the size of array elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crashcheck.analyzer.behaviours.numbers import DEEPEST_FIELD, MOST_FIELDS
from crashcheck.analyzer.compile.facts import Site, TypeLayout

BULK_KINDS = ("copy", "fill", "model")
ANONYMOUS = "(anonymous)"


@dataclass(frozen=True, slots=True)
class EnclosingStruct:
    """One struct around an access: `field` of `type`, `offset` and `size` in bytes.

    `path` leads from the struct to what is written; `array`: the field is an array, and the access is to an element.
    """

    type: str
    field: str
    path: str
    offset: int
    size: int
    array: bool


def enclosing_structs(site: Site) -> tuple[EnclosingStruct, ...]:
    """The structs around a site's access, innermost first, as far out as offsets are static."""
    out: list[EnclosingStruct] = []
    path = ""
    for at, (step, array) in enumerate(zip(site.steps, _are_arrays(site), strict=True)):
        if step.offset < 0:
            break
        part = (step.field or ANONYMOUS) + ("[]" if array else "")
        path = f"{part}.{path}" if path else part
        out.append(EnclosingStruct(_type_of(site, at), step.field, path, step.offset, step.size, array))
    return tuple(out)


def _are_arrays(site: Site) -> list[bool]:
    """Of each step, whether its field is an array: the variable's name has "[]" after it."""
    tokens = site.variable[len(site.steps[-1].type) :].split(".")[1:] if site.steps else []
    arrays: list[bool] = []
    for step in reversed(site.steps):
        # anonymous and inherited members have no part in the variable's name
        mine = bool(tokens) and tokens[0].removesuffix("[]") == step.field
        arrays.append(mine and tokens[0].endswith("[]"))
        if mine:
            tokens.pop(0)
    return arrays[::-1]


def _type_of(site: Site, at: int) -> str:
    """The type of a step's struct; an anonymous one is named after the type that it is a part of."""
    name = site.steps[at].type
    if name not in ("", ANONYMOUS):
        return name
    outer = next((step for step in site.steps[at + 1 :] if step.type not in ("", ANONYMOUS)), None)
    return f"{outer.type}.{outer.field or ANONYMOUS}" if outer is not None else ANONYMOUS


def is_bulk(site: Site) -> bool:
    return site.kind in BULK_KINDS


class ProgramTypes:
    """Types of a program: as its debug metadata declares them; else what its sites know, which is what they write."""

    def __init__(self, sites: Iterable[Site], declared: Iterable[TypeLayout] = ()) -> None:
        self._declared = {layout.name: layout for layout in declared}
        self._fields: dict[str, dict[str, tuple[int, int]]] = {}
        self._extent: dict[str, int] = {}
        self._seen: dict[tuple[str, str], int] = {}
        for site in sites:
            low, high = 0, 0  # where in the level's struct it writes; the whole field if that is in an array
            for at, level in enumerate(enclosing_structs(site)):
                if level.array or at == 0:
                    low, high = level.offset, level.offset + level.size
                else:
                    low, high = low + level.offset, high + level.offset
                self._fields.setdefault(level.type, {}).setdefault(level.path, (low, high))
                self._extent[level.type] = max(self._extent.get(level.type, 0), level.offset + level.size)
        self._whole: set[str] = set()

    def size(self, type_: str) -> int:
        """Bytes of a declared type; 0 if it is not known."""
        layout = self._declared.get(type_)
        return layout.size if layout is not None else 0

    def sizes(self) -> dict[str, int]:
        """Bytes of all declared types."""
        return {name: layout.size for name, layout in self._declared.items()}

    def _known(self, type_: str) -> dict[str, tuple[int, int]]:
        """The bytes of each field that is not itself a struct; the whole array for fields of its elements."""
        fields = self._fields.setdefault(type_, {})
        if type_ not in self._whole:
            self._whole.add(type_)
            for path, low, high in self._leaves(type_, DEEPEST_FIELD):
                if len(fields) >= MOST_FIELDS:
                    break
                fields.setdefault(path, (low, high))
        return fields

    def _leaves(self, type_: str, depth: int) -> Iterator[tuple[str, int, int]]:
        layout = self._declared.get(type_)
        for field in layout.fields if layout is not None else ():
            part = (field.name or ANONYMOUS) + ("[]" if field.count else "")
            end = field.offset + field.size
            if not depth or field.type not in self._declared:
                yield part, field.offset, end
                continue
            for path, low, high in self._leaves(field.type, depth - 1):
                if field.count:
                    low, high = 0, field.size
                yield f"{part}.{path}", field.offset + low, field.offset + high

    def extent(self, type_: str) -> int:
        """Bytes of a type; of one that is not declared up to the end of the last field known, 0 if there is none."""
        return self.size(type_) or self._extent.get(type_, 0)

    def covered(self, type_: str, low: int, high: int) -> tuple[str, ...]:
        """Paths of the fields that overlap [low, high) of a type."""
        fields = self._known(type_)
        return tuple(sorted(path for path, (a, b) in fields.items() if a < high and low < b))

    def element(self, type_: str, field: str) -> int:
        """Bytes of an element of an array that a declared type holds; 0 if there is no such array."""
        layout = self._declared.get(type_)
        for one in layout.fields if layout is not None else ():
            if one.name == field and one.count:
                return one.size // one.count
        return 0

    def learn(self, array: EnclosingStruct, distance: int) -> None:
        """An element of an array was seen to begin `distance` bytes from its first."""
        key = array.type, array.field
        self._seen[key] = math.gcd(self._seen.get(key, 0), distance)

    def stride(self, array: EnclosingStruct, element: str) -> int:
        """Bytes from one element of an array to the next, as well as is known where it is not declared.

        It then divides the array's size and the distances learned, and an element's known fields fit in it: the
        smallest such number. Where it divides the true one, an access to a known field falls into the right element.
        """
        declared = self.element(array.type, array.field) or self.size(element)
        if declared:
            return declared
        whole = math.gcd(array.size, self._seen.get((array.type, array.field), 0))
        least = max(self.extent(element), 1)
        small = [d for d in range(1, math.isqrt(whole) + 1) if whole % d == 0]
        divisors = (*small, *(whole // d for d in small))
        return min((d for d in divisors if d >= least), default=max(whole, least))


def recorded_struct(chain: tuple[EnclosingStruct, ...], low: int, high: int) -> int:
    """The level whose struct begins at the recorded instance, given the distances [low, high] from there; -1: none.

    The recorder knows the outermost instance that the function could compute, which may be further in than the types
    that the compiler could name. It is the same level at all executions of a site.
    """
    for level in range(len(chain) - 1, -1, -1):
        if _fits(chain, level, low) and _fits(chain, level, high):
            return level
    return -1


def _fits(chain: tuple[EnclosingStruct, ...], level: int, distance: int) -> bool:
    for at in range(level, -1, -1):
        distance -= chain[at].offset
        if chain[at].array or at == 0:
            rest = sum(inner.offset for inner in chain[:at])
            return rest <= distance < max(chain[at].size, 1)
    return False
