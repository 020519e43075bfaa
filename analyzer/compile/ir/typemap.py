"""Which field of which struct a store writes: from getelementptr chains, single-store locals and TBAA to names.

The shape of an access follows AGAMOTTO's and Witcher's notion of a type-offset: the innermost field first, out to the
outermost struct instance that the address can be traced to inside the function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from crashcheck.analyzer.compile.facts import TypeStep
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo, Member
from crashcheck.analyzer.compile.ir.text import (
    Types,
    constant_base,
    expression,
    operand,
    split_commas,
    type_end,
)

_DEFINITION = re.compile(r'  (%(?:[-\w.$]+|"[^"]*")) = (\w+) ')
_FLAGS = re.compile(r"(?:inbounds|nuw|nusw|inrange\([^)]*\)) ")
_SUFFIX = re.compile(r"^(struct|class|union)\.(.*?)(\.base)?(\.\d+)?$")
_TBAA = re.compile(r", !tbaa !(\d+)")
_TAG = re.compile(r"!\{!(\d+), !(\d+), i64 (\d+)")
_MAX_CHAIN = 64


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
class LocalUses:
    """How a function uses its locals; computed for the whole body when first asked."""

    body: str
    stored: dict[str, list[str]] = field(default_factory=dict)
    escaped: set[str] = field(default_factory=set)
    ready: bool = False
    _variables: dict[str, int] | None = None

    def variable(self, name: str) -> int | None:
        """The DILocalVariable that lives in a local."""
        if self._variables is None:
            self._variables = {slot: int(number) for slot, number in self._DECLARE.findall(self.body)}
        return self._variables.get(name)

    _DECLARE = re.compile(r"#dbg_declare\(ptr (%[-\w.$]+), !(\d+),")
    _STORE = re.compile(r"\n  store (?:volatile )?ptr ([^\n]+?), ptr (%[-\w.$]+),")
    _HARMLESS = re.compile(
        r"\n(?:  %[-\w.$]+ = load (?:volatile )?ptr, ptr |  store (?:volatile )?ptr [^\n]+?, ptr |"
        r"    #dbg_\w+\(ptr |  call void @llvm\.lifetime\.(?:start|end)\.p0\((?:i64 -?\d+, )?ptr "
        r"(?:nonnull )?)(%[-\w.$]+)[,)]"
    )
    _CAST = re.compile(r"\n  (%[-\w.$]+) = bitcast ptr (%[-\w.$]+) to ptr")
    _USE = re.compile(r"ptr (?:[a-z_]+ |align \d+ )*(%[-\w.$]+)")

    def only_value(self, name: str) -> str | None:
        """The value of a pointer local that one instruction stores to and nothing else can write."""
        if not self.ready:
            self._scan()
        values = self.stored.get(name)
        return values[0] if values is not None and len(values) == 1 and name not in self.escaped else None

    def _scan(self) -> None:
        self.ready = True
        for value, name in self._STORE.findall(self.body):
            self.stored.setdefault(name, []).append(value)
        if not self.stored:
            return
        # The address is kept when each appearance is a load, a store to it, a lifetime marker or a debug record.
        total: dict[str, int] = {}
        for name in self._USE.findall(self.body):
            total[name] = total.get(name, 0) + 1
        for name in self._HARMLESS.findall(self.body):
            total[name] = total.get(name, 0) - 1
        # Old bitcode casts a local for its lifetime markers; the cast itself is dead.
        for cast, name in self._CAST.findall(self.body):
            if total.get(cast, 0) == 0:
                total[name] = total.get(name, 0) - 1
        self.escaped = {name for name in self.stored if total.get(name, 0) > 0}


@dataclass(frozen=True, slots=True)
class _Access:
    """One struct or array level of an address, as IR has it."""

    type: str
    index: int  # element of a struct; -1: an array element
    offset: int  # bytes, -1 if the index is not constant


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

    def add_unknown(self, type_name: str, access: _Access, size: int) -> None:
        """A member that debug metadata does not name."""
        self.steps.append(TypeStep(type_name, f"#{access.index}", access.offset, size))
        self.variable += f".#{access.index}"

    def add_member(self, owner: str, member: Member) -> None:
        self.steps.append(TypeStep(owner, member.name, member.offset // 8, max(member.size // 8, 1)))
        if member.name and not member.inherited:
            self.variable += f".{member.name}"


class _Walk:
    """The way from an address back to its struct instance: casts, getelementptrs, single-store locals."""

    def __init__(
        self, types: TypeMap, target: str, definitions: dict[str, str], uses: LocalUses, fresh: Callable[[], str]
    ) -> None:
        self._types = types
        self._definitions = definitions
        self._uses = uses
        self._fresh = fresh
        self.current = target  # where the walk is now
        self.accesses: list[_Access] = []  # innermost first
        self.instance, self.prelude, self.delta = "null", "", -1  # as in Target
        self._anchor, self._crossed = target, False  # the value of the first local that was crossed
        self._shift: int | None = 0  # bytes from the anchor down to `current`; None if not static
        self._reach: int | None = 0  # bytes from `current` up to the target, until a local is crossed; None likewise

    def ends_local(self) -> bool:
        """Walk as far as possible; whether the end is a stack slot or a variable of the program's image."""
        for _ in range(_MAX_CHAIN):
            if not self.current.startswith("%"):
                if constant_base(self.current).startswith("@"):
                    return True
                if self.current.startswith("getelementptr ") and self._cross_gep(self.current):
                    continue
                return False
            definition = self._definitions.get(self.current)
            if definition is None:
                return False
            start = definition.index(" = ") + 3
            if definition.startswith(("alloca ", "call "), start):
                return True
            if not self._step(definition, start):
                return False
        return False

    def _step(self, definition: str, start: int) -> bool:
        """Follow one definition; False where the walk ends."""
        if definition.startswith("bitcast ptr ", start):
            self.current = definition[start + 12 : definition.index(" to ", start)]
            return True
        if definition.startswith("load ptr, ptr %", start):
            return self._cross_local(definition[start + 14 : definition.index(",", start + 14)])
        return definition.startswith("getelementptr ", start) and self._cross_gep(definition)

    def _cross_local(self, local: str) -> bool:
        value = self._uses.only_value(local) if " = alloca " in self._definitions.get(local, "") else None
        if value is None:
            return False
        if not self._crossed:
            self._anchor, self._shift, self._crossed = self.current, 0, True
        self.current = value
        return True

    def _cross_gep(self, definition: str) -> bool:
        source, base, indices = self._types.gep(definition)
        levels = self._types.levels(source, indices)
        if levels is None:
            return False
        total = sum(level.offset for level in levels) if all(level.offset >= 0 for level in levels) else None
        self.accesses.extend(reversed(levels))
        if self._crossed:
            self._shift = None if self._shift is None or total is None else self._shift + total
        if any(level.index >= 0 for level in levels):
            if not self._crossed:
                self._instance_is_base(source, base, indices, levels)
            elif not self._instance_is_below_anchor():
                return False
        self._reach = None if self._reach is None or total is None else self._reach + total
        self.current = base
        return True

    def _instance_is_base(self, source: str, base: str, indices: tuple[str, ...], levels: list[_Access]) -> None:
        """A leading index steps over whole structs: the instance is the one stepped to."""
        first_zero = indices[0].split(" ", 1)[1] == "0"
        self.instance, self.prelude, self.delta = base, "", -1
        within = [level.offset for level in (levels if first_zero else levels[1:])]
        if self._reach is not None and min(within) >= 0:
            self.delta = self._reach + sum(within)
        if not first_zero:
            self.instance = self._fresh()
            self.prelude = f"  {self.instance} = getelementptr {source}, ptr {base}, {indices[0]}"

    def _instance_is_below_anchor(self) -> bool:
        """False if how far below is not static."""
        if self._shift is None:
            return False
        self.instance, self.prelude, self.delta = self._anchor, "", self._shift
        if self._shift:
            self.instance = self._fresh()
            self.prelude = f"  {self.instance} = getelementptr i8, ptr {self._anchor}, i64 -{self._shift}"
        return True


