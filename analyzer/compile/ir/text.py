"""Canonical IR text: the tokens of an instruction line, the layout of its types, the metadata behind it.

The text is always `str(module)` of the llvmlite binding, never what clang prints, so one dialect is enough to read.
`for_clang_19` writes it for an older clang.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = r'[-\w.$]+|"[^"]*"'
_LOCAL_OR_GLOBAL = re.compile(rf"[%@](?:{NAME})")
_WORD = re.compile(r"[a-z_]\w*")
_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}
_BRACKET = re.compile(r'[()\[\]{}<>"]')
_ATTRIBUTE = re.compile(
    r"(?:(?!(?:null|true|false|undef|poison|zeroinitializer|none|splat|getelementptr|ptrtoint|inttoptr|bitcast|addrspacecast|"
    r"ptrtoaddr|trunc|blockaddress|dso_local_equivalent|no_cfi|ptrauth|add|sub|mul|xor|shl|inf|nan|"
    r"extractelement|insertelement|shufflevector)\b)"
    r'[a-z_]\w*|"[^"]*"(?:="[^"]*")?)'
)

_SIMPLE_VALUE = re.compile(
    rf"%(?:{NAME})|(?:(?:dso_local_equivalent|no_cfi) )?@(?:{NAME})|-?\d[-\w.+]*|"
    r"(?:null|true|false|undef|poison|zeroinitializer|none)\b"
)
_VALUE_MARK = re.compile(r'[(\[{<,"]')
_EXPRESSION = re.compile(r"(\w+)(?: (?:inbounds|nuw|nusw|nsw|inrange\([^)]*\)))* ?\(")
_ARRAY = re.compile(r"[\[<](\d+) x ")
_TYPE_LINE = re.compile(rf"^(%(?:{NAME})) = type (.*)$", re.MULTILINE)
_ATTRIBUTES_LINE = re.compile(r"^attributes #(\d+) = \{ (.*) \}$", re.MULTILINE)
_UNSHARED = re.compile(rf"^(@(?:{NAME})) = [^\n\"{{\[]*?\b(?:constant|thread_local)\b", re.MULTILINE)
_DECLARE = re.compile(rf"^declare [^\n]*?@({NAME})\(", re.MULTILINE)
# Clangs that read `for_clang_19`: only what was tried. Older ones know neither debug records nor some attributes.
READERS = frozenset({19})
_LIFETIME_CALL = re.compile(r"(call void @llvm\.lifetime\.(?:start|end)\.p0\()ptr")
_LIFETIME_DECLARATION = re.compile(r"^(declare void @llvm\.lifetime\.(?:start|end)\.p0\()ptr", re.MULTILINE)
_LIFETIME_LEFTOVER = re.compile(r"^declare void @llvm\.lifetime\.(?:start|end)\.i64\(i64\).*$", re.MULTILINE)
_MEMORY = re.compile(r",? ?(?:target_mem\d+|errnomem): \w+")
_CAPTURES = re.compile(r"captures\(none\)")
_NEW_ATTRIBUTE = re.compile(r"\bnocreateundeforpoison ")


class IRSyntaxError(ValueError):
    """The text is not what this reader knows; holds the offending line."""


def matching(text: str, at: int) -> int:
    """Index just past the bracket that closes the one at `at`; strings are skipped."""
    depth = 0
    position = at
    while True:
        found = _BRACKET.search(text, position)
        if found is None:
            raise IRSyntaxError(text)
        character = found.group()
        position = found.end()
        if character == '"':
            position = text.index('"', position) + 1
        elif character in _OPEN:
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return position


def type_end(text: str, at: int) -> int:
    """Index just past the type that starts at `at` (function types excluded)."""
    character = text[at]
    if character in "[{<":
        return matching(text, at)
    if character == "%":
        found = _LOCAL_OR_GLOBAL.match(text, at)
        if found is None:
            raise IRSyntaxError(text)
        return found.end()
    found = _WORD.match(text, at)
    if found is None:
        raise IRSyntaxError(text)
    if found.group() == "target":
        return matching(text, found.end())
    end = found.end()
    return matching(text, end + 1) if text.startswith(" addrspace(", end) else end


def split_commas(text: str) -> list[str]:
    """The parts between commas that no bracket or string encloses, stripped."""
    if not text.strip():
        return []
    if not _BRACKET.search(text):
        return [part.strip() for part in text.split(",")]
    parts: list[str] = []
    start = position = 0
    while position < len(text):
        character = text[position]
        if character in _OPEN:
            position = matching(text, position)
            continue
        if character == '"':
            position = text.index('"', position + 1) + 1
            continue
        if character == ",":
            parts.append(text[start:position].strip())
            start = position + 1
        position += 1
    parts.append(text[start:].strip())
    return parts


def call_arguments(line: str, parenthesis: int) -> list[str]:
    """The arguments of a call, from the index of its opening parenthesis."""
    return split_commas(line[parenthesis + 1 : matching(line, parenthesis) - 1])


def value_end(text: str, at: int) -> int:
    """Index just past the value that starts at `at`: a name, a number, an aggregate or a constant expression."""
    found = _SIMPLE_VALUE.match(text, at)
    if found is not None:
        return found.end()
    position = at
    while (found := _VALUE_MARK.search(text, position)) is not None:
        mark = found.start()
        if text[mark] == ",":
            return mark
        if text[mark] == '"':
            return text.index('"', mark + 1) + 1
        position = matching(text, mark)
        if not text.endswith("inrange", at, mark):
            return position
    return len(text)


@dataclass(frozen=True, slots=True)
class Operand:
    """A typed value: `i64 %3`; `attributes` is what is between (e.g. `noundef align 8`)."""

    type: str
    value: str
    attributes: str = ""

    @property
    def text(self) -> str:
        return f"{self.type} {self.value}"


def operand(text: str) -> Operand:
    """Read `type [attributes] value`."""
    end = type_end(text, 0)
    position = end + 1
    while True:
        found = _ATTRIBUTE.match(text, position)
        if found is None:
            break
        after = found.end()
        if after < len(text) and text[after] == "(":
            after = matching(text, after)
        if found.group() == "align" and text[after : after + 1] == " ":
            after = text.find(" ", after + 1)
        if after >= len(text) or after < 0 or text[after] != " ":
            break
        position = after + 1
    return Operand(text[:end], text[position:], text[end + 1 : position].strip())


def expression(text: str) -> tuple[str, str]:
    """Opcode and operands of a constant expression: `add (i64 1, i64 2)` → add, `i64 1, i64 2`; "" for other values."""
    found = _EXPRESSION.match(text)
    return (found.group(1), text[found.end() : -1]) if found is not None and text.endswith(")") else ("", "")


def constant_base(value: str) -> str:
    """What a constant address is computed from: a global, a number, null; itself if it is no such expression."""
    while True:
        opcode, operands = expression(value)
        if opcode == "getelementptr":
            value = operand(split_commas(operands)[1]).value
        elif opcode in ("bitcast", "addrspacecast", "inttoptr", "ptrtoint", "ptrtoaddr"):
            value = operand(operands[: operands.rindex(" to ")]).value
        elif opcode in ("add", "sub"):
            first, second = (operand(part).value for part in split_commas(operands))
            if "@" in second:
                return value  # a difference of addresses, or a sum of them
            value = first
        else:
            return value


@dataclass(frozen=True, slots=True)
class Layout:
    """Size and alignment in bytes."""

    size: int
    align: int


_SCALARS = {
    "ptr": Layout(8, 8),
    "half": Layout(2, 2),
    "bfloat": Layout(2, 2),
    "float": Layout(4, 4),
    "double": Layout(8, 8),
    "x86_fp80": Layout(16, 16),
    "fp128": Layout(16, 16),
    "ppc_fp128": Layout(16, 16),
    "x86_mmx": Layout(8, 8),
}


class Types:
    """The named types of a module and the layout that x86-64 gives them."""

    def __init__(self, definitions: dict[str, str]) -> None:
        self._definitions = definitions
        self._layouts: dict[str, Layout | None] = {}
        self._fields: dict[str, tuple[tuple[str, int], ...] | None] = {}

    def names(self) -> tuple[str, ...]:
        return tuple(self._definitions)

    def layout(self, type_text: str) -> Layout | None:
        """Size and alignment, or None where the type has none (opaque, scalable)."""
        if type_text not in self._layouts:
            self._layouts[type_text] = None
            self._layouts[type_text] = self._compute(type_text)
        return self._layouts[type_text]

    def store_size(self, type_text: str) -> int | None:
        """Bytes that a store of this type writes (x86_fp80: 10)."""
        if type_text == "x86_fp80":
            return 10
        if type_text.startswith("i") and type_text[1:].isdigit():
            return (int(type_text[1:]) + 7) // 8
        found = self.layout(type_text)
        return None if found is None else found.size

    def element(self, type_text: str) -> tuple[str, int] | None:
        """Element type and count of an array or vector."""
        found = _ARRAY.match(type_text)
        if found is None:
            return None
        return type_text[found.end() : -1], int(found.group(1))

    def fields(self, type_text: str) -> tuple[tuple[str, int], ...] | None:
        """(type, offset in bytes) of each element of a struct type; None for other types."""
        if type_text not in self._fields:
            self._fields[type_text] = self._struct(type_text)
        return self._fields[type_text]

    def _struct(self, type_text: str) -> tuple[tuple[str, int], ...] | None:
        body = self._definitions.get(type_text, "") if type_text.startswith("%") else type_text
        packed = body.startswith("<{")
        if not packed and not body.startswith("{"):
            return None
        inner = body[2:-2] if packed else body[1:-1]
        offset = 0
        result = []
        for part in split_commas(inner):
            layout = self.layout(part)
            if layout is None:
                return None
            if not packed:
                offset = -(-offset // layout.align) * layout.align
            result.append((part, offset))
            offset += layout.size
        return tuple(result)

    def _compute(self, type_text: str) -> Layout | None:
        if type_text in _SCALARS:
            return _SCALARS[type_text]
        if type_text.startswith("i") and type_text[1:].isdigit():
            size = (int(type_text[1:]) + 7) // 8
            align = min(1 << (size - 1).bit_length(), 16) if size else 1
            return Layout(-(-size // align) * align, align)
        array = self.element(type_text)
        if array is not None:
            inner = self.layout(array[0])
            if inner is None:
                return None
            if type_text.startswith("<"):
                bits = array[1] * (int(array[0][1:]) if array[0][1:].isdigit() else inner.size * 8)
                size = (bits + 7) // 8
                align = 1 << max(size - 1, 0).bit_length()
                return Layout(-(-size // align) * align, align)
            return Layout(inner.size * array[1], inner.align)
        fields = self.fields(type_text)
        if fields is None:
            return None
        if not fields:
            return Layout(0, 1)
        body = self._definitions.get(type_text, type_text)
        last = self.layout(fields[-1][0])
        assert last is not None
        end = fields[-1][1] + last.size
        if body.startswith("<{"):
            return Layout(end, 1)
        aligns = [layout.align for name, _ in fields if (layout := self.layout(name)) is not None]
        align = max(aligns)
        return Layout(-(-end // align) * align, align)


@dataclass(frozen=True, slots=True)
class ModuleText:
    """A module's text cut into the part with code and the part with metadata."""

    body: str  # up to the first metadata line
    metadata: str
    types: Types
    attributes: dict[str, str]  # group number → its text
    declared: frozenset[str]  # names of functions that are only declared
    unshared: frozenset[str]  # globals that are constant, or of a thread


