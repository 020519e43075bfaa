"""Where in the source an event of the trace comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from crashcheck.analyzer.ir.facts import ProgramFacts, Site
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.result import Frame, Location
from crashcheck.source import SourceTree, source_line


class Places(Protocol):
    """Locations of events, by index in the trace."""

    def of(self, event: int) -> Location | None:
        """The place of an event, or None where nothing is known."""
        ...

    def ordinal(self, event: int) -> int:
        """Which it is, from 0, among the places of its function that have the same variable and source text."""
        ...


class NoPlaces:
    """For traces without facts: nothing is known about any event."""

    def of(self, event: int) -> Location | None:
        return None

    def ordinal(self, event: int) -> int:
        return 0


class TracePlaces:
    """Places from the program facts; files relative to `folder` where they lie inside it."""

    def __init__(self, trace: Trace, facts: ProgramFacts, folder: Path) -> None:
        self._trace = trace
        self._facts = facts
        self._tree = SourceTree(folder)
        self._known: dict[tuple[int, int], Location | None] = {}
        self._files: dict[str, str] = {}

    def of(self, event: int) -> Location | None:
        row = self._trace.events[event]
        key = (int(row["site"]), int(row["stack"]))
        if key not in self._known:
            self._known[key] = self._find(*key)
        return self._known[key]

    def ordinal(self, event: int) -> int:
        here = self.of(event)
        unit = self._trace.unit_of(int(self._trace.events[event]["site"]))
        facts = self._facts.unit(unit.key) if unit is not None else None
        if here is None or facts is None:
            return 0
        alike = {
            (site.line, site.column)
            for site in facts.sites
            if site.function == here.function
            and site.variable == here.variable
            and self._file(site.file) == here.file
            and source_line(site.file, site.line).strip() == here.text
        }
        return sorted(alike).index((here.line, here.column)) if (here.line, here.column) in alike else 0

    def _find(self, site_id: int, stack_id: int) -> Location | None:
        callers = [self._trace.site(call, self._facts) for call in self._trace.stack(stack_id)]
        site: Site | None = self._trace.site(site_id, self._facts)
        frames = [frame for caller in callers if caller is not None for frame in self._frames(caller)]
        if site is not None:
            own = self._frames(site)
            return replace(
                self._location(site),
                stack=(*own[1:], *frames),
            )
        # A call into a library that has no facts: the innermost caller that has some.
        known = next((caller for caller in callers if caller is not None), None)
        if known is None:
            return None
        return replace(self._location(known), variable="", stack=tuple(frames[1:]))

    def _location(self, site: Site) -> Location:
        text = source_line(site.file, site.line).strip()
        return Location(self._file(site.file), site.line, site.column, site.function, site.variable, (), text)

    def _frames(self, site: Site) -> list[Frame]:
        return [Frame(place.function, self._file(place.file), place.line) for place in site.positions]

    def _file(self, path: str) -> str:
        if path not in self._files:
            self._files[path] = self._tree.relative(path)
        return self._files[path]