class TypeMap:
    """Resolves the targets of one unit."""

    def __init__(self, types: Types, debug: DebugInfo) -> None:
        self._types = types
        self._debug = debug
        self._named: dict[tuple[tuple[_Access, ...], str], tuple[str, tuple[TypeStep, ...]]] = {}
        self._roots: dict[str, int | None] = {}

    def is_local(self, target: str, definitions: dict[str, str]) -> bool:
        """Whether the address is that of a stack slot or a global, by its getelementptr chain alone."""
        for _ in range(_MAX_CHAIN):
            if not target.startswith("%"):
                return constant_base(target).startswith("@")
            line = definitions.get(target)
            if line is None:
                return False
            start = line.index(" = ") + 3
            if line.startswith(("alloca ", "call "), start):
                return True  # the only calls among definitions give the address of a thread's variable
            if line.startswith("getelementptr ", start):
                target = self.gep(line)[1]
            elif line.startswith("bitcast ptr ", start):
                target = line[start + 12 : line.index(" to ", start)]
            else:
                return False
        return False

    def global_of(self, target: str, definitions: dict[str, str], uses: LocalUses) -> str:
        """The global that an address is in, by its getelementptr chain and single-store locals; "" if not known."""
        for _ in range(_MAX_CHAIN):
            if not target.startswith("%"):
                base = constant_base(target)
                return base if base.startswith("@") else ""
            line = definitions.get(target, "")
            start = line.find(" = ") + 3
            if line.startswith("getelementptr ", start):
                target = self.gep(line)[1]
            elif line.startswith("bitcast ptr ", start):
                target = line[start + 12 : line.index(" to ", start)]
            elif line.startswith("load ptr, ptr %", start):
                slot = line[start + 14 : line.index(",", start + 14)]
                target = (uses.only_value(slot) if " = alloca " in definitions.get(slot, "") else None) or ""
            else:
                return ""
        return ""

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
        walk = _Walk(self, target, definitions, uses, fresh)
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

    # -- IR ----------------------------------------------------------------------------------------------------

    def gep(self, line: str) -> tuple[str, str, tuple[str, ...]]:
        """Source type, base pointer and typed indices of a getelementptr, an instruction or a constant expression."""
        _, operands = expression(line)
        if operands:
            parts = split_commas(operands)
            return parts[0], operand(parts[1]).value, tuple(parts[2:])
        at = line.index("getelementptr ") + 14
        while found := _FLAGS.match(line, at):
            at = found.end()
        end = type_end(line, at)
        rest = line[end + 2 :]
        cut = rest.find(", !")
        parts = split_commas(rest if cut < 0 else rest[:cut])
        return line[at:end], operand(parts[0]).value, tuple(parts[1:])

    def levels(self, source: str, indices: tuple[str, ...]) -> list[_Access] | None:
        """Outermost first; None if the getelementptr does not name a place in a type."""
        levels: list[_Access] = []
        current = source
        first = indices[0].rsplit(" ", 1)[1]
        if source == "i8" and len(indices) == 1 and _number(first) is not None:
            return None  # an adjustment to a base class, or raw bytes
        if first != "0":
            size = self._types.layout(source)
            number = _number(first)
            levels.append(
                _Access(source, -1, -1 if size is None or number is None or number < 0 else number * size.size)
            )
        for index in indices[1:]:
            number = _number(index.rsplit(" ", 1)[1])
            fields = self._types.fields(current)
            if fields is not None:
                if number is None or number >= len(fields):
                    return None
                levels.append(_Access(current, number, fields[number][1]))
                current = fields[number][0]
                continue
            element = self._types.element(current)
            if element is None:
                return None
            size = self._types.layout(element[0])
            levels.append(
                _Access(current, -1, -1 if number is None or size is None or number < 0 else number * size.size)
            )
            current = element[0]
        return levels

    # -- names -------------------------------------------------------------------------------------------------

    def _root(self, type_text: str) -> int | None:
        if type_text not in self._roots:
            size = self._types.layout(type_text)
            name = plain_type(type_text)
            base = type_text.rstrip('"').endswith(".base")
            self._roots[type_text] = (
                self._debug.composite(name, None if size is None or base else size.size) if name else None
            )
        return self._roots[type_text]

    def _name(self, accesses: tuple[_Access, ...], stored: str) -> tuple[str, tuple[TypeStep, ...]]:
        known = self._named.get((accesses, stored))
        if known is None:
            known = self._named[accesses, stored] = self._compute_name(accesses, stored)
        return known

    def _compute_name(self, accesses: tuple[_Access, ...], stored: str) -> tuple[str, tuple[TypeStep, ...]]:
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
        self, name: _Name, composite: int | None, access: _Access, last: str, stored: str, following: str
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

    def _next_struct(self, ordered: tuple[_Access, ...], position: int) -> str:
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
            if member is None:
                break
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
            points += 4 if member.size == stored_size * 8 and not composite else 0
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
        composite = self._debug.by_identifier(identifier) or self._debug.composite(identifier, None)
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


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None
