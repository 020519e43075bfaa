"""PMDK's pmemcheck and pmreorder on planted bugs, beside the default search: the same operations, the same oracle.

The folder that the environment variable names holds `valgrind`, PMDK's fork of it (github.com/pmem/valgrind) as its
Makefile installs it, and `pmreorder`, the folder src/tools/pmreorder of PMDK.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import CannotMeasure, run, scratch
from bench.papers.collect import Bench, Watching
from bench.papers.markdown import table
from bench.papers.parts import Part
from bench.papers.pmemcheck_log import CacheLines, stores_of
from bench.programs import HERE, clang
from bench.recall import Bug, planted, ready
from crashcheck.checker.budget import Budget
from crashcheck.config import Config
from crashcheck.stages.recording import record_workload, workload_in

FOLDER = "CRASHCHECK_PMREORDER"
ENGINES = ("ReorderAccumulative", "ReorderReverseAccumulative", "ReorderPartial", "ReorderFull")
PROGRAMS = ("clht", "level-hash")
OPERATIONS = 100
LONG = 20_000  # operations of the runs whose recording is timed
SECONDS = 3.0  # for each search
_POOL_BYTES = 256 << 10
_REPETITIONS = 3


@dataclass(frozen=True, slots=True)
class Tried:
    """A search until its first inconsistent state. `found`: after so many states; None: it ended, or its time did.

    `impossible`: inconsistent states that no processor leaves: a later store of a cache line without an earlier one.
    """

    states: int
    found: int | None
    seconds: float
    ended: bool
    impossible: int = 0


@dataclass(frozen=True, slots=True)
class Reordered:
    """One build: what each engine of pmreorder did, and `ranked`. Of bug 0 the CPU seconds of recording as well.

    `unpersisted`: stores that pmemcheck reports as never persisted.
    """

    program: str
    bug: int
    kind: str
    unpersisted: int
    ways: dict[str, Tried]
    cpu: dict[str, float]


def measure() -> Iterator[Reordered]:
    """All bugs of some structures."""
    if not os.environ.get(FOLDER):
        raise CannotMeasure(f"{FOLDER} names no folder with PMDK's valgrind and pmreorder.")
    tools = Path(os.environ[FOLDER])
    for bug in planted():
        if bug.program in PROGRAMS:
            with scratch(512) as folder:
                yield measured(bug, folder, tools, OPERATIONS)


def measured(bug: Bug, folder: Path, tools: Path, operations: int) -> Reordered:
    """One bug, or what recording costs without one."""
    cpu: dict[str, float] = {}
    if not bug.number:
        long = folder / "long"
        long.mkdir()
        with ready(bug, long, LONG) as (config, recorded, _):
            cpu = _recording(config, Build.of(config, bug, long / "reorder", tools))
    with ready(bug, folder, operations, Watching) as (config, recorded, executor):
        assert isinstance(executor, Watching)
        bench = Bench(bug, config, recorded, executor, folder / "work", Budget(SECONDS))
        first = bench.until_first(bench.named("ranked"))
        ways = {"ranked": Tried(len(executor.seen), first.states, first.seconds, first.seconds < SECONDS)}
        build = Build.of(config, bug, folder / "reorder", tools)
        unpersisted = build.record()
        build.prepare_check()
        for engine in ENGINES:
            ways[engine] = build.reorder(engine)
    return Reordered(bug.program, bug.number, bug.kind, unpersisted, ways, cpu)


@dataclass(frozen=True, slots=True)
class Build:
    """A structure's driver, plain and for pmemcheck, with the check; files are written into `folder`."""

    folder: Path
    tools: Path
    operations: Path

    @classmethod
    def of(cls, config: Config, bug: Bug, folder: Path, tools: Path) -> Build:
        """Compile all three."""
        folder.mkdir()
        (source,) = (*config.folder.glob("*.c"), *config.folder.glob("*.cpp"))
        cxx = source.suffix == ".cpp"
        words = [clang(cxx), *(["-std=c++17"] if cxx else []), "-O1", "-g", f"-DBUG={bug.number}", str(source)]
        header = HERE / "workloads" / "under_pmemcheck.h"
        run([*words, "-o", str(folder / "plain")])
        run([*words, f"-I{tools / 'valgrind' / 'include'}", "-include", str(header), "-o", str(folder / "marked")])
        compile_check(folder / "check")
        return cls(folder, tools, config.folder / "operations.txt")

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def pool(self) -> Path:
        return self.folder / "pool"

    def under_pmemcheck(self, *options: str) -> list[str]:
        """The command that records all operations on a new pool."""
        self.pool.unlink(missing_ok=True)
        words = [str(self.tools / "valgrind" / "bin" / "valgrind"), "--tool=pmemcheck", f"--log-file={self.log}"]
        return [*words, *options, str(self.folder / "marked"), str(self.pool), str(self.operations)]

    def record(self) -> int:
        """Record stores, and return how many pmemcheck reports as not made persistent."""
        subprocess.run(self.under_pmemcheck("--log-stores=yes"), stdout=subprocess.DEVNULL, check=True)
        text = self.log.read_text()
        self.log.write_text(stores_of(text))
        (line,) = (line for line in text.splitlines() if "stores not made persistent" in line)
        return int(line.rsplit(":", 1)[1])

    def prepare_check(self) -> None:
        """Write what the driver must print after a crash in each operation: see bench/workloads/pmreorder_check.c."""
        lines = self.operations.read_text().splitlines(keepends=True)
        for number in range(len(lines) + 1):
            before, rest = lines[:number], lines[number + 1 :]
            (self.folder / f"{number}.rest").write_text("".join(rest))
            for name, done in (("done", lines[number : number + 1]), ("undone", [])):
                printed = self._printed([*before, *done, *rest]).splitlines(keepends=True)
                (self.folder / f"{number}.{name}").write_text("".join(printed[len(printed) - len(rest) :]))

    def _printed(self, lines: Sequence[str]) -> str:
        """What the driver prints for these operations without a crash."""
        operations, pool = self.folder / "some", self.folder / "new"
        operations.write_text("".join(lines))
        pool.unlink(missing_ok=True)
        return run([self.folder / "plain", pool, operations])

    def reorder(self, engine: str) -> Tried:
        """Let pmreorder check the states of an engine until one is inconsistent, or the time is over."""
        checked = self.folder / "checked"
        checked.write_bytes(b"")
        for image in self.folder.glob("*.failed"):  # of the engine before
            image.unlink()
        self.pool.write_bytes(bytes(_POOL_BYTES))
        words = [sys.executable, str(self.tools / "pmreorder" / "pmreorder.py"), "-l", str(self.log), "-r", engine]
        words += ["-o", str(self.folder / "output"), "-c", "prog", "-p"]
        words += [f"{self.folder / 'check'} {self.folder / 'plain'} {self.folder}"]
        lines = CacheLines(self.log.read_text(), _POOL_BYTES)
        began = time.perf_counter()
        child = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.folder
        )
        found, impossible, judged, ended = None, 0, 0, False
        try:
            while not ended and found is None and time.perf_counter() - began < SECONDS:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(0.02)
                ended = child.poll() is not None
                letters = checked.read_bytes()
                for number in range(judged, len(letters)):
                    if letters[number : number + 1] == b"x":
                        (image,) = self.folder.glob(f"{number}-*.failed")
                        if lines.can_hold(image.read_bytes(), int(image.stem.split("-")[1])):
                            found = number + 1
                            break
                        image.unlink()
                        impossible += 1
                judged = len(letters)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if ended and not judged:
            raise CannotMeasure(f"pmreorder checked nothing: {shlex.join(words)}")
        return Tried(found or judged, found, round(time.perf_counter() - began, 2), ended, impossible)


