"""`crashcheck learn`: learns from passing runs how threads interleave, and compares another run with it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config
from crashcheck.config import Config, load
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Judged, Observed
    from crashcheck.analyzer.concurrency.observations import Log
    from crashcheck.stages.threads import Run

LEARNED = "crashcheck.learned.json"
LEARNED_OF_MARKED = "crashcheck.marked.json"
RUNS = 10


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "learn",
        help="learn from passing runs how threads interleave, and compare a run with them",
        description="Builds, runs the workload several times, and keeps which accesses "
        "of other threads came just before each access. With --check, runs once and reports accesses that follow "
        "one that no passing run showed: before they do harm, if they do.",
    )
    add_config(parser)
    add_file(parser)
    parser.add_argument("--runs", type=int, metavar="N", help=f"how many runs to learn from (default: {RUNS})")
    add_settled(parser)
    parser.add_argument(
        "--keep-going", action="store_true", help="do not stop at a run that fails; nothing is learned from it"
    )
    parser.add_argument(
        "--perturb",
        action="store_true",
        help="hold threads up at random for moments, in each run at other places: runs show more orders",
    )
    parser.add_argument(
        "--without-atomics",
        action="store_true",
        help="in a new file: do not observe atomic operations, nor guard them",
    )
    parser.add_argument(
        "--objects", action="store_true", help="in a new file: members of one struct instance have one record"
    )
    parser.add_argument("--check", action="store_true", help="run once and report what was not learned")
    parser.add_argument("--relax", action="store_true", help="with --check: if the run passes, learn what it showed")


def add_file(parser: argparse.ArgumentParser) -> None:
    """The options that choose what was learned, for `learned_at`."""
    parser.add_argument(
        "--file",
        help=f"what was learned (default: {LEARNED} beside the configuration, with --marked {LEARNED_OF_MARKED})",
    )
    parser.add_argument(
        "--marked", action="store_true", help="observe and guard only what the program marks by CRASHCHECK_GUARD_…"
    )


def add_settled(parser: argparse.ArgumentParser) -> None:
    """The option that ends training early."""
    parser.add_argument(
        "--settled",
        type=int,
        metavar="N",
        help="end earlier: when N passing runs, one after another, taught nothing new",
    )


def learned_at(args: argparse.Namespace, config: Config) -> Path:
    """Where what was learned is."""
    return Path(args.file) if args.file else config.folder / (LEARNED_OF_MARKED if args.marked else LEARNED)


def main(args: argparse.Namespace) -> int:
    if args.relax and not args.check:
        raise CrashcheckError("bad-option", "--relax needs --check: otherwise every passing run is learned from.")
    if args.check and (args.runs is not None or args.settled is not None or args.keep_going or args.perturb):
        raise CrashcheckError(
            "bad-option",
            "--runs, --settled, --keep-going and --perturb cannot be used with --check, which runs the workload once.",
        )
    for option, number in (("--runs", args.runs), ("--settled", args.settled)):
        if number is not None and number < 1:
            raise CrashcheckError("bad-option", f"{option} is {number}; the least is 1.")
    config = load(args.config, files=False)
    path = learned_at(args, config)
    if (args.without_atomics or args.objects) and (args.marked or args.check):
        raise CrashcheckError(
            "bad-option",
            "--without-atomics and --objects begin a new file, and cannot be used with --marked or --check.",
        )
    if args.check:
        checked = check(config, path, relax=args.relax, marked=args.marked)
        for line in report_lines(checked):
            print(line)
        return EXIT_FINDINGS if checked.judged.violations or checked.failure else EXIT_CLEAN
    learned = learn(
        config,
        path,
        args.runs or RUNS,
        lambda line: print(line, flush=True),
        settled=args.settled,
        marked=args.marked,
        keep_going=args.keep_going,
        perturb=args.perturb,
        atomics=not args.without_atomics,
        objects=args.objects,
    )
    print(summary(learned, path))
    return EXIT_CLEAN


@dataclass(frozen=True, slots=True)
class Checked:
    """A run held against what was learned. `failure` is how the run failed, "" if it passed; `added` is what was
    learned from it, -1 if nothing was asked for."""

    judged: Judged
    failure: str
    added: int


def learn(
    config: Config,
    path: Path,
    runs: int,
    report: Callable[[str], None] = lambda line: None,
    *,
    settled: int | None = None,
    marked: bool = False,
    keep_going: bool = False,
    perturb: bool = False,
    atomics: bool = True,
    objects: bool = False,
) -> AnticipatingInvariants:
    """Runs the workload `runs` times and merges what the runs show into the file at `path`.

    Whatever ends it early, the runs that passed before are kept. A run that fails ends it unless `keep_going`;
    `settled` passing runs that taught nothing end it, too.
    `perturb`: threads are held up at random, in each run that the file counts at other places.
    `atomics` and `objects`: as in LearnedSets; what is in the file stays so.

    Raises CrashcheckError: learn-run-failed if a run fails, learn-nothing, and those of running and of the file.
    """
    from crashcheck.stages.threads import threaded_runs

    learned = _learned_so_far(path, marked)
    if not learned.runs:
        learned = replace(learned, atomics=atomics, objects=objects)
    elif objects and not learned.objects:
        raise _learned_without("--objects", path)
    elif learned.atomics and not atomics:
        raise _learned_without("--without-atomics", path)
    first = learned.runs
    lost: tuple[str, ...] = ()
    try:
        with threaded_runs(config, _threads(config, learned), first if perturb else None) as run:
            for number in range(1, runs + 1):
                try:
                    log = _passing(run, number, runs, learned.runs - first)
                except CrashcheckError as error:
                    if error.slug != "learn-run-failed" or not keep_going:
                        raise
                    how = error.message.partition(": ")[2]
                    report(f"run {number:{len(str(runs))}}: failed, nothing is learned from it: {how}")
                    continue
                observed = _observed(log, path, marked)
                learned = learned.learn(observed)
                lost = observed.lost or lost
                accesses, new = _of(observed.accesses, "access", "accesses"), _of(learned.new[-1], "new predecessor")
                report(f"run {number:{len(str(runs))}}: {accesses}, {new}")
                if settled is not None and learned.runs - max(first, learned.levelled_at) >= settled:
                    break
    except KeyboardInterrupt:
        report(f"interrupted: {_of(learned.runs - first, 'run')} kept in {path}")
        raise
    finally:
        if learned.runs > first:
            learned.save(path)
    for what in lost:
        report(f"not exact: {what}")
    if learned.runs == first:
        raise CrashcheckError("learn-run-failed", f"none of {runs} runs passed.", "Only passing runs are learned from.")
    return learned


def _learned_so_far(path: Path, marked: bool) -> AnticipatingInvariants:
    """What is in the file, if there is one. Raises CrashcheckError: those of the file, learned-marked."""
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants

    learned = AnticipatingInvariants.load(path) if path.exists() else AnticipatingInvariants(marked=marked)
    if learned.marked != marked:
        raise CrashcheckError(
            "learned-marked",
            f"{path} was learned {'with' if learned.marked else 'without'} --marked.",
            "Add or remove --marked, or name another --file: the two are not learned together.",
        )
    return learned


def _learned_without(option: str, path: Path) -> CrashcheckError:
    return CrashcheckError("learned-otherwise", f"{path} was learned without {option}.", "Name another --file.")


def _threads(config: Config, learned: AnticipatingInvariants) -> str:
    """What to build for."""
    from crashcheck.analyzer.compile.learned_sets import MARKED

    return f"{MARKED}{(config.folder / LEARNED).resolve()}" if learned.marked else learned.training


def _passing(run: Run, number: int, runs: int, passed: int) -> Log | None:
    """The log of a run, after `passed` that did. Raises CrashcheckError learn-run-failed and those of running."""
    try:
        return run(number, True)[0]
    except CrashcheckError as error:
        if error.slug not in ("workload-failed", "workload-timeout"):
            raise
        kept = f"The {_of(passed, 'run')} before it are kept: o" if passed else "Nothing was kept: o"
        raise CrashcheckError(
            "learn-run-failed",
            f"run {number} of {runs}: {error.message}",
            f"{kept}nly passing runs are learned from. `crashcheck learn --check` shows how a run differs from what "
            "was learned before.",
        ) from error


def check(config: Config, path: Path, *, relax: bool = False, marked: bool = False) -> Checked:
    """Runs the workload once and holds it against the file at `path`; `relax`: learns from it if it passes.

    Raises CrashcheckError: learned-missing, learned-corrupt, learned-version, learned-marked, learn-nothing and those
    of running.
    """
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants
    from crashcheck.stages.threads import threaded_runs

    AnticipatingInvariants.load(path)
    learned = _learned_so_far(path, marked)
    with threaded_runs(config, _threads(config, learned)) as run:
        log, end = run(1, False)
    observed = _observed(log, path, marked)
    failure = "" if end.exit_code == 0 else end.text(config.workload.timeout_s)
    added = -1
    if relax and not failure:
        relaxed = learned.learn(observed)
        added = relaxed.predecessors - learned.predecessors
        relaxed.save(path)
    return Checked(learned.judge(observed), failure, added)


def _observed(log: Log | None, path: Path, marked: bool) -> Observed:
    """A run's interleavings, named relative to the folder of what is learned. Raises CrashcheckError learn-nothing."""
    from crashcheck.analyzer.concurrency import observe

    observed = observe(log, path.resolve().parent) if log is not None else None
    if observed is None or not observed.seen:
        raise CrashcheckError(
            "learn-nothing",
            f"the workload made no {'marked ' * marked}access to memory that crashcheck observes.",
            "Mark functions or blocks (crashcheck.h), or addresses and run `crashcheck learn` without --marked first."
            if marked
            else "[build] must compile all of it again, with crashcheck-cc or crashcheck-c++: `make` does not notice "
            "that the compiler changed.",
        )
    return observed


