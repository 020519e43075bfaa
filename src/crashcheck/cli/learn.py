"""`crashcheck learn`: learns from passing runs how threads interleave, and compares another run with it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crashcheck.cli.options import add_config
from crashcheck.config import Config, load
from crashcheck.errors import EXIT_CLEAN, EXIT_FINDINGS, CrashcheckError

if TYPE_CHECKING:
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Judged, Observed
    from crashcheck.analyzer.concurrency.observations import Log

LEARNED = "crashcheck.learned.json"
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
    parser.add_argument("--file", help=f"what was learned (default: {LEARNED} beside the configuration)")
    parser.add_argument("--runs", type=int, metavar="N", help=f"how many runs to learn from (default: {RUNS})")
    parser.add_argument("--check", action="store_true", help="run once and report what was not learned")
    parser.add_argument("--relax", action="store_true", help="with --check: if the run passes, learn what it showed")


def main(args: argparse.Namespace) -> int:
    if args.relax and not args.check:
        raise CrashcheckError("bad-option", "--relax needs --check: otherwise every passing run is learned from.")
    if args.check and args.runs is not None:
        raise CrashcheckError("bad-option", "--runs cannot be used with --check, which runs the workload once.")
    if args.runs is not None and args.runs < 1:
        raise CrashcheckError("bad-option", f"--runs is {args.runs}; the least is 1.")
    config = load(args.config)
    path = Path(args.file) if args.file else config.folder / LEARNED
    if args.check:
        checked = check(config, path, relax=args.relax)
        for line in report_lines(checked):
            print(line)
        return EXIT_FINDINGS if checked.judged.violations or checked.failure else EXIT_CLEAN
    learning = learn(config, path, args.runs or RUNS, lambda line: print(line, flush=True))
    print(summary(learning, path))
    return EXIT_CLEAN


@dataclass(frozen=True, slots=True)
class Learning:
    """What learning did. `new`: for each run, how many predecessors of accesses it added."""

    new: tuple[int, ...]
    learned: AnticipatingInvariants

    @property
    def levelled_at(self) -> int:
        """The last run (from 1) that added something; 0 if none did."""
        return max((number for number, many in enumerate(self.new, 1) if many), default=0)


@dataclass(frozen=True, slots=True)
class Checked:
    """A run held against what was learned. `failure` is how the run failed, "" if it passed; `added` is what was
    learned from it, -1 if nothing was asked for."""

    judged: Judged
    failure: str
    added: int


def learn(config: Config, path: Path, runs: int, report: Callable[[str], None] | None = None) -> Learning:
    """Runs the workload `runs` times and merges what the runs show into the file at `path`.

    Raises CrashcheckError: learn-run-failed if a run fails (the file stays as it was), learn-nothing, and those of
    running and of the file.
    """
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants
    from crashcheck.stages.threads import threaded_runs

    learned = AnticipatingInvariants.load(path) if path.exists() else AnticipatingInvariants()
    new: list[int] = []
    with threaded_runs(config, "learn") as run:
        for number in range(1, runs + 1):
            try:
                log, _ = run(number, True)
            except CrashcheckError as error:
                if error.slug not in ("workload-failed", "workload-timeout"):
                    raise
                raise CrashcheckError(
                    "learn-run-failed",
                    f"run {number} of {runs}: {error.message}",
                    "Nothing was kept: only passing runs are learned from. `crashcheck learn --check` shows how a run "
                    "differs from what was learned before.",
                ) from error
            observed = _observed(log, path)
            before = learned.predecessors
            learned = learned.learn(observed)
            new.append(learned.predecessors - before)
            if report is not None:
                new_ones = _of(new[-1], "new predecessor")
                report(f"run {number:{len(str(runs))}}: {_of(observed.accesses, 'access', 'accesses')}, {new_ones}")
    learned.save(path)
    return Learning(tuple(new), learned)


def check(config: Config, path: Path, *, relax: bool = False) -> Checked:
    """Runs the workload once and holds it against the file at `path`; `relax`: learns from it if it passes.

    Raises CrashcheckError: learned-missing, learned-corrupt, learned-version, learn-nothing and those of running.
    """
    from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants
    from crashcheck.stages.threads import threaded_runs

    learned = AnticipatingInvariants.load(path)
    with threaded_runs(config, "learn") as run:
        log, end = run(1, False)
    observed = _observed(log, path)
    failure = "" if end.exit_code == 0 else end.text(config.workload.timeout_s)
    added = -1
    if relax and not failure:
        relaxed = learned.learn(observed)
        added = relaxed.predecessors - learned.predecessors
        relaxed.save(path)
    return Checked(learned.judge(observed), failure, added)


def _observed(log: Log | None, path: Path) -> Observed:
    """A run's interleavings, named relative to the folder of what is learned. Raises CrashcheckError learn-nothing."""
    from crashcheck.analyzer.concurrency import observe

    observed = observe(log, path.resolve().parent) if log is not None else None
    if observed is None or not observed.seen:
        raise CrashcheckError(
            "learn-nothing",
            "the workload made no access to memory that crashcheck observes.",
            "[build] must compile all of it again, with crashcheck-cc or crashcheck-c++: `make` does not notice that "
            "the compiler changed.",
        )
    return observed


def summary(learning: Learning, path: Path) -> str:
    """What was learned, and since when nothing new came."""
    learned, runs, at = learning.learned, len(learning.new), learning.levelled_at
    text = (
        f"{_of(learned.predecessors, 'predecessor')} of {_of(learned.guarded, 'access', 'accesses')} to shared memory"
    )
    text += f", from {_of(learned.runs, 'run')}"
    if not learned.guarded:
        text += "; no two threads accessed the same variable"
    elif at == runs:
        text += "; the last run still brought new ones: more runs may"
    elif at:
        text += f"; nothing new since run {at}"
    else:
        text += "; nothing new"
    return f"{text}\n{path}"


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
