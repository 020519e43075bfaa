"""Options that several subcommands have, defined once."""

from __future__ import annotations

import argparse

from crashcheck.config import FILE_NAME, MODELS, Config, load, override
from crashcheck.errors import CrashcheckError

MOST_JOBS = 1024  # each is a process that holds an image


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        default=FILE_NAME,
        help=f"the configuration file, or the folder that holds it (default: {FILE_NAME})",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help=f"the crash model, which decides what may survive: {', '.join(MODELS)}")


def add_tear(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tear",
        help="with --model page-cache: bytes of a page that persist together: none (a whole page), 512 or 4096",
    )


def config_of(args: argparse.Namespace, *, nodes: bool = False) -> Config:
    """The configuration that --config names, with the options instead of what it has. `nodes`: it may describe nodes.

    Raises CrashcheckError.
    """
    return configured(args, load(args.config, nodes=nodes))


def configured(args: argparse.Namespace, config: Config) -> Config:
    """`config` with those options that the subcommand has. Raises CrashcheckError."""
    known = override.__kwdefaults__ or {}
    return override(config, **{name: getattr(args, name, default) for name, default in known.items()})


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="how many checks to run at a time (default: one per core)"
    )


def add_depth(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--depth",
        type=int,
        choices=(1, 2),
        default=1,
        help="2: also crash the recovery that the check does (default: 1)",
    )


def jobs_of(args: argparse.Namespace) -> int:
    """The value of --jobs. Raises CrashcheckError(bad-option)."""
    jobs: int = args.jobs
    if not 0 <= jobs <= MOST_JOBS:
        raise CrashcheckError("bad-option", f"--jobs is out of range: it must be 0 (one per core) to {MOST_JOBS}.")
    return jobs
