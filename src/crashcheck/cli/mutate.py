"""`crashcheck mutate`: would the check notice a missing flush, fence or sync? Takes each away and looks."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.config import FILE_NAME, MODELS, STRATEGIES, load, override
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.checker.mutation import Persist
    from crashcheck.mutants import Mutation

_WHATS = ("flush", "fence", "sync")
_SCHEMA = 1


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "mutate",
        help="take each flush, fence and sync away, and see whether the check notices",
        description="Deletes or moves each flush, fence and sync of a correct program, one at a time, and searches "
        "each mutant for a crash state that fails. Exit code 1: a mutant survived.",
    )
    parser.add_argument(
        "-c", "--config", default=FILE_NAME, help=f"the configuration, or its folder (default: {FILE_NAME})"
    )
    parser.add_argument("--model", help=f"what may survive a crash: {', '.join(MODELS)}")
    parser.add_argument("--strategy", help=f"which states to try: {', '.join(STRATEGIES)}")
    parser.add_argument("--budget", metavar="TIME", default="10s", help="how long to search each mutant (default: 10s)")
    parser.add_argument("--states", type=int, metavar="N", help="how many states of each mutant to execute at most")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="checks at a time (default: one a core)")
    parser.add_argument("--only", choices=_WHATS, action="append", help="flushes, fences or syncs; may be given again")
    parser.add_argument("--at", metavar="FILE[:LINE]", help="mutants of this place alone")
    parser.add_argument("--no-moves", action="store_true", help="only delete")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results there")


def main(args: argparse.Namespace) -> int:
    from crashcheck.mutants import Fate, mutate

    if args.jobs < 0:
        raise CrashcheckError("bad-option", f"--jobs is {args.jobs}; the least is 0, one a core.")
    config = override(
        load(args.config), model=args.model, strategy=args.strategy, budget=args.budget, states=args.states
    )
    file, _, line = (args.at or "").partition(":")
    if line and not line.isdigit():
        raise CrashcheckError("bad-option", f"--at {args.at!r} is no place.", "Write FILE or FILE:LINE.")

    def wanted(persist: Persist) -> bool:
        if args.only and persist.what.value not in args.only:
            return False
        here = persist.location
        return not file or (Path(here.file).name == Path(file).name and (not line or here.line == int(line)))

    def tell(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    done = mutate(config, jobs=args.jobs, wanted=wanted, moves=not args.no_moves, tell=tell)
    tell("")
    if args.json is not None:
        try:
            args.json.write_text(json.dumps(as_json(done), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise CrashcheckError("report-unwritable", f"{args.json} cannot be written: {error.strerror}.") from error
    for text in lines(done):
        print(text)
    return EXIT_FINDINGS if done.count(Fate.SURVIVED) + done.count(Fate.HARMLESS) else EXIT_CLEAN


def lines(done: Mutation) -> list[str]:
    """A line a mutant, those that were not noticed last, and a summary."""
    from crashcheck.mutants import Fate

    order = [Fate.EQUIVALENT, Fate.FOUND, Fate.HARMLESS, Fate.SURVIVED]
    width = max(len(_place(result.location.file, result.location.line)) for result in done.results)
    out = []
    for result in sorted(done.results, key=lambda result: order.index(result.fate)):
        place = _place(result.location.file, result.location.line)
        how = {
            Fate.FOUND: f"after {result.states} state{'s' * (result.states != 1)}",
            Fate.EQUIVALENT: "the crash states are the same",
            Fate.HARMLESS: f"all {result.states} further states of the strategy pass",
            Fate.SURVIVED: f"{result.states} states passed, then the budget was spent",
        }[result.fate]
        out.append(f"{result.fate.value:10}  {place:{width}}  {result.location.function}: {result.words}, {how}")
    counts = ", ".join(f"{done.count(fate)} {fate.value}" for fate in (Fate.FOUND, *Fate) if done.count(fate))
    counts = ", ".join(dict.fromkeys(counts.split(", ")))
    out.append(f"{len(done.results)} mutants: {counts}  (strategy {done.strategy}, model {done.model})")
    return out


def as_json(done: Mutation) -> dict[str, Any]:
    from crashcheck.mutants import Fate

    return {
        "schema": _SCHEMA,
        "strategy": done.strategy,
        "model": done.model,
        "seconds": round(done.seconds, 3),
        "summary": {fate.value: done.count(fate) for fate in Fate},
        "mutants": [
            {
                "what": result.what,
                "change": result.change,
                "words": result.words,
                "file": result.location.file,
                "line": result.location.line,
                "column": result.location.column,
                "function": result.location.function,
                "ran": result.ran,
                "fate": result.fate.value,
                "exposed": result.exposed,
                "states": result.states,
                "seconds": round(result.seconds, 3),
                "outcome": None if result.outcome is None else result.outcome.value,
                "output": result.output,
            }
            for result in done.results
        ],
    }


def _place(file: str, line: int) -> str:
    return f"{file}:{line}"
