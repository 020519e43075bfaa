"""`crashcheck guard`: builds a program that prevents orders of its threads which no passing run showed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.learn import add_file, add_settled, learned_at
from crashcheck.cli.options import add_config
from crashcheck.config import Config, load
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Guarded, HotGroup, Stall

RUNS = 10
BIAS = 1.0  # percent; docs/guard.md has the measurement


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "guard",
        help="build a program that prevents orders of its threads which no passing run showed",
        description="Builds the program with what `crashcheck learn` learned inside: a thread waits just before an "
        "access that follows one of another thread which no passing run showed there. `guard report LOG` lists what a "
        "program did that ran with CRASHCHECK_GUARD=log=LOG; `guard relax` runs the workload guarded, and learns from "
        "passing runs what they did nevertheless.",
    )
    add_config(parser)
    parser.add_argument(
        "action", nargs="?", choices=("build", "report", "relax"), default="build", help="default: build"
    )
    parser.add_argument("log", nargs="?", metavar="LOG", help="with report: the log of a guarded program")
    add_file(parser)
    parser.add_argument(
        "--bias",
        type=float,
        nargs="?",
        const=BIAS,
        metavar="PERCENT",
        help="from now on do not guard groups of accesses that are more than PERCENT of all to shared memory "
        f"(default: {BIAS:g}); 100: guard all again",
    )
    parser.add_argument("--runs", type=int, metavar="N", help=f"with relax: how many runs (default: {RUNS})")
    add_settled(parser)


def main(args: argparse.Namespace) -> int:
    if (args.log is not None) != (args.action == "report"):
        raise CrashcheckError("bad-option", "`crashcheck guard report LOG` needs a log, and nothing else takes one.")
    for option, number in (("--runs", args.runs), ("--settled", args.settled)):
        if number is not None and (args.action != "relax" or number < 1):
            raise CrashcheckError("bad-option", f"{option} is for `crashcheck guard relax`; the least is 1.")
    if args.bias is not None and (args.action != "build" or not 0 <= args.bias <= 100):
        raise CrashcheckError("bad-option", "--bias is for building, and a percentage from 0 to 100.")
    config = load(args.config, files=False)
    path = learned_at(args, config).resolve()
    if args.action == "build":
        print(build(config, path, args.bias))
        return EXIT_CLEAN
    if args.action == "relax":
        relax(config, path, args.runs or RUNS, args.settled)
        return EXIT_CLEAN
    guarded = report(Path(args.log), path)
    for line in report_lines(guarded):
        print(line)
    return EXIT_FINDINGS if guarded.stalls else EXIT_CLEAN


def build(config: Config, path: Path, bias: float | None = None) -> str:
    """Run [build] for a guarded program; what is guarded, in words. `bias`: a new threshold, kept in the file.

    Raises CrashcheckError guard-nothing, and those of building.
    """
    from crashcheck.stages.threads import threaded_runs

    learned = _learned(path)
    if bias is not None:
        learned = replace(learned, bias=None if bias == 100 else bias)
        learned.save(path)
    with threaded_runs(config, str(path)):
        pass
    lines = [
        f"guarded: {learned.guarded} accesses to shared memory, by {learned.predecessors} predecessors from "
        f"{learned.runs} runs; options: CRASHCHECK_GUARD=stall=MICROSECONDS,most=NUMBER,observe,log=FILE",
        *_left_alone(learned.hot_groups()),
    ]
    return "\n".join(lines)


def _left_alone(groups: tuple[HotGroup, ...]) -> Iterator[str]:
    yield from (f"left alone: {group}" for group in groups)


def report(log: Path, path: Path) -> Guarded:
    """The log of a guarded program. Raises CrashcheckError guard-log and those of the file at `path`."""
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, read_guarded
    from crashcheck.analyzer.concurrency.observations import read_log

    return read_guarded(read_log(log), AnticipatingInvariants.load(path), path.parent)


def relax(config: Config, path: Path, runs: int, settled: int | None = None) -> None:
    """Run the guarded workload `runs` times, and learn what passing runs did although it is a violation.

    A run that fails teaches nothing, and is no error: it may be the bug that is guarded against. `settled` passing runs
    that taught nothing, one after another, end it earlier.
    """
    from crashcheck.analyzer.concurrency.anticipating import read_guarded
    from crashcheck.reports.view.sentences import plural
    from crashcheck.stages.threads import threaded_runs

    learned = relaxed = _learned(path)
    taught_nothing = 0
    try:
        with threaded_runs(config, str(path)) as run:
            for number in range(1, runs + 1):
                log, end = run(number, False)
                passed = end.exit_code == 0
                guarded = read_guarded(log, learned, path.parent) if log is not None else None
                before = relaxed.predecessors
                if guarded is not None and passed and guarded.harmless.seen:
                    relaxed = relaxed.learn(guarded.harmless)
                how = "passed" if passed else end.text(config.workload.timeout_s)
                stalls = len(guarded.stalls) if guarded is not None else 0
                new = relaxed.predecessors - before
                print(f"run {number}: {how}, {plural(stalls, 'violation')}, {new} learned", flush=True)
                taught_nothing = 0 if new else taught_nothing + passed
                if taught_nothing == settled:
                    break
    finally:  # whatever ends it, what passing runs taught is kept
        if relaxed is not learned:
            relaxed.save(path)
    print(f"{relaxed.predecessors - learned.predecessors} predecessors learned; `crashcheck guard` builds with them")


def _learned(path: Path) -> AnticipatingInvariants:
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants

    learned = AnticipatingInvariants.load(path)
    if not learned.predecessors:
        raise CrashcheckError(
            "guard-nothing",
            f"{path}: in no run that was learned from did two threads access the same variable.",
            "Learn from a workload with threads.",
        )
    return learned


def report_lines(guarded: Guarded) -> Iterator[str]:
    """The lines that `report` prints."""
    texts: dict[str, Stall] = {}  # the same of several sites, as of the load and the store of an increment
    for stall in guarded.stalls:
        text = str(replace(stall.violation, seen=replace(stall.violation.seen, thread=0, count=0)))
        texts[text] = texts[text] + stall if text in texts else stall
    yield from (f"not learned: {stall}" for stall in texts.values())
    if not guarded.stalls:
        yield "no violation"
    if guarded.untrained:
        accesses = sum(count for _, count in guarded.untrained)
        sites = len(guarded.untrained)
        yield f"not judged: {accesses} accesses at {sites} sites that training never ran, or whose code changed:"
        yield from (f"  {site}: {count}" for site, count in guarded.untrained)
    yield from _left_alone(guarded.left_alone)
    yield from (f"not exact: {what}" for what in guarded.lost)
