"""`crashcheck groups`: the groups of update behaviours in the order in which the search tests them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config, add_model, add_tear, config_of
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError

if TYPE_CHECKING:
    from crashcheck.analyzer.behaviours import Behaviour, StaticSite
    from crashcheck.analyzer.persistence import PersistenceGraph
    from crashcheck.checker.strategies import Planned
    from crashcheck.checker.subject import Provenance
    from crashcheck.source import SourceTree

_HEADINGS = ("rank", "score", "type", "members", "updates", "states", "representative")
_MOST_STEPS = 200_000  # of counting the states of a representative (Representative.feasible)
_LEFT = (2, 6)  # columns of text


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "groups",
        help="list the groups of update behaviours, the most likely to fail first",
        description="Builds, records, and lists the groups of update behaviours in the order in which the ranked "
        "search tests them, with the reasons. The check is run once, for what it reads, and on no crash state.",
    )
    add_config(parser)
    add_model(parser)
    add_tear(parser)
    parser.add_argument(
        "--graph",
        type=Path,
        metavar="FILE",
        help="write the persistence graph of a group's representative: GraphML (.graphml) or DOT (.dot, .gv)",
    )
    parser.add_argument("--group", type=int, metavar="N", help="with --graph: the group of rank N (default: 1)")
    parser.set_defaults(strategy="ranked")


def main(args: argparse.Namespace) -> int:
    _check_options(args.graph, args.group)
    for text in lines(config_of(args), args.graph, args.group or 1):
        print(text)
    return 0


def _check_options(graph: Path | None, group: int | None) -> None:
    from crashcheck.analyzer.persistence.graph_files import FORMATS

    if graph is None and group is not None:
        raise CrashcheckError("bad-option", "--group needs --graph FILE.")
    if group is not None and group < 1:
        raise CrashcheckError("bad-option", f"--group is {group}; the first group is 1.")
    if graph is not None and graph.suffix not in FORMATS:
        raise CrashcheckError("bad-option", f"--graph {graph}: the name must end in {', '.join(FORMATS)}.")


def lines(config: Config, graph: Path | None = None, number: int = 1) -> Iterator[str]:
    """The groups of a fresh recording as text: one row per group, below it the reasons for its rank and its sites.

    `graph`: the file to write the persistence graph of group `number` to.
    """
    from crashcheck.source import SourceTree
    from crashcheck.stages.recording import built, record_check_reads, record_run
    from crashcheck.stages.strategy_setup import library_of, ranked

    with built(config) as run_folder:
        run = record_check_reads(config, record_run(config, run_folder.path))
        plan = ranked(run, library=library_of(config, run.facts)).plan(run.subject.space)
        yield from table(plan.rank(), plan.behaviours, SourceTree(config.folder))
        yield from filter(None, (plan.without, run.unread.note, *plan.notes))
        if graph is not None:
            yield write_graph(run.subject.graph, run.subject.provenance, plan.rank(), number, graph)


def write_graph(
    graph: PersistenceGraph, provenance: Provenance, planned: Sequence[Planned], number: int, path: Path
) -> str:
    """Write the persistence graph of a group's representative, and return the line to print.

    Raises CrashcheckError: bad-option for a number that no group has, graph-unwritable.
    """
    from crashcheck.analyzer.persistence.graph_files import annotated, rendered

    if number > len(planned):
        raise CrashcheckError("bad-option", f"--group is {number}; the run has {len(planned)} groups.")

    def place_of(event: int) -> tuple[str, str]:
        place = provenance.of(event)
        return (f"{place.file}:{place.line}", place.function) if place is not None else ("", "")

    behaviour = planned[number - 1].ranked.group.representative
    network = annotated(graph, behaviour.pieces, place_of)
    try:
        path.write_text(rendered(network, path), encoding="utf-8")
    except OSError as error:
        raise CrashcheckError(
            "graph-unwritable", f"{path}: {error.strerror or error}.", "Correct the path or its permissions."
        ) from error
    pieces, orders = len(network), network.number_of_edges()
    return f"{path}: group {number}, {pieces} piece{'s' * (pieces != 1)}, {orders} order{'s' * (orders != 1)}"


def table(planned: tuple[Planned, ...], many: int, tree: SourceTree) -> Iterator[str]:
    """Columns as wide as their widest entry."""
    yield f"{many} update behaviour{'s' * (many != 1)} in {len(planned)} group{'s' * (len(planned) != 1)}"
    rows = [_HEADINGS]
    marked = any(each.ranked.group.representative.operation for each in planned)
    for each in planned:
        group = each.ranked.group
        states, exact = each.representative.feasible(_MOST_STEPS)
        rows.append(
            (
                str(group.number),
                f"{each.ranked.score:.2f}",
                ", ".join(group.types),
                str(group.members),
                str(group.size),
                f"{'' if exact else '≤ '}{states}",
                _where(group.representative, marked),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for number, row in enumerate(rows):
        cells = [
            text.ljust(width) if column in _LEFT else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
        if number:
            yield f"{' ' * widths[0]}  {'; '.join(planned[number - 1].ranked.because)}"
            for site in planned[number - 1].ranked.group.sites:
                yield f"{' ' * widths[0]}  {_site(site, tree)}"


def _where(behaviour: Behaviour, marked: bool) -> str:
    parts = [behaviour.instance] if behaviour.instance else []
    if marked:
        parts.append(f"operation {behaviour.operation}" if behaviour.operation else "before any operation")
    return ", ".join(parts)


def _site(site: StaticSite, tree: SourceTree) -> str:
    unknown = "" if site.function or site.variable else "unknown place"
    place = f"{tree.relative(site.file)}:{site.line}" if site.file else unknown
    return " ".join(text for text in (place, site.function, site.variable) if text)
