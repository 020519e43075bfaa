"""Reading C and C++ source as far as an edit needs it: statements, calls, and what a statement stores to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*",
    re.DOTALL | re.MULTILINE,
)
_ASSIGN = re.compile(r"(?:<<|>>|[-+*/%&|^])?=(?!=)")
_COMPARE = ("==", "!=", "<=", ">=")
_OPEN, _CLOSE = "([{", ")]}"
_CONTROL = re.compile(r"\b(if|for|while|switch)\s*$")
_COPIES = re.compile(r"(?:pmem_)?(?:__builtin_)?(memcpy|memmove|memset|strncpy|v?snprintf)(?:_(?:nodrain|persist))?$")
_ATOMICS = re.compile(r"(?:std::)?(?:__atomic_|atomic_|__sync_)\w+$")
_MEMBER = re.compile(r"(?:\.|->)\s*(store|exchange|fetch_\w+|compare_exchange_\w+)$")
_CALL = re.compile(r"([A-Za-z_][\w:]*)\s*\(")
# With what stands in brackets left out: `*`, casts, a name, and then members, indices and calls.
_NAMED = re.compile(
    r"(?:\*\s*|\(\)\s*|\+\+|--)*(?:(?!(?:if|else|for|while|switch|do|return|sizeof)\b)(?:::)?[A-Za-z_]\w*(?:::\w+)*"
    r"(?:<[\w\s:*,<>]*>)?)?(?:\s*(?:\(\)|\[\]|(?:\.|->)\s*\w+|\+\+|--))*"
)


class NotUnderstood(Exception):
    """Why a place of the source cannot be edited, in words."""


class SideEffect(NotUnderstood):
    """What a statement stores to must not be evaluated a second time."""


@dataclass(frozen=True, slots=True)
class Region:
    """What a statement stores to: an address and a number of bytes, as expressions; `lvalue` where it has one."""

    address: str
    size: str
    lvalue: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """[start, end) of the source; `header`: where the `if (…)`, `for (…)` or `else` ends whose body it is, or -1."""

    start: int
    end: int
    header: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`head`: what stands in the parentheses of its `for` or `while`."""

    statement: Statement
    head: str


