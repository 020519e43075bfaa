"""Which lines of a structure the checks of crash states reach, after so many states (Pathfinder, figure 10).

The check is built once more with clang's own coverage. It recovers what a crash state left and continues with the rest
of the operations; the lines that it reaches are added up over the states of a strategy, in its order.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from bench.measure import run, scratch
from bench.papers.curves import coverage_over_states
from bench.papers.markdown import table, terms
from bench.papers.parts import Part
from bench.programs import clang
from bench.recall import Bug, planted, ready
from crashcheck import pipeline
from crashcheck.checker.images.transition import Content
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies.plan import select_states
from crashcheck.checker.verdicts import prepare
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.config import Config, override
from crashcheck.stages.executor_setup import executor_of
from crashcheck.stages.recording import RecordedRun
from crashcheck.stages.strategy_setup import strategy_of

PROGRAMS = ("b-tree", "level-hash", "red-black-tree")
STRATEGIES = ("ranked", "pathfinder", "exhaustive")
OPERATIONS = 200
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # states after which the lines are counted
_SHOWN = (1, 10, 100, 1000)  # of these, in the table
PICTURE = "evaluation-coverage.svg"


@dataclass(frozen=True, slots=True)
class Covered:
    """One structure. `lines`: of its source that hold code; `workload`: of them reached without a crash.

    `reached`: by strategy, those reached by the workload or a check, after the states of `steps`; `missing`: by none.
    """

    program: str
    lines: int
    workload: int
    steps: tuple[int, ...]
    reached: dict[str, tuple[int, ...]]
    missing: tuple[int, ...]


def measure() -> Iterator[Covered]:
    """The correct structures that repair most when they are opened."""
    for bug in planted():
        if not bug.number and bug.program in PROGRAMS:
            with scratch(512) as folder:
                yield measured(bug, folder, OPERATIONS, STEPS)


def measured(bug: Bug, folder: Path, operations: int, steps: Sequence[int]) -> Covered:
    """One structure."""
    with ready(bug, folder, operations) as (config, recorded, _):
        profiles = Profiles.of(config, folder)
        profiles.run_workload(config)
        workload = profiles.reached()
        reached, last = {}, set(workload)
        for name in STRATEGIES:
            strategy = strategy_of(override(config, strategy=name), recorded)
            states = distinct(recorded.subject.content, select_states(recorded.subject.space, strategy))
            every = list(profiles.over(config, recorded, states, steps, folder / name))
            reached[name] = tuple(len(workload | lines) for lines in every)
            last |= every[-1]
    return Covered(
        *(bug.program, len(profiles.lines), len(workload), tuple(steps), reached),
        missing=tuple(sorted(profiles.lines - last)),
    )


def distinct(content: Content, states: Iterable[CrashState]) -> Iterator[CrashState]:
    """States with an image that none before had: what a search runs."""
    seen = set()
    for state in states:
        fingerprint = content.fingerprint(state)
        if fingerprint not in seen:
            seen.add(fingerprint)
            yield state


class Profiles:
    """A program with coverage, and what its runs have reached."""

    def __init__(self, program: Path, source: Path, folder: Path) -> None:
        self.program, self._source, self._folder = program, source, folder
        self.lines: set[int] = set()  # that hold code
        folder.mkdir()

    @classmethod
    def of(cls, config: Config, folder: Path) -> Profiles:
        """Build the structure's driver once more, as its Makefile does."""
        (source,) = (*config.folder.glob("*.c"), *config.folder.glob("*.cpp"))
        cxx, program = source.suffix == ".cpp", config.folder / "driver-coverage"
        words = [clang(cxx), *(["-std=c++17"] if cxx else []), "-O1", "-g", "-DBUG=0"]
        # Counters in a mapped file: a run that aborts has counted.
        words += ["-fprofile-instr-generate", "-fcoverage-mapping", "-mllvm", "-runtime-counter-relocation"]
        subprocess.run([*words, str(source), "-o", str(program)], check=True)
        return cls(program, source, folder / "profiles")

    def environment(self) -> dict[str, str]:
        """for a run that counts."""
        return {"LLVM_PROFILE_FILE": f"{self._folder}/%c%p.profraw"}

    def run_workload(self, config: Config) -> None:
        """Run all operations on a new pool."""
        operations = config.folder / "operations.txt"
        words = [str(self.program), str(self._folder / "pool"), str(operations)]
        subprocess.run(words, env={**os.environ, **self.environment()}, stdout=subprocess.DEVNULL, check=True)

    def over(
        self, config: Config, recorded: RecordedRun, states: Iterator[CrashState], steps: Sequence[int], work: Path
    ) -> Iterator[set[int]]:
        """The lines reached by the checks of the first states, at each of some numbers of them."""
        self.forget()
        work.mkdir()
        assert config.check.command is not None
        words = tuple(word.replace("./driver", str(self.program)) for word in config.check.command.words)
        command = replace(config.check.command, words=words)
        check = replace(config.check, command=command, env={**config.check.env, **self.environment()})
        config = replace(config, check=check)
        oracle = prepare.choose_oracle(config, recorded.subject, recorded.folder)
        with executor_of(config, recorded, work, pipeline.cores(), oracle) as executor:
            prepare.prepare_oracle(oracle, executor, lambda phase: None)
            self.forget()
            done = 0
            for step in steps:
                _run_all(executor, islice(states, step - done))
                done = step
                yield self.reached()

    def forget(self) -> None:
        """Nothing was reached."""
        for file in self._folder.iterdir():
            file.unlink()

    def reached(self) -> set[int]:
        """The lines that were reached, by all runs since `forget`; one that is under way keeps its file."""
        inputs, merged = self._folder / "inputs", self._folder / "all.profdata"
        inputs.write_text("".join(f"{file}\n" for file in sorted(self._folder.glob("*.profraw"))))
        _tool("llvm-profdata", "merge", "-sparse", "-failure-mode=all", "-f", str(inputs), "-o", str(merged))
        words = ("export", "-format=lcov", str(self.program), "-instr-profile", str(merged), str(self._source))
        counts = _counts_by_line(_tool("llvm-cov", *words))
        self.lines = set(counts)
        return {line for line, count in counts.items() if count}


