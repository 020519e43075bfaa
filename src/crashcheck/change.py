"""What a change touches of a program: its lines, and the functions that they lie in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from crashcheck.analyzer.behaviours import StaticSite
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.checker.results import Finding, Location, RunResult
from crashcheck.diff import Diff
from crashcheck.repository import repository_of
from crashcheck.source import SourceTree


class Touched:
    """A change as seen from a program. A function counts as touched from its first place in the facts to its last.

    So a fence that was taken out is a change of the function that it stood in, and of the stores there.
    """

    def __init__(self, diff: Diff, folder: Path, facts: ProgramFacts) -> None:
        tree, repository = SourceTree(folder), repository_of(folder)

        @cache
        def name(file: str) -> str:
            return repository.name(tree.relative(file)) if file else ""

        self._name = name
        self._diff = diff
        extents: dict[tuple[str, str], tuple[int, int]] = {}
        for unit in facts.units.values():
            for site in unit.sites:
                for place in site.positions:
                    key = (name(place.file), place.function)
                    if key[0] in diff.files and place.line:
                        low, high = extents.get(key, (place.line, place.line))
                        extents[key] = (min(low, place.line), max(high, place.line))
        self._functions = {
            (file, function)
            for (file, function), (low, high) in extents.items()
            if any(low <= line <= high for line in diff.changed(file))
        }

    def at(self, file: str, line: int, function: str) -> bool:
        """Whether a place was changed, or its function."""
        named = self._name(file)
        return line in self._diff.changed(named) or (named, function) in self._functions

    def site(self, site: StaticSite) -> bool:
        """As `at`, of a place that updates files."""
        return self.at(site.file, site.line, site.function)

    def finding(self, finding: Finding) -> bool:
        """Whether a culprit of a finding was changed, or the place of the crash."""
        return any(self.at(place.file, place.line, place.function) for place in _places(finding))

    def mark(self, result: RunResult) -> RunResult:
        """`result`, with what is in the change marked."""

        def marked(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
            return tuple(replace(finding, in_diff=self.finding(finding)) for finding in findings)

        return replace(result, findings=marked(result.findings), uncertain=marked(result.uncertain))


def _places(finding: Finding) -> Iterator[Location]:
    for place in (finding.location, finding.other, finding.crash_location):
        if place is not None:
            yield place
