"""`python -m bench.recall`: how many crash states each strategy runs until it finds each planted bug of
examples/structures, and whether the builds without a bug stay clean. Writes build/bench/recall.json."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import scratch
from bench.programs import CHECKOUT
from bench.remember import Remembering
from crashcheck import mutation_campaign, pipeline
from crashcheck.checker.budget import Budget, Progress
from crashcheck.checker.mutation.mutant_search import Fate
from crashcheck.checker.results import Finding
from crashcheck.checker.search.crash_states import Search, SearchResult
from crashcheck.checker.verdicts import prepare
from crashcheck.config import Config, override
from crashcheck.config import load as load_config
from crashcheck.stages.executor_setup import executor_of
from crashcheck.stages.recording import RecordedRun, build, record_check_reads, record_run
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import early_states, strategy_of
from crashcheck.stages.uncrashed import check_uncrashed

STRUCTURES = CHECKOUT / "examples" / "structures"
OUTPUT = CHECKOUT / "build" / "bench" / "recall.json"
_MANY = 3  # findings of one bug: not distinguished from there on
_MARK = re.compile(r"/\* BUG ([\d, ]+) \*/")  # ends the line of each culprit (examples/structures/README.md)
STRATEGIES = ("ranked", "pathfinder", "witcher", "bounded", "exhaustive", "random")


class _Found(Exception):
    """A proved finding."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A row of bugs.toml; number 0 is the build without a bug."""

    program: str
    number: int
    kind: str
    what: str
    function: str = ""
    least: int = 0  # operations
    most: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Reported:
    """What a finding reports. `at_culprit`: it names a line marked with the bug, or at least the bug's function."""

    kind: str
    message: str
    at_culprit: bool
    id: str


@dataclass(slots=True)
class Row:
    """What was measured of one bug. `states`: executed until the first finding, None if it was not found."""

    bug: Bug
    states: dict[str, int | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    findings: tuple[Reported, ...] | None = None  # of the whole budget of `ranked`; None if that was not spent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("--program", action="append", default=[], metavar="NAME", help="only this structure")
    parser.add_argument("--bug", action="append", type=int, default=[], metavar="N", help="only this bug; 0: no bug")
    parser.add_argument("--operations", type=int, default=2000, help="of each run (default: 2000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search (default: 60)")
    parser.add_argument("--states", type=int, help="of each search, at most (default: as many as the seconds allow)")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help=f"default: {','.join(STRATEGIES)}")
    parser.add_argument("--whole", action="store_true", help="let `ranked` use up its time, and count its findings")
    parser.add_argument("--no-explore", action="store_true", help="run each crash state by itself")
    parser.add_argument("--mutants", action="store_true", help="search the mutants of the fixed builds instead")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"default: {OUTPUT}")
    args = parser.parse_args()
    strategies = tuple(args.strategies.split(","))
    bugs = [
        bug
        for bug in planted()
        if (not args.program or bug.program in args.program) and (not args.bug or bug.number in args.bug)
    ]
    if args.mutants:
        return _mutate([bug for bug in bugs if not bug.number], args)
    rows: list[Row] = []
    for bug in bugs:
        with scratch(512) as folder:
            rows.append(_measure(bug, folder, strategies, args))
        _show(rows[-1])
        _write(args.output, rows, strategies, args)
    for line in (*_table(rows, strategies), *_findings_table(rows)):
        print(line)
    print(f"Written to {args.output}.")
    missed = [row.bug for row in rows if row.bug.number and row.states.get(strategies[0]) is None]
    alarms = [row.bug for row in rows if not row.bug.number and any(row.states.values())]
    return 1 if missed or alarms else 0


