"""Names the places of a run as the pull request shows them: from the repository's root, at its newest commit.

A checkout of the merge has other lines than the branch, where the base moved on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from crashcheck.change.diff import run_git
from crashcheck.checker.results import Earlier, Edit, Frame, Location, RunResult
from crashcheck.errors import CrashcheckError
from crashcheck.masking import rewritten

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_IN_PARENTHESES = re.compile(r" \([\w./+-]+:\d{1,9}\)")
_PLACE = re.compile(r"(?<![\w./-])([\w./+-]+):(\d{1,9})\b")

ToHead = Callable[[str, int], int]
"""The line at the newest commit of a line of the checkout; 0 for one that only the base has."""


def lines_at(root: Path, sha: str) -> ToHead:
    """For a checkout of the merge of commit `sha` into its base; elsewhere lines stay as they are."""

    def same(file: str, line: int) -> int:
        return line

    try:
        merged = run_git(root, "rev-parse", "--verify", "--quiet", "HEAD^2").decode().strip()
    except CrashcheckError:
        return same
    if merged != sha:
        return same

    @cache
    def hunks(file: str) -> tuple[tuple[int, int, int], ...]:
        try:
            diff = run_git(root, "diff", "--no-color", "--no-ext-diff", "--no-renames", "-U0", sha, "HEAD", "--", file)
        except CrashcheckError:
            return ()
        found = []
        for _, old_rows, new, new_rows in _HUNK.findall(diff):
            gone, put = int(old_rows or 1), int(new_rows or 1)
            start = int(new) + (put == 0)  # where a hunk puts nothing, it names the line before it
            found.append((start, start + put, put - gone))
        return tuple(found)

    def line_at(file: str, line: int) -> int:
        moved = 0
        for start, end, grown in hunks(file):
            if start <= line < end:
                return 0
            moved += grown if line >= end else 0
        return line - moved

    return line_at


def in_commit(root: Path, sha: str, name: Callable[[str], str]) -> Callable[[str], str]:
    """`name`, and "" for a file that commit `sha` does not have, as a generated one; where it is not known, all are."""
    try:
        listed = run_git(root, "ls-tree", "-r", "--name-only", "--full-tree", "-z", sha).decode("utf-8", "replace")
    except CrashcheckError:
        return name
    there = set(listed.split("\0"))
    return lambda file: found if (found := name(file)) in there else ""


def located(result: RunResult, name: Callable[[str], str], to_head: ToHead, root: Path) -> RunResult:
    """`result` with the repository's names of files (`name`; "" for one outside), and lines `to_head`.

    In words, those of findings' places, and of files that are in the checkout `root`.
    """
    known = {place.file for place in _places(result) if place.line}

    @cache
    def is_known(file: str) -> bool:
        there = name(file)
        return file in known or bool(there and (root / there).is_file())

    def at(file: str, line: int) -> tuple[str, int]:
        there = name(file)
        return (there, to_head(there, line)) if there else (file, line)

    def in_words(match: re.Match[str]) -> str:
        if not is_known(match[1]):
            return match[0]
        file, line = at(match[1], int(match[2]))
        return f"{file}:{line}" if line else f"{file}:{match[2]} of the merge"

    def change(value: Any) -> Any:
        if isinstance(value, str):
            return _PLACE.sub(in_words, value)
        if isinstance(value, Location | Frame) and value.line:
            file, line = at(value.file, value.line)
            return replace(value, file=file, line=line)
        if isinstance(value, Edit):
            file, line = at(value.file, value.line)
            return replace(value, file=file, line=line) if line else value
        return value

    base = result.base and replace(result.base, earlier=_without_lines(result.base.earlier))
    result = replace(result, base=base, again=_without_lines(result.again))
    return replace(result, findings=rewritten(result.findings, change), uncertain=rewritten(result.uncertain, change))


def _without_lines(found: tuple[Earlier, ...]) -> tuple[Earlier, ...]:
    """The lines of findings that are gone are those of another version."""
    return tuple(replace(one, message=_IN_PARENTHESES.sub("", one.message)) for one in found)


def _places(result: RunResult) -> list[Location | Frame]:
    found: list[Location | Frame] = []

    def gather(value: Any) -> Any:
        if isinstance(value, Location | Frame):
            found.append(value)
        return value

    rewritten((result.findings, result.uncertain), gather)
    return found
