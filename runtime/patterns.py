"""Match the names of pool files: the glob patterns of `[pool] files`, as the recorder reads them too."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path


def matches(path: str, patterns: Sequence[str]) -> bool:
    """True if `path`, relative to the pool folder, matches one of `patterns`.

    `*` and `?` stay within a folder, `**` crosses folders (`**/` may also be nothing), `[a-z]` and
    `[!a-z]` are sets. Names that start with a dot are not special. The same as glob() in recorder/pool_files.c.
    """
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


def watched_files(pool: Path, patterns: Sequence[str]) -> tuple[str, ...]:
    """The relative paths of the regular files in `pool` that match, sorted."""
    return tuple(path for path in regular_files(pool) if matches(path, patterns))


def regular_files(pool: Path) -> tuple[str, ...]:
    """The relative paths of all regular files in `pool`, sorted; symbolic links are not followed."""
    return tuple(sorted(_walk(pool, "")))


def _walk(folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                yield prefix + entry.name


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*" and pattern.startswith("*/", at):
            out.append("(?:.*/)?")
            at += 2
        elif char == "*" and pattern.startswith("*", at):
            out.append(".*")
            at += 1
        elif char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            closing = _closing_bracket(pattern, at)
            if closing < 0:
                out.append(re.escape(char))
            else:
                out.append(_char_set(pattern[at:closing]))
                at = closing + 1
        else:
            out.append(re.escape(char))
    return re.compile("".join(out), re.DOTALL)


def _closing_bracket(pattern: str, at: int) -> int:
    start = at + 1 if pattern.startswith("!", at) else at
    return pattern.find("]", start + 1)


def _char_set(body: str) -> str:
    negated = body.startswith("!")
    chars = "".join("\\" + char if char in "\\]^[&~|" else char for char in body[negated:])
    return f"(?!/)[{'^' if negated else ''}{chars}]"
