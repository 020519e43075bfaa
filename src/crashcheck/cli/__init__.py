"""The command line: one file per subcommand, and the one place where errors become text and an exit code."""

from __future__ import annotations

import errno
import gc
import sys

from crashcheck import __version__
from crashcheck.errors import EXIT_FAILED, CrashcheckError

TYPE_CHECKING = False  # importing it from typing takes 15 ms
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from types import ModuleType

# crashcheck-cc starts by way of this package too, once for every source file: nothing heavy is imported above.
# Each is a module of this package with `add_parser(subparsers) -> None` and `main(args) -> int`. A subcommand imports
# what it needs inside `main`, so that `crashcheck --help` does not load LLVM.
SUBCOMMANDS = (
    *("run", "try", "replay", "open", "fix", "report", "publish", "groups", "invariants"),
    *("learn", "guard", "mutate", "record", "merge", "trace", "ops", "init", "version"),
)
_MODULES = {"try": "try_command"}  # of subcommands whose names Python takes for itself

_STARTS_PROCESSES = ("run", "try", "replay", "fix", "mutate", "record", "merge")  # which record or check, or both

# New objects before Python looks for cycles among them. With its 700 that takes a tenth of a short run.
_BETWEEN_COLLECTIONS = 200_000

# What writing to a full disk, a closed output or a terminal that is gone raises.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)


def subcommands(names: Sequence[str] = SUBCOMMANDS) -> dict[str, ModuleType]:
    """Their modules by name, in the order in which help lists them."""
    import importlib

    return {name: importlib.import_module(f"{__name__}.{_MODULES.get(name, name)}") for name in names}


def build_parser(names: Sequence[str] = SUBCOMMANDS) -> argparse.ArgumentParser:
    """The options of these subcommands."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="crashcheck",
        description="Finds crash-consistency bugs: data that a power failure, or kill -9, can leave broken or lost.",
        epilog="Exit codes: 0 no findings; 1 findings (see run --fail-on); 2 no verdict, and the reason is printed. "
        "`crashcheck COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action="version", version=f"crashcheck {__version__}")
    subparsers = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for module in subcommands(names).values():
        module.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit code, or the one that a CrashcheckError carries."""
    from crashcheck.cli import streams
    from crashcheck.interruption import interruptible

    gc.set_threshold(_BETWEEN_COLLECTIONS)
    streams.make_usable()
    try:
        with interruptible():
            code = _run(argv)
            sys.stdout.flush()
            gc.freeze()  # nothing is looked for at the end, either
            return code
    except CrashcheckError as error:
        _print_error(f"crashcheck: {error}")
        if error.slug == "output-unwritable":
            streams.give_up_output()
        return error.exit_code
    except KeyboardInterrupt:
        print("crashcheck: interrupted", file=sys.stderr)
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing is wrong.
        streams.give_up_output()
        return 0
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            return _defect()
        _print_error(f"crashcheck: {streams.unwritable(error)}")
        streams.give_up_output()
        return EXIT_FAILED
    except Exception:
        return _defect()


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    named = words[:1] if words and words[0] in SUBCOMMANDS else SUBCOMMANDS  # to know all takes a sixth of a start
    try:
        args = build_parser(named).parse_args(words)
    except SystemExit:  # after `--help`, or a message on an option
        sys.stdout.flush()
        raise
    main = subcommands(named)[args.subcommand].main
    if args.subcommand not in _STARTS_PROCESSES:
        return int(main(args))
    from crashcheck.checker.execution import worker
    from crashcheck.runtime import zygote

    with zygote.forked(worker.main):
        return int(main(args))


def _defect() -> int:
    """Report the exception that is being handled. Python's own exit code for one is 1, which would read as findings."""
    import traceback

    traceback.print_exc()
    print("crashcheck: this is a defect of crashcheck; please report it with the lines above", file=sys.stderr)
    return EXIT_FAILED


def _print_error(error: str) -> None:
    """On GitHub both outputs of a step are read for commands, and an error may quote the output of a build."""
    import os

    before = after = ""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from crashcheck.reports.formats.workflow_commands import silence

        before, after = silence()
    print(f"{before}{error}\n{after}", end="", file=sys.stderr)
