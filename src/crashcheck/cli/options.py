"""Options that several subcommands have, worded once."""

from __future__ import annotations

import argparse

from crashcheck.config import FILE_NAME, MODELS


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", default=FILE_NAME, help=f"the configuration, or its folder (default: {FILE_NAME})"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help=f"what may survive a crash: {', '.join(MODELS)}")


def add_tear(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tear", help="page-cache: none, 512 or 4096")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="checks at a time (default: one a core)")
