"""The flows of numbers of a unit, read from its IR text, and the comparisons that time may decide.

Memory is a node for each field of a type, each local and each global, whatever the order of writes. What the times of
libc and C++ are made of (timespec, timeval, duration, time_point) are parts of where they are, so that one of them
has no effect on another. Not followed: pointers to times that are kept in memory, what is computed by other operations
than sums, differences and scaling by constants, calls through pointers that no field or global keeps, assembly.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

from crashcheck.analyzer.compile.ir.text import (
    NAME,
    IRSyntaxError,
    call_arguments,
    expression,
    matching,
    operand,
    split_commas,
    type_end,
    value_end,
)
from crashcheck.analyzer.compile.timers.collected import CollectedFlows, ReadFlows, Terms
from crashcheck.analyzer.compile.timers.flows import (
    CLOCK_RESULTS,
    CLOCK_WRITES,
    DIFFTIME,
    HELD,
    Comparison,
    Term,
)

_HEADER = re.compile(rf"^define .*?@({NAME})\(")
_GLOBAL = re.compile(rf"^@({NAME}) = (?:internal|private) ", re.MULTILINE)
_TYPE = re.compile(rf"^(%(?:{NAME})) = type (.*)$", re.MULTILINE)
_CALLEE = re.compile(rf" ([@%](?:{NAME}))\(")
_RESULT_TYPE = re.compile(r"(i32|i64|double|float|\{ i64, i64 \}) (?:\(.*?\) )?[@%]")
_INCOMING = re.compile(r"\[ ([^,]+), %")
_NUMBER_TYPES = frozenset({"i32", "i64", "double", "float"})
_PAIR = "{ i64, i64 }"
_TIME_STRUCT = re.compile(r"%struct\.(?:timespec|timeval|timeb)(?:\.\d+)?$")
_CHRONO = re.compile(r'%"(?:struct|class)\.std::(?:__1::)?chrono::(?:duration|time_point)')  # they have one member
_FLAGS = re.compile(r"^(?:nsw|nuw|nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|exact|disjoint|nneg|samesign|inbounds) ")
_MOST_TERMS = 16  # of a sum: more are no time
_CPU_CLOCKS = frozenset({"2", "3"})  # of clock_gettime: they do not pass

# enum cc_comparison of hooks.h
_RELATIONS = {"lt": 0, "le": 1, "gt": 2, "ge": 3, "eq": 4, "ne": 5}
UNSIGNED, FLOATING = 8, 16


def read_flows(body: str, place_of: Callable[[str, str], str]) -> ReadFlows:
    """Read all functions of a module's text. `place_of`: where a line of a function is. Raises IRSyntaxError."""
    lines = body.split("\n")
    own = {name.strip('"') for name in _GLOBAL.findall(body)}
    defined: set[str] = set()
    starts: list[tuple[str, int]] = []
    for at, line in enumerate(lines):
        found = _HEADER.match(line) if line.startswith("define ") else None
        if found is not None:
            name = found.group(1).strip('"')
            defined.add(name)
            starts.append((name, at))
            if line.startswith(("define internal ", "define private ")):
                own.add(name)
    unit = CollectedFlows(own, defined, dict(_TYPE.findall(body)))
    for name, at in starts:
        try:
            function = _Function(unit, name, lines[at], lines[at + 1 : lines.index("}", at)], place_of)
        except Exception as error:  # whatever a damaged header, or a function without an end, leads to
            raise IRSyntaxError(lines[at]) from error
        function.read()
    return unit.result()