def compile_check(target: Path) -> None:
    """The check that pmreorder runs."""
    run([clang(), "-O2", "-Wall", "-Wextra", str(HERE / "workloads" / "pmreorder_check.c"), "-o", str(target)])


def _recording(config: Config, build: Build) -> dict[str, float]:
    """CPU seconds of a run, plain, recorded by crashcheck, and under pmemcheck without and with its log of stores."""

    def plain() -> None:
        build.pool.unlink(missing_ok=True)
        run([build.folder / "plain", build.pool, build.operations])

    def recorded() -> None:
        work = build.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        record_workload(config, workload_in(config, work), work)

    ways = {
        "plain": plain,
        "crashcheck": recorded,
        "pmemcheck": lambda: run(build.under_pmemcheck()),
        "pmemcheck, stores logged": lambda: run(build.under_pmemcheck("--log-stores=yes")),
    }
    return {name: statistics.median(_cpu_of(way) for _ in range(_REPETITIONS)) for name, way in ways.items()}


def _cpu_of(way: Callable[[], object]) -> float:
    before = _cpu()
    way()
    return round(_cpu() - before, 2)


def _cpu() -> float:
    """CPU seconds of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def section(rows: Sequence[Reordered]) -> Iterator[str]:
    """Bugs found by each engine, what recording costs, and what pmemcheck reports by itself."""
    bugs, fixed = [one for one in rows if one.bug], [one for one in rows if not one.bug]
    yield from _searches(bugs, fixed)
    yield ""
    yield _conditions(bugs, fixed)
    missed = [one for one in bugs if all(one.ways[name].found is None for name in ENGINES)]
    if missed:
        yield ""
        yield _found_by_no_engine(missed)
    yield ""
    yield from _recording_costs([one for one in rows if one.cpu])


def _searches(bugs: Sequence[Reordered], fixed: Sequence[Reordered]) -> Iterator[str]:
    """The table of all searches, one row each."""
    programs = Counter(one.program for one in bugs)
    names = dict.fromkeys(name for one in bugs for name in one.ways)
    header = (
        "search",
        *(f"{program} ({count})" for program, count in programs.items()),
        f"all ({len(bugs)})",
        "median states",
        "states in all",
        "seconds",
        f"not decided in {SECONDS:g} s",
        "false alarms",
    )
    yield from table(header, [_search(name, list(programs), bugs, fixed) for name in names])


def _search(name: str, programs: list[str], bugs: Sequence[Reordered], fixed: Sequence[Reordered]) -> list[str]:
    """The row of one search."""
    ways, alarms = [one.ways[name] for one in bugs], [one.ways[name] for one in fixed]
    found = Counter(one.program for one in bugs if one.ways[name].found is not None)
    median = statistics.median(float("inf") if way.found is None else float(way.found) for way in ways)
    return [
        name,
        *(str(found[program]) for program in programs),
        str(found.total()),
        "–" if median == float("inf") else f"{median:g}",
        f"{sum(way.states for way in ways):,}",
        f"{sum(way.seconds for way in ways):.0f}",
        str(sum(way.found is None and not way.ended for way in ways)),
        f"{sum(way.impossible for way in alarms):,} of {sum(way.states for way in alarms):,}",
    ]


def _conditions(bugs: Sequence[Reordered], fixed: Sequence[Reordered]) -> str:
    """What was compared, and what pmemcheck reports without a check."""
    correct = {one.program: one.unpersisted for one in fixed}
    reported = [one for one in bugs if one.unpersisted > correct[one.program]]
    of_kind = sum(one.kind == "unpersisted" for one in reported)
    also = ", ".join(f"{program} {many}" for program, many in correct.items())
    return (
        f"Builds with one planted bug each, {OPERATIONS} operations and the queries after them, {SECONDS:g} seconds a "
        "search, which ends at the first failing state that a processor can leave. All use one oracle: after a crash "
        "the driver continues as if the operation under way had been done, or as if it had not. Engines of pmreorder "
        "order the stores that were flushed before a fence, and know no cache lines. *False alarms* are failing states "
        "of the correct builds, of those that were checked; each has a later store of a cache line without an earlier "
        "one, which no processor leaves. Seconds of `ranked` include its preparation; those of pmreorder do not "
        "include recording.\n\npmemcheck itself, without a check, "
        f"reports stores that nothing persists, of the correct builds too ({also}), and more of them in "
        f"{len(reported)} of the {len(bugs)} builds, {of_kind} of these with a bug of the kind unpersisted "
        f"({sum(one.kind == 'unpersisted' for one in bugs)} planted)."
    )


def _found_by_no_engine(missed: Sequence[Reordered]) -> str:
    undecided = sum(not all(one.ways[name].ended for name in ENGINES) for one in missed)
    of: dict[str, list[str]] = {}
    for one in missed:
        of.setdefault(one.program, []).append(str(one.bug))
    listed = "; ".join(f"{program} {', '.join(numbers)}" for program, numbers in of.items())
    return (
        f"Found by no engine: {listed}; {undecided} of these {len(missed)} are not decided: the time of an "
        "engine was over. The other structures were not tried: four engines for each bug take long."
    )


def _recording_costs(timed: Sequence[Reordered]) -> Iterator[str]:
    ways = list(dict.fromkeys(name for one in timed for name in one.cpu))
    yield from table(
        ("recording, CPU seconds", *ways),
        ((one.program, *(f"{one.cpu[name]:.2f}" for name in ways)) for one in timed),
    )
    yield ""
    yield (
        f"{LONG:,} operations, medians of {_REPETITIONS}. *crashcheck* records stores, flushes, fences and reads, with "
        "their call stacks; *pmemcheck* only looks for stores that were not made persistent, and its log has no stacks."
    )


PART = Part(
    "pmreorder",
    "pmemcheck and pmreorder",
    Reordered,
    f"PMDK's valgrind and pmreorder, built elsewhere, in the folder that {FOLDER} names",
    measure,
    section,
)
