"""Programs that are trained and guarded with the commands a user has, and what their runs show."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import programs
from bench.measure import CannotMeasure
from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Stall, read_guarded
from crashcheck.analyzer.concurrency.observations import read_log
from crashcheck.cli.learn import LEARNED

OPTIONS = "CRASHCHECK_GUARD"
WORKLOADS = Path(__file__).resolve().parent / "workloads"
SETTLED = 40  # runs that passed and taught nothing, one after another, after which training ends
RELAXING = 100  # runs at most


def source_of(package: str) -> Path:
    variable = f"CRASHCHECK_REAL_{package.upper()}"
    if not os.environ.get(variable):
        raise CannotMeasure(f"set {variable} to the folder of its source (docs/guard.md, Measured)")
    return Path(os.environ[variable])


def configure(folder: Path, commands: Mapping[str, str]) -> None:
    """A configuration of two commands, [build] and [workload]."""
    sections = [f"[{section}]\ncommand = '''{command}'''\n" for section, command in commands.items()]
    (folder / "crashcheck.toml").write_text("".join(sections), encoding="utf-8")


def train(folder: Path, runs: int, *words: str) -> str:
    """Learn from `runs` runs, or until nothing new comes; how much in all, in words."""
    lines = crashcheck(folder, "learn", "--runs", str(runs), "--settled", str(SETTLED), *words).splitlines()
    return "; ".join(lines[-3:-1])


def relax(folder: Path) -> str:
    """Learn what guarded runs show until nothing new comes, and build with it; how much, in words."""
    lines = crashcheck(folder, "guard", "relax", "--runs", str(RELAXING), "--settled", str(SETTLED)).splitlines()
    crashcheck(folder, "guard")
    return f"{len(lines) - 1} runs, {lines[-1]}"


def crashcheck(folder: Path, *words: str) -> str:
    wrapper = Path(programs.wrapper()).parent
    environment = {**os.environ, "PATH": f"{wrapper}:{os.environ['PATH']}"}
    command = [str(programs.real_programs().command("crashcheck")), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotMeasure(f"crashcheck {' '.join(words)} in {folder.name}: {done.stdout}{done.stderr}"[-2000:])
    return done.stdout


def stalls(folder: Path, log: Path) -> Sequence[Stall]:
    """What the log of a program shows that was guarded with the sets in `folder`."""
    return read_guarded(read_log(log), AnticipatingInvariants.load(folder / LEARNED), folder).stalls


@dataclass(frozen=True, slots=True)
class Series:
    """Runs with random sleeps of a program as it is, and guarded; what the guard did in all of these."""

    runs: int
    failures_unguarded: int
    failures_guarded: int
    stalls: Sequence[Stall]

    def json(self) -> dict[str, object]:
        resolved, unresolved = (sum(getattr(one, how) for one in self.stalls) for how in ("resolved", "unresolved"))
        milliseconds = 1e3 * sum(stall.seconds for stall in self.stalls) / max(resolved + unresolved, 1)
        return {
            "runs": self.runs,
            "failures_unguarded": self.failures_unguarded,
            "failures_guarded": self.failures_guarded,
            "stalls_resolved": resolved,
            "stalls_unresolved": unresolved,
            "stalls_a_run": round((resolved + unresolved) / self.runs, 3),
            "milliseconds_a_stall": round(milliseconds, 3),
        }


def series(folder: Path, use: str, unguarded: str, guarded: str, runs: Iterable[int], options: str = "") -> Series:
    """`use`: a command for the shell with {program} and {run}; `options` of the guard, without its log."""
    log = folder / "log"  # all runs add to it
    failures = {unguarded: 0, guarded: 0}
    counted = 0
    for run in runs:
        counted += 1
        for program in failures:
            environment = {**os.environ, OPTIONS: f"{options}log={log}"}
            command = use.format(program=program, run=run)
            done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environment, capture_output=True)
            failures[program] += done.returncode != 0
    return Series(counted, failures[unguarded], failures[guarded], stalls(folder, log))
