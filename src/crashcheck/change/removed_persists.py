"""Deleted lines that flushed, fenced or synced: which findings of a change each of them explains, and its repair.

The base's recording shows what a deleted line did. The crash state of a finding that the base does not have, and that
the base would have without this line alone, is explained by it. So it is the recording that decides, not a likeness
of findings. Findings that the same deletions explain are one bug: putting those lines back fixes all of them.

What is put back is what the base had there: whole statements where nothing around them was deleted too, else all of
the neighbouring deleted lines. A call without the `if` that guarded it would be another program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crashcheck.analyzer.persistence import build
from crashcheck.change.diff import Diff, Removal
from crashcheck.checker.findings.call_chains import CallChains, call_chains
from crashcheck.checker.findings.counterpart import Parted, lost_once_acknowledged, states_that_part
from crashcheck.checker.fixes.source.c_source import NotEditable, Source
from crashcheck.checker.fixes.source.unit_compiles import UnitCompiles
from crashcheck.checker.mutation.mutants import persist_rows, without_some
from crashcheck.checker.results import RESTORE, Edit, Finding, Fix, Location
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.subject import Subject
from crashcheck.config import Config
from crashcheck.source import SourceTree, repository_of, source_lines, spoken
from crashcheck.stages.recording import RecordedRun
from crashcheck.wording import listed

MOST_REMOVALS = 32  # that are tried, in the order of the source; each takes one persistence graph
_ALSO_SHOWN = 5
# What decides whether the statements beside it run.
_STRUCTURE = re.compile(r"[{}]|\b(?:if|else|for|while|do|switch|case|default|return|goto|break|continue)\b|:\s*$")

Place = tuple[str, int]  # the repository's name of a file, and a line


@dataclass(frozen=True, slots=True, eq=False)
class Removed:
    """Neighbouring deleted lines, some of which persisted. `base`: the base's run as it is without these."""

    file: str  # as findings name it
    function: str
    lines: Mapping[int, str]  # those that persisted, by their number in the base
    line: int  # of the new side, before which they were
    moved: bool  # the change adds the same text elsewhere in the file
    put_back: tuple[str, ...]  # the lines that restore what was there; () if that is not known
    base: Subject

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.lines.values()).replace("`", "'").split())

    @property
    def where(self) -> str:
        file = spoken(self.file)
        return f"{file}:{self.line}"

    @property
    def words(self) -> str:
        """ "removes `sfence();` from persist (pm.h:12)"."""
        if self.moved:
            return f"moves `{self.text}` in {self.function} ({self.where})"
        return f"removes `{self.text}` from {self.function} ({self.where})"


def removed_persists(base: tuple[Config, RecordedRun], now: tuple[Config, RecordedRun], change: Diff) -> list[Removed]:
    """The deletions of a change that took away something that persisted, and put nothing that persists in its place."""
    config, run = base
    subject, there, here = run.subject, repository_of(config.folder), repository_of(now[0].folder)
    deleted: dict[Place, tuple[str, Removal]] = {
        (file.before, old): (path, removal)
        for path, file in change.files.items()
        for removal in file.removals
        for old in removal.old
    }
    if not deleted:
        return []
    persisting = _persisting_lines(*now)
    chain = _chains(config, run)
    rows = persist_rows(subject.trace)
    calls, call_of = np.unique(subject.trace.calls(rows), return_inverse=True)
    found: dict[tuple[str, int], tuple[Removal, str, dict[int, int], set[int]]] = {}
    for call in range(len(calls)):
        same = rows[call_of == call]
        for place in chain(int(same[0])):
            at = (there.name(place.file), place.line)
            if at not in deleted:
                continue
            path, removal = deleted[at]
            if any((path, line) in persisting for line in removal.instead):
                continue  # it was replaced
            key = (path, min(removal.old))
            _, _, lines, gone = found.setdefault(key, (removal, place.function, {}, set()))
            lines.setdefault(place.line, place.column)
            gone |= set(same.tolist())
    tree = SourceTree(now[0].folder)
    out = []
    for (path, _), (removal, function, lines, gone) in sorted(found.items(), key=lambda item: item[0])[:MOST_REMOVALS]:
        texts = {line: removal.old[line] for line in sorted(lines)}
        file = here.root / path
        added = {source_lines(file)[line - 1].strip() for line in _within(change.files[path].added, file)}
        moved = all(text.strip() in added for text in texts.values())
        before = source_lines(there.root / change.files[path].before)
        put_back = lines_put_back(Source("\n".join(before)), removal, lines)
        without = _without(subject, sorted(gone))
        out.append(Removed(tree.relative(file), function, texts, removal.before, moved, put_back, without))
    return out


