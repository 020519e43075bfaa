"""docs/evaluation.md, written from docs/evaluation.json and evaluation-parts.json alone: no number is typed by hand."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import crashcheck
from bench.measure import run
from bench.papers import curves
from bench.papers.collect import First, Measured
from bench.papers.markdown import scientific, table, terms
from bench.papers.parts import Part
from bench.papers.parts.every import PARTS
from bench.programs import CHECKOUT
from bench.recall import STRATEGIES

_UNTIMED = "bounded"  # its verdicts are those of another strategy's run
_MOST = 1000  # executed states: the areas under the curves end there


@dataclass(slots=True)
class Report:
    """All that was measured, with how many operations, what ended a search that found nothing, and on what."""

    operations: int
    budget: str
    machine: dict[str, str]
    bugs: list[Measured]


def machine() -> dict[str, str]:
    """What the figures depend on: versions, cores and their load."""
    git = ("git", "-C", str(CHECKOUT))
    commit = run([*git, "rev-parse", "--short", "HEAD"]).strip()
    changed = run([*git, "status", "--porcelain", "--", ":!docs"])  # the figures themselves are in docs
    return {
        "crashcheck": crashcheck.__version__,
        "commit": commit + (" and changes" if changed else ""),
        "python": platform.python_version(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "minutes": "0.0",
        "cpu_minutes": "0.0",
    }


@contextmanager
def timing(on: dict[str, str]) -> Iterator[None]:
    """Add the minutes of what is measured inside, and those of the processors."""
    before = _minutes()
    yield
    for name, now in _minutes().items():
        on[name] = f"{float(on[name]) + now - before[name]:.2f}"


def _minutes() -> dict[str, float]:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "minutes": time.monotonic() / 60,
        "cpu_minutes": sum(each.ru_utime + each.ru_stime for each in used) / 60,
    }


def read(path: Path) -> Report:
    """What a run has kept."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def write(report: Report, parts: Mapping[str, Any], path: Path) -> None:
    """The page, and its pictures beside it. `parts`: what was measured of the tables that are measured alone."""
    planted = [one for one in report.bugs if one.bug]
    path.write_text("\n".join(_page(report, planted, parts)) + "\n", encoding="utf-8")
    for part in PARTS:
        if part.name in parts:
            for name, picture in part.pictures(part.rows(parts[part.name])).items():
                path.with_name(name).write_text(picture, encoding="utf-8")
    by_states = {name: [one.strategies[name].states for one in planted] for name in STRATEGIES}
    over_states = curves.bugs_over(by_states, "executed crash states")
    path.with_name("evaluation-bugs.svg").write_text(over_states, encoding="utf-8")
    by_seconds = {
        name: None if name == _UNTIMED else [_seconds(one.strategies[name]) for one in planted] for name in STRATEGIES
    }
    over_seconds = curves.bugs_over(by_seconds, "seconds of a search", least_power=-1)
    path.with_name("evaluation-seconds.svg").write_text(over_seconds, encoding="utf-8")
    spaces = {one.program: one.operations for one in report.bugs if not one.bug}
    path.with_name("evaluation-space.svg").write_text(curves.space_by_operation(spaces), encoding="utf-8")


def _page(report: Report, planted: Sequence[Measured], parts: Mapping[str, Any]) -> Iterator[str]:
    yield "# Evaluation"
    yield ""
    yield (
        "This page compares the search strategies on planted bugs, in the tables of the papers that crashcheck builds "
        "on. `make bench-papers` measures it and writes this page."
    )
    yield ""
    yield from _in_short(planted)
    yield ""
    yield from terms(
        bugs=f"{len(planted)}, planted in {len({one.program for one in planted})} structures "
        "([examples/structures](../examples/structures/README.md)); builds hold one each",
        workload=f"{report.operations} operations, model px86",
        check="output equivalence",
        search=f"at most {report.budget}, without explored runs",
    )
    yield ""
    yield "Counts of states do not depend on the machine, seconds do."
    yield ""
    yield _measured(report.machine)
    for section in (_curves, _kinds, _states, _ablations, _spaces, _missed):
        yield ""
        yield from section(report, planted)
    for part in PARTS:
        yield ""
        yield from _part(part, parts.get(part.name))
    yield ""
    yield from _not_here()


