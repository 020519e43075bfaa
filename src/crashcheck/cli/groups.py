"""`crashcheck groups`: what the program does to its files, and which of it stands for the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config, add_model, add_tear
from crashcheck.config import Config, load, override

if TYPE_CHECKING:
    from crashcheck.analyzer.behaviours import Behaviour, StaticSite
    from crashcheck.checker.strategies import Planned
    from crashcheck.source import SourceTree

_HEADINGS = ("rank", "score", "type", "members", "updates", "states", "representative")
_MOST_STEPS = 200_000  # of counting the states of a representative (Representative.feasible)
_LEFT = (2, 6)  # columns of text


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "groups",
        help="list the groups of update behaviours, the likeliest to fail first",
        description="Builds, records, and lists the groups of update behaviours in the order in which the ranked "
        "search tests them, with the reasons. The check is run once, for what it reads, and on no crash state.",
    )
    add_config(parser)
    add_model(parser)
    add_tear(parser)


def main(args: argparse.Namespace) -> int:
    for text in lines(override(load(args.config), model=args.model, tear=args.tear, strategy="ranked")):
        print(text)
    return 0


def lines(config: Config) -> Iterator[str]:
    """The groups of a fresh recording as text: a row a group, below it why it stands there, and each of its sites."""
    from crashcheck.recording import built, record_check_reads, record_run
    from crashcheck.source import SourceTree
    from crashcheck.strategy_setup import ranked

    with built(config) as run_folder:
        run = record_check_reads(config, record_run(config, run_folder.path))
        plan = ranked(run).plan(run.subject.space)
        yield from table(plan.rank(), plan.behaviours, SourceTree(config.folder))
        yield from filter(None, (plan.without, run.unread.note))


def table(planned: tuple[Planned, ...], many: int, tree: SourceTree) -> Iterator[str]:
    """Columns as wide as their widest entry."""
    yield f"{many} update behaviour{'s' * (many != 1)} in {len(planned)} group{'s' * (len(planned) != 1)}"
    rows = [_HEADINGS]
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
                _where(group.representative),
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


def _where(behaviour: Behaviour) -> str:
    parts = [behaviour.instance] if behaviour.instance else []
    parts.append(f"operation {behaviour.operation}" if behaviour.operation else "before any operation")
    return ", ".join(parts)


def _site(site: StaticSite, tree: SourceTree) -> str:
    place = f"{tree.relative(site.file)}:{site.line}" if site.file else "unknown place"
    return " ".join(text for text in (place, site.function, site.variable) if text)
