"""Reading C and C++ source as far as an edit needs it: statements, calls, macros.

By brackets and semicolons, not by a grammar: one without the preprocessor fails on loops that are macros, on K&R
definitions and around `#if`. tree-sitter's has errors in 10 % of the functions of Linux's ext4 and in 15 % of those of
libc++ and of LLVM's sanitizers; in all others of ext4 this module finds the same statements, or refuses the edit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*",
    re.DOTALL | re.MULTILINE,
)
OPEN, CLOSE = "([{", ")]}"
_CONTROL = re.compile(r"\b(if|for|while|switch)\s*$")
_LOOPS = ("for", "while")
_LEAVES = re.compile(
    r"(return|goto|break|continue|throw)\b|(std::)?(_?exit|_Exit|abort|quick_exit|errx?|verrx?|longjmp)\s*\("
)
CALL = re.compile(r"([A-Za-z_][\w:]*)\s*\(")
_SWAP = re.compile(r"(?:__sync_bool_compare_and_swap|(?:std::)?(?:__)?atomic_compare_exchange\w*)\s*\(")
_WORD = 80  # characters that are searched for a word and the white space after it
_NO_CALLS = frozenset(
    {"if", "for", "while", "switch", "return", "sizeof", "_Alignof", "alignof", "__typeof__", "typeof"}
)


class NotEditable(Exception):
    """Why a place of the source cannot be edited, in words."""


@dataclass(frozen=True, slots=True)
class Statement:
    """[start, end) of the source; `header`: where the `if (…)`, `for (…)` or `else` ends whose body it is, or -1."""

    start: int
    end: int
    header: int


@dataclass(frozen=True, slots=True)
class LoopStatement:
    """`head`: what is in the parentheses of its `for` or `while`."""

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
        """Of a 1-based line and column. Raises NotEditable if the file has no such place."""
        if not 1 <= line <= len(self.starts):
            raise NotEditable(f"the file has no line {line}")
        return min(self.starts[line - 1] + max(column, 1) - 1, len(self.text))

    def line_of(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1

    def line(self, number: int) -> str:
        stop = self.starts[number] - 1 if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : stop]

    def code_line(self, number: int) -> str:
        """A line without comments, literals and directives; "" if the file has no such line."""
        if not 1 <= number <= len(self.starts):
            return ""
        start = self.starts[number - 1]
        return self.code[start : start + len(self.line(number))]

    def indent(self, number: int) -> str:
        line = self.line(number)
        return line[: len(line) - len(line.lstrip())]

    def statement(self, line: int, column: int) -> Statement:
        """The statement that a place is in. Raises NotEditable where that is no statement of its own."""
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
            raise NotEditable("the store is part of a condition")
        if re.match(r"(return|throw|goto)\b", text):
            raise NotEditable("the store is part of a return")
        if "{" in text and not text.endswith("};") and "=" not in text[: text.index("{")]:
            raise NotEditable("the statement holds others")
        if self._in_parentheses(start):
            raise NotEditable("the store is part of a condition")  # of a `for`, whose parts end in semicolons
        return Statement(start, end, header)

    def guard(self, line: int, column: int) -> Statement | None:
        """The `if` that tests what is done at a place and else leaves, as `if (write(…) < n) return -1;`: what follows
        it follows the place. None if there is none."""
        start = self._start(self.position(line, column))
        header = self._header(start)
        found = re.compile(r"\s*if\s*(?=\()").match(self.code, start)
        if found is None:
            return None
        closing = self.closing(found.end())
        if re.search(r"&&|\|\||\?", self.code[found.end() : closing]) or not self._in_parentheses(
            self.position(line, column)
        ):
            return None
        body = re.compile(r"\s*").match(self.code, closing + 1)
        assert body is not None
        block = self.code[body.end() : body.end() + 1] == "{"
        end = self.closing(body.end()) + 1 if block else self._end(body.end())
        semicolon = len(self.code[: end - block].rstrip()) - 1
        last = self.code[self._start(semicolon) : semicolon].strip()
        if not _LEAVES.match(last) or re.compile(r"\s*else\b").match(self.code, end):
            return None
        return Statement(found.end() - len(found.group().lstrip()), end, header)

    def swap(self, line: int, column: int) -> tuple[Statement, Statement, bool] | None:
        """The call of a compare-and-swap at a place, and beside what it has stored for certain: before what its `if`
        does (True), as in `if (cas(…)) f();`, or after that `if` (False), as in `if (!cas(…)) return;`. None at another
        place."""
        at = self.position(line, column)
        found, head = _SWAP.match(self.code, at), re.compile(r"\s*if\s*\(\s*(!?)\s*").match(self.code, self._start(at))
        if found is None or head is None or head.end() != at:
            return None
        closing = self.closing(found.end() - 1)
        body = re.compile(r"\s*\)\s*(?:(\{)\s*|(?!\s|(?:if|for|while|switch|do)\b))").match(self.code, closing + 1)
        if body is None:
            return None
        call = Statement(at, closing + 2, -1)
        if head.group(1):
            leaves = self.guard(line, column)
            return None if leaves is None else (call, leaves, False)
        header = -1 if body.group(1) else self.code.index(")", closing + 1) + 1
        return call, Statement(body.end(), self._end(body.end()), header), True

    def _start(self, at: int) -> int:
        """Just after what ends the statement before."""
        code, position = self.code, at - 1
        while position >= 0:
            char = code[position]
            if char in ")]":
                opening = self._opening(position)
                if char == ")" and self._control(opening) is not None:
                    return position + 1
                position = opening - 1
                continue
            if (
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
            depth += (self.code[at] in CLOSE) - (self.code[at] in OPEN)
            if depth < 0:
                return self.code[at] != "{"
        return False

    def torn_from(self, header: int, start: int, end: int) -> str:
        """Why whole lines cannot be put around [start, end), whose condition ends at `header` (-1: none); "" if they
        can."""
        first, last = self.line_of(start), self.line_of(end - 1)
        for at in (self.starts[first - 1], self.starts[last - 1] + len(self.line(last))):
            if any(begin < at < stop for begin, stop in self._over_lines):
                return "a comment continues on the next line"
        if header >= 0 and re.search(r"^[ \t]*#", self.text[header:end], re.MULTILINE):
            return "a directive of the preprocessor is between it and its condition"
        return ""

    def _control(self, opening: int) -> re.Match[str] | None:
        """The `if`, `for`, `while` or `switch` whose parentheses open at a position."""
        return _CONTROL.search(self.code[max(0, opening - _WORD) : opening])

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

    def loop_around(self, statement: Statement) -> LoopStatement | None:
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
        found = self._control(opening)
        if found is None or found.group(1) not in _LOOPS:
            return None
        start = opening - len(found.group())
        outside = self._header(self._start(start))
        return LoopStatement(Statement(start, end, outside), self.text[opening + 1 : header - 1])

    def in_loop(self, statement: Statement) -> bool:
        """Whether a statement is in a loop of its function."""
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
                found = self._control(opening)
                if found is None:
                    return False  # the function's own parameters
                if found.group(1) in _LOOPS:
                    return True
                start = opening - len(found.group())
                header = self._header(self._start(start))

    def _before_else(self, position: int) -> tuple[int, int]:
        """Start and header of what an `if` does, whose `else` is at a position."""
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
        raise NotEditable("its parentheses do not match")

    def closing(self, opening: int) -> int:
        depth = 0
        for position in range(opening, len(self.code)):
            if self.code[position] in OPEN:
                depth += 1
            elif self.code[position] in CLOSE:
                depth -= 1
                if depth == 0:
                    return position
        raise NotEditable("its parentheses do not match")

    def _end(self, start: int) -> int:
        """Just after the semicolon."""
        position = start
        while position < len(self.code):
            char = self.code[position]
            if char in OPEN:
                position = self.closing(position)
            elif char == ";":
                return position + 1
            elif char in CLOSE:
                break
            position += 1
        raise NotEditable("the statement has no end")

    def call_text(self, at: int) -> str:
        """The call that begins at a position, as it is written; "" if none does, as where a function is declared."""
        found = CALL.match(self.code, at)
        before = re.search(r"(\w+)\s*$", self.code[max(0, at - _WORD) : at])
        declares = before is not None and before.group(1) not in ("else", "do", "return", "throw")
        if found is None or found.group(1) in _NO_CALLS or declares or self._brace_around(at) < 0:
            return ""
        return self.text[at : self.closing(found.end() - 1) + 1]

    def call(self, line: int, column: int) -> tuple[str, tuple[str, ...]] | None:
        """(callee, arguments) of the call that begins at a place; None if none does."""
        at = self.position(line, column)
        found = CALL.match(self.code, at)
        if found is None:
            return None
        try:
            closing = self.closing(found.end() - 1)
        except NotEditable:
            return None
        before = re.search(r"[\w\])]+\s*(?:\.|->)\s*$", self.code[self.code.rfind("\n", 0, at) + 1 : at])
        if before is not None:
            return None  # a method: what it is called on is not known elsewhere
        return found.group(1), arguments(self, found.end(), closing)


def arguments(source: Source, start: int, end: int) -> tuple[str, ...]:
    """The arguments between two parentheses."""
    out, last, position = [], start, start
    while position < end:
        if source.code[position] in OPEN:
            position = source.closing(position)
        elif source.code[position] == ",":
            out.append(squeezed(source.text[last:position]))
            last = position + 1
        position += 1
    rest = squeezed(source.text[last:end])
    return (*out, rest) if rest or out else ()


def squeezed(text: str) -> str:
    """Without comments, and with a space for each stretch of white space."""
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)).strip()


Macro = tuple[tuple[str, ...], str]  # parameters and body

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_UNDEF = re.compile(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)]*)\)((?:[^\n\\]|\\.|\\\n)*)", re.MULTILINE)


def macros_of(text: str) -> dict[str, Macro]:
    """Function-like macros of a file; of several definitions of one name the last."""
    return dict(_definitions(text))


def known_macros(sources: Iterable[Source]) -> dict[str, Macro]:
    """The function-like macros of some files of which there is one definition."""
    found: dict[str, set[Macro]] = {}
    undefined = set()
    for source in sources:
        undefined.update(_UNDEF.findall(source.text))
        for name, macro in _definitions(source.text):
            found.setdefault(name, set()).add(macro)
    return {name: next(iter(all_)) for name, all_ in found.items() if len(all_) == 1 and name not in undefined}


def _definitions(text: str) -> Iterator[tuple[str, Macro]]:
    for found in _DEFINE.finditer(text):
        parameters = tuple(name.strip() for name in found.group(2).split(",")) if found.group(2).strip() else ()
        yield found.group(1), (parameters, squeezed(found.group(3).replace("\\\n", " ")))


def visible(file: Path, read: Callable[[Path], Source | None]) -> list[Source]:
    """A file and what it includes by `#include "…"` that is where the directive names it, each once, in that order."""
    known: set[str] = set()
    out: list[Source] = []

    def follow(path: Path) -> None:
        real = os.path.realpath(path)  # two headers that include each other by `../` give ever longer paths
        if real in known:
            return
        known.add(real)
        source = read(path)
        if source is None:
            return
        out.append(source)
        for name in _INCLUDE.findall(source.text):
            header = path.parent / name
            if os.path.isfile(header):
                follow(header)

    follow(file)
    return out


def calls_in(expression: str) -> tuple[str, ...]:
    """Names of what an expression calls."""
    return tuple(found.group(1) for found in CALL.finditer(Source(expression).code) if found.group(1) != "sizeof")
