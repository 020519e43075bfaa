"""Small recorded runs and checks for the tests: a script of events, the claims a check makes, and the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.budget import Budget, Progress
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.findings.prefix_proof import RunDigested, SecondRuns
from crashcheck.checker.images.real_files import RealFiles, Snapshot
from crashcheck.checker.images.transition import Content
from crashcheck.checker.kept.shards import ALONE, Exchange
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.results import Finding, Location
from crashcheck.checker.search.crash_states import Search, SearchResult
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies import Exhaustive, Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.kept_verdicts import stacked
from crashcheck.command import Command
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.trace_format import Kind as Event
from support.reports.runs import with_fields
from support.tracing import TraceBuilder

FILE_BYTES = 4096


@dataclass(frozen=True)
class SitePlaces:
    """Places by site id; as from program facts, without a program."""

    trace: Trace
    sites: dict[int, Location]

    def of(self, event: int) -> Location | None:
        return self.sites.get(int(self.trace.events["site"][event]))

    def of_load(self, load: int) -> Location | None:
        return self.sites.get(int(self.trace.loads["site"][load]))

    def ordinal(self, event: int) -> int:
        return 0


def place(line: int, variable: str, text: str = "", file: str = "hash.c", function: str = "put") -> Location:
    return Location(file, line, 5, function, variable, (), text or f"{variable} = 1;")


def words(command: Sequence[str] | str) -> Command:
    """A configured command: words, or a line for a shell."""
    return Command(command, ()) if isinstance(command, str) else Command(" ".join(command), tuple(command))


@dataclass
class World:
    """A recorded run over one file `p` of zeros, and a check of it."""

    folder: Path
    check: Command
    script: Callable[[TraceBuilder], None]
    model: str = "px86"
    options: Options = field(default_factory=Options)
    sites: dict[int, Location] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(timeout_s=20))
    unexplained: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    oracle: Oracle = field(default_factory=ExitStatus)
    preload: Path | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        first = self.folder / "first"
        first.mkdir()
        (first / "p").write_bytes(bytes(FILE_BYTES))
        builder = TraceBuilder(self.folder / "trace.cct")
        builder.file("p", size=FILE_BYTES)
        self.script(builder)
        self.trace = builder.trace()
        self.graph = build(self.trace, self.model, self.options)
        self.space = StateSpace(self.graph)
        self.content = Content(self.space, first)
        places = SitePlaces(self.trace, self.sites)
        self.subject = Subject(self.trace, self.graph, self.space, self.content, places, lambda: self.unexplained)
        self.setup = CheckSetup(
            CheckCommand.find(self.check, self.folder),
            self.folder,
            first,
            self.folder,
            preload=self.preload,
            patterns=("p",) if self.preload else (),
        )

    def executor(self, jobs: int = 1) -> Executor:
        operations = int(np.count_nonzero(self.trace.events["kind"] == Event.MARK_END))
        workers = WorkerPool(
            self.content, self.space.points, self.setup, limits=self.limits, jobs=jobs, operations=operations
        )
        return Executor(workers, self.oracle)

    def search(
        self,
        executor: Executor,
        *,
        strategy: Strategy | None = None,
        budget: Budget | None = None,
        snapshot: Snapshot | None = None,
        digested: RunDigested | None = None,
        progress: Callable[[Progress], None] | None = None,
        explore: bool = False,
        exchange: Exchange = ALONE,
    ) -> SearchResult:
        return Search(
            self.subject,
            stacked(executor, exchange),
            strategy or Exhaustive(),
            budget or Budget(),
            second_runs=SecondRuns(snapshot, digested),
            progress=progress,
            explore=explore,
        ).run()

    def explore(
        self,
        *,
        jobs: int = 1,
        budget: Budget | None = None,
        snapshot: Snapshot | None = None,
        digested: RunDigested | None = None,
    ) -> SearchResult:
        with self.executor(jobs) as executor:
            return self.search(executor, budget=budget, snapshot=snapshot, digested=digested)

    def real_snapshot(self, seq: int) -> RealFiles:
        """What the recorder would copy: the file as it was just before the event `seq`."""
        image = bytearray(FILE_BYTES)
        for index, event in enumerate(self.trace.events):
            if int(event["seq"]) >= seq:
                break
            if int(event["kind"]) in (Event.STORE, Event.WRITE):
                at = int(event["offset"])
                image[at : at + int(event["size"])] = self.trace.data(index)
        folder = self.folder / f"snapshot-{seq}"
        folder.mkdir(exist_ok=True)
        (folder / "p").write_bytes(image)
        return RealFiles(folder, self.trace, self.folder / "stdout", self.folder / "addresses")


def without_times(found: SearchResult) -> SearchResult:
    def timeless(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(with_fields(f, verdict=replace(f.evidence.verdict, seconds=0.0)) for f in findings)

    return replace(
        found,
        seconds=0.0,
        findings=timeless(found.findings),
        uncertain=timeless(found.uncertain),
        discoveries=tuple(replace(each, seconds=0.0) for each in found.discoveries),
        first_state_s=None,
    )


def two_stores(t: TraceBuilder) -> None:
    t.begin(1)
    t.store("p", 0, 8, 1)
    t.store("p", 64, 8, 2)
    t.clwb("p", 0)
    t.clwb("p", 64)
    t.sfence()
    t.end(1)


def persist(t: TraceBuilder, *offsets: int) -> None:
    for offset in offsets:
        t.clwb("p", offset)
    t.sfence()


def apply_log(t: TraceBuilder) -> None:
    """What a log holds is applied to three words, of which nothing is ordered before the fence."""
    t.begin(1)
    for site, offset in ((1, 0), (2, 64), (3, 128)):
        t.site = site
        t.store("p", offset, 8, 5)
        t.clwb("p", offset)
    t.sfence()
    t.end(1)


VALUE, VALID = place(40, "entry.value"), place(42, "entry.valid")


def put_flag_first(t: TraceBuilder, slots: int = 3) -> None:
    """Each slot: value (site 1) and flag (site 2) in lines of their own; the flag is persisted first."""
    for slot in range(slots):
        at = slot * 256
        t.begin(slot + 1)
        t.site = 1
        t.store("p", at, 8, 7)
        t.site = 2
        t.store("p", at + 64, 8, 1)
        t.site = 0
        persist(t, at + 64)
        persist(t, at)
        t.end(slot + 1)


LINES = 5


def fill_lines(t: TraceBuilder, rounds: int = 3) -> None:
    """Each round stores to a word in each of LINES lines, then to one in a further line, and persists them at once."""
    for number in range(1, rounds + 1):
        t.begin(number)
        t.site = 1
        for line in range(LINES):
            t.store("p", 64 * line, 8, number)
        t.site = 2
        t.store("p", 64 * LINES, 8, number)
        t.site = 0
        persist(t, *(64 * line for line in range(LINES + 1)))
        t.end(number)


def world_of_lines(folder: Path, check: Path, *claims: str, rounds: int = 3) -> World:
    """`fill_lines`, and a check that explored runs can follow."""
    command = words([str(check), "{pool}/p", "{acked}", *claims])
    script = partial(fill_lines, rounds=rounds)
    return World(folder, command, script, sites={1: VALUE, 2: VALID}, preload=build_runtime().shared)


def two_steps(t: TraceBuilder) -> None:
    t.begin(1)
    for site, offset in ((1, 0), (2, 64)):
        t.site = site
        t.store("p", offset, 8, 5)
        t.site = 0
        persist(t, offset)
    t.end(1)


STEPS = {1: place(10, "a"), 2: place(12, "b")}


MakeWorld = Callable[..., World]


def only(findings: tuple[Finding, ...]) -> Finding:
    assert len(findings) == 1, [finding.message for finding in findings]
    return findings[0]


# The sites of the scripts whose fixes are tested: two fields, a third one, and a flush.
ENTRY_SITES = {1: place(40, "entry.value"), 2: place(42, "entry.valid"), 3: place(41, "entry.more"), 5: place(44, "")}