def planted() -> Iterator[Bug]:
    """Every structure without a bug, and with each of its bugs, in order."""
    for path in sorted(STRUCTURES.glob("*/bugs.toml")):
        listed = tomllib.loads(path.read_text(encoding="utf-8"))
        name = path.parent.name
        yield Bug(name, 0, "", "no bug")
        for bug in listed["bug"]:
            bounds = bug.get("least", 0), bug.get("most", 1 << 30)
            yield Bug(name, bug["number"], bug["kind"], bug["what"], bug["function"], *bounds)


def prepared(bug: Bug, folder: Path, operations: int) -> Config:
    """A copy of the structures with one built in it, and its configuration; each bug has folders of its own."""
    structures = folder / "structures"
    shutil.copytree(STRUCTURES, structures, ignore=shutil.ignore_patterns(".crashcheck", "driver"))
    own = structures / bug.program
    options = tomllib.loads((own / "bugs.toml").read_text(encoding="utf-8"))["operations"]
    words = shlex.split(options) if isinstance(options, str) else list(options)
    many = min(max(operations, bug.least), bug.most)
    made = subprocess.run(
        [sys.executable, "-m", "crashcheck", "ops", *words, "--length", str(many)],
        check=True,
        stdout=subprocess.PIPE,
    )
    (own / "operations.txt").write_bytes(made.stdout)
    return load_config(own)


def _measure(bug: Bug, folder: Path, strategies: Sequence[str], args: argparse.Namespace) -> Row:
    row = Row(bug)
    work = folder / "work"
    with ready(bug, folder, args.operations) as (config, run, executor):
        for name in strategies:
            wanted = override(config, strategy=name, explore=not args.no_explore)
            started = time.perf_counter()
            to_the_end = not bug.number or (args.whole and name == "ranked")
            budget = Budget(args.seconds, args.states)
            found = _search(wanted, run, executor, work / name, budget, to_the_end)
            executor.settle()
            row.seconds[name] = round(time.perf_counter() - started, 1)
            if isinstance(found, SearchResult):
                reported = tuple(_reported(finding, bug) for finding in found.findings)
                row.findings = (row.findings or ()) + reported
                row.states[name] = found.states.executed if reported and bug.number else len(reported) or None
            else:
                row.states[name] = found
    return row


def _reported(finding: Finding, bug: Bug) -> Reported:
    places = finding.blamed
    marks = {number for place in places for number in marks_of(place.text)}
    functions = {place.function for place in places}
    functions |= {frame.function for place in places for frame in place.stack}
    named = str(bug.number) in marks or bug.function in functions
    return Reported(finding.kind.value, finding.message, named, finding.id)


def marks_of(text: str) -> set[str]:
    """The numbers of the bugs that a source line is marked with."""
    return {number.strip() for marked in _MARK.findall(text) for number in marked.split(",")}


@contextmanager
def ready(
    bug: Bug, folder: Path, operations: int, kind: type[Remembering] = Remembering
) -> Iterator[tuple[Config, RecordedRun, Remembering]]:
    """A build with a bug, recorded, and workers that are ready to check its crash states; below `folder`."""
    config = prepared(bug, folder, operations)
    os.environ["BUG"] = str(bug.number)
    work = folder / "work"
    work.mkdir()
    build(config, work)
    run = record_check_reads(config, record_run(config, work))
    with checking(config, run, work, kind) as executor:
        yield config, run, executor


@contextmanager
def checking(config: Config, run: RecordedRun, work: Path, kind: type[Remembering]) -> Iterator[Remembering]:
    """Workers that are ready to check states, with the time limit of a search; what did not crash passes."""
    jobs = pipeline.cores()
    oracle = prepare.choose_oracle(config, run.subject, run.folder)
    with executor_of(config, run, work, jobs, oracle, kind) as executor:
        assert isinstance(executor, Remembering)
        prepare.prepare_oracle(oracle, executor, lambda phase: None)
        check_uncrashed(config, run, executor)
        yield executor


