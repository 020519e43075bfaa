"""What the check reads: guards that the workload never tests, because only recovery or the check reads them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from crashcheck.analyzer.behaviours.updates import AccessColumns
from crashcheck.analyzer.compile.dependence.interprocedural import Dependences
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.invariants.indirect_calls import dependences_that_ran
from crashcheck.analyzer.invariants.ppdg import (
    Accesses,
    Binder,
    Edges,
    collect_accesses,
    find_edges,
    keep_informative,
)
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.accesses import UnitDef
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.interruption import KeepOn, always


@dataclass(frozen=True, slots=True, eq=False)
class CheckReads:
    """A recorded run of the check on the image that the workload left: its reads, and which depended on which.

    `facts` are those of its program. Its updates are left out: only a workload's are crashed.
    """

    trace: Trace
    facts: ProgramFacts
    rows: Accesses
    joined: Edges

    def after(self, trace: Trace, rows: Accesses, joined: Edges) -> tuple[Trace, Accesses, Edges]:
        """A run's accesses and edges, and after them the check's; with a trace that knows the sites of both.

        What the run's own accesses depend on stays as it was. Reads of files that the run does not know are left out.
        """
        units, move = self._sites(trace)
        files = {file.path: file.id for file in trace.files.values()}
        number = np.zeros(max(self.trace.files, default=0) + 1, dtype=np.int64)
        for file in self.trace.files.values():
            number[file.id] = files.get(file.path, 0)
        mine = np.flatnonzero(number[self.rows.columns.file] > 0)
        place = np.full(len(self.rows), -1, dtype=np.int64)
        place[mine] = np.arange(len(rows), len(rows) + len(mine))
        own = self.rows.chosen(mine)
        columns = replace(own.columns, site=move[own.columns.site], file=number[own.columns.file])
        both = Accesses(
            AccessColumns(
                *(_joint(getattr(rows.columns, one.name), getattr(columns, one.name)) for one in fields(AccessColumns))
            ),
            np.concatenate([rows.load, own.load]),
            _joint(rows.thread, own.thread + int(rows.thread.max(initial=0)) + 1),
            np.concatenate([rows.stretch, own.stretch]),
        )
        access, on = place[self.joined.access], place[self.joined.on]
        known = (access >= 0) & (on >= 0)
        return (
            replace(trace, units=units),
            both,
            Edges(
                _joint(joined.access, access[known]),
                _joint(joined.on, on[known]),
                _joint(joined.how, self.joined.how[known]),
            ),
        )

    def known_with(self, facts: ProgramFacts) -> ProgramFacts:
        """The facts of both programs."""
        return replace(facts, units={**self.facts.units, **facts.units})

    def _sites(self, trace: Trace) -> tuple[tuple[UnitDef, ...], Ints]:
        """The units of both traces, and by site of the check's its number among them."""
        known = {(unit.key, unit.module_path): unit.base for unit in trace.units}
        free = max((unit.base + unit.sites for unit in trace.units), default=1)
        units = list(trace.units)
        move = np.zeros(1 + max((unit.base + unit.sites for unit in self.trace.units), default=1), dtype=np.int64)
        for unit in self.trace.units:
            same = unit.key, unit.module_path
            if same not in known:
                known[same] = free
                units.append(replace(unit, base=free))
                free += max(unit.sites, 1)
            move[unit.base : unit.base + unit.sites] = known[same] + np.arange(unit.sites)
        return tuple(units), move


def find_check_reads(
    trace: Trace, facts: ProgramFacts, dependences: Dependences | None = None, keep_on: KeepOn = always
) -> CheckReads:
    """The reads of a recorded check, or of whatever else was run on that image.

    `dependences` are those of its program, if they are known already.
    """
    if dependences is None:
        dependences = dependences_that_ran(trace, facts, keep_on)
    keep_on()
    every = collect_accesses(trace, np.zeros(0, dtype=np.int64))
    return CheckReads(trace, facts, *keep_informative(every, find_edges(Binder(trace, every, dependences))))


def _joint(one: Ints, other: Ints) -> Ints:
    return np.concatenate([one.astype(np.int64), other.astype(np.int64)])