def lines_put_back(base: Source, removal: Removal, persisting: Mapping[int, int]) -> tuple[str, ...]:
    """The deleted lines that restore what persisted; () where only a part of the base's code could be put back.

    `persisting`: lines of the base, each with the column of what persisted.
    """
    try:
        wanted = {line for first, column in persisting.items() for line in _lines_of_statement(base, first, column)}
    except NotEditable:
        wanted = set()
    apart = not any(
        _STRUCTURE.search(base.code_line(line)) or text.lstrip().startswith("#")
        for line, text in removal.old.items()
        if line not in wanted
    )
    if apart and wanted and wanted <= removal.old.keys():
        return tuple(removal.old[line] for line in sorted(wanted))
    return () if removal.instead else tuple(removal.old[line] for line in sorted(removal.old))


def _lines_of_statement(base: Source, line: int, column: int) -> range:
    """The lines of a statement that has its lines to itself. Raises NotEditable."""
    if not column:
        raise NotEditable("where on the line it is, is not known")
    statement = base.statement(line, column)
    first, last = base.line_of(statement.start), base.line_of(statement.end - 1)
    start, end = base.starts[first - 1], base.starts[last - 1] + len(base.line(last))
    if base.code[start : statement.start].strip() or base.code[statement.end : end].strip():
        raise NotEditable("other code is on its lines")
    return range(first, last + 1)


def _within(lines: Iterable[int], file: object) -> list[int]:
    most = len(source_lines(str(file)))
    return [line for line in lines if line <= most]


def _persisting_lines(config: Config, run: RecordedRun) -> frozenset[Place]:
    """The lines of the new side that flush, fence or sync, or lead to what does."""
    repository = repository_of(config.folder)
    chain = _chains(config, run)
    firsts = run.subject.trace.one_of_each_call(persist_rows(run.subject.trace))
    return frozenset((repository.name(place.file), place.line) for first in firsts for place in chain(first))


def _chains(config: Config, run: RecordedRun) -> CallChains:
    """Of what crashcheck-cc compiled with inlined functions; of other code as the recorder of calls knows it."""
    compiled = call_chains(run.subject.trace, run.facts, SourceTree(config.folder).relative)

    def chain(row: int) -> tuple[Location, ...]:
        here = None if compiled(row) else run.subject.provenance.of(row)
        return compiled(row) if here is None else (here, *(frame.location for frame in here.stack))

    return chain


def _without(subject: Subject, rows: Iterable[int]) -> Subject:
    """A run without some flushes, fences and syncs: its updates are the same, in the same order."""
    trace = without_some(subject.trace, rows)
    graph = build(trace, subject.graph.model, subject.graph.options)
    return replace(subject, trace=trace, graph=graph, space=StateSpace(graph))


def explaining(pair: Parted, removed: Sequence[Removed]) -> tuple[int, ...]:
    """The deletions without each of which the base would have the crash state of a finding, which it has not."""
    return tuple(at for at, one in enumerate(removed) if states_that_part(one.base, pair).states)


def breaking_promises(pair: Parted, removed: Sequence[Removed], base: Subject) -> tuple[int, ...]:
    """The deletions without each of which the base would lose what was acknowledged, also by what it prints, and which
    it does not lose."""
    if pair.keeping is not None or lost_once_acknowledged(base, pair):
        return ()
    return tuple(at for at, one in enumerate(removed) if lost_once_acknowledged(one.base, pair))


def one_bug(findings: Sequence[Finding], removed: Sequence[Removed], compiles: UnitCompiles) -> Finding:
    """The finding for all that the same deletions explain; the first of them leads."""
    first = findings[0]
    rest = findings[1:]
    what = " and ".join(one.words for one in removed)
    states = sum(one.states for one in findings)
    also = list(dict.fromkeys(one.message for one in rest))
    notes = [f"the same fix also fixes: {listed(also, _ALSO_SHOWN)}"] if also else []
    known = (*first.likenesses, *(name for one in rest for name in (one.id, *one.likenesses)))
    return replace(
        first,
        message=f"{first.message}: this change {what}",
        states=states,
        note="; ".join(filter(None, (first.note, *notes))),
        in_diff=True,
        likenesses=tuple(dict.fromkeys(known)),
        fix=_restored(removed, states, compiles),
    )


def _restored(removed: Sequence[Removed], states: int, compiles: UnitCompiles) -> Fix:
    edits = tuple(_edit(one, compiles) for one in removed if one.put_back)
    where = " and ".join(f"`{one.text}` in {one.function} at {one.where}" for one in removed)
    if len(edits) == len(removed):
        why_not = compiles.why_not(edits)
    else:
        why_not = "other code that was deleted with it belongs to it, and something is in its place"
    failing = "the failing state" if states == 1 else f"any of the {states:,} failing states"
    return Fix(
        RESTORE,
        f"put back {where}",
        () if why_not else edits,
        before_failing=states,
        verified=f"with it, as in the base, no crash can leave {failing}",
        no_edit=why_not,
    )


def _edit(one: Removed, compiles: UnitCompiles) -> Edit:
    text = "\n".join(one.put_back)
    most = len(source_lines(str(compiles.folder / one.file)))
    return Edit(one.file, min(one.line, max(most, 1)), one.line <= most, text)