def _search(
    config: Config, run: RecordedRun, executor: Remembering, work: Path, budget: Budget, to_the_end: bool
) -> SearchResult | int | None:
    """What was found with the time used up, or the number of states that led to the first finding; None: nothing."""

    def watch(progress: Progress) -> None:
        if progress.findings and not to_the_end and led_to(search):
            raise _Found

    plan = strategy_of(config, run, early=early_states(budget))
    search = search_of(config, run, executor, plan, budget, folder=work, progress=watch)
    try:
        explored = search.run()
    except _Found:
        return led_to(search)
    return explored if to_the_end else None


def led_to(search: Search) -> int:
    """States that had been executed when the state failed that led to the first finding: the search continues while
    its cause is looked for. 0: none is known yet."""
    return min((draft.found[0] for draft in search.register.drafts if draft.found[0]), default=0)


def _mutate(fixed: Sequence[Bug], args: argparse.Namespace) -> int:
    """Each flush and fence of the builds without a bug deleted or moved; `--seconds` for each mutant."""
    rows: list[dict[str, Any]] = []
    for bug in fixed:
        with scratch(512) as folder:
            os.environ["BUG"] = "0"
            config = override(prepared(bug, folder, args.operations), budget=f"{args.seconds}s")
            done = mutation_campaign.mutate(config)
            for result in done.results:
                place = result.location
                rows.append(
                    {
                        "program": bug.program,
                        "site": f"{Path(place.file).name}:{place.line} ({place.function})",
                        "change": result.words,
                        "verdict": result.fate.value,
                        "states": result.states,
                        "new_states": result.new,
                        "proved": result.proved,
                        "ends": result.ends,
                        "because": result.because,
                        "lost": [f"{Path(at.file).name}:{at.line} ({at.function})" for at in result.lost],
                        "seconds": round(result.seconds, 3),
                    }
                )
        _show_mutants(bug.program, done.seconds, [row for row in rows if row["program"] == bug.program])
        # Beside what is known of the planted bugs, if that was measured before.
        report = json.loads(args.output.read_text(encoding="utf-8")) if args.output.exists() else {"schema": 1}
        report["mutants"] = rows
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if any(row["verdict"] == Fate.SURVIVED.value for row in rows) else 0


def _show_mutants(program: str, seconds: float, rows: Sequence[dict[str, Any]]) -> None:
    counts = "  ".join(f"{fate.value} {sum(row['verdict'] == fate.value for row in rows):3}" for fate in Fate)
    print(f"{program:16} mutants {len(rows):3}  {counts}  [{seconds:.0f} s]", flush=True)
    for row in rows:
        if row["verdict"] in (Fate.SURVIVED.value, Fate.HARMLESS.value):
            of = "" if row["new_states"] is None else f" of {row['new_states']}"
            ends = f", {row['proved']} by {row['ends']} explored runs" if row["proved"] else ""
            print(f"{'':21}{row['verdict']} after {row['states']}{of} states{ends}: {row['change']} at {row['site']}")


# -- what is shown and kept


def _show(row: Row) -> None:
    bug = row.bug
    cells = "  ".join(f"{name} {'-' if states is None else states}" for name, states in row.states.items())
    seconds = " ".join(f"{value:.0f}" for value in row.seconds.values())
    print(f"{bug.program:16} {bug.number:3} {bug.kind or 'fixed':18} {cells}  [{seconds} s]", flush=True)
    for reported in row.findings or ():
        elsewhere = "" if reported.at_culprit or not bug.number else "  (not at the culprit)"
        print(f"{'':21}{reported.kind}: {reported.message}{elsewhere}")


def _area(values: Sequence[int | None], most: int) -> float:
    """The area under the share of bugs found after n states, n from 0 to `most`, as a share of the whole."""
    return statistics.mean(max(0.0, 1 - (most if value is None else min(value, most)) / most) for value in values)


