"""`crashcheck groups`: what the program does to its files, and which of it stands for the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crashcheck.config import FILE_NAME, MODELS, Config, load, override

if TYPE_CHECKING:
    from crashcheck.analyzer.behaviours import Behaviour, BehaviourGroup, StaticSite
    from crashcheck.checker.states import StateSpace
    from crashcheck.source import SourceTree

_HEADINGS = ("#", "type", "members", "updates", "states", "representative")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "groups",
        help="list the update behaviours that --strategy pathfinder tests",
        description="Builds, records, and lists the groups of update behaviours in the order in which --strategy "
        "pathfinder tests them. No check is run.",
    )
    parser.add_argument(
        "-c", "--config", default=FILE_NAME, help=f"the configuration, or its folder (default: {FILE_NAME})"
    )
    parser.add_argument("--model", help=f"what may survive a crash: {', '.join(MODELS)}")
    parser.add_argument("--tear", help="page-cache: none, 512 or 4096")


def main(args: argparse.Namespace) -> int:
    for text in lines(override(load(args.config), model=args.model, tear=args.tear)):
        print(text)
    return 0


def lines(config: Config) -> Iterator[str]:
    """The groups of a fresh recording as text: a row a group, below it a line for each of its sites."""
    from crashcheck import pipeline
    from crashcheck.analyzer.behaviours import behaviours, groups
    from crashcheck.checker.store import Store
    from crashcheck.source import SourceTree

    run_folder = Store(config.folder).new_run()
    try:
        if config.build.command is not None:
            pipeline.build(config, run_folder.path)
        loaded = pipeline.load(config, pipeline.record_workload(config, run_folder.path))
        found = behaviours(loaded.subject.graph, loaded.facts)
        yield from table(groups(found), len(found), loaded.subject.space, SourceTree(config.folder))
    finally:
        run_folder.close()


def table(made: tuple[BehaviourGroup, ...], many: int, space: StateSpace, tree: SourceTree) -> Iterator[str]:
    """Columns as wide as their widest entry."""
    from crashcheck.checker.representative import Places, Representative

    yield f"{many} update behaviour{'s' * (many != 1)} in {len(made)} group{'s' * (len(made) != 1)}"
    places = Places(space)
    rows = [_HEADINGS]
    for group in made:
        states, exact = Representative(places, group.representative).feasible()
        rows.append(
            (
                str(group.number),
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
            text.ljust(width) if column in (1, 5) else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
        if number:
            for site in made[number - 1].sites:
                yield f"{' ' * widths[0]}  {_site(site, tree)}"


def _where(behaviour: Behaviour) -> str:
    parts = [behaviour.instance] if behaviour.instance else []
    parts.append(f"operation {behaviour.operation}" if behaviour.operation else "before any operation")
    return ", ".join(parts)


def _site(site: StaticSite, tree: SourceTree) -> str:
    place = f"{tree.relative(site.file)}:{site.line}" if site.file else "unknown place"
    return " ".join(text for text in (place, site.function, site.variable) if text)