def summary(learned: AnticipatingInvariants, path: Path) -> str:
    """What was learned in all runs, how much of it in which, and since when nothing new came."""
    runs, at = learned.runs, learned.levelled_at
    text = (
        f"{_of(learned.predecessors, 'predecessor')} of {_of(learned.guarded, 'access', 'accesses')} to shared memory"
    )
    text += f", from {_of(runs, 'run')}"
    if not learned.guarded:
        text += "; no two threads accessed the same variable"
    elif at == runs:
        text += "; the last run still brought new ones: more runs may"
    else:
        text += f"; nothing new since run {at}"
    return f"{text}\nnew predecessors: {curve(learned.new)}\n{path}"


def curve(new: Sequence[int]) -> str:
    """How many predecessors came in the first run, the second, and from there on in twice as many runs at a time."""
    parts, first = [], 0
    while first < len(new):
        last = min(max(2 * first, first + 1), len(new))
        which = f"run {last}" if last == first + 1 else f"runs {first + 1}–{last}"
        parts.append(f"{sum(new[first:last])} in {which}")
        first = last
    return ", ".join(parts)


def report_lines(checked: Checked) -> Iterator[str]:
    """The lines that --check prints."""
    violations = checked.judged.violations
    yield from (f"not learned: {violation}" for violation in violations)
    if checked.judged.unjudged:
        many = len(checked.judged.unjudged)
        distinct = list(dict.fromkeys(str(site) for site in checked.judged.unjudged))
        names = ", ".join(distinct[:3]) + (", …" if len(distinct) > 3 else "")
        yield f"not judged: {_of(many, 'access', 'accesses')} that no learned run made, or whose code changed: {names}"
    if checked.failure:
        yield f"the run {checked.failure}" + (
            ": anticipated by the first of these" if violations else ", and nothing anticipated it"
        )
    elif violations:
        yield "the run passed: if it was right, `crashcheck learn --check --relax` learns what it shows"
    else:
        yield "the run passed, and showed nothing that was not learned"
    if checked.added >= 0:
        yield f"learned {_of(checked.added, 'predecessor')} from it"


def _of(many: int, one: str, several: str = "") -> str:
    return f"{many} {one if many == 1 else several or one + 's'}"
