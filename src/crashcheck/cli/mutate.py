"""`crashcheck mutate`: would the check notice a missing flush, fence or sync? Removes each in turn and searches."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config, add_jobs, add_model, config_of, jobs_of
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.checker.mutation.mutants import Persist
    from crashcheck.mutation_campaign import CampaignResult, MutantResult

_WHATS = ("flush", "fence", "sync")
_SCHEMA = 1


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "mutate",
        help="test the check: remove each flush, fence and sync in turn, and see whether a crash state fails",
        description="Deletes or moves each flush, fence and sync of a correct program, one at a time, and searches "
        "each of these mutants for a crash state that fails. Exit code 1: none failed for some mutant.",
    )
    add_config(parser)
    add_model(parser)
    parser.add_argument("--budget", metavar="TIME", default="10s", help="how long to search each mutant (default: 10s)")
    parser.add_argument("--states", type=int, metavar="N", help="check at most N crash states of each mutant")
    add_jobs(parser)
    parser.add_argument("--only", choices=_WHATS, action="append", help="mutate only these; may be repeated")
    parser.add_argument("--at", metavar="FILE[:LINE]", help="mutate only this file, or this line")
    parser.add_argument("--no-moves", action="store_true", help="delete only; do not move")
    parser.add_argument(
        "--no-explore", action="store_true", help="run the check once for each crash state, instead of once for many"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the results to PATH as JSON")


def main(args: argparse.Namespace) -> int:
    from crashcheck.checker.mutation.mutant_search import Fate
    from crashcheck.mutation_campaign import mutate

    jobs = jobs_of(args)
    config = config_of(args)
    file, _, line = (args.at or "").partition(":")
    if line and not (line.isascii() and line.isdecimal() and len(line) < 10):
        raise CrashcheckError("bad-option", f"--at {args.at!r} is not a line of a file.", "Write FILE or FILE:LINE.")

    def wanted(persist: Persist) -> bool:
        if args.only and persist.what.value not in args.only:
            return False
        here = persist.location
        return not file or (Path(here.file).name == Path(file).name and (not line or here.line == int(line)))

    def show_phase(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def show(result: MutantResult) -> None:
        show_phase("")
        print(row(result), flush=True)

    done = mutate(
        config,
        jobs=jobs,
        wanted=wanted,
        moves=not args.no_moves,
        explore=not args.no_explore,
        on_phase=show_phase,
        on_result=show,
    )
    show_phase("")
    print(summary(done))
    if done.note:
        print(done.note)
    if args.json is not None:
        try:
            args.json.write_text(json.dumps(as_json(done), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise CrashcheckError("report-unwritable", f"{args.json} cannot be written: {error.strerror}.") from error
    return EXIT_FINDINGS if done.count(Fate.SURVIVED) + done.count(Fate.HARMLESS) else EXIT_CLEAN


def row(result: MutantResult) -> str:
    """ "found       table.c:56  insert: fence deleted, after 5 states"."""
    from crashcheck.checker.mutation.mutant_search import Fate

    here = result.location
    many = "more than could be counted" if result.new is None else f"{result.new:,}"
    found = {
        Fate.FOUND: f"after {result.states} state{'s' * (result.states != 1)}",
        Fate.EQUIVALENT: "no crash state is new",
        Fate.HARMLESS: f"all {result.states:,} new crash states pass",
        Fate.SURVIVED: f"{result.states:,} new crash states of {many} passed",
    }
    how = found[result.fate]
    if result.proved and result.fate is Fate.HARMLESS:
        how = f"all {many} new crash states pass: {result.states:,} run, {result.proved:,} by explored runs"
    elif result.proved and result.fate is Fate.SURVIVED:
        how += f", and {result.proved:,} by explored runs"
    why = f": {result.because}" if result.because else ""
    return f"{result.fate.value:10}  {here.file}:{here.line}  {here.function}: {result.words}, {how}{why}"


def summary(done: CampaignResult) -> str:
    """ "10 mutants: 9 found, 1 survived  (strategy ranked, model px86)"."""
    from crashcheck.checker.mutation.mutant_search import Fate

    counts = ", ".join(f"{done.count(fate)} {fate.value}" for fate in Fate if done.count(fate))
    many = len(done.results)
    return f"{many} mutant{'s' * (many != 1)}: {counts}  (strategy {done.strategy}, model {done.model})"


def as_json(done: CampaignResult) -> dict[str, Any]:
    from crashcheck.checker.mutation.mutant_search import Fate

    return {
        "schema": _SCHEMA,
        "strategy": done.strategy,
        "model": done.model,
        "note": done.note,
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
                "new_states": result.new,
                "proved": result.proved,
                "explored_runs": result.ends,
                "because": result.because,
                "lost": [f"{place.file}:{place.line} ({place.function})" for place in result.lost],
                "seconds": round(result.seconds, 3),
                "outcome": None if result.outcome is None else result.outcome.value,
                "output": result.output,
            }
            for result in done.results
        ],
    }
