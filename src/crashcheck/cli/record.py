"""`crashcheck record`: builds and records, for shards of a search to come."""

from __future__ import annotations

import argparse
from typing import Any

from crashcheck.cli.options import add_config, add_model, config_of
from crashcheck.config import STRATEGIES
from crashcheck.errors import EXIT_CLEAN


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "record",
        help="build and record, for `run --shard`",
        description="Builds the program and records its workload, and keeps the recording beside the configuration: "
        "`crashcheck run --shard` and `crashcheck merge` search it.",
    )
    add_config(parser)
    add_model(parser)
    parser.add_argument("--strategy", help=f"what will be searched: {', '.join(STRATEGIES)}")


def main(args: argparse.Namespace) -> int:
    from crashcheck import pipeline

    print(f"recorded: {pipeline.record_only(config_of(args))}")
    return EXIT_CLEAN
