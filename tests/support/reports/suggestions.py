"""Suggestions of a review as GitHub's button applies them: the block takes the place of the comment's line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from crashcheck.checker.results import Finding
from crashcheck.reports.github.comment import Job, ReviewComment, marker, suggestions
from support.reports.runs import run

_MARK = marker(Job("crashcheck.toml", "px86"))
_BLOCK = re.compile(r"^(`{3,})suggestion\n(.*)\n\1\Z", re.DOTALL | re.MULTILINE)


def suggested(folder: Path, *findings: Finding) -> tuple[ReviewComment, ...]:
    """What is suggested for findings of a project, on a pull request that shows all of its sources."""
    texts: dict[str, dict[int, str]] = {}
    for edit in (edit for one in findings if one.fix is not None for edit in one.fix.edits):
        text = (folder / edit.file).read_text(encoding="utf-8")
        texts.setdefault(os.path.normpath(edit.file), dict(enumerate(text.split("\n"), 1)))
    counting = (replace(one, compared="introduced") for one in findings)
    return suggestions(run(*counting), _MARK, os.path.normpath, texts)


def accept(folder: Path, comments: Sequence[ReviewComment]) -> None:
    """Replace each comment's line by its block. Two blocks for one line cannot both be accepted."""
    places = [(one.path, one.line) for one in comments]
    assert len(set(places)) == len(places), places
    for one in _last_first(comments):
        block = _BLOCK.search(one.body)
        assert block is not None, one.body
        path = folder / one.path
        lines = path.read_text(encoding="utf-8").split("\n")
        lines[one.line - 1 : one.line] = block[2].split("\n")
        path.write_text("\n".join(lines), encoding="utf-8")


def _last_first(comments: Iterable[ReviewComment]) -> list[ReviewComment]:
    return sorted(comments, key=lambda one: one.line, reverse=True)
