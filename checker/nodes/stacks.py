"""The call stacks by which nodes sent messages, as a finding shows them: "append (FILE:24)", innermost call first.

Lines are known of scripts, of Node and Java, of what crashcheck-cc built and of programs with debug information; else a
function alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.trace.functions import FunctionNames
from crashcheck.analyzer.trace.native_lines import NativeLines
from crashcheck.analyzer.trace.reader import CallSite, Trace, read
from crashcheck.checker.findings.provenance import OWN, Project, ownership
from crashcheck.runtime.nodes.machines import Call
from crashcheck.runtime.trace_format import Kind

_MOST_FRAMES = 8
_SOURCES = ("", "src/main/java", "src/main/kotlin", "src")  # where builds have those of Java, as stacks/java.c does


def facts_of(trace: Trace) -> ProgramFacts:
    """What is known of the programs that a node executed."""
    executed = (trace.data(at) for at in trace.rows(Kind.EXEC).tolist())
    programs = dict.fromkeys(data.decode("utf-8", "surrogateescape") for data in executed)
    return ProgramFacts.load(program for program in programs if Path(program).is_file())


class SenderStacks:
    """Names the calls of traces (machines.NameCalls). `folder`: of the project."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = FunctionNames()
        self._lines = NativeLines(lambda path: ownership(path) == OWN)

    def __call__(self, path: Path, calls: Sequence[Call]) -> list[tuple[str, ...]]:
        trace = read(path)
        facts = facts_of(trace)
        project = Project(facts, self._folder)
        found = {call: tuple(self._frames(trace, facts, project, call)) for call in dict.fromkeys(calls)}
        return [found[call] for call in calls]

    def _frames(self, trace: Trace, facts: ProgramFacts, project: Project, call: Call) -> Iterator[str]:
        """Those of the project; where it has none, the functions that are known."""
        sites = (call[0], *trace.stack(call[1]))
        scripted = [self._found(one) for one in map(trace.call_sites.get, sites) if one is not None and one.name]
        if scripted:  # what the interpreter does for them is not shown
            best = max(ownership(each.module) for each in scripted)
            inner = [each for each in scripted if ownership(each.module) == best]
            yield from (f"{each.name} ({project.file(each.module)}:{each.line})" for each in inner[:_MOST_FRAMES])
            return
        known = [frame for each in sites for frame in self._of(trace, facts, project, each)]
        own = [text for text, is_own in known if is_own]
        yield from (own or [text for text, _ in known if text])[:_MOST_FRAMES]

    def _found(self, site: CallSite) -> CallSite:
        """A call whose source Java names without a folder, as no node runs in that of the project."""
        for below in () if site.module.startswith(("/", "<")) else _SOURCES:
            if (path := self._folder / below / site.module).is_file():
                return replace(site, module=str(path))
        return site

    @staticmethod
    def _is_own(project: Project, file: str) -> bool:
        return project.has(file) and ownership(file) == OWN

    def _of(self, trace: Trace, facts: ProgramFacts, project: Project, site: int) -> Iterator[tuple[str, bool]]:
        """Each call of a site, which may have been inlined, and whether it is the project's own."""
        found = trace.call_sites.get(site)
        if found is None:
            described = trace.site(site, facts)
            for place in described.positions if described is not None else ():
                yield f"{place.function} ({project.file(place.file)}:{place.line})", self._is_own(project, place.file)
            return
        places = self._lines.chain(found.module, found.offset - 1) if found.module else ()
        for place in places:
            function = place.function or self._names.name(found)
            yield f"{function} ({project.file(place.file)}:{place.line})", self._is_own(project, place.file)
        if not places:
            yield self._names.name(found), False
