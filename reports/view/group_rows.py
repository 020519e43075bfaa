"""The table of groups as a reader is shown it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from crashcheck.checker.results import (
    GroupRow,
    GroupVerdict,
    RunResult,
)
from crashcheck.reports.view import sentences
from crashcheck.reports.view.failing_behaviour import (
    GraphView,
    group_graph,
)
from crashcheck.reports.view.numbers import human
from crashcheck.reports.view.places import where_text
from crashcheck.reports.view.text import line

ROWS_MAX = 200
NODES_ALL = 600  # drawn in one report: a hundred groups of six updates
_SITES = 12
_REASONS = 6
VERDICT = {
    GroupVerdict.CLEAN: "clean",
    GroupVerdict.FAILING: "fails",
    GroupVerdict.HANGS: "hangs",
    GroupVerdict.UNTESTED: "not tested",
}
_SUMMARY = {
    GroupVerdict.FAILING: "failing",
    GroupVerdict.HANGS: "hanging",
    GroupVerdict.CLEAN: "clean",
    GroupVerdict.UNTESTED: "not tested",
}
_NOTHING = "without a crash state of its own"


@dataclass(frozen=True, slots=True)
class GroupView:
    """A row of the table of groups."""

    rank: int
    types: str
    members: str
    representative: str  # "table.pm+448, operation 13", "–" if neither is known
    updates: str
    states: str  # "8, feasible 6"
    explored: str  # "to the end" | "cut off"
    verdict: str
    tone: str  # "bad" | "warn" | ""
    because: tuple[str, ...]
    sites: tuple[tuple[str, str], ...]  # place, what
    graph: GraphView | None


def group_views(result: RunResult) -> tuple[GroupView, ...]:
    """The first groups in rank, those with a graph as long as there is room."""
    out = []
    left = NODES_ALL
    marked = any(row.operation for row in result.groups)
    for row in result.groups[:ROWS_MAX]:
        graph = group_graph(row, result.model)
        if graph is not None and len(graph.nodes) > left:
            graph = None
        left -= len(graph.nodes) if graph is not None else 0
        out.append(_view(row, graph, marked))
    return tuple(out)


def summary(result: RunResult) -> str:
    """The groups in a sentence; "" if the strategy makes none."""
    rows = result.groups
    if not rows:
        return ""
    count = Counter(_verdict_label(row) for row in rows)
    parts = [f"{human(count[label])} {label}" for label in (*_SUMMARY.values(), _NOTHING) if count[label]]
    whole = sum(row.complete for row in rows)
    # Behaviours are not counted: one may belong to several groups.
    groups = sentences.plural(len(rows), "group")
    return f"{groups} of update behaviours: {', '.join(parts)}; {human(whole)} explored to the end"


def _verdict_label(row: GroupRow) -> str:
    nothing = row.verdict is GroupVerdict.UNTESTED and row.complete and not row.feasible
    return _NOTHING if nothing else _SUMMARY[row.verdict]


def _view(row: GroupRow, graph: GraphView | None, marked: bool) -> GroupView:
    """`marked`: operations of the run are known."""
    where = [line(row.instance, 80)] if row.instance else []
    if marked:
        where.append(f"operation {row.operation}" if row.operation else "before any operation")
    bad = row.verdict in (GroupVerdict.FAILING, GroupVerdict.HANGS)
    sites = [(where_text(place) or "unknown place", line(place.variable or place.function, 60)) for place in row.sites]
    if len(sites) > _SITES:
        sites = [*sites[:_SITES], (f"… and {len(row.sites) - _SITES} more", "")]
    return GroupView(
        rank=row.rank,
        types=", ".join(sentences.names(row.types, 4, 60)),
        members=human(row.members),
        representative=", ".join(where) or "–",
        updates=human(row.updates),
        states=f"{human(row.executed)}, feasible {'' if row.feasible_exact else '≤ '}{human(row.feasible)}",
        explored="to the end" if row.complete else "cut off",
        verdict=VERDICT[row.verdict],
        tone="bad" if bad else "warn" if row.verdict is GroupVerdict.UNTESTED else "",
        because=sentences.names(row.because, _REASONS, 200),
        sites=tuple(sites),
        graph=graph,
    )