def read_module(text: str) -> ModuleText:
    """Cut the text of a module; costs a few milliseconds for 10,000 lines."""
    cut = text.find("\n!")
    cut = len(text) if cut < 0 else cut + 1
    body = text[:cut]
    first_function = body.find("\ndefine ")
    head = body if first_function < 0 else body[:first_function]
    return ModuleText(
        body=body,
        metadata=text[cut:],
        types=Types(dict(_TYPE_LINE.findall(head))),
        attributes=dict(_ATTRIBUTES_LINE.findall(body[max(body.rfind("\n}\n"), 0) :])),
        unshared=frozenset(_UNSHARED.findall(head)),
        declared=frozenset(name.strip('"') for name in _DECLARE.findall(body)),
    )


def for_clang_19(text: str) -> str:
    """The text in the dialect of LLVM 19: the spellings that changed since, undone.

    The binding's own optimiser and code generator are built with assertions and take nearly twice as long as those of a
    distribution's clang. So a unit that the binding verified is emitted by the clang that made its bitcode, where that
    clang is known to read this text; if it does not, the binding emits it.
    """
    text = _LIFETIME_CALL.sub(r"\1i64 -1, ptr", text)
    text = _LIFETIME_DECLARATION.sub(r"\1i64, ptr", text)
    text = _LIFETIME_LEFTOVER.sub("", text)
    text = _CAPTURES.sub("nocapture", text)
    cut = max(text.rfind("\nattributes #"), 0)
    first = text.find("\nattributes #")
    if first < 0:
        return text
    end = text.find("\n", cut + 1)
    groups = _NEW_ATTRIBUTE.sub("", _MEMORY.sub("", text[first:end]))
    return text[:first] + groups + text[end:]
