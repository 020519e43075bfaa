"""Lines put before, after or in the place of a statement, as edits of whole lines in the style of the file.

1. A statement that is the whole body of an `if`, `for` or `else` gets braces, so that what is added is part of it.
2. Added lines are indented as the lines around them.
3. Where whole lines cannot do it, NotEditable gives the reason; nothing is guessed.
"""

from __future__ import annotations

import re

from crashcheck.checker.fixes.candidates import Step
from crashcheck.checker.fixes.source.c_source import NotEditable, Source, Statement
from crashcheck.checker.results import Edit


def first_include(source: Source) -> int:
    """The line of the first `#include` of those that depend on the fewest conditions; 1 if there is none."""
    found, least, depth = 1, -1, 0
    for number, line in enumerate(source.text.split("\n"), 1):
        directive = re.match(r"[ \t]*#[ \t]*(if|endif|include)", line)
        word = directive.group(1) if directive else ""
        depth += (word == "if") - (word == "endif")
        if word == "include" and not 0 <= least <= depth:
            found, least = number, depth
    return found


def _check_head(head: str, before: bool) -> None:
    """Raises NotEditable where lines cannot be put beside a statement because of what is before it on its line."""
    if head.strip() and not re.fullmatch(r"\s*(case\b[^{};]*|default\s*|\w+\s*):\s*", head):
        raise NotEditable("other code is before it on the line")
    if head.strip() and before:
        raise NotEditable("a label is before it on the line")


def put_lines(step: Step, source: Source, statement: Statement, first: int, last: int, lines: list[str]) -> list[Edit]:
    """The edits that put lines before or after a statement, in braces where it is all that an `if` or `for` does."""
    file = step.place.file
    own = source.indent(first)
    torn = source.torn_from(statement.header, statement.start, statement.end)
    if torn:
        raise NotEditable(torn)
    if statement.header < 0:
        _check_head(source.code[source.position(first, 1) : statement.start], step.before)
        text = "\n".join(own + line for line in lines)
        return [Edit(file, first if step.before else last, step.before, text)]
    above = source.line_of(statement.header - 1)
    if above == last:
        line = source.line(above)
        split = statement.header - source.position(above, 1)
        inner = own + _unit(source)
        block = "\n".join(inner + text for text in lines)
        whole = [line[:split].rstrip() + " {", *([block] if step.before else []), inner + line[split:].strip()]
        opened, closed = Edit(file, above, True, "\n".join(whole), line), Edit(file, last, False, own + "}")
        return [opened, closed] if step.before else [opened, Edit(file, last, False, block), closed]
    if above == first:
        raise NotEditable("the statement begins on the line of its condition")
    line = source.line(above)
    split = statement.header - source.position(above, 1)
    opened = Edit(file, above, True, line[:split] + " {" + line[split:], line)
    outer = source.indent(source.line_of(_keyword(source, statement.header)))
    if len(own.expandtabs(8)) <= len(outer.expandtabs(8)):
        raise NotEditable("it is not indented more than its condition")
    added = Edit(file, first if step.before else last, step.before, "\n".join(own + text for text in lines))
    return [opened, added, Edit(file, last, False, outer + "}")]


def put_instead(file: str, source: Source, statement: Statement, line: int, block: list[str]) -> list[Edit]:
    """The edits that put a block in the place of a statement on a line of its own."""
    own, old = source.indent(line), source.line(line)
    torn = source.torn_from(statement.header, statement.start, statement.end)
    if torn:
        raise NotEditable(torn)
    if statement.header < 0:
        inner = own + _unit(source)
        return [Edit(file, line, True, "\n".join([own + "{", *(inner + text for text in block), own + "}"]), old)]
    above = source.line_of(statement.header - 1)
    head = source.line(above)
    split = statement.header - source.position(above, 1)
    closed = source.indent(source.line_of(_keyword(source, statement.header))) + "}"
    return [
        Edit(file, above, True, head[:split] + " {" + head[split:], head),
        Edit(file, line, True, "\n".join(own + text for text in block), old),
        Edit(file, line, False, closed),
    ]


def _keyword(source: Source, header: int) -> int:
    """Where the `if`, `for` or `else` begins whose head ends at a position."""
    if source.code[header - 1] != ")":
        return header - 1
    depth = 0
    for position in range(header - 1, -1, -1):
        depth += (source.code[position] == ")") - (source.code[position] == "(")
        if depth == 0:
            return position - 1
    return header - 1


def _unit(source: Source) -> str:
    """One step of indentation."""
    indents = [len(m.group(1)) for m in re.finditer(r"^( +)\S", source.text, re.MULTILINE)]
    return "\t" if re.search(r"^\t", source.text, re.MULTILINE) else " " * min((n for n in indents if n > 1), default=4)
