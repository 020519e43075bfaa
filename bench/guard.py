"""Guarded programs: bugs that they tolerate, their time and memory beside ThreadSanitizer's, and false alarms."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench import programs, racy
from bench.measure import CannotMeasure, Spread, interleaved, ratio, run, scratch
from bench.trained import OPTIONS, WORKLOADS, configure, crashcheck, relax, source_of, stalls, train

MEGABYTES = 400
THREADS = (2, 4)
TEXT_MEGABYTES = 12
CORRECT = ("pigz", "memcached", "queue")
CORRECT_SECONDS = 0.6  # of each, for each run of a series


@dataclass(frozen=True, slots=True)
class Subject:
    """A program with threads, in a folder of its own.

    `compile`: a command for the shell, with $CC or $CXX for the compiler, that makes `program`; `training_runs`: at
    most, and as many in which threads are held up; `train` and `use`: commands for {run}, and for a {program} and a
    number of {threads}; `seconds`: it prints them, and checks itself what it did. `package`: its source is in the
    folder that the environment variable CRASHCHECK_REAL_<PACKAGE> names: nothing is fetched. `plain`: a program of
    bench/workloads that is not guarded.
    """

    name: str
    compile: str
    training_runs: int
    train: str
    use: str
    seconds: bool = False
    package: str = ""
    plain: str = ""


@dataclass(slots=True)
class _Used:
    """What the runs of each way used."""

    megabytes: dict[str, list[float]] = field(default_factory=dict)  # at most at one time
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)
    user_seconds: dict[str, list[float]] = field(default_factory=dict)  # of these, outside of the kernel


SUBJECTS = (
    Subject(
        "lu",
        "$CC -O2 -g -pthread lu.c -lm -o program",
        6,
        "./program 96 $((1 << {run} % 3))",
        "./{program} 512 {threads}",
        True,
    ),
    Subject(
        "fft",
        "$CC -O2 -g -pthread fft.c -lm -o program",
        6,
        "./program 12 $((1 << {run} % 3))",
        "./{program} 18 {threads}",
        True,
    ),
    Subject(
        "queue",
        "$CC -O2 -g -pthread queue.c -o program",
        150,
        "./program 2000 $((2 + {run} % 3))",
        "./{program} 200000 {threads}",
        True,
    ),
    Subject(
        "pigz",
        "$CC -O2 -g -w -DNOZOPFLI -pthread pigz.c yarn.c try.c -lz -lm -o program",
        150,
        "./program -p $(({run} % 4 + 1)) -c text > /dev/null",
        "./{program} -p {threads} -c text",
        package="pigz",
    ),
    Subject(
        "pbzip2",
        "$CXX -std=gnu++98 -O2 -g -w -pthread pbzip2.cpp BZ2StreamScanner.cpp ErrorContext.cpp -lbz2 -o program",
        10,
        "./program -p$(({run} % 4 + 1)) -c text > /dev/null",
        "./{program} -p{threads} -c text",
        package="pbzip2",
    ),
    Subject(  # in the folder ./configure has run
        "memcached",
        "make -s clean && make -s memcached CC='$CC' CFLAGS='-O2 -g -w -pthread' && mv memcached program",
        150,
        "./memcached_client ./program $(({run} % 2 * 2 + 2)) 4 6000 {run} > /dev/null",
        "./memcached_client ./{program} {threads} 4 25000 1",
        True,
        package="memcached",
        plain="memcached_client",
    ),
)


def measure(repetitions: int, series: int) -> dict[str, object]:
    figures: dict[str, object] = {"load_average_before": f"{os.getloadavg()[0]:.2f}"}
    figures.update(racy.measure(series))
    figures["programs"] = {subject.name: racy.tried(_overhead, subject, repetitions, series) for subject in SUBJECTS}
    return figures


# -- overhead -----------------------------------------------------------------------------------------------------


def _overhead(subject: Subject, repetitions: int, series: int) -> dict[str, object]:
    with scratch(MEGABYTES) as folder:
        _lay_out(subject, folder)
        summary = train(folder, subject.training_runs)
        summary += f"; perturbed: {train(folder, subject.training_runs, '--perturb')}"
        built = _build_ways(subject, folder)
        figures: dict[str, object] = {"training": summary, "groups_left_alone": built.pop("left alone")}
        for threads in THREADS:
            figures[f"{threads}_threads"] = _compared(subject, folder, built, threads, repetitions)
        if subject.name in CORRECT:
            figures["correct"] = _correct(subject, folder, built["unguarded"], series * CORRECT_SECONDS)
    return figures


def _correct(subject: Subject, folder: Path, unguarded: str, seconds: float) -> dict[str, object]:
    """The guarded program for a time, after relaxing: what it prints against the unguarded one, and its stalls."""
    crashcheck(folder, "guard", "--bias", "100")
    relaxed = relax(folder)
    log, ends = folder / "log", time.monotonic() + seconds
    runs = wrong = 0
    while time.monotonic() < ends:
        command = subject.use.format(program="program", threads=THREADS[runs % len(THREADS)])
        guarded, expected = (
            subprocess.run(
                ["/bin/sh", "-c", words], cwd=folder, env={**os.environ, OPTIONS: f"log={log}"}, capture_output=True
            )
            for words in (command, command.replace("./program", f"./{unguarded}"))
        )
        same = subject.seconds or guarded.stdout == expected.stdout
        wrong += guarded.returncode != 0 or not same
        runs += 1
    found = stalls(folder, log)
    return {
        "relaxed": relaxed,
        "runs": runs,
        "wrong_or_failed": wrong,
        "stalls_resolved": sum(stall.resolved for stall in found),
        "stalls_unresolved": sum(stall.unresolved for stall in found),
        "not_learned": [str(stall) for stall in found if stall.unresolved],
        "load_average": f"{os.getloadavg()[0]:.2f}",
    }


def _compared(
    subject: Subject, folder: Path, built: Mapping[str, str], threads: int, repetitions: int
) -> dict[str, object]:
    used = _Used()
    ways = {
        way: partial(_timed, subject, folder, subject.use.format(program=program, threads=threads), way, used)
        for way, program in {**built, "observed": built["guarded"]}.items()
    }
    seconds = interleaved(repetitions, ways)
    figures: dict[str, object] = {"ratio": {way: ratio(seconds, way, "unguarded").json() for way in ways}}
    for name, values in (("", seconds), ("cpu_", used.cpu_seconds), ("user_", used.user_seconds)):
        figures[f"{name}seconds"] = {way: Spread.of(numbers).json() for way, numbers in values.items()}
        if name:  # the kernel counts it in ticks, and a short run may have none
            figures[f"{name}ratio"] = {way: round(sum(values[way]) / sum(values["unguarded"]), 3) for way in ways}
    return {
        **figures,
        "peak_megabytes": {way: Spread.of(numbers).json() for way, numbers in used.megabytes.items()},
        "load_average": f"{os.getloadavg()[0]:.2f}",
    }


def _lay_out(subject: Subject, folder: Path) -> None:
    """The program's source, its input, and a configuration that trains it."""
    if subject.package:
        shutil.copytree(source_of(subject.package), folder, symlinks=True, dirs_exist_ok=True)
        if " text" in subject.use:
            _write_text(folder / "text")
    else:
        shutil.copy(WORKLOADS / f"{subject.name}.c", folder)
    if subject.plain:
        run([programs.clang(), "-O2", "-pthread", WORKLOADS / f"{subject.plain}.c", "-o", folder / subject.plain])
    configuration = {"build": subject.compile.replace("$CC", "crashcheck-cc").replace("$CXX", "crashcheck-c++")}
    configuration["workload"] = subject.train
    configure(folder, configuration)


