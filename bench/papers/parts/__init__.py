"""Tables that need more than the planted bugs' searches, each measured alone: `python -m bench.papers --part NAME`.

What was measured of all of them is kept in one file, docs/evaluation-parts.json: for each part its rows, and the
machine that they come from. Parts that were not measured are named on the page with what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Part(Generic[Row]):
    """A section of the page. `needs`: what it takes to measure it, for a reader who sees that it was not.

    `measure` gives rows as they come; `section` the lines below the title; `pictures` SVG texts by file name.
    """

    name: str
    title: str
    row: type[Row]
    needs: str
    measure: Callable[[], Iterator[Row]]
    section: Callable[[Sequence[Row]], Iterator[str]]
    pictures: Callable[[Sequence[Row]], Mapping[str, str]] = lambda rows: {}

    def rows(self, kept: Mapping[str, Any]) -> list[Row]:
        """The rows of what was measured."""
        return msgspec.convert(kept["rows"], list[self.row])  # type: ignore[name-defined]


def read(path: Path) -> dict[str, Any]:
    """All that was measured, by name of the part: `machine` and `rows`."""
    return dict(msgspec.json.decode(path.read_bytes())) if path.exists() else {}


def keep(path: Path, name: str, machine: Mapping[str, str], rows: Sequence[Any]) -> None:
    """Put the rows of one part into the file, one a line; other parts stay as they are."""
    known = {**read(path), name: {"machine": machine, "rows": msgspec.to_builtins(rows)}}
    lines = []
    for part in sorted(known):
        rows_of = ",\n".join(msgspec.json.encode(row).decode() for row in known[part]["rows"])
        on = msgspec.json.encode(known[part]["machine"]).decode()
        lines.append(f'"{part}": {{"machine": {on}, "rows": [\n{rows_of}]}}')
    path.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
