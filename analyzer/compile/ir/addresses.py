"""From an address back to what it points into: casts, getelementptrs, and locals that are stored to once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from crashcheck.analyzer.compile.ir.text import Types, constant_base, expression, operand, split_commas, type_end

_FLAGS = re.compile(r"(?:inbounds|nuw|nusw|inrange\([^)]*\)) ")
_MOST_STEPS = 64


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
class Access:
    """One struct or array level of an address, as IR has it."""

    type: str
    index: int  # element of a struct; -1: an array element
    offset: int  # bytes, -1 if the index is not constant


class Walk:
    """The way from an address back to its struct instance: casts, getelementptrs, single-store locals."""

    def __init__(
        self, types: Types, target: str, definitions: dict[str, str], uses: LocalUses, fresh: Callable[[], str]
    ) -> None:
        self._types = types
        self._definitions = definitions
        self._uses = uses
        self._fresh = fresh
        self.current = target  # where the walk is now
        self.accesses: list[Access] = []  # innermost first
        self.instance, self.prelude, self.delta = "null", "", -1  # as in Target
        self._anchor, self._crossed = target, False  # the value of the first local that was crossed
        self._shift: int | None = 0  # bytes from the anchor down to `current`; None if not static
        self._reach: int | None = 0  # bytes from `current` up to the target, until a local is crossed; None likewise

    def ends_local(self) -> bool:
        """Walk as far as possible; whether the end is a stack slot or a variable of the program's image."""
        for _ in range(_MOST_STEPS):
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
        source, base, indices = gep(definition)
        found = levels(self._types, source, indices)
        if found is None:
            return False
        total = sum(level.offset for level in found) if all(level.offset >= 0 for level in found) else None
        self.accesses.extend(reversed(found))
        if self._crossed:
            self._shift = None if self._shift is None or total is None else self._shift + total
        if any(level.index >= 0 for level in found):
            if not self._crossed:
                self._instance_is_base(source, base, indices, found)
            elif not self._instance_is_below_anchor():
                return False
        self._reach = None if self._reach is None or total is None else self._reach + total
        self.current = base
        return True

    def _instance_is_base(self, source: str, base: str, indices: tuple[str, ...], levels: list[Access]) -> None:
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


def is_local(target: str, definitions: dict[str, str]) -> bool:
    """Whether the address is that of a stack slot or a global, by its getelementptr chain alone."""
    for _ in range(_MOST_STEPS):
        if not target.startswith("%"):
            return constant_base(target).startswith("@")
        line = definitions.get(target)
        if line is None:
            return False
        start = line.index(" = ") + 3
        if line.startswith(("alloca ", "call "), start):
            return True  # the only calls among definitions give the address of a thread's variable
        if line.startswith("getelementptr ", start):
            target = gep(line)[1]
        elif line.startswith("bitcast ptr ", start):
            target = line[start + 12 : line.index(" to ", start)]
        else:
            return False
    return False


def base_of(target: str, definitions: dict[str, str], uses: LocalUses) -> str:
    """The global or local that an address is in, by getelementptrs and single-store locals; "" if not known."""
    for _ in range(_MOST_STEPS):
        if not target.startswith("%"):
            base = constant_base(target)
            return base if base.startswith("@") else ""
        line = definitions.get(target, "")
        start = line.find(" = ") + 3
        if line.startswith("alloca ", start):
            return target
        if line.startswith("getelementptr ", start):
            target = gep(line)[1]
        elif line.startswith("bitcast ptr ", start):
            target = line[start + 12 : line.index(" to ", start)]
        elif line.startswith("load ptr, ptr %", start):
            slot = line[start + 14 : line.index(",", start + 14)]
            target = (uses.only_value(slot) if " = alloca " in definitions.get(slot, "") else None) or ""
        else:
            return ""
    return ""


def gep(line: str) -> tuple[str, str, tuple[str, ...]]:
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


def levels(types: Types, source: str, indices: tuple[str, ...]) -> list[Access] | None:
    """Outermost first; None if the getelementptr does not name a place in a type."""
    levels: list[Access] = []
    current = source
    first = indices[0].rsplit(" ", 1)[1]
    if source == "i8" and len(indices) == 1 and _number(first) is not None:
        return None  # an adjustment to a base class, or raw bytes
    if first != "0":
        size = types.layout(source)
        number = _number(first)
        levels.append(Access(source, -1, -1 if size is None or number is None or number < 0 else number * size.size))
    for index in indices[1:]:
        number = _number(index.rsplit(" ", 1)[1])
        fields = types.fields(current)
        if fields is not None:
            if number is None or number >= len(fields):
                return None
            levels.append(Access(current, number, fields[number][1]))
            current = fields[number][0]
            continue
        element = types.element(current)
        if element is None:
            return None
        size = types.layout(element[0])
        levels.append(Access(current, -1, -1 if number is None or size is None or number < 0 else number * size.size))
        current = element[0]
    return levels


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None
