"""Which type of the debug information an IR struct type is, where several have its name and its size.

IR names a struct without template arguments: `%"struct.Page"` and `%"struct.Page.0"` may be `Page<true>` and
`Page<false>`, with other fields at the same offsets. What decides is how the unit uses the IR type:

1. the declared type of a variable, parameter (`this` as well) or result whose fields it names;
2. the field that holds a pointer to it, or it itself, of a struct whose type is decided;
3. that each other candidate is another IR type.

Where nothing decides, candidates with equal fields are interchangeable; others are left without a name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo
from crashcheck.analyzer.compile.ir.text import NAME, ModuleText

_MOST_NESTED = 8
_VALUE = r"%[-\w.$]+"
_FUNCTION = re.compile(rf"^define [^\n]*?@({NAME})\(.*?^}}", re.MULTILINE | re.DOTALL)
_SUBPROGRAM = re.compile(r" !dbg !(\d+)")
_DECLARE = re.compile(rf"#dbg_declare\(ptr ({_VALUE}), !(\d+),")
_DEFINITION = re.compile(rf"^  ({_VALUE}) = (alloca|load|getelementptr|(?:tail )?call|invoke) (.*)$", re.MULTILINE)
_ALLOCA = re.compile(rf"(?:inalloca )?(%(?:{NAME}))")
_LOAD = re.compile(rf"(?:volatile )?ptr, ptr ({_VALUE})")
_GEP = re.compile(rf"(?:(?:inbounds|nuw|nusw) )*(%(?:{NAME})), ptr ({_VALUE})(?:, i\d+ [^,]+, i32 (\d+))?")
_CALLEE = re.compile(rf"[^@(]*@({NAME})\(")


@dataclass(slots=True)
class _Evidence:
    """What a unit shows of its IR struct types."""

    declared: dict[str, Counter[int]] = field(default_factory=dict)  # IR type → composites that variables point to
    reached: list[tuple[str, str, int]] = field(default_factory=list)  # IR type, by a pointer in field n of another one

    def add(self, type_text: str, composite: int | None) -> None:
        if composite is not None:
            self.declared.setdefault(type_text, Counter())[composite] += 1


class Specialisations:
    """The types of one unit; its text is read when the first type is asked for."""

    def __init__(self, module: ModuleText, debug: DebugInfo, candidates: Callable[[str], tuple[int, ...]]) -> None:
        self._module = module
        self._debug = debug
        self._candidates = candidates
        self._decided: dict[str, int] | None = None
        self._taken: set[tuple[int, bool]] = set()  # what is decided, and whether without its tail

    def of(self, type_text: str) -> int | None:
        """The composite that an IR struct type is; None if what it has at an offset is not known."""
        found = self._candidates(type_text)
        if len(found) < 2:
            return found[0] if found else None
        if self._decided is None:
            self._decided = self._decide(_read(self._module.body, self._debug))
            self._taken = {(node, _is_base(name)) for name, node in self._decided.items()}
        if type_text in self._decided:
            return self._decided[type_text]
        left = [node for node in found if (node, _is_base(type_text)) not in self._taken] or list(found)
        return left[0] if len({self._shape(node) for node in left}) == 1 else None

    def _decide(self, evidence: _Evidence) -> dict[str, int]:
        decided: dict[str, int] = {}
        for name, votes in evidence.declared.items():
            found = self._chosen(name, votes)
            if found is not None:
                decided[name] = found
        links = [*evidence.reached, *self._contained()]
        while True:
            votes_of: dict[str, Counter[int]] = {}
            for name, holder, index in links:
                node = self._member_type(holder, index, decided) if name not in decided else None
                if node is not None:
                    votes_of.setdefault(name, Counter())[node] += 1
            new = {name: node for name, votes in votes_of.items() if (node := self._chosen(name, votes)) is not None}
            if not new:
                return decided
            decided.update(new)

    def _chosen(self, name: str, votes: Counter[int]) -> int | None:
        """The candidate with most votes, if it is one; a derived class counts for the base that it begins with."""
        candidates = self._candidates(name)
        counted: Counter[int] = Counter()
        for node, count in votes.items():
            for first in self._beginning(node):
                if first in candidates:
                    counted[first] += count
                    break
        best = counted.most_common(2)
        return best[0][0] if best and (len(best) == 1 or best[0][1] > best[1][1]) else None

    def _beginning(self, node: int) -> Iterator[int]:
        """A composite, and what is at its beginning."""
        level = [node]
        for _ in range(_MOST_NESTED):
            yield from level
            first = (member for current in level for member in self._debug.members(current) if member.offset == 0)
            inner = (self._debug.strip(member.type) for member in first)
            level = [found for found in inner if found is not None and self._debug.is_composite(found)]

    def _contained(self) -> Iterator[tuple[str, str, int]]:
        """IR types that are fields of others, or elements of such fields."""
        types = self._module.types
        for holder in types.names():
            for index, (inner, _) in enumerate(types.fields(holder) or ()):
                while (element := types.element(inner)) is not None:
                    inner = element[0]
                if inner.startswith("%"):
                    yield inner, holder, index

    def _member_type(self, holder: str, index: int, decided: dict[str, int]) -> int | None:
        """The composite that a field of an IR type is, or points to."""
        node = decided.get(holder)
        if node is None:
            found = self._candidates(holder)
            node = found[0] if len(found) == 1 else None
        fields = self._module.types.fields(holder)
        if node is None or fields is None or index >= len(fields):
            return None
        at = fields[index][1] * 8
        for member in self._debug.members(node):
            if member.offset == at:
                return _composite_behind(self._debug, member.type)
        return None

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


def _is_base(type_text: str) -> bool:
    """Whether it is a class as a base of others: without the padding at its end, in which these have fields."""
    return ".base" in type_text.rpartition("::")[2]


def _composite_behind(debug: DebugInfo, type_: int | None) -> int | None:
    """The struct, class or union that a type is, or is a pointer or reference to."""
    found = debug.strip(type_)
    if debug.is_pointer(found) and found is not None:
        found = debug.strip(debug.reference(found, "baseType"))
    return found if debug.is_composite(found) else None


def _read(body: str, debug: DebugInfo) -> _Evidence:
    evidence = _Evidence()
    results = {}
    functions = list(_FUNCTION.finditer(body))
    for function in functions:
        head = function.group().split("\n", 1)[0]
        found = _SUBPROGRAM.search(head)
        types = debug.reference(int(found.group(1)), "type") if found else None
        signature = debug.node(debug.reference(types, "types") or -1) if types is not None else ""
        first = re.match(r"!\{!(\d+)", signature)
        results[function.group(1)] = _composite_behind(debug, int(first.group(1))) if first else None
    for function in functions:
        _read_function(function.group(), debug, results, evidence)
    return evidence


def _read_function(text: str, debug: DebugInfo, results: dict[str, int | None], evidence: _Evidence) -> None:
    variables = {
        slot: _composite_behind(debug, debug.reference(int(number), "type")) for slot, number in _DECLARE.findall(text)
    }
    pointees: dict[str, int | None] = {}  # value → what it points to
    places: dict[str, tuple[str, int]] = {}  # value → it is the address of that field
    loaded: dict[str, tuple[str, int]] = {}  # value → it was loaded from that field
    for value, opcode, rest in _DEFINITION.findall(text):
        if opcode == "alloca" and (found := _ALLOCA.match(rest)):
            evidence.add(found.group(1), variables.get(value))
        elif opcode == "load" and (found := _LOAD.match(rest)):
            source = found.group(1)
            pointees[value] = variables.get(source)
            if source in places:
                loaded[value] = places[source]
        elif opcode == "getelementptr" and (found := _GEP.match(rest)):
            type_text, base, index = found.groups()
            evidence.add(type_text, pointees.get(base))
            if base in loaded:
                evidence.reached.append((type_text, *loaded[base]))
            if index is not None:
                places[value] = (type_text, int(index))
        elif (found := _CALLEE.match(rest)) and opcode not in ("alloca", "load", "getelementptr"):
            pointees[value] = results.get(found.group(1))
