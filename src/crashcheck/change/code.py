"""The code of a program that a change touches: the lines of the diff, and the functions that hold them.

`diff` reads the change itself, and knows nothing of programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from crashcheck.analyzer.behaviours import StaticSite
from crashcheck.analyzer.compile.facts import ProgramFacts, Site
from crashcheck.analyzer.trace import Trace
from crashcheck.change.diff import Diff
from crashcheck.change.unreached import not_run
from crashcheck.checker.evidence import CrashSchedule
from crashcheck.checker.results import Evidence, Finding, Location, RunResult
from crashcheck.source import SourceTree, repository_of

NO_FACTS = ProgramFacts({}, (), ())  # of programs in any language: then lines are known, and no functions


class ChangedCode:
    """The lines and functions of a program that a change touches.

    A function extends from its first line in the program facts to its last. So a fence that was deleted is a change of
    the function that it was in, and of the stores there.
    """

    def __init__(self, diff: Diff, folder: Path, facts: ProgramFacts) -> None:
        tree, repository = SourceTree(folder), repository_of(folder)

        @cache
        def name(file: str) -> str:
            return repository.name(tree.relative(file)) if file else ""

        self._name = name  # of a file, as the repository has it
        self._diff = diff
        self._facts = facts
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
        self._shrunk = {  # functions of which lines were deleted, and nothing put in their place
            (file, function)
            for (file, function), (low, high) in extents.items()
            if any(low <= line <= high for line in diff.files[file].gone)
        }

    def holds(self, file: str, line: int, function: str) -> bool:
        """Whether a line was changed, or its function."""
        named = self._name(file)
        return line in self._diff.changed(named) or (named, function) in self._functions

    def holds_site(self, site: StaticSite) -> bool:
        """As `holds`, of a statement that updates files."""
        return self.holds(site.file, site.line, site.function)

    def holds_finding(self, finding: Finding) -> bool:
        """Whether one of a finding's stores was changed, or the statement before which the crash happens; or whether
        lines were deleted from a function that persists between the stores: a flush or fence that was one of them."""
        if any(self.holds(place.file, place.line, place.function) for place in _places(finding)):
            return True
        return any((self._name(place.file), place.function) in self._shrunk for place in _persists(finding.evidence))

    def unrecorded(self, trace: Trace) -> tuple[str, ...]:
        """A sentence that names functions of the change which update files, and of which a trace has no update: a run
        without findings is no evidence for these.

        Such a function persists something itself, or calls one that led to an update elsewhere.
        """
        numbers = {*np.unique(trace.events["site"]).tolist(), *(site for _, site in trace.stacks.values())}
        recorded: list[Site] = [site for number in numbers if (site := trace.site(number, self._facts)) is not None]
        led = {site.callee for site in recorded if site.callee}
        met = {function for site in recorded for function in self._functions_of(site)}
        acting = {
            function
            for unit in self._facts.units.values()
            for site in unit.sites
            if site.kind in ("flush", "fence") or site.callee in led
            for function in self._functions_of(site)
        }
        missed = [f"`{function}` ({file})" for file, function in sorted(self._functions & acting - met)]
        return not_run(missed, way_out=" (--depth 2 tests those in recoveries)")

    def _functions_of(self, site: Site) -> set[tuple[str, str]]:
        return {(self._name(place.file), place.function) for place in site.positions}

    def mark(self, result: RunResult) -> RunResult:
        """`result`, with a mark on each finding that is in the change."""

        def marked(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
            return tuple(
                replace(finding, in_diff=self.holds_finding(finding), merged=marked(finding.merged))
                for finding in findings
            )

        return replace(result, findings=marked(result.findings), uncertain=marked(result.uncertain))


def _places(finding: Finding) -> Iterator[Location]:
    yield from finding.blamed
    crash = finding.evidence
    if isinstance(crash, CrashSchedule) and crash.crash_location is not None:
        yield crash.crash_location


def _persists(crash: Evidence) -> Iterator[Location]:
    """Where the flushes of the lost update's line are, and the fences and syncs, until the other store."""
    if not isinstance(crash, CrashSchedule):
        return
    lost_role, kept_role = ("other", "location") if crash.other is not None else ("location", "")
    steps = crash.schedule
    lost = max((at for at, step in enumerate(steps) if step.role == lost_role), default=len(steps))
    kept = next((at for at, step in enumerate(steps) if at > lost and step.role == kept_role), len(steps))
    for step in steps[lost + 1 : kept]:
        flushes = step.what == "flush" and (step.file, step.granule) == (steps[lost].file, steps[lost].granule)
        if step.location is not None and (flushes or step.what in ("fence", "sync")):
            yield step.location
