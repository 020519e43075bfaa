"""The source lines around the places of a finding, read from the project's folder only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crashcheck.checker.results import Location, RunResult

MAX_FILE_BYTES = 4 * 1024 * 1024
Sources = Mapping[str, tuple[str, ...]]
"""Lines of each source file, by the name that locations give it; joined by "\\n" they are its text."""


def read_sources(result: RunResult, root: Path) -> Sources:
    """The files under `root` that findings point to; what cannot be read is left out.

    File names come from debug information, so from the program under test: one that leads out of `root` is not
    read, or a report could be made to carry any file of this machine.
    """
    sources: dict[str, tuple[str, ...]] = {}
    base = root.resolve()
    for finding in result.all_findings:
        for name in dict.fromkeys(place.file for place in finding.places):
            if name in sources or not name:
                continue
            try:
                path = (base / name).resolve()
                if not path.is_relative_to(base) or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
                    continue
                # Only "\n" ends a line for a compiler; str.splitlines also splits at form feeds and other separators.
                sources[name] = tuple(path.read_bytes().decode("utf-8", "replace").split("\n"))
            except (OSError, ValueError):  # a name that is no path, a file that may not be read
                continue
    return sources


def around(sources: Sources, place: Location, context: int) -> tuple[tuple[int, str], ...]:
    """Numbered lines around `place`; only its own text where the file is missing or has changed since the build."""
    lines = sources.get(place.file, ())
    own = lines[place.line - 1] if 0 < place.line <= len(lines) else None
    if own is None or (place.text and own.strip() != place.text.strip()):
        return ((place.line, place.text),) if place.text else ()
    first = max(1, place.line - context)
    last = min(len(lines) - (lines[-1] == ""), place.line + context)  # after the last "\n" there is no line
    return tuple((number, lines[number - 1].rstrip("\r")) for number in range(first, last + 1))
