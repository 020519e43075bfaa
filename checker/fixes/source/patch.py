"""Edits applied to whole files, and the changes as a diff."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from crashcheck.checker.results import Edit
from crashcheck.errors import CrashcheckError

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ELSE_APART = re.compile(r"\}[ \t]*\r?\n[ \t]*else\b")


def in_order(edits: Iterable[Edit]) -> list[Edit]:
    """Each once, from the first line on; below one line from the innermost block outwards: two may need one brace."""

    def key(edit: Edit) -> tuple[str, int, int, int, bool]:
        if edit.replaces or edit.insert_before:
            return edit.file, edit.line, bool(edit.replaces), 0, False
        return edit.file, edit.line, 2, -_indent(edit.text), edit.text.strip() != "}"

    return sorted(dict.fromkeys(edits), key=key)


def _indent(text: str) -> int:
    text = text.expandtabs(8)
    return len(text) - len(text.lstrip())


def applied(edits: Iterable[Edit], read: Callable[[str], str]) -> dict[str, tuple[str, str]]:
    """Text before and after, by file.

    Raises CrashcheckError: fix-source-changed where a line is not as it was, fix-conflict where two edits are to change
    one line differently. Lines end as those of the file do.
    """
    by_file: dict[str, list[Edit]] = {}
    for edit in in_order(edits):
        by_file.setdefault(edit.file, []).append(edit)
    out = {}
    for file, mine in by_file.items():
        before = read(file)
        out[file] = (before, _applied(file, before, mine))
    return out


def _applied(file: str, before: str, edits: Sequence[Edit]) -> str:
    """The text of one file after its edits, which are in order."""
    carriage = "\r" if before.count("\n") == before.count("\r\n") else ""
    lines = before.split(f"{carriage}\n")
    above: dict[int, list[str]] = {}
    below: dict[int, list[str]] = {}
    instead: dict[int, str] = {}
    for edit in edits:
        if not _fits(edit, lines):
            raise CrashcheckError(
                "fix-source-changed",
                f"{file}:{edit.line} is not what it was when the program was built",
                "Run `crashcheck run` again, and then `crashcheck fix`.",
            )
    for edit in edits:
        if not edit.replaces:
            (above if edit.insert_before else below).setdefault(edit.line, []).append(edit.text)
        elif instead.setdefault(edit.line, edit.text) != edit.text:
            raise CrashcheckError(
                "fix-conflict",
                f"{file}:{edit.line} would have to be changed in two ways",
                "Apply one fix (`crashcheck fix ID --apply`), run again, and then apply the next.",
            )
    after: list[tuple[str, bool]] = []  # lines, and whether an edit made them
    for number, line in enumerate(lines, 1):
        texts = [(text, True) for text in above.get(number, ())]
        texts += [(instead.get(number, line), number in instead)]
        texts += [(text, True) for text in below.get(number, ())]
        after += [(one, made) for text, made in texts for one in text.split("\n")]
    joined = _else_joined(after) if not _ELSE_APART.search(before) else (text for text, _ in after)
    return f"{carriage}\n".join(joined)


def _fits(edit: Edit, lines: Sequence[str]) -> bool:
    """Whether the file has the line of an edit, as it was when the edit was made."""
    if not 1 <= edit.line <= len(lines):
        return False
    return not edit.replaces or lines[edit.line - 1].removesuffix("\r") == edit.replaces


def _else_joined(lines: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """Lines with an `else` beside the brace before it, where an edit made that."""
    held = ""
    for text, made in lines:
        if held:
            joined = re.match(r"\s*else\b", text) is not None
            yield f"{held} {text.lstrip()}" if joined else held
            held = ""
            if joined:
                continue
        if made and text.strip() == "}":
            held = text
        else:
            yield text
    if held:
        yield held


def diff(changed: Mapping[str, tuple[str, str]]) -> str:
    """The changes as a unified diff."""
    out = []
    for file, (before, after) in sorted(changed.items()):
        lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), f"a/{file}", f"b/{file}")
        out += [line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines]
    return "".join(out)