def _seconds(first: First) -> float | None:
    """Until the first proved finding; None if there was none."""
    return None if first.states is None else first.seconds


# -- one section each


def _in_short(planted: Sequence[Measured]) -> Iterator[str]:
    """The result of the first table, in words."""
    firsts = {name: [one.strategies[name] for one in planted] for name in STRATEGIES}
    others = [name for name in STRATEGIES if name != "ranked"]
    found = sorted(_found(firsts[name]) for name in others)
    medians = ", ".join(f"`{name}` {_median(firsts[name])}" for name in others)
    yield (
        f"**In short**: `ranked`, the default, finds {_found(firsts['ranked'])} of {len(planted)} bugs, half of them "
        f"within {_median(firsts['ranked'])} crash states. The others find {found[0]} to {found[-1]}, half of the bugs "
        f"within: {medians} states."
    )


def _curves(report: Report, planted: Sequence[Measured]) -> Iterator[str]:
    yield "## Bugs found, by executed crash states (Pathfinder, figure 9)"
    yield ""
    yield "![Bugs found over executed crash states, one line for each strategy](evaluation-bugs.svg)"
    yield ""
    yield (
        "The same over seconds. The ranked search runs its first state later than the others, because it infers "
        "invariants before:"
    )
    yield ""
    yield "![Bugs found over seconds, one line for each strategy](evaluation-seconds.svg)"
    yield ""
    rows = []
    for name in STRATEGIES:
        firsts = [one.strategies[name] for one in planted]
        rows.append(
            (
                name,
                str(_found(firsts)),
                _median(firsts),
                f"{_area(firsts):.3f}",
                "–" if name == _UNTIMED else f"{sum(first.seconds for first in firsts):.0f}",
            )
        )
    yield from table(
        ("strategy", f"found ({len(planted)} planted)", "median states", "area to 1,000", "seconds in all"), rows
    )
    yield ""
    yield from terms(
        median_states="executed until the state that led to the first proved finding; a bug that was not found counts "
        "as later than all",
        area="under the curve to 1,000 states; 1 would be every bug at once",
        seconds="of all searches until the first finding or the end, with their preparation. `bounded` has none: its "
        "states are the first ones of `exhaustive`, and it takes the verdicts of that run",
    )


def _kinds(report: Report, planted: Sequence[Measured]) -> Iterator[str]:
    yield "## Root causes (Pathfinder, tables 1 and 2)"
    yield ""
    kinds = sorted({one.kind for one in planted})
    rows = []
    for program, mine in [*_by_program(planted), ("all", planted)]:
        counts = (str(sum(one.kind == kind for one in mine)) for kind in kinds)
        found = (str(_found(one.strategies[name] for one in mine)) for name in STRATEGIES)
        rows.append((program, *counts, str(len(mine)), *found))
    yield from table(("structure", *kinds, "planted", *STRATEGIES), rows)
    yield ""
    yield "The last columns: how many each strategy found."