def _table(rows: Sequence[Row], strategies: Sequence[str]) -> Iterator[str]:
    for name, figures in _summary(rows, strategies).items():
        median = figures["median_states"]
        yield (
            f"{name:12} found {figures['found']:3} of {figures['bugs']}   "
            f"median {'-' if median is None else median:>6} states   "
            f"area {figures['area_1000']:.3f} (to 1,000)  {figures['area_10000']:.3f} (to 10,000)"
        )


def _summary(rows: Sequence[Row], strategies: Sequence[str]) -> dict[str, dict[str, Any]]:
    summary = {}
    for name in strategies:
        values = [row.states.get(name) for row in rows if row.bug.number]
        if not values:
            continue
        endless = [float("inf") if value is None else float(value) for value in values]
        median = statistics.median(endless)
        summary[name] = {
            "bugs": len(values),
            "found": sum(value is not None for value in values),
            "median_states": None if median == float("inf") else median,
            "area_1000": round(_area(values, 1000), 4),
            "area_10000": round(_area(values, 10000), 4),
        }
    return summary


def _findings(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per program: how many of its bugs gave no finding, one, two, three or more; what the findings named."""
    known = [(row.bug, row.findings) for row in rows if row.bug.number and row.findings is not None]
    programs = dict.fromkeys(bug.program for bug, _ in known)
    return [_findings_of(program, [each for each in known if each[0].program == program]) for program in programs]


def _findings_of(program: str, known: Sequence[tuple[Bug, tuple[Reported, ...]]]) -> dict[str, Any]:
    counts = [min(len(reported), _MANY) for _, reported in known]
    return {
        "program": program,
        "bugs": len(known),
        "findings": sum(len(reported) for _, reported in known),
        "bugs_by_findings": [counts.count(many) for many in range(_MANY + 1)],
        "of_the_kind": sum({one.kind for one in reported} == {bug.kind} for bug, reported in known),
        "at_the_culprit": sum(all(one.at_culprit for one in reported) for _, reported in known if reported),
    }


def _findings_table(rows: Sequence[Row]) -> Iterator[str]:
    table = _findings(rows)
    if not table:
        return
    yield f"{'findings a bug':16} bugs findings   with 0    1    2   3+   all of its kind   all at the culprit"
    total = {name: sum(row[name] for row in table) for name in ("bugs", "findings", "of_the_kind", "at_the_culprit")}
    by_findings = [sum(column) for column in zip(*(row["bugs_by_findings"] for row in table), strict=True)]
    for row in (*table, {"program": "all", "bugs_by_findings": by_findings, **total}):
        none, one, two, more = row["bugs_by_findings"]
        yield (
            f"{row['program']:16} {row['bugs']:4} {row['findings']:8}   {none:6} {one:4} {two:4} {more:4}   "
            f"{row['of_the_kind']:15}   {row['at_the_culprit']:18}"
        )


def _write(output: Path, rows: Sequence[Row], strategies: Sequence[str], args: argparse.Namespace) -> None:
    report = {
        "schema": 1,
        "operations": args.operations,
        "seconds": args.seconds,
        "budget_states": args.states,
        "explored": not args.no_explore,
        "bugs": [
            {
                "program": row.bug.program,
                "bug": row.bug.number,
                "kind": row.bug.kind,
                "what": row.bug.what,
                "states": row.states,
                "seconds": row.seconds,
                "findings": None if row.findings is None else [asdict(reported) for reported in row.findings],
            }
            for row in rows
            if row.bug.number
        ],
        "fixed": [
            {
                "program": row.bug.program,
                "strategy": name,
                "findings": row.states[name] or 0,
                "seconds": row.seconds[name],
                "reported": [reported.message for reported in row.findings or ()],
            }
            for row in rows
            if not row.bug.number
            for name in row.states
        ],
        "summary": _summary(rows, strategies),
        "findings": _findings(rows),
    }
    if output.exists():
        known = json.loads(output.read_text(encoding="utf-8"))
        if "mutants" in known:
            report["mutants"] = known["mutants"]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