class _Function:
    """One pass over a function's lines."""

    def __init__(
        self, unit: CollectedFlows, name: str, header: str, lines: Sequence[str], place_of: Callable[[str, str], str]
    ) -> None:
        self.unit = unit
        self.symbol = name
        self.name = unit.name(name)
        self.lines = lines
        self.place_of = place_of
        self.line = 0
        self.values: dict[str, Terms] = {}
        self.places: dict[str, str] = {}  # pointers → the node of what they point to
        self.wholes: dict[str, str] = {}  # aggregates → the node whose parts they have
        self.kept: dict[str, str] = {}  # pointers → where they were loaded from
        self.slots: dict[str, str | None] = {}  # pointers to pointers → what these point to, if it is one place
        found = _HEADER.match(header)
        assert found is not None
        for number, text in enumerate(split_commas(header[found.end() : matching(header, found.end() - 1) - 1])):
            type_, _, rest = text.partition(" ")
            local = rest.rsplit(" ", 1)[-1] if rest else ""
            if type_ == "ptr":
                self.places[local] = f"A:{self.name}:{number}"
            elif type_ in _NUMBER_TYPES:
                self.values[local] = (Term(f"P:{self.name}:{number}", Fraction(1)),)

    def read(self) -> None:
        """Raises IRSyntaxError with the line that could not be read."""
        for number, line in enumerate(self.lines):
            self.line = number
            if line[:2] != "  " or line[2:3] in (" ", ""):
                continue
            try:
                self._instruction(line)
            except Exception as error:  # whatever a damaged line leads to
                raise IRSyntaxError(line) from error

    def _instruction(self, line: str) -> None:
        result, start = "", 2
        if line[2] == "%":
            start = line.index(" = ") + 3
            result = line[2 : start - 3]
        word, _, text = line[start:].partition(" ")
        handler = self._HANDLERS.get(word)
        if handler is not None:
            handler(self, word, text.partition(", !")[0], result)

    # -- values and places -------------------------------------------------------------------------------------

    def _terms(self, value: str) -> Terms:
        return self.values.get(value, ())

    def _place(self, pointer: str) -> str:
        """The node of what a pointer points to; "" if it is not known."""
        if pointer.startswith("@"):
            return f"G:{self.unit.name(pointer[1:].strip(chr(34)))}"
        opcode, operands = expression(pointer)
        if opcode == "getelementptr":
            return self._element(operands)
        return self.places.get(pointer, "")

    def _alloca(self, word: str, text: str, result: str) -> None:
        if text.startswith("ptr"):
            self.slots.setdefault(result, "")
        self.places[result] = f"L:{self.name}:{result}"

    def _gep(self, word: str, text: str, result: str) -> None:
        if place := self._element(text):
            self.places[result] = place

    def _element(self, text: str) -> str:
        """The node of what a getelementptr of these operands points to; "" if it is not known."""
        type_, pointer, *indices = split_commas(_plain(text))
        place = self._place(operand(pointer).value)
        for index in (operand(one).value for one in indices[1:]):
            if type_[0] == "[":  # an element is as its array
                type_ = type_[type_.index(" x ") + 3 : -1]
                continue
            if place and (_TIME_STRUCT.match(type_) or type_ == _PAIR):
                place = f"{place}.{index}"
            elif type_ != _PAIR and not (place and _CHRONO.match(type_)):
                place = f"F:{_type_name(type_)}:{index}"
            members = self.unit.members(type_)
            if not (index.isdigit() and int(index) < len(members)):
                break
            type_ = members[int(index)]
        return place

    def _cast_pointer(self, word: str, text: str, result: str) -> None:
        value, _, _ = text.partition(" to ")
        if value.startswith("ptr "):
            if place := self._place(value[4:]):
                self.places[result] = place
            if value[4:] in self.slots:
                self.slots[result] = self.slots[value[4:]]
        else:
            self._cast(word, text, result)

    def _cast(self, word: str, text: str, result: str) -> None:
        text = _FLAGS.sub("", text)
        value = text[: text.rindex(" to ")] if " to " in text else text
        self.values[result] = self._terms(value.rsplit(" ", 1)[-1])

    def _load(self, word: str, text: str, result: str) -> None:
        text = text.replace("volatile ", "", 1) if text.startswith(("volatile ", "atomic ")) else text
        text = text.removeprefix("atomic ").removeprefix("volatile ")
        end = type_end(text, 0)
        start = text.index("ptr ", end) + 4
        pointer = text[start : value_end(text, start)]
        if text[:end] == "ptr":
            if self.slots.get(pointer):
                self.places[result] = str(self.slots[pointer])
            elif self._place(pointer).startswith(HELD):
                self.kept[result] = self._place(pointer)
            return
        place = self._place(pointer)
        if not place:
            return
        if text[:end] in _NUMBER_TYPES:
            self.values[result] = (Term(place, Fraction(1)),)
        elif text[0] in "{%":
            self.wholes[result] = place

    def _store(self, word: str, text: str, result: str) -> None:
        text = text.removeprefix("atomic ").removeprefix("volatile ")
        end = type_end(text, 0)
        cut = value_end(text, end + 1)
        value, start = text[end + 1 : cut], cut + len(", ptr ")
        pointer = text[start : value_end(text, start)]
        if text[:end] == "ptr":
            place = self._place(value)
            to = self._place(pointer)
            if value.startswith("@") and to.startswith(HELD):
                self.unit.targets[to, self.unit.name(value[1:].strip('"'))] = None
            if pointer in self.slots:  # a second one makes it unknown, unless both are the same
                self.slots[pointer] = place if self.slots[pointer] in ("", place) else None
            return
        place = self._place(pointer)
        if not place:
            return
        if value in self.wholes:
            self.unit.copies.append((place, self.wholes[value]))
        self.unit.flow(place, self._terms(value))

    def _extract(self, word: str, text: str, result: str) -> None:
        parts = split_commas(text)
        whole = self.wholes.get(operand(parts[0]).value)
        if whole and len(parts) == 2:
            self.values[result] = (Term(f"{whole}.{parts[1]}", Fraction(1)),)

    # -- arithmetic --------------------------------------------------------------------------------------------

    def _sum(self, word: str, text: str, result: str) -> None:
        left, right = self._sides(text)
        sign = -1 if word in ("sub", "fsub") else 1
        terms = (*self._terms(left), *(Term(one.node, one.scale * sign) for one in self._terms(right)))
        self.values[result] = terms[:_MOST_TERMS]

    def _scale(self, word: str, text: str, result: str) -> None:
        left, right = self._sides(text)
        terms, factor = self._terms(left), _constant(right)
        if factor is None and "mul" in word:
            terms, factor = self._terms(right), _constant(left)
        if word == "shl" and factor is not None:
            factor = Fraction(2) ** int(factor) if 0 <= factor < 64 else None
        if factor and terms:
            factor = 1 / factor if "div" in word else factor
            self.values[result] = tuple(Term(one.node, one.scale * factor) for one in terms)

    def _either(self, word: str, text: str, result: str) -> None:
        if word == "phi":
            names = [found.strip() for found in _INCOMING.findall(text)]
        else:
            names = [part.rsplit(" ", 1)[-1] for part in split_commas(_FLAGS.sub("", text))[1:]]
        self.values[result] = self._one_of(names)

    def _one_of(self, values: Iterable[str]) -> Terms:
        """What a value may be that is one of these."""
        return tuple(dict.fromkeys(term for value in values for term in self._terms(value)))[:_MOST_TERMS]

    def _sides(self, text: str) -> tuple[str, str]:
        left, right = split_commas(_plain(text))[:2]
        return left.rsplit(" ", 1)[-1], right

    def _compare(self, word: str, text: str, result: str) -> None:
        text = _plain(text)
        relation, _, rest = text.partition(" ")
        type_ = rest[: type_end(rest, 0)]
        code = _RELATIONS.get(relation if len(relation) == 2 else relation[1:])
        if type_ not in ("i32", "i64", "double") or code is None:
            return
        left, right = self._sides(rest)
        sides = self._terms(left), self._terms(right)
        if not any(sides):
            return
        how = code | (FLOATING if word == "fcmp" else UNSIGNED if relation[0] == "u" else 0)
        place = self.place_of(self.lines[self.line], self.symbol)
        self.unit.found.append((self.symbol, self.line, type_, Comparison(how, place, *sides)))

    # -- calls -------------------------------------------------------------------------------------------------

    def _call(self, word: str, text: str, result: str) -> None:
        found = _CALLEE.search(" " + text)
        if found is None:
            return
        callee = found.group(1)[1:].strip('"')
        arguments = [operand(part) for part in call_arguments(" " + text, found.end() - 1)]
        if callee.startswith("llvm."):
            self._intrinsic(callee, [one.value for one in arguments], result)
            return
        one = Fraction(1)
        if callee == DIFFTIME and len(arguments) == 2:
            later, earlier = (self._terms(argument.value) for argument in arguments)
            self.values[result] = (*later, *(Term(term.node, -term.scale) for term in earlier))
            return
        if callee in CLOCK_WRITES:
            number, parts = CLOCK_WRITES[callee]
            place = self._place(arguments[number].value) if number < len(arguments) else ""
            if place and not (number and arguments[0].value in _CPU_CLOCKS):
                for part, unit_ns in parts.items():
                    self.unit.flow(place + part, (Term(f"C:{unit_ns}", one),))
        if callee in CLOCK_RESULTS:
            self.values[result] = (Term(f"C:{CLOCK_RESULTS[callee]}", one),)
            return
        if callee in CLOCK_WRITES:
            return
        name = self.unit.name(callee)
        if found.group(1)[0] == "%":
            if found.group(1) not in self.kept:
                return
            name = f"*{self.kept[found.group(1)]}"
        for number, argument in enumerate(arguments):
            if argument.type == "ptr":
                if place := self._place(argument.value):
                    self.unit.copies += [(f"A:{name}:{number}", place), (place, f"A:{name}:{number}")]
            else:
                self.unit.flow(f"P:{name}:{number}", self._terms(argument.value))
        type_ = _RESULT_TYPE.search(text[: found.end()])
        if result and type_ is not None:
            if type_.group(1) == _PAIR:
                self.wholes[result] = f"R:{name}"
            else:
                self.values[result] = (Term(f"R:{name}", one),)

    def _intrinsic(self, callee: str, arguments: Sequence[str], result: str) -> None:
        if callee.startswith(("llvm.memcpy.", "llvm.memmove.")):
            to, source = self._place(arguments[0]), self._place(arguments[1])
            if to and source:
                self.unit.copies.append((to, source))
        elif re.match(r"llvm\.(?:[su](?:min|max)|minnum|maxnum|abs|fabs|floor|ceil|round|trunc)\.", callee):
            self.values[result] = self._one_of(arguments)

    def _return(self, word: str, text: str, result: str) -> None:
        value = text.rsplit(" ", 1)[-1]
        if value in self.wholes:
            self.unit.copies.append((f"R:{self.name}", self.wholes[value]))
        else:
            self.unit.flow(f"R:{self.name}", self._terms(value))

    _HANDLERS: ClassVar[Mapping[str, Callable[[_Function, str, str, str], None]]] = {
        "alloca": _alloca,
        "getelementptr": _gep,
        "bitcast": _cast_pointer,
        "addrspacecast": _cast_pointer,
        **dict.fromkeys(
            ("sext", "zext", "trunc", "sitofp", "uitofp", "fptosi", "fptoui", "fpext", "fptrunc", "freeze"), _cast
        ),
        "load": _load,
        "store": _store,
        "extractvalue": _extract,
        **dict.fromkeys(("add", "sub", "fadd", "fsub"), _sum),
        **dict.fromkeys(("mul", "fmul", "sdiv", "udiv", "fdiv", "shl"), _scale),
        **dict.fromkeys(("phi", "select"), _either),
        **dict.fromkeys(("icmp", "fcmp"), _compare),
        **dict.fromkeys(("call", "tail", "notail", "musttail", "invoke"), _call),
        "ret": _return,
    }


def _plain(text: str) -> str:
    """The operands of an instruction without the flags before them."""
    while (shorter := _FLAGS.sub("", text)) != text:
        text = shorter
    return text


def _type_name(text: str) -> str:
    """A struct's name, without the number that LLVM appends to the second of a name."""
    return re.sub(r"\.\d+$", "", text.lstrip("%").strip('"'))


def _constant(text: str) -> Fraction | None:
    if re.fullmatch(r"-?\d+", text):
        return Fraction(int(text))
    if text.startswith("0x"):
        return Fraction(struct.unpack(">d", bytes.fromhex(text[2:].rjust(16, "0")))[0])
    try:
        return Fraction(text)
    except ValueError:
        return None