def _tool(name: str, *words: str) -> str:
    """What a tool of the compiler's own version prints."""
    compiler = Path(clang())
    return run([compiler.with_name(compiler.name.replace("clang", name)), *words])


def _counts_by_line(lcov: str) -> dict[int, int]:
    """How often each line with code ran; DA records of lcov."""
    records = (line.removeprefix("DA:").split(",") for line in lcov.splitlines() if line.startswith("DA:"))
    return {int(record[0]): int(record[1]) for record in records}


def _run_all(executor: Executor, states: Iterable[CrashState]) -> None:
    for ticket in [executor.submit(state) for state in states]:
        executor.result(ticket)


def section(rows: Sequence[Covered]) -> Iterator[str]:
    """The picture, a table, and what nothing reached."""
    yield f"![Lines reached over executed crash states, one panel for each structure]({PICTURE})"
    yield ""
    shown = []
    for one in rows:
        for name, reached in one.reached.items():
            most = max(reached)
            after = one.steps[reached.index(most)]
            extra = [f"+{reached[one.steps.index(step)] - one.workload}" for step in _SHOWN if step in one.steps]
            shown.append((one.program, str(one.lines), str(one.workload), name, *extra, str(after)))
    steps = [f"{step:,}" for step in _SHOWN if any(step in one.steps for one in rows)]
    header = ("structure", "lines", "by the workload", "strategy", *(f"after {step}" for step in steps))
    yield from table((*header, "no more after"), shown)
    yield ""
    unreached = "; ".join(f"{one.program} {len(one.missing)}" for one in rows)
    yield from terms(
        lines="of the structure's source that hold code (`llvm-cov`)",
        by_the_workload=f"reached by {OPERATIONS} operations without a crash, the base line of the paper's figure",
        after_N="lines that the checks of N crash states reach beside those; a check recovers, then does the rest of "
        "the operations",
        no_more_after="the number of states after which the last new line had been reached",
    )
    yield ""
    yield f"Lines that nothing reached: {unreached}."


def pictures(rows: Sequence[Covered]) -> Mapping[str, str]:
    """The figure."""
    panels = {}
    for one in rows:
        lines = {name: [count / one.lines for count in reached] for name, reached in one.reached.items()}
        panels[one.program] = (one.steps, one.workload / one.lines, lines)
    return {PICTURE: coverage_over_states(panels)}


PART = Part(
    "coverage",
    "Code reached by the checks (Pathfinder, figure 10)",
    Covered,
    "clang with llvm-profdata and llvm-cov",
    measure,
    section,
    pictures,
)
