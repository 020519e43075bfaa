"""Which field of which struct a store writes: from getelementptr chains, single-store locals and TBAA to names.

The shape of an access follows AGAMOTTO's and Witcher's notion of a type-offset: the innermost field first, out to the
outermost struct instance that the address can be traced to inside the function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from crashcheck.analyzer.compile.facts import TypeStep
from crashcheck.analyzer.compile.ir.addresses import Access, LocalUses, Walk
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo, Member
from crashcheck.analyzer.compile.ir.text import ModuleText

_MOST_NESTED = 8
_SUFFIX = re.compile(r"^(struct|class|union)\.(.*?)(\.base)?(\.\d+)?$")
_TBAA = re.compile(r", !tbaa !(\d+)")
_TAG = re.compile(r"!\{!(\d+), !(\d+), i64 (\d+)")


@dataclass(frozen=True, slots=True)
class Target:
    """What is known of the address that an instruction writes to."""

    local: bool = False  # on the stack or in the image of the program: never in a mapped file
    variable: str = ""
    steps: tuple[TypeStep, ...] = ()
    instance: str = "null"  # IR value: address of the outermost struct instance
    prelude: str = ""  # instructions that compute `instance`
    delta: int = -1  # bytes from `instance` to the address; -1 if there is none or it is not static


@dataclass(slots=True)
class _Name:
    """A variable's name while it is put together, from its outermost struct inwards."""

    variable: str = ""
    steps: list[TypeStep] = field(default_factory=list)  # outermost first

    def begin(self, type_name: str) -> None:
        self.variable = self.variable or type_name

    def add_element(self) -> None:
        if self.variable and not self.variable.endswith("[]"):
            self.variable += "[]"

    def add_unknown(self, type_name: str, access: Access, size: int) -> None:
        """A member that debug metadata does not name."""
        self.steps.append(TypeStep(type_name, f"#{access.index}", access.offset, size))
        self.variable += f".#{access.index}"

    def add_member(self, owner: str, member: Member) -> None:
        self.steps.append(TypeStep(owner, member.name, member.offset // 8, max(member.size // 8, 1)))
        if member.name and not member.inherited:
            self.variable += f".{member.name}"


class TypeMap:
    """Resolves the targets of one unit."""

    def __init__(self, module: ModuleText, debug: DebugInfo) -> None:
        self._types = module.types
        self._debug = debug
        self._named: dict[tuple[tuple[Access, ...], str], tuple[str, tuple[TypeStep, ...]]] = {}
        self._roots: dict[str, int | None] = {}

    def resolve(
        self,
        target: str,
        definitions: dict[str, str],
        uses: LocalUses,
        stored: str,
        line: str,
        fresh: Callable[[], str],
    ) -> Target:
        """Describe `target`; `stored` is the type of the value, `line` the instruction (for its TBAA tag)."""
        walk = Walk(self._types, target, definitions, uses, fresh)
        if walk.ends_local():
            return Target(local=True)
        accesses = walk.accesses
        while accesses and accesses[-1].index < 0:
            accesses.pop()
        if accesses:
            variable, steps = self._name(tuple(accesses), stored)
            return Target(False, variable, steps, walk.instance, walk.prelude, walk.delta)
        found = self._from_tbaa(target, line, stored, fresh)
        return found if found.variable else self._from_declaration(target, walk.current, definitions, uses)

    def _root(self, type_text: str) -> int | None:
        """The composite that an IR struct type is; None if what it has at an offset is not known.

        IR names a struct without template arguments: where several have its name and size, their fields must be equal.
        """
        if type_text not in self._roots:
            found = self._candidates(type_text)
            equal = len(found) == 1 or len({self._shape(node) for node in found}) == 1
            self._roots[type_text] = found[0] if equal else None
        return self._roots[type_text]

    def _shape(self, node: int, depth: int = 0) -> tuple[object, ...]:
        """The fields of a composite and of what it holds, without their types' template arguments."""
        if depth == _MOST_NESTED:
            return ()
        out: list[object] = []
        for member in self._debug.members(node):
            inner = self._debug.strip(member.type)
            held = self._shape(inner, depth + 1) if inner is not None and self._debug.is_composite(inner) else ()
            out.append((member.name, member.offset, member.size, held))
        return tuple(out)

    def _candidates(self, type_text: str) -> tuple[int, ...]:
        size, name = self._types.layout(type_text), plain_type(type_text)
        base = type_text.rstrip('"').endswith(".base")
        return self._debug.composites(name, None if size is None or base else size.size) if name else ()

    def _name(self, accesses: tuple[Access, ...], stored: str) -> tuple[str, tuple[TypeStep, ...]]:
        known = self._named.get((accesses, stored))
        if known is None:
            known = self._named[accesses, stored] = self._compute_name(accesses, stored)
        return known

    def _compute_name(self, accesses: tuple[Access, ...], stored: str) -> tuple[str, tuple[TypeStep, ...]]:
        name = _Name()
        composite: int | None = None
        ordered = accesses[::-1]
        for position, access in enumerate(ordered):
            if access.index < 0:
                name.add_element()
            else:
                following = self._next_struct(ordered, position)
                composite = self._add_member(name, composite, access, "" if following else stored, stored, following)
        return name.variable, tuple(reversed(name.steps))

    def _add_member(
        self, name: _Name, composite: int | None, access: Access, last: str, stored: str, following: str
    ) -> int | None:
        """Name one struct level; returns the type of its member. `last`: what is stored, if nothing follows."""
        fields = self._types.fields(access.type)
        assert fields is not None
        inner_type = fields[access.index][0]
        if composite is None or not self._fits(composite, access.type):
            composite = self._root(access.type)
        type_name = self._debug.name_of(composite) if composite is not None else plain_type(access.type)
        name.begin(type_name)
        found: list[tuple[str, Member]] = []
        if composite is not None:
            layout = self._types.layout(inner_type)
            span, size = layout.size if layout else 0, self._types.store_size(stored) or 0
            found, composite = self._descend(composite, access.offset * 8, span, last, size, following)
        if not found:
            name.add_unknown(type_name, access, self._types.store_size(inner_type) or 0)
        for owner, member in found:
            name.add_member(owner, member)
        return composite

    def _next_struct(self, ordered: tuple[Access, ...], position: int) -> str:
        for later in ordered[position + 1 :]:
            if later.index >= 0:
                return later.type
        return ""

    def _fits(self, composite: int, type_text: str) -> bool:
        layout = self._types.layout(type_text)
        size = self._debug.integer(composite, "size")
        return layout is not None and (size == layout.size * 8 or type_text.rstrip('"').endswith(".base"))

    def _descend(
        self, composite: int, offset: int, span: int, stored: str, stored_size: int, following: str
    ) -> tuple[list[tuple[str, Member]], int | None]:
        """Members from `composite` to the one meant, through unions that IR does not show; and the last one's type."""
        found: list[tuple[str, Member]] = []
        current: int | None = composite
        while current is not None and len(found) < 8:
            member = self._member(current, offset, span, stored, stored_size, following)
            if member is None or (found and member.name.startswith("__")):
                break  # what the program cannot name, as in pthread_mutex_t
            found.append((self._debug.name_of(current), member))
            inner = self._debug.strip(member.type)
            if not self._debug.is_composite(inner):
                return found, None
            assert inner is not None
            if "DW_TAG_union_type" not in self._debug.node(inner) or self._debug.is_array(member.type):
                return found, inner
            if following and self._fits(inner, following) and plain_type(following) == self._debug.name_of(inner):
                return found, inner
            offset = max(offset - member.offset, 0)
            current = inner
        return found, current if found else None

    def _member(
        self, composite: int, offset: int, span: int, stored: str, stored_size: int, following: str
    ) -> Member | None:
        """The member at `offset` (in bits); of a union the one that fits best what is stored or comes next."""
        members = self._debug.members(composite)
        here = [m for m in members if m.offset <= offset < m.offset + max(m.size, 1) and not m.bitfield]
        if not here:
            return _bit_fields(members, offset, span)
        # The first of equals: max keeps it.
        return max(here, key=lambda member: self._score(member, offset, stored, stored_size, following))

    def _score(self, member: Member, offset: int, stored: str, stored_size: int, following: str) -> int:
        inner = self._debug.strip(member.type)
        composite = self._debug.is_composite(inner)
        points = 1 if member.offset == offset else 0
        if following:
            points += 4 if composite and inner is not None and self._fits(inner, following) else 0
        elif stored:
            element = inner if self._debug.is_array(member.type) else None
            size = member.size if element is None else self._debug.integer(element, "size")
            points += 4 if size == stored_size * 8 and not composite else 0
            points += 2 if self._debug.is_pointer(inner) == (stored == "ptr") else 0
        return points

    def _from_declaration(self, target: str, base: str, definitions: dict[str, str], uses: LocalUses) -> Target:
        """A whole struct behind a pointer variable: the variable's declared type names it."""
        definition = definitions.get(base, "")
        found = re.search(r" = load ptr, ptr (%[-\w.$]+),", definition)
        number = uses.variable(found.group(1)) if found else None
        pointer = self._debug.strip(self._debug.reference(number, "type")) if number is not None else None
        if pointer is None or not self._debug.is_pointer(pointer):
            return Target()
        composite = self._debug.strip(self._debug.reference(pointer, "baseType"))
        if composite is None or not self._debug.is_composite(composite):
            return Target()
        return Target(False, self._debug.name_of(composite), (), target, "", 0)

    def _from_tbaa(self, target: str, line: str, stored: str, fresh: Callable[[], str]) -> Target:
        """Struct-path TBAA names the struct where no getelementptr is in sight."""
        found = _TBAA.search(line)
        tag = _TAG.match(self._debug.node(int(found.group(1)))) if found else None
        if tag is None or tag.group(1) == tag.group(2):
            return Target()
        named = re.match(r'!\{!"([^"]*)"', self._debug.node(int(tag.group(1))))
        if named is None or not named.group(1):
            return Target()
        identifier, offset = named.group(1), int(tag.group(3))
        composite = self._debug.by_identifier(identifier)
        if composite is None:
            composite = next(iter(self._debug.composites(identifier, None)), None)
        if composite is None:
            return Target()
        size = self._types.store_size(stored) or 0
        members, _ = self._descend(composite, offset * 8, size, stored, size, "")
        if not members:
            return Target()
        names = [member.name for _, member in members if member.name and not member.inherited]
        steps = tuple(
            TypeStep(owner, member.name, member.offset // 8, max(member.size // 8, 1))
            for owner, member in reversed(members)
        )
        instance, prelude = target, ""
        if offset:
            instance = fresh()
            prelude = f"  {instance} = getelementptr i8, ptr {target}, i64 -{offset}"
        return Target(False, ".".join([self._debug.name_of(composite), *names]), steps, instance, prelude, offset)


def _bit_fields(members: tuple[Member, ...], offset: int, span: int) -> Member | None:
    """The bit-fields that `span` bytes at `offset` hold, as one member."""
    bits = [m for m in members if m.bitfield and m.offset < offset + max(span, 1) * 8 and offset < m.offset + m.size]
    if not bits:
        return None
    return Member("|".join(m.name for m in bits if m.name), bits[0].type, offset, span * 8, True, False)


def plain_type(type_text: str) -> str:
    """`%"class.ns::Table.12"` → `ns::Table`; "" for anonymous and literal types."""
    found = _SUFFIX.match(type_text.lstrip("%").strip('"'))
    if found is None:
        return ""
    name = found.group(2)
    return "" if name == "anon" or name.startswith("anon.") else name
