"""What a statement of C or C++ stores to, as far as its text shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crashcheck.checker.fixes.source.c_source import (
    CALL,
    CLOSE,
    OPEN,
    LoopStatement,
    Macro,
    NotEditable,
    Source,
    Statement,
    arguments,
    squeezed,
)

_ASSIGN = re.compile(r"(?:<<|>>|[-+*/%&|^])?=(?!=)")
_COMPARE = ("==", "!=", "<=", ">=")
_DEEP = 4  # macros in macros
_COPIES = re.compile(r"(?:pmem_)?(?:__builtin_)?(memcpy|memmove|memset|strncpy|v?snprintf)(?:_(?:nodrain|persist))?$")
_ATOMICS = re.compile(r"(?:std::)?(?:__atomic_|atomic_|__sync_)\w+$")
_MEMBER = re.compile(r"(?:\.|->)\s*(store|exchange|fetch_\w+|compare_exchange_\w+)$")
# With the text in brackets left out: `*`, casts, a name, and then members, indices and calls.
_NAMED = re.compile(
    r"(?:\*\s*|\(\)\s*|\+\+|--)*(?:(?!(?:if|else|for|while|switch|do|return|sizeof)\b)(?:::)?[A-Za-z_]\w*(?:::\w+)*"
    r"(?:<[\w\s:*,<>]*>)?)?(?:\s*(?:\(\)|\[\]|(?:\.|->)\s*\w+|\+\+|--))*"
)


class SideEffect(NotEditable):
    """What a statement stores to must not be evaluated a second time."""


@dataclass(frozen=True, slots=True)
class Region:
    """What a statement stores to: an address and a number of bytes, as expressions; `lvalue` where it has one."""

    address: str
    size: str
    lvalue: str = ""


def stored(source: Source, statement: Statement, column_at: int, macros: Mapping[str, Macro]) -> Region:
    """What a statement stores to, at the position that the debug information gives the store.

    `macros`: parameters and body by name. Raises NotEditable.
    """
    code = source.code[statement.start : statement.end - 1]
    text = source.text[statement.start : statement.end - 1]
    operators = _assignments(code)
    at = column_at - statement.start
    called = CALL.match(code, at) if at >= 0 else None
    if called is not None and (_ATOMICS.match(called.group(1)) or _COPIES.search(called.group(1))):
        return _of_call(text[at:].strip(), macros)
    if operators:
        exact = [pair for pair in operators if pair[0] <= at < pair[1]]
        if len(operators) > 1 and not exact:
            raise NotEditable("the statement stores more than once")
        begin, _ = exact[0] if exact else operators[0]
        earlier = [stop for _, stop in operators if stop <= begin]
        return _of_lvalue(text[max(earlier, default=0) : begin])
    for pattern in (r"(.*?)\s*(?:\+\+|--)\s*$", r"\s*(?:\+\+|--)\s*(.*)$"):
        found = re.match(pattern, code, re.DOTALL)
        if found:
            return _of_lvalue(text[found.start(1) : found.end(1)])
    return _of_call(text.strip(), macros)


def target(source: Source, line: int, column: int, macros: Mapping[str, Macro]) -> str:
    """The expression that a store at this 1-based place stores to, as in `*ref`; "" where the text does not show it.

    `macros`: those that the file sees, by name. Of a call whose store is not understood, the call itself.
    """
    try:
        at = source.position(line, column)
        called = source.call_text(at)
        if called and not re.search(r"(?:\.|->)\s*$", source.code_line(line)[: max(column, 1) - 1]):
            return _named_call(called, macros)
        statement = source.statement(line, column)
        begin = statement.start
        code = source.code[begin : statement.end - 1]
        operators = _assignments(code)
        at_one = (first <= at - begin < last or _copies(code, last, at - begin) for first, last in operators)
        if operators and not any(at_one):
            return ""
        return _spelled(stored(source, statement, at, {}))
    except NotEditable:
        return ""


def _copies(code: str, end: int, at: int) -> bool:
    """Whether the right side of the assignment operator that ends at `end` begins at `at`: there clang places the copy
    of a whole structure, but also what `++` stores."""
    return not code[end:at].strip() and at >= end and code[at : at + 2] not in ("++", "--")


def _named_call(text: str, macros: Mapping[str, Macro]) -> str:
    try:
        return _spelled(_of_call(text, macros, alone=True))
    except NotEditable:
        return squeezed(text)


def _spelled(region: Region) -> str:
    if region.lvalue:
        return region.lvalue
    return f"*{region.address}" if re.fullmatch(r"\w+", region.address) else f"*({region.address})"


def assignment(source: Source, statement: Statement) -> tuple[str, str]:
    """Both sides of a statement that is one plain assignment. Raises NotEditable."""
    code = source.code[statement.start : statement.end - 1]
    operators = _assignments(code)
    if len(operators) != 1 or operators[0][1] - operators[0][0] != 1:
        raise NotEditable("it is no plain assignment")
    text = source.text[statement.start : statement.end - 1]
    return text[: operators[0][0]].strip(), text[operators[0][1] :].strip()


def _assignments(code: str) -> list[tuple[int, int]]:
    """Assignment operators outside of parentheses."""
    out, depth, position = [], 0, 0
    while position < len(code):
        if code[position] in OPEN:
            depth += 1
        elif code[position] in CLOSE:
            depth -= 1
        elif depth == 0:
            if code[position : position + 2] in _COMPARE and code[position : position + 3] not in ("<<=", ">>="):
                position += 2
                continue
            found = _ASSIGN.match(code, position)
            if found:
                out.append(found.span())
                position = found.end()
                continue
        position += 1
    return out


def _of_call(text: str, macros: Mapping[str, Macro], deep: int = 0, *, alone: bool = False) -> Region:
    """`alone`: only where nothing else in it can store."""
    source = Source(text)
    found = re.match(
        r"(?:\(void\)\s*)?([A-Za-z_][\w:]*(?:\s*(?:\.|->)\s*\w+|\[[^\]]*\])*)\s*\(",
        source.code,
    )
    if found is None:
        raise NotEditable("no assignment or call that stores was recognised")
    name, closing = found.group(1), source.closing(found.end() - 1)
    given = arguments(source, found.end(), closing)
    if alone:
        _stores_nothing(source.code[found.end() : closing], macros)
        _stores_nothing(source.code[closing + 1 :], macros)
    member = _MEMBER.search(name)
    if member is not None:
        object_ = name[: member.start()]
        return _of_lvalue(object_ if member.group().startswith(".") else f"*{object_}")
    copy = _COPIES.search(name)
    if copy is not None and len(given) >= 3:
        return _checked(Region(given[0], given[1 if copy.group(1).endswith("printf") else 2]))
    if _ATOMICS.match(name) and given:
        return _of_address(given[0])
    if name in macros and deep < _DEEP:
        parameters, body = macros[name]
        if len(parameters) == len(given):
            table = dict(zip(parameters, given, strict=True))
            expanded = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: table.get(word.group(), word.group()), body)
            inner = Source(_bare(expanded.strip().rstrip(";")) + ";")
            operators = _assignments(inner.code[:-1])
            if operators and alone:
                _stores_nothing(inner.code[operators[0][1] :], macros)
            if operators:
                return stored(inner, Statement(0, len(inner.text), -1), -1, macros)
            return _of_call(inner.text, macros, deep + 1, alone=alone)
    raise NotEditable(f"it is stored by `{name}`, whose arguments are not understood")


def _stores_nothing(code: str, macros: Mapping[str, Macro], deep: int = 0) -> None:
    """Raises NotEditable where the code beside a store may store as well."""
    for name in (found.group(1) for found in CALL.finditer(code)):
        if _ATOMICS.match(name) or _COPIES.search(name) or (name in macros and deep == _DEEP):
            raise NotEditable("it stores more than once")
        if name in macros:
            _stores_nothing(macros[name][1], macros, deep + 1)
    if "++" in code or "--" in code or _assignments(re.sub(r"[()\[\]{}]", " ", code)):
        raise NotEditable("it stores more than once")


def _of_address(text: str) -> Region:
    text = text.strip()
    if text.startswith("&"):
        return _of_lvalue(_bare(text[1:]))
    return _checked(Region(text, f"sizeof *({text})" if not re.fullmatch(r"\w+", text) else f"sizeof *{text}"))


def _of_lvalue(text: str) -> Region:
    lvalue = _bare(squeezed(text))
    declared = re.match(r"(?:(?:const|volatile|static|auto|struct \w+|[A-Za-z_][\w:<>]*)\s+)+\**\s*\w+$", lvalue)
    if declared:
        raise NotEditable("it declares a variable")
    if not _NAMED.fullmatch(_without_brackets(lvalue)):
        raise NotEditable(f"`{lvalue}` is more than what is stored to")
    if lvalue.startswith("*"):
        inner = _bare(lvalue[1:])
        simple = re.fullmatch(r"[\w.\[\]>-]+", inner) is not None
        return _checked(Region(inner if simple else f"({inner})", f"sizeof {lvalue}", lvalue))
    size = f"sizeof({lvalue})" if lvalue.startswith("(") else f"sizeof {lvalue}"
    return _checked(Region(f"&{lvalue}", size, lvalue))


def _without_brackets(text: str) -> str:
    """`(p)[i + 1].x` as `()[].x`."""
    out, code = "", Source(text).code
    depth = 0
    for char in code:
        depth -= char in CLOSE
        if depth == 0:
            out += char
        depth += char in OPEN
    return out


def _checked(region: Region) -> Region:
    for text in (region.address, region.size):
        code = Source(text).code
        if "++" in code or "--" in code or _assignments(code.replace("(", " ").replace(")", " ")):
            raise SideEffect(f"`{text}` has a side effect")
    return region


def _bare(text: str) -> str:
    """Without parentheses around all of it."""
    text = text.strip()
    while text.startswith("(") and Source(text).closing(0) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def common_object(parts: Sequence[str]) -> Region:
    """The innermost object that some expressions name a member of, as `*slot` of `slot->id` and `slot->name[0]`.

    Raises NotEditable where their text has none in common.
    """
    shared: list[tuple[str, str]] | None = None
    for part in parts:
        text = _bare(squeezed(part)).removeprefix("&").strip()
        code = Source(text).code
        outer, depth = [], 0
        for position, char in enumerate(code):
            depth += (char in OPEN) - (char in CLOSE)
            found = re.match(r"\s*(->|\.)", code[position:]) if depth == 0 else None
            if found is not None and position and not code[position - 1].isspace():
                outer.append((text[:position], found.group(1)))
        shared = outer if shared is None else [one for one in shared if one in outer]
    if not shared:
        raise NotEditable("its parts are not named as members of one object")
    base, operator = shared[-1]
    if operator == "->":
        return _checked(Region(base, f"sizeof *{base}", f"*{base}"))
    return _checked(Region(f"&{base}", f"sizeof({base})" if base.startswith("(") else f"sizeof {base}", base))


_COUNTED = re.compile(
    r"\s*(?:[A-Za-z_]\w*\s+)*(\w+)\s*=\s*(\w+)\s*;\s*(\w+)\s*(?:<|!=)\s*([\w.]+(?:->\w+|\s*[-+*]\s*\w+)*)\s*;"
    r"\s*(?:\+\+\s*(\w+)|(\w+)\s*\+\+)\s*"
)


def whole(region: Region, loop: LoopStatement) -> Region:
    """All that a loop stores to, whose body stores to `region`. Raises NotEditable.

    It counts a variable up by one, and that is the index of an array where the body stores.
    """
    found = _COUNTED.fullmatch(Source(loop.head).code)
    if found is None or len({found.group(1), found.group(3), found.group(5) or found.group(6)}) > 1:
        raise NotEditable("how often its loop runs is not understood")
    index, first, end = found.group(1), found.group(2), found.group(4)
    at = re.search(rf"\[\s*{index}\s*\]", region.lvalue)
    names = re.findall(rf"\b{index}\b", region.lvalue)
    inside = at is None or region.lvalue[: at.start()].count("[") != region.lvalue[: at.start()].count("]")
    if at is None or inside or len(names) != 1 or re.search(rf"\b{index}\b", end):
        raise NotEditable("what its loop stores to is not understood")
    element = f"{region.lvalue[: at.start()]}[{first}]"
    count = (
        end if first == "0" and re.fullmatch(r"[\w.>-]+", end) else f"({end} - {first})" if first != "0" else f"({end})"
    )
    return _checked(Region(f"&{element}", f"{count} * sizeof {element}"))
