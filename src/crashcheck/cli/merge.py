"""`crashcheck merge`: the report on a search that several machines have executed, from the files of its shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crashcheck.cli import run


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "merge",
        help="report on a search that was divided by `run --shard`",
        description="Searches the recording as `crashcheck run` does, but takes runs of the check from the files of "
        "shards. What no shard has executed is executed here, and failing states are run again here. "
        "Give the options that the shards had.",
    )
    parser.add_argument(
        "shards", nargs="+", type=Path, metavar="FILE", help="what `crashcheck run --shard` has written"
    )
    parser.set_defaults(shard=None, resume=False, executor=None)
    run.add_options(parser)


main = run.main