class Source:
    """One file's text, and the same with comments, literals and directives blanked out, so that positions agree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.code = _TOKEN.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
        self._over_lines = [found.span() for found in _TOKEN.finditer(text) if "\n" in found.group()]
        self.starts = [0]
        for found in re.finditer("\n", text):
            self.starts.append(found.end())

    def position(self, line: int, column: int) -> int:
        """Of a 1-based line and column. Raises NotUnderstood if the file has no such place."""
        if not 1 <= line <= len(self.starts):
            raise NotUnderstood(f"the file has no line {line}")
        return min(self.starts[line - 1] + max(column, 1) - 1, len(self.text))

    def line_of(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1

    def line(self, number: int) -> str:
        stop = self.starts[number] - 1 if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : stop]

    def indent(self, number: int) -> str:
        line = self.line(number)
        return line[: len(line) - len(line.lstrip())]

    def statement(self, line: int, column: int) -> Statement:
        """The statement that a place lies in. Raises NotUnderstood where that is no statement of its own."""
        code = self.code
        at = self.position(line, column)
        while at < len(code) and code[at].isspace():
            at += 1
        start = self._start(at)
        header = self._header(start)
        while start < len(code) and code[start].isspace():
            start += 1
        end = self._end(start)
        text = code[start:end].strip()
        if re.match(r"(if|for|while|switch|do)\b", text):
            raise NotUnderstood("the store is part of a condition")
        if re.match(r"(return|throw|goto)\b", text):
            raise NotUnderstood("the store is part of a return")
        if "{" in text and not text.endswith("};") and "=" not in text[: text.index("{")]:
            raise NotUnderstood("the statement holds others")
        if self._in_parentheses(start):
            raise NotUnderstood("the store is part of a condition")  # of a `for`, whose parts end in semicolons
        return Statement(start, end, header)

    def _start(self, at: int) -> int:
        """Just after what ends the statement before."""
        code, depth = self.code, 0
        position = at - 1
        while position >= 0:
            char = code[position]
            if char in ")]":
                opening = self._opening(position)
                if depth == 0 and char == ")" and self._controls(code, opening):
                    return position + 1
                position = opening - 1
                continue
            if char in "([":
                depth += 1  # the place lies inside of parentheses
            elif depth == 0 and (
                char in ";{}"
                or (char == ":" and self._label(position))
                or (char in "eo" and re.search(r"\b(else|do)$", code[max(0, position - 4) : position + 1]))
            ):
                return position + 1
            position -= 1
        return 0

    def _in_parentheses(self, position: int) -> bool:
        depth = 0
        for at in range(position - 1, -1, -1):
            depth += (self.code[at] in _CLOSE) - (self.code[at] in _OPEN)
            if depth < 0:
                return self.code[at] != "{"
        return False

    def torn_from(self, header: int, start: int, end: int) -> str:
        """Why whole lines cannot be put around [start, end), whose condition ends at `header` (-1: none); "" if they
        can."""
        first, last = self.line_of(start), self.line_of(end - 1)
        for at in (self.starts[first - 1], self.starts[last - 1] + len(self.line(last))):
            if any(begin < at < stop for begin, stop in self._over_lines):
                return "a comment goes on over the end of its line"
        if header >= 0 and re.search(r"^[ \t]*#", self.text[header:end], re.MULTILINE):
            return "a directive of the preprocessor stands between it and its condition"
        return ""

    @staticmethod
    def _controls(code: str, opening: int) -> bool:
        return _CONTROL.search(code[max(0, opening - 12) : opening]) is not None

    def _label(self, position: int) -> bool:
        line = self.code[self.code.rfind("\n", 0, position) + 1 : position]
        return (
            bool(re.match(r"\s*(case\b.*|default|[A-Za-z_]\w*)\s*$", line))
            and self.code[position - 1 : position] != ":"
        )

    def _header(self, start: int) -> int:
        """`start` if it ends the head of a control statement without braces, else -1."""
        before = self.code[:start]
        if before.endswith(("else", "do")):
            return start
        return start if before.endswith(")") else -1

    def loop_around(self, statement: Statement) -> Loop | None:
        """The `for` or `while` that has nothing but this statement as its body; None if there is none."""
        code = self.code
        end, header = statement.end, statement.header
        if header < 0:
            before = code[: statement.start].rstrip()
            after = re.compile(r"\s*\}").match(code, end)
            if not before.endswith("{") or after is None:
                return None
            header, end = len(before[:-1].rstrip()), after.end()
        if code[header - 1 : header] != ")":
            return None
        opening = self._opening(header - 1)
        found = re.search(r"\b(for|while)\s*$", code[max(0, opening - 12) : opening])
        if found is None:
            return None
        start = opening - len(found.group())
        outside = self._header(self._start(start))
        return Loop(Statement(start, end, outside), self.text[opening + 1 : header - 1])

    def in_loop(self, statement: Statement) -> bool:
        """Whether a statement lies in a loop of its function."""
        code, start, header = self.code, statement.start, statement.header
        while True:
            if header < 0:
                brace = self._brace_around(start)
                if brace < 0:
                    return False
                before = code[:brace].rstrip()
                start, header = brace, len(before) if before.endswith((")", "else", "do")) else -1
            elif code[:header].endswith("do"):
                return True
            elif code[:header].endswith("else"):
                start, header = self._before_else(header - len("else"))
            else:
                opening = self._opening(header - 1)
                found = _CONTROL.search(code[max(0, opening - 12) : opening])
                if found is None:
                    return False  # the function's own parameters
                if found.group(1) in ("for", "while"):
                    return True
                start = opening - len(found.group())
                header = self._header(self._start(start))

    def _before_else(self, position: int) -> tuple[int, int]:
        """Start and header of what an `if` does, whose `else` stands at a position."""
        end = len(self.code[:position].rstrip())
        if self.code[end - 1 : end] == "}":
            brace = self._brace_around(end - 1)
            return brace, len(self.code[:brace].rstrip())
        start = self._start(end - 1)
        return start, self._header(start)

    def _brace_around(self, position: int) -> int:
        """The innermost `{` that is open at a position; -1 if none is."""
        depth = 0
        for at in range(position - 1, -1, -1):
            depth += (self.code[at] == "}") - (self.code[at] == "{")
            if depth < 0:
                return at
        return -1

    def _opening(self, closing: int) -> int:
        depth = 0
        for position in range(closing, -1, -1):
            if self.code[position] in ")]":
                depth += 1
            elif self.code[position] in "([":
                depth -= 1
                if depth == 0:
                    return position
        raise NotUnderstood("its parentheses do not match")

    def closing(self, opening: int) -> int:
        depth = 0
        for position in range(opening, len(self.code)):
            if self.code[position] in _OPEN:
                depth += 1
            elif self.code[position] in _CLOSE:
                depth -= 1
                if depth == 0:
                    return position
        raise NotUnderstood("its parentheses do not match")

    def _end(self, start: int) -> int:
        """Just after the semicolon."""
        position = start
        while position < len(self.code):
            char = self.code[position]
            if char in _OPEN:
                position = self.closing(position)
            elif char == ";":
                return position + 1
            elif char in _CLOSE:
                break
            position += 1
        raise NotUnderstood("the statement has no end")

    def call(self, line: int, column: int) -> tuple[str, tuple[str, ...]] | None:
        """(callee, arguments) of the call that begins at a place; None if none does."""
        at = self.position(line, column)
        found = _CALL.match(self.code, at)
        if found is None:
            return None
        try:
            closing = self.closing(found.end() - 1)
        except NotUnderstood:
            return None
        before = re.search(r"[\w\])]+\s*(?:\.|->)\s*$", self.code[self.code.rfind("\n", 0, at) + 1 : at])
        if before is not None:
            return None  # a method: what it is called on is not known elsewhere
        return found.group(1), arguments(self, found.end(), closing)


def arguments(source: Source, start: int, end: int) -> tuple[str, ...]:
    """The arguments between two parentheses."""
    out, last, position = [], start, start
    while position < end:
        if source.code[position] in _OPEN:
            position = source.closing(position)
        elif source.code[position] == ",":
            out.append(_squeezed(source.text[last:position]))
            last = position + 1
        position += 1
    rest = _squeezed(source.text[last:end])
    return (*out, rest) if rest or out else ()


def stored(
    source: Source, statement: Statement, column_at: int, macros: Mapping[str, tuple[tuple[str, ...], str]]
) -> Region:
    """What a statement stores to, at the position that the debug information gives the store.

    `macros`: parameters and body by name. Raises NotUnderstood.
    """
    code = source.code[statement.start : statement.end - 1]
    text = source.text[statement.start : statement.end - 1]
    operators = _assignments(code)
    at = column_at - statement.start
    called = _CALL.match(code, at) if at >= 0 else None
    if called is not None and (_ATOMICS.match(called.group(1)) or _COPIES.search(called.group(1))):
        return _of_call(text[at:].strip(), macros)
    if operators:
        exact = [pair for pair in operators if pair[0] <= at < pair[1]]
        if len(operators) > 1 and not exact:
            raise NotUnderstood("the statement stores more than once")
        begin, _ = exact[0] if exact else operators[0]
        earlier = [stop for _, stop in operators if stop <= begin]
        return _of_lvalue(text[max(earlier, default=0) : begin])
    for pattern in (r"(.*?)\s*(?:\+\+|--)\s*$", r"\s*(?:\+\+|--)\s*(.*)$"):
        found = re.match(pattern, code, re.DOTALL)
        if found:
            return _of_lvalue(text[found.start(1) : found.end(1)])
    return _of_call(text.strip(), macros)


def target(source: Source, line: int, column: int) -> str:
    """The expression that a store at this 1-based place stores to, as in `*ref`; "" where the text does not tell."""
    try:
        at = source.position(line, column)
        statement = source.statement(line, column)
        begin = statement.start
        operators = _assignments(source.code[begin : statement.end - 1])
        if operators and not any(first <= at - begin < last for first, last in operators):
            return ""
        region = stored(source, statement, at, {})
    except NotUnderstood:
        return ""
    if region.lvalue:
        return region.lvalue
    return f"*{region.address}" if re.fullmatch(r"\w+", region.address) else f"*({region.address})"


def assignment(source: Source, statement: Statement) -> tuple[str, str]:
    """Both sides of a statement that is one plain assignment. Raises NotUnderstood."""
    code = source.code[statement.start : statement.end - 1]
    operators = _assignments(code)
    if len(operators) != 1 or operators[0][1] - operators[0][0] != 1:
        raise NotUnderstood("it is no plain assignment")
    text = source.text[statement.start : statement.end - 1]
    return text[: operators[0][0]].strip(), text[operators[0][1] :].strip()


def _assignments(code: str) -> list[tuple[int, int]]:
    """Assignment operators outside of parentheses."""
    out, depth, position = [], 0, 0
    while position < len(code):
        if code[position] in _OPEN:
            depth += 1
        elif code[position] in _CLOSE:
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


def _of_call(text: str, macros: Mapping[str, tuple[tuple[str, ...], str]], deep: int = 0) -> Region:
    source = Source(text)
    found = re.match(
        r"(?:\(void\)\s*)?([A-Za-z_][\w:]*(?:\s*(?:\.|->)\s*\w+|\[[^\]]*\])*)\s*\(",
        source.code,
    )
    if found is None:
        raise NotUnderstood("no assignment or call that stores was recognised")
    name = found.group(1)
    given = arguments(source, found.end(), source.closing(found.end() - 1))
    member = _MEMBER.search(name)
    if member is not None:
        return _of_lvalue(name[: member.start()])
    copy = _COPIES.search(name)
    if copy is not None and len(given) >= 3:
        return _checked(Region(given[0], given[1 if copy.group(1).endswith("printf") else 2]))
    if _ATOMICS.match(name) and given:
        return _of_address(given[0])
    if name in macros and deep < 4:
        parameters, body = macros[name]
        if len(parameters) == len(given):
            table = dict(zip(parameters, given, strict=True))
            expanded = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: table.get(word.group(), word.group()), body)
            inner = Source(_bare(expanded.strip().rstrip(";")) + ";")
            if _assignments(inner.code[:-1]):
                return stored(inner, Statement(0, len(inner.text), -1), -1, macros)
            return _of_call(inner.text, macros, deep + 1)
    raise NotUnderstood(f"it is stored by `{name}`, whose arguments are not understood")


def _of_address(text: str) -> Region:
    text = text.strip()
    if text.startswith("&"):
        return _of_lvalue(_bare(text[1:]))
    return _checked(Region(text, f"sizeof *({text})" if not re.fullmatch(r"\w+", text) else f"sizeof *{text}"))


def _of_lvalue(text: str) -> Region:
    lvalue = _bare(_squeezed(text))
    declared = re.match(r"(?:(?:const|volatile|static|auto|struct \w+|[A-Za-z_][\w:<>]*)\s+)+\**\s*\w+$", lvalue)
    if declared:
        raise NotUnderstood("it declares a variable")
    if not _NAMED.fullmatch(_without_brackets(lvalue)):
        raise NotUnderstood(f"`{lvalue}` is more than what is stored to")
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
        depth -= char in _CLOSE
        if depth == 0:
            out += char
        depth += char in _OPEN
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


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)).strip()


_COUNTED = re.compile(
    r"\s*(?:[A-Za-z_]\w*\s+)*(\w+)\s*=\s*(\w+)\s*;\s*(\w+)\s*(?:<|!=)\s*([\w.]+(?:->\w+|\s*[-+*]\s*\w+)*)\s*;"
    r"\s*(?:\+\+\s*(\w+)|(\w+)\s*\+\+)\s*"
)


def whole(region: Region, loop: Loop) -> Region:
    """All that a loop stores to, whose body stores to `region`. Raises NotUnderstood.

    It counts a variable up by one, and that is the index of an array where the body stores.
    """
    found = _COUNTED.fullmatch(Source(loop.head).code)
    if found is None or len({found.group(1), found.group(3), found.group(5) or found.group(6)}) > 1:
        raise NotUnderstood("how often its loop runs is not understood")
    index, first, end = found.group(1), found.group(2), found.group(4)
    at = re.search(rf"\[\s*{index}\s*\]", region.lvalue)
    names = re.findall(rf"\b{index}\b", region.lvalue)
    inside = at is None or region.lvalue[: at.start()].count("[") != region.lvalue[: at.start()].count("]")
    if at is None or inside or len(names) != 1 or re.search(rf"\b{index}\b", end):
        raise NotUnderstood("what its loop stores to is not understood")
    element = f"{region.lvalue[: at.start()]}[{first}]"
    many = (
        end if first == "0" and re.fullmatch(r"[\w.>-]+", end) else f"({end} - {first})" if first != "0" else f"({end})"
    )
    return _checked(Region(f"&{element}", f"{many} * sizeof {element}"))


_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)]*)\)((?:[^\n\\]|\\.|\\\n)*)", re.MULTILINE)


def macros_of(text: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """Function-like macros of a file: parameters and body by name."""
    out = {}
    for found in _DEFINE.finditer(text):
        parameters = tuple(name.strip() for name in found.group(2).split(",")) if found.group(2).strip() else ()
        out[found.group(1)] = (parameters, _squeezed(found.group(3).replace("\\\n", " ")))
    return out


def calls_in(expression: str) -> tuple[str, ...]:
    """Names of what an expression calls."""
    return tuple(found.group(1) for found in _CALL.finditer(Source(expression).code) if found.group(1) != "sizeof")