def _write_text(path: Path) -> None:
    """Text that compresses as prose does: words of a vocabulary of which few are frequent."""
    chance = random.Random(1)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(5000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    page = " ".join(chance.choices(words, weights, k=200_000))
    path.write_text((page * (TEXT_MEGABYTES * 1_000_000 // len(page) + 1))[: TEXT_MEGABYTES * 1_000_000])


def _build_ways(subject: Subject, folder: Path) -> dict[str, str]:
    """A program for each way to run it, and how many groups the one with bias leaves alone."""
    ways = {}
    for way, flags in (("unguarded", ""), ("ThreadSanitizer", " -fsanitize=thread")):
        compile = subject.compile.replace("$CC", f"{programs.clang()}{flags}")
        run(["/bin/sh", "-c", compile.replace("$CXX", f"{programs.clang(cxx=True)}{flags}")], cwd=folder)
        ways[way] = _kept(folder, way)
    for way, words in (("guarded", ["--bias", "100"]), ("guarded with bias", ["--bias"])):
        printed = crashcheck(folder, "guard", *words)
        ways[way] = _kept(folder, way)
    ways["left alone"] = str(sum(line.startswith("left alone") for line in printed.splitlines()))
    return ways


def _kept(folder: Path, way: str) -> str:
    name = f"program-{way.replace(' ', '-')}"
    shutil.move(folder / "program", folder / name)
    return name


def _timed(subject: Subject, folder: Path, words: str, way: str, used: _Used) -> float:
    """The seconds that the program prints, or all that it takes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRASHCHECK_")}
    if way == "observed":
        environment[OPTIONS] = "observe"
    environment["TSAN_OPTIONS"] = "report_bugs=0"
    # Memory is asked of time(1): what a process forked from this one used before it became another counts as its own.
    command = ["time", "-f", "%M", "-o", "used", "/bin/sh", "-c", f"exec {words}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)  # time(1) gives hundredths of a second
    output = subprocess.PIPE if subject.seconds else subprocess.DEVNULL
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.PIPE, text=True)
    elapsed = time.perf_counter() - started
    if done.returncode != 0:
        raise CannotMeasure(f"{words} ended with {done.returncode}: {done.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user_seconds = after.ru_utime - before.ru_utime
    used.megabytes.setdefault(way, []).append(int((folder / "used").read_text(encoding="ascii")) / 1024)
    used.cpu_seconds.setdefault(way, []).append(user_seconds + after.ru_stime - before.ru_stime)
    used.user_seconds.setdefault(way, []).append(user_seconds)
    return float(done.stdout) if subject.seconds else elapsed
