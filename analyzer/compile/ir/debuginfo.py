"""Debug metadata of a unit: source positions with their inlining chain, and the types of its variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

_FIELD = re.compile(r'(\w+): ("(?:[^"])*"|!?[^,()"]+(?:\([^)]*\))?)')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2})")
_LOCATION = re.compile(
    r"!DILocation\((?:line: (\d+))?(?:, )?(?:column: (\d+))?(?:, )?scope: !(\d+)(?:, inlinedAt: !(\d+))?"
)
_REFERENCE = re.compile(r"!(\d+)")
_ATTACHED = re.compile(r", ![a-zA-Z_.]+ !(\d+)|metadata !(\d+)")
_DEBUG_NODE = re.compile(r"(?:distinct )?!DI[A-Z]")
_OUTLINED = re.compile(r"\.omp[._]")  # in the names that clang gives to what it makes of an OpenMP body
_OUTLINED_TWICE = "_debug_"  # its line is that of the body, the other one's that of the pragma
OPENMP_BODY = "(OpenMP body)"
_NAMED_DEBUG = ("!llvm.dbg.cu", "!llvm.gcov")


def unescape(text: str) -> str:
    """The string behind LLVM's `\\41` escapes."""
    if "\\" not in text:
        return text
    raw = _ESCAPE.sub(lambda found: chr(int(found.group(1), 16)), text)
    return raw.encode("latin-1", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """One link of an inlining chain, innermost first. `line` 0 is unknown."""

    file: str
    line: int
    column: int
    function: str


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a struct, class or union; a base class has the name of its type. Offsets and sizes in bits."""

    name: str
    type: int | None
    offset: int
    size: int
    bitfield: bool
    inherited: bool


_WITHOUT_MEMBERS = ("tag: DW_TAG_array_type", "DW_TAG_enumeration", "DIFlagFwdDecl")


class DebugInfo:
    """Metadata nodes by number, read when first asked for."""

    def __init__(self, metadata: str) -> None:
        self._lines = metadata.split("\n")
        self._first = next((at for at, line in enumerate(self._lines) if line.startswith("!0 = ")), len(self._lines))
        self.named = dict(line.split(" = ", 1) for line in self._lines[: self._first] if line.startswith("!"))
        self._fields: dict[int, dict[str, str]] = {}
        self._positions: dict[int, tuple[SourcePosition, ...]] = {}
        self._scopes: dict[int, tuple[str, str]] = {}
        self._files: dict[int, str] = {}
        self._members: dict[int, tuple[Member, ...]] = {}
        self._by_name: dict[str, list[int]] | None = None
        self._by_identifier: dict[str, int] = {}
        self._typedefs: dict[int, str] = {}
        self._in_ir: dict[int, tuple[str, str]] = {}
        self._pragmas_of: dict[str, list[tuple[int, int]]] | None = None

    def node(self, number: int) -> str:
        """A node's text, "" if there is none. The printer numbers nodes in order, one per line."""
        at = self._first + number
        prefix = f"!{number} = "
        if at < len(self._lines) and self._lines[at].startswith(prefix):
            return self._lines[at][len(prefix) :]
        return ""

    def fields(self, number: int) -> dict[str, str]:
        """The `key: value` pairs of a specialised node; strings keep their quotes."""
        if number not in self._fields:
            self._fields[number] = dict(_FIELD.findall(self.node(number)))
        return self._fields[number]

    def reference(self, number: int, key: str) -> int | None:
        value = self.fields(number).get(key, "")
        return int(value[1:]) if value.startswith("!") and value[1:].isdigit() else None

    def string(self, number: int, key: str) -> str:
        return unescape(self.fields(number).get(key, '""').strip('"'))

    def integer(self, number: int, key: str) -> int:
        value = self.fields(number).get(key, "0")
        return int(value) if value.isdigit() else 0

    def listed(self, number: int | None) -> tuple[int, ...]:
        """Numbers in a tuple node."""
        return () if number is None else tuple(int(found) for found in re.findall(r"!(\d+)", self.node(number)))

    # -- positions ---------------------------------------------------------------------------------------------

    def positions(self, number: int) -> tuple[SourcePosition, ...]:
        """The inlining chain of a DILocation, innermost first."""
        known = self._positions.get(number)
        if known is not None:
            return known
        found = _LOCATION.search(self.node(number))
        if found is None:
            return ()
        line, column, scope, inlined = found.groups()
        file, function = self._scope(int(scope))
        outer = self.positions(int(inlined)) if inlined else ()
        result = (SourcePosition(file, int(line or 0), int(column or 0), function), *outer)
        self._positions[number] = result
        return result

    def scopes(self, number: int) -> Iterator[int]:
        """The blocks and functions around a DILocation, innermost first, and then those that it was inlined into."""
        found = _LOCATION.search(self.node(number))
        if found is None:
            return
        for scope in self._chain(int(found[3]), "scope"):
            text = self.node(scope)
            if "!DILexicalBlock" not in text and "!DISubprogram(" not in text:
                break
            yield scope
        if found[4]:
            yield from self.scopes(int(found[4]))

    def function_of(self, number: int) -> int | None:
        """The DISubprogram of a DILocation."""
        return next((scope for scope in self.scopes(number) if "!DISubprogram(" in self.node(scope)), None)

    def subprogram(self, number: int) -> SourcePosition:
        """Where a function is defined."""
        file, function = self._scope(number)
        return SourcePosition(file, self.integer(number, "line"), 0, function)

    def _scope(self, number: int) -> tuple[str, str]:
        known = self._scopes.get(number)
        if known is not None:
            return known
        text = self.node(number)
        file = self._file(self.reference(number, "file"))
        if "!DISubprogram(" in text:
            result = (file, self.qualified(number))
        else:
            outer = self.reference(number, "scope")
            above = self._scope(outer) if outer is not None else ("", "")
            result = (file or above[0], above[1])
        self._scopes[number] = result
        return result

    def _file(self, number: int | None) -> str:
        if number is None:
            return ""
        if number not in self._files:
            name = self.string(number, "filename")
            self._files[number] = os.path.normpath(os.path.join(self.string(number, "directory"), name)) if name else ""
        return self._files[number]

    def qualified(self, number: int) -> str:
        """A name with its namespaces and classes; an OpenMP body has that of the function that it is written in."""
        name = self.string(number, "name")
        if self._outlined(number):
            return f"{self._function_around(number)} {OPENMP_BODY}".lstrip()
        for scope in self._chain(self.reference(number, "scope"), "scope"):
            text = self.node(scope)
            if "!DINamespace(" in text:
                name = f"{self.string(scope, 'name') or '(anonymous namespace)'}::{name}"
            elif "!DICompositeType(" in text:
                name = f"{self.string(scope, 'name') or '(anonymous)'}::{name}"
            else:
                break
        return name

    def _outlined(self, number: int) -> str:
        """The name that clang gave to what it made of an OpenMP body; "" of any other function."""
        if "!DISubprogram(" not in self.node(number):
            return ""
        name = self.string(number, "name") or self.string(number, "linkageName")
        return name if _OUTLINED.search(name) else ""

    def _function_around(self, number: int) -> str:
        """The function in which an OpenMP body is written: the last one before it that has code where a pragma is.

        Of a template there may be several: then it has no arguments. "" if it is not known.
        """
        file, line = self._place(number)
        before = [pragma for pragma in self._pragmas(file) if pragma[0] <= line]
        last = max(before, default=(0, 0))[0]
        names = {self.qualified(function) for at, function in before if at == last}
        if len(names) > 1:
            names = {name.partition("<")[0] for name in names}
        return names.pop() if len(names) == 1 else ""

    def _pragmas(self, file: str) -> list[tuple[int, int]]:
        """The lines of a file from which clang made functions, each with the function of the program that is there."""
        if self._pragmas_of is None:
            self._pragmas_of = {}
            numbers = range(len(self._lines) - self._first)
            made = {
                self._place(one) for one in numbers if (name := self._outlined(one)) and _OUTLINED_TWICE not in name
            }
            for location in numbers:
                function = self.function_of(location)
                if function is not None and not self._outlined(function):
                    place = (self._place(function)[0], self.integer(location, "line"))
                    if place in made:
                        self._pragmas_of.setdefault(place[0], []).append((place[1], function))
        return self._pragmas_of.get(file, [])

    def _place(self, number: int) -> tuple[str, int]:
        return self._file(self.reference(number, "file")), self.integer(number, "line")

    # -- types -------------------------------------------------------------------------------------------------

    def _chain(self, number: int | None, key: str) -> Iterator[int]:
        """A node and those that it leads to by `key`, each once: damaged debug information may lead in a circle."""
        seen: set[int] = set()
        while number is not None and number not in seen:
            seen.add(number)
            yield number
            number = self.reference(number, key)

    def strip(self, number: int | None) -> int | None:
        """The type behind typedefs, qualifiers and arrays."""
        for behind in self._chain(number, "baseType"):
            text = self.node(behind)
            if (
                "!DIDerivedType(" in text
                and re.search(r"tag: DW_TAG_(typedef|const_type|volatile_type|atomic_type|restrict_type)", text)
            ) or "tag: DW_TAG_array_type" in text:
                continue
            return behind
        return None

    def is_array(self, number: int | None) -> bool:
        for behind in self._chain(number, "baseType"):
            text = self.node(behind)
            if "tag: DW_TAG_array_type" in text:
                return True
            if "!DIDerivedType(" not in text or "tag: DW_TAG_pointer_type" in text:
                return False
        return False

    def is_composite(self, number: int | None) -> bool:
        return (
            number is not None and re.search(r"tag: DW_TAG_(structure|class|union)_type", self.node(number)) is not None
        )

    def is_pointer(self, number: int | None) -> bool:
        return (
            number is not None
            and re.search(r"tag: DW_TAG_(pointer|(rvalue_)?reference)_type", self.node(number)) is not None
        )

    def members(self, number: int) -> tuple[Member, ...]:
        """Fields in the order of declaration, static ones excluded."""
        if number not in self._members:
            result = []
            for element in self.listed(self.reference(number, "elements")):
                text = self.node(element)
                inherits = "tag: DW_TAG_inheritance" in text
                if (not inherits and "tag: DW_TAG_member" not in text) or "DIFlagStaticMember" in text:
                    continue
                base = self.reference(element, "baseType")
                stripped = self.strip(base)
                name = self.string(element, "name")
                size = self.integer(element, "size")
                if inherits and stripped is not None:
                    name = name or self.string(stripped, "name")
                    size = self.integer(stripped, "size")
                result.append(
                    Member(name, base, self.integer(element, "offset"), size, "DIFlagBitField" in text, inherits)
                )
            self._members[number] = tuple(result)
        return self._members[number]

    def composites(self, name: str, size: int | None) -> tuple[int, ...]:
        """The structs, classes and unions that clang names so in IR (`ns::entry`), of `size` bytes if that is known:
        specialisations of a template have one name."""
        found = self._names().get(name.rsplit("::", 1)[-1], [])
        wanted = name.replace(" ", "")
        for form in (0, 1):
            exact = [number for number in found if self._ir_names(number)[form] == wanted]
            if exact:
                found = exact
                break
        if size is not None:
            fitting = [number for number in found if self.integer(number, "size") == size * 8]
            found = fitting or ([] if len(found) > 1 else found)
        return tuple(found)

    def _ir_names(self, number: int) -> tuple[str, str]:
        """What IR may call a composite, without spaces: its scopes with their template arguments, or without."""
        if number not in self._in_ir:
            whole, own = self.qualified(number).replace(" ", ""), self.string(number, "name").replace(" ", "")
            self._in_ir[number] = (whole[: len(whole) - len(own)] + _plain(own), _plain(whole))
        return self._in_ir[number]

    def named_composites(self, name: str) -> tuple[int, ...]:
        """All structs, classes and unions whose `name_of` this is."""
        return tuple(number for number in self._names().get(name, ()) if self.name_of(number) == name)

    def by_identifier(self, identifier: str) -> int | None:
        """The C++ type with this mangled name (also TBAA's name for it)."""
        self._names()
        return self._by_identifier.get(identifier)

    def _names(self) -> dict[str, list[int]]:
        if self._by_name is None:
            names: dict[str, list[int]] = {}
            typedefs: list[int] = []
            for number, text in enumerate(self._lines[self._first :]):
                if "tag: DW_TAG_typedef, " in text:
                    typedefs.append(number)
                if "!DICompositeType(" not in text or any(mark in text for mark in _WITHOUT_MEMBERS):
                    continue
                identifier = re.search(r'identifier: "([^"]*)"', text)
                if identifier:
                    self._by_identifier[identifier.group(1)] = number
                named = re.search(r'\bname: "([^"]*)"', text)
                if named:
                    names.setdefault(_plain(named.group(1)), []).append(number)
            for number in typedefs:
                self._add_typedef(number, names)
            self._by_name = names
        return self._by_name

    def _add_typedef(self, number: int, names: dict[str, list[int]]) -> None:
        """clang gives an unnamed struct the name of its typedef."""
        target = self.reference(number, "baseType")
        if target is not None and self.is_composite(target) and not self.string(target, "name"):
            name = self.string(number, "name")
            names.setdefault(name, []).append(target)
            self._typedefs.setdefault(target, name)

    def name_of(self, number: int) -> str:
        """A composite's name without template arguments; an unnamed one has its typedef's, or is "(anonymous)"."""
        name = self.string(number, "name")
        if name:
            return _plain(name)
        self._names()
        return self._typedefs.get(number, "(anonymous)")


def _plain(name: str) -> str:
    """The name without template arguments, as in IR type names."""
    if "<" not in name:
        return name
    result = []
    depth = 0
    for character in name:
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif depth == 0:
            result.append(character)
    return "".join(result)


def metadata_without_debug(body: str, debug: DebugInfo) -> str:
    """The metadata that `body` (already without `!dbg`) needs, references to debug nodes taken out."""
    wanted = {int(a or b) for a, b in _ATTACHED.findall(body)}
    named = {name: value for name, value in debug.named.items() if not name.startswith(_NAMED_DEBUG)}
    for value in named.values():
        wanted.update(map(int, _REFERENCE.findall(value)))
    kept: dict[int, str] = {}
    while wanted:
        number = wanted.pop()
        text = debug.node(number)
        if not text or number in kept:
            continue
        if _DEBUG_NODE.match(text):
            kept[number] = "!{}"  # an attachment may name one; nothing reads it
            continue
        for reference in set(_REFERENCE.findall(text)):
            if _DEBUG_NODE.match(debug.node(int(reference))):
                text = re.sub(rf"(?:, )?!{reference}(?!\d)", "", text)
        kept[number] = text
        wanted.update(map(int, _REFERENCE.findall(text)))
    lines = [f"{name} = {value}" for name, value in named.items()]
    lines += [f"!{number} = {text}" for number, text in sorted(kept.items())]
    return "\n".join(lines) + "\n"
