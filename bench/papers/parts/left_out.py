"""One flush of a long run left out, once: which parts of the ranked search find a bug that shows in one place only.

A planted bug is in each operation of its kind, so that nearly every order of states meets it early. Here the trace of a
correct structure lacks one flush, as mutants of a run do (docs/mutation.md), and everything else is as it was.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from bench.measure import scratch
from bench.papers.collect import Bench, Watching, ranking_once
from bench.papers.markdown import table, terms
from bench.papers.parts import Part
from bench.papers.variants import without_one
from bench.recall import Bug, checking, planted, ready
from crashcheck.analyzer.persistence import build as build_graph
from crashcheck.checker.budget import Budget
from crashcheck.checker.findings.call_chains import call_chains
from crashcheck.checker.findings.provenance import TraceProvenance
from crashcheck.checker.images.folder_content import content_of
from crashcheck.checker.mutation.mutants import Persist, What, persists, without_some
from crashcheck.checker.states.space import StateSpace
from crashcheck.config import Config
from crashcheck.source import SourceTree
from crashcheck.stages.recording import RecordedRun
from crashcheck.stages.strategy_setup import InferOnce, ranked

OPERATIONS = 2000
FLUSHES = 8  # of a structure: a place of its source, then one of the times that it ran
STATES = 400  # of each search
SECONDS = 120.0  # of each, at most: where checks hang, to explain one may take long
_NEVER = float("inf")
_ALWAYS = ("ranked", "without groups", "random")  # where none of these finds anything, no other is tried


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run without one flush. `ran`: how often its place ran; `ways`: states until the first finding, or None."""

    program: str
    place: str
    ran: int
    ways: dict[str, int | None]


def measure() -> Iterator[LeftOut]:
    """All structures."""
    for bug in planted():
        if not bug.number:
            with scratch(512) as folder:
                yield from measured(bug, folder, OPERATIONS, FLUSHES, STATES)


def measured(bug: Bug, folder: Path, operations: int, flushes: int, states: int) -> Iterator[LeftOut]:
    """One structure, recorded once."""
    with ready(bug, folder, operations) as (config, run, _):
        chain = call_chains(run.subject.trace, run.facts, SourceTree(config.folder).relative)
        every = [persist for persist in persists(run.subject.trace, chain) if persist.what is What.FLUSH]
        for number, (persist, row) in enumerate(drawn(every, flushes)):
            mutant, work = without_flush(run, config, row), folder / f"mutant-{number}"
            work.mkdir()
            with checking(config, mutant, work, Watching) as executor:
                assert isinstance(executor, Watching)
                executor.recall()
                bench = Bench(bug, config, mutant, executor, work / "search", Budget(SECONDS, states))
                place = f"{Path(persist.location.file).name}:{persist.location.line}"
                yield LeftOut(bug.program, place, len(persist.rows), _ways(bench))


def drawn(every: Sequence[Persist], many: int) -> list[tuple[Persist, int]]:
    """Flushes at random, always the same ones: places that ran once are as likely as those that ran often."""
    random = Random(1)
    chosen: dict[int, Persist] = {}
    while len(chosen) < min(many, sum(len(persist.rows) for persist in every)):
        persist = random.choice(every)
        chosen[random.choice(persist.rows)] = persist
    return [(persist, row) for row, persist in chosen.items()]


def without_flush(run: RecordedRun, config: Config, row: int) -> RecordedRun:
    """The run as if one flush had never been executed."""
    subject = run.subject
    trace = without_some(subject.trace, [row])
    space = StateSpace(build_graph(trace, subject.graph.model, subject.graph.options))
    changed = replace(
        subject,
        trace=trace,
        graph=space.graph,
        space=space,
        content=content_of(space, run.recording.first),
        provenance=TraceProvenance(trace, run.facts, config.folder),
    )
    return replace(run, subject=changed)


def _ways(bench: Bench) -> dict[str, int | None]:
    """Each way until its first finding."""
    base = ranked(bench.run, inferring=InferOnce(bench.run))
    every = {"ranked": base, "random": bench.named("random")}
    every |= {each.name: each.strategy for each in without_one(base)}
    ways: dict[str, int | None] = {}
    with ranking_once():
        for name in sorted(every, key=lambda name: name not in _ALWAYS):
            if name in _ALWAYS or any(ways.values()):
                ways[name] = bench.until_first(every[name]).states
    return ways


def section(rows: Sequence[LeftOut]) -> Iterator[str]:
    """Of the flushes whose absence shows at all: how each way compares with the ranked search."""
    shown = [one for one in rows if any(one.ways.values())]
    names = dict.fromkeys(name for one in shown for name in one.ways)
    cells = []
    for name in names:
        pairs = [(_order(one.ways[name]), _order(one.ways["ranked"])) for one in shown]
        found = sum(way < _NEVER for way, _ in pairs)
        earlier, later = (sum(sign * way < sign * base for way, base in pairs) for sign in (1, -1))
        compared = ("", "") if name == "ranked" else (str(earlier), str(later))
        cells.append((name, str(found), _median([way for way, _ in pairs]), *compared))
    header = ("search", f"found ({len(shown)})", "median states", "earlier than ranked", "later")
    yield from table(header, cells)
    yield ""
    yield (
        f"The correct structures with {OPERATIONS:,} operations. One flush is left out of the trace: a place of the "
        f"source at random, then one of the times that it ran; {FLUSHES} of each structure. Each search runs at most "
        f"{STATES} states, for {SECONDS:g} seconds. The absence of {len(shown)} of these {len(rows)} flushes shows; "
        f"for the others {', '.join(_ALWAYS)} find nothing (another flush may follow, or recovery help), and no "
        "other search is tried."
    )
    yield ""
    yield from terms(
        earlier="flushes that a search finds after fewer states than the ranked one",
        later="after more states; one that it does not find counts as later than all",
    )


def _order(states: int | None) -> float:
    return _NEVER if states is None else states


def _median(values: Sequence[float]) -> str:
    value = statistics.median(values or [_NEVER])
    return "–" if value == _NEVER else f"{value:g}"


PART = Part(
    "left-out",
    "One flush of a long run left out",
    LeftOut,
    "nothing else",
    measure,
    section,
)