def _states(report: Report, planted: Sequence[Measured]) -> Iterator[str]:
    yield "## States until all are tested (Pathfinder, table 3)"
    yield ""
    rows = []
    for program, bugs in _by_program(planted):
        mine = [one.representatives for one in bugs]
        states, related = (sum(one[key] for one in mine) for key in ("states", "correlated"))
        total, total_related = (sum(int(one[key]) for one in mine) for key in ("exhaustive", "exhaustive_correlated"))
        more = "" if all(one["all"] for one in mine) else "≥ "
        bound = "" if all(one["exhaustive_exact"] for one in mine) else "≤ "
        rows.append(
            (
                program,
                bound + scientific(total),
                more + f"{states:,}",
                bound + scientific(total_related),
                more + f"{related:,}",
                scientific(total // states) if states else "",
            )
        )
    header = ("structure", "exhaustive", "representatives", "exhaustive, correlated", "representatives, correlated")
    yield from table((*header, "times fewer"), rows)
    yield ""
    yield "Sums over the bugs of a structure."
    yield ""
    yield from terms(
        exhaustive="all feasible crash states, counted exactly without listing them",
        representatives="the states of strategy `pathfinder`",
        correlated="states that lose an update of a line that is marked as the bug's; the paper calls a state "
        "correlated if its crash schedule covers that line",
    )


def _ablations(report: Report, planted: Sequence[Measured]) -> Iterator[str]:
    yield "## What each part of the ranked search earns"
    yield ""
    compared = [each for of in ("part", "phase", "seed") for each in _compared(planted, of)]
    shown = (
        (one.name, f"{_found(one.firsts)} of {len(one.firsts)}", *one.medians, f"{_area(one.firsts):.3f}", one.gain)
        for one in compared
        if not one.name.startswith("seed")
    )
    yield from table(("variant", "found", "median states", "of ranked", "area", "against ranked"), shown)
    yield ""
    areas = _seed_areas(planted)
    if len(areas) > 1:
        spread = max(areas) - min(areas)
        others = (one for one in compared if not one.name.startswith("seed"))
        beyond = (f"{one.name} ({one.gain})" for one in others if abs(float(one.gain)) > spread)
        most = max(len(one.firsts) for one in compared) // sum("seed" in one.variants for one in planted)
        yield (
            f"Measured on every third bug of a structure, the parts and phases with {most} "
            f"{'seeds' if most > 1 else 'seed'} of the random phase each: a bug counts once for each seed. "
            f"{len(areas)} seeds give the whole search areas from {min(areas):.3f} to {max(areas):.3f}: what differs "
            f"by less is chance. More: {', '.join(beyond) or 'nothing'}."
        )
        yield ""
    weights = list(_compared(planted, "weight"))
    if weights:
        gains = [float(one.gain) for one in weights]
        yield (
            "On every ninth bug, one weight of a phase or a part of a score was halved, doubled or dropped: this "
            f"changes the area by {min(gains):+.3f} to {max(gains):+.3f}."
        )
        yield ""
    lost = sorted({name for one in (*compared, *weights) for name in one.lost})
    yield f"Found by the ranked search, but not by a variant: {', '.join(lost) or 'none'}."


@dataclass(frozen=True, slots=True)
class _Compared:
    """A variant and the ranked search on the same bugs. `lost`: bugs that the variant alone did not find."""

    name: str
    firsts: Sequence[First]
    ranked: Sequence[First]
    lost: Sequence[str]

    @property
    def medians(self) -> tuple[str, str]:
        return _median(self.firsts), _median(self.ranked)

    @property
    def gain(self) -> str:
        return f"{_area(self.firsts) - _area(self.ranked):+.3f}"


def _compared(planted: Sequence[Measured], of: str) -> Iterator[_Compared]:
    """Each variant with all its seeds, beside the ranked search of the same bugs and seeds."""
    names = dict.fromkeys(_name_and_seed(name)[0] for one in planted for name in one.variants.get(of, {}))
    for name in names:
        firsts, whole, lost = [], [], []
        for one in planted:
            for variant, first in one.variants.get(of, {}).items():
                base_name, seed = _name_and_seed(variant)
                if base_name == name:
                    base = one.variants["seed"][f"seed {seed}"] if seed else one.variants["search"]["ranked"]
                    firsts.append(first)
                    whole.append(base)
                    if first.states is None and base.states:
                        lost.append(f"{one.program} {one.bug}")
        yield _Compared(name, firsts, whole, lost)


def _name_and_seed(name: str) -> tuple[str, str]:
    """Of "without groups, seed 2" the variant and its seed; no seed is that of the search itself."""
    variant, _, seed = name.partition(", seed ")
    return variant, seed


def _seed_areas(planted: Sequence[Measured]) -> list[float]:
    names = dict.fromkeys(name for one in planted for name in one.variants.get("seed", {}))
    varied = [one for one in planted if "seed" in one.variants]
    areas = [_area([one.variants["seed"][name] for one in varied]) for name in names]
    return [*areas, _area([one.variants["search"]["ranked"] for one in varied])] if areas else []


def _spaces(report: Report, planted: Sequence[Measured]) -> Iterator[str]:
    yield "## The test space by operation (Witcher, figure 4)"
    yield ""
    yield "![Crash states by operation for four ways to choose them](evaluation-space.svg)"
    yield ""
    rows = []
    for one in report.bugs:
        if one.bug or not one.operations:
            continue
        sums = {name: sum(map(int, counts)) for name, counts in one.operations.items()}
        most = max(map(int, one.operations["yat"]))
        rows.append((one.program, *(scientific(sums[name]) for name in curves.SPACES), scientific(most)))
    yield from table(("structure", *curves.SPACES.values(), "most in one operation (all states)"), rows)
    yield ""
    yield (
        "Builds without a bug. *All states* is what Yat tests. *pmreorder* tests all orders of all subsets of the "
        "stores that were flushed before a fence. It knows no cache lines, so its number can be larger than that of "
        "all feasible states. Both are counted from the same trace, as Witcher counted them."
    )


def _missed(report: Report, planted: Sequence[Measured]) -> Iterator[str]:
    yield "## What a strategy missed"
    yield ""
    rows = []
    for one in planted:
        missed = {name: each for name in STRATEGIES if (each := one.strategies[name]).states is None}
        if missed:
            by = ", ".join(f"{name} ({_tested(each)})" for name, each in missed.items())
            rows.append((f"{one.program} {one.bug}", one.kind, by))
    if rows:
        yield from table(("bug", "kind", "missed by (executed states)"), rows)
        yield ""
        yield (
            "*All*: these are all that the strategy selects. `witcher` selects only what violates an invariant that it "
            "inferred, `pathfinder` only representatives ([behaviours](behaviours.md#what-it-does-not-see) has the "
            "reasons). The `bugs.toml` of a structure lists what is planted."
        )
    else:
        yield "Nothing."


def _tested(search: First) -> str:
    return f"{'all ' if search.ended == 'exhausted' else ''}{f'{search.executed:,}' if search.executed else '–'}"


def _part(part: Part[Any], kept: Mapping[str, Any] | None) -> Iterator[str]:
    yield f"## {part.title}"
    yield ""
    if kept is None:
        yield f"Not measured. `make bench-papers PAPERS_ARGS='--part {part.name}'` measures it; it needs {part.needs}."
        return
    yield from part.section(part.rows(kept))
    yield ""
    yield _measured(kept["machine"])


def _measured(on: Mapping[str, str]) -> str:
    """With what, and on what."""
    known = {
        "minutes": "minutes {:.0f}",
        "cpu_minutes": "of CPU {:.0f}",
        "load": "load at the beginning {:.1f}",
    }
    times = ", ".join(text.format(float(on[name])) for name, text in known.items() if name in on)
    commit = f"commit {on['commit']}, " if "commit" in on else ""
    return f"*Measured*: {commit}Python {on['python']}, Linux {on['kernel']}, {on['cores']} cores; {times}."


def _not_here() -> Iterator[str]:
    yield "## Not measured here"
    yield ""
    yield (
        "* The programs of Pathfinder, Witcher, Jaaru and ALICE themselves. Their methods are implemented from the "
        "papers and run on our traces with one check, so that only the methods differ."
    )
    others = "[other programs](found.md#programs-that-were-tried)"
    yield f"* RocksDB and WiredTiger, which Pathfinder's authors tested: {others} has other runs."


# -- figures and Markdown


def _by_program(planted: Sequence[Measured]) -> list[tuple[str, Sequence[Measured]]]:
    programs = sorted({one.program for one in planted})
    return [(program, [one for one in planted if one.program == program]) for program in programs]


def _found(firsts: Iterable[First]) -> int:
    return sum(first.states is not None for first in firsts)


def _median(firsts: Sequence[First]) -> str:
    value = statistics.median(float("inf") if first.states is None else float(first.states) for first in firsts)
    return "–" if value == float("inf") else f"{value:g}"


def _area(firsts: Sequence[First]) -> float:
    return statistics.mean(0.0 if one.states is None else max(0.0, 1 - one.states / _MOST) for one in firsts)
