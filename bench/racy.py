"""Programs with concurrency bugs, unguarded and guarded: the paper's patterns, and real bugs with random sleeps."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import programs
from bench.measure import CannotMeasure, run, scratch
from bench.trained import OPTIONS, WORKLOADS, configure, crashcheck, relax, series, source_of, stalls, train

PATTERNS = ("rr-w", "wr-w", "ww-r", "rw-rw", "rrw-rrw", "order-wr", "order-rw", "order-ww")
PATTERN_TRAINING = 1000  # runs at most, of which those that fail teach nothing
BUG_TRAINING = 60
SHARE_OF_BUGS = 25  # a run of a real bug takes seconds: this many fewer than of a pattern


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug in a program's public history.

    `source`: the environment variable CRASHCHECK_REAL_<source> names a clone, which may be bare; `archive`: a file
    there, or a commit. `edits`: a file, a text that it has, and what that becomes; `prepare`: a command for the shell;
    `compile`: the same, with $CC or $CXX for the compiler, that makes `program`; `use`: the same, with {program} and
    {run}, whose status is 0 if the bug did no harm. `options`: of the guard.
    """

    source: str
    archive: str
    edits: tuple[tuple[str, str, str], ...]
    compile: str
    use: str
    prepare: str = "true"
    options: str = ""


_CONSUMER = "\t\t\tif (allDone == 1)\n\t\t\t{\n"
_CANCEL = "\t\t\t\t\tpthread_cancel( *axel->conn[i].setup_thread );\n\t\t\t\t\taxel->conn[i].state"
BUGS = {
    "pbzip2 0.9.4": Bug(
        "concurrency_bugs",
        "pbzip2-0.9.4/pbzip2-0.9.4.tar.gz",
        (
            ("pbzip2.cpp", _CONSUMER, f"{_CONSUMER}sleep_below(300);\n"),
            ("pbzip2.cpp", "\tqueueDelete(fifo);", "sleep_below(900);\n\tqueueDelete(fifo);"),
            ("pbzip2.cpp", "\t// get current time for end", "usleep(1400000);\n\t// get current time for end"),
        ),
        "$CXX -std=gnu++98 -O2 -g -w -include sleeps.h -o program pbzip2.cpp -pthread -lbz2",
        "RUN={run} ./{program} -k -f -q -p3 text > /dev/null",
        "yes 'text of a line' | head -c 900000 > text",
        "stall=100000,most=20,",
    ),
    "HTTrack 3.43.9": Bug(
        "concurrency_bugs",
        "httrack-3.43.9/httrack-3.43.9.tar.gz",
        (("src/htsweb.c", "  global_opt = opt = hts", "  sleep_below(20);\n  global_opt = opt = hts"),),
        "$CC -std=gnu89 -O1 -g -w -DINET6 -DPREFIX='\"/usr\"' -DSYSCONFDIR='\"/etc\"' -DDATADIR='\"/usr/share\"' "
        "-DLIBDIR='\"/usr/lib\"' -I. -Isrc -Isrc/minizip -include sleeps.h -o program src/hts[!j]*.c src/md5.c "
        "src/minizip/ioapi.c src/minizip/mztools.c src/minizip/unzip.c src/minizip/zip.c src/mmsrip/*.c "
        "-Wl,-z,muldefs -lz -ldl -pthread",
        "RUN={run} python3 httrack_client.py ./{program}",
        "./configure --disable-shared",
        "stall=5000,most=20,",
    ),
    "axel b1bdaa4": Bug(
        "axel",
        "b1bdaa4",
        (
            ("src/axel.c", "\tint oldstate;\n", "\tint oldstate;\n\tsleep_below(150);\n"),
            ("src/axel.c", _CANCEL, f"_exit(3);\n{_CANCEL}"),  # the harm: that thread had just begun
        ),
        "$CC -std=gnu99 -O2 -g -w -I. -include sleeps.h -DETCDIR='\"/etc\"' -DLOCALEDIR='\"/usr\"' -DARCH='\"\"' "
        "src/*.c -o program -pthread",
        "rm -f file file.st; RUN={run} python3 ranges.py 2000000 ./{program} -q -n 4 -o file {{url}}",
        ": > config.h",
    ),
}
NOT_BUILT = {
    "pigz": "its race in free_pool cannot happen: all threads have ended (docs/guard.md, Real bugs)",
    "transmission 1.42, axel 2.4, aget, memcached 127": "built and tried by hand (docs/guard.md, Real bugs)",
}


def measure(runs: int) -> dict[str, object]:
    """`runs`: of each pattern."""
    bugs: dict[str, object] = {name: tried(real_bug, bug, max(10, runs // SHARE_OF_BUGS)) for name, bug in BUGS.items()}
    return {
        "patterns": {name: tried(_pattern, name, runs) for name in PATTERNS},
        "real_bugs": bugs | {name: {"not_measured": why} for name, why in NOT_BUILT.items()},
        "false_alarm_on_purpose": tried(false_alarm),
        "reference": tried(_reference),
    }


def tried(row: Callable[..., dict[str, object]], *arguments: object) -> dict[str, object]:
    """A row whose source is not there, or that cannot be built, leaves the others."""
    try:
        return row(*arguments)
    except CannotMeasure as error:
        return {"not_measured": str(error)}


def _pattern(name: str, runs: int) -> dict[str, object]:
    """Runs with random sleeps, unguarded and guarded, after training with others of these."""
    with scratch(50) as folder:
        for file in (programs.CHECKOUT / "examples" / "threads").iterdir():
            if file.suffix in (".c", ".h") or file.name == "Makefile":
                shutil.copy(file, folder)
        build = f"make -s {name} CC=crashcheck-cc PLAIN_CC={programs.clang()}"
        configure(folder, {"build": build, "workload": f"./{name} random {{run}}"})
        run(["make", "-s", name, f"CC={programs.clang()}", f"PLAIN_CC={programs.clang()}"], cwd=folder)
        (folder / name).rename(folder / "unguarded")
        figures: dict[str, object] = {"training": train(folder, PATTERN_TRAINING, "--keep-going")}
        crashcheck(folder, "guard")
        figures["relaxed"] = relax(folder)
        seeds = range(PATTERN_TRAINING + 1, PATTERN_TRAINING + 1 + runs)
        return figures | series(folder, "./{program} random {run}", "unguarded", name, seeds).json()


def real_bug(bug: Bug, runs: int) -> dict[str, object]:
    """The same for a bug, without relaxing: few of its runs pass."""
    with scratch(100) as folder:
        _unpack(source_of(bug.source), bug.archive, folder)
        for file, text, replacement in bug.edits:
            source = (folder / file).read_text(encoding="latin-1")
            if text not in source:
                raise CannotMeasure(f"{file} of {bug.archive} has no {text.strip()!r}")
            (folder / file).write_text(source.replace(text, replacement), encoding="latin-1")
        for name in ("sleeps.h", "httrack_client.py", "ranges.py"):
            shutil.copy(WORKLOADS / name, folder)
        run(["/bin/sh", "-c", bug.prepare], cwd=folder)
        plain = bug.compile.replace("$CC", programs.clang()).replace("$CXX", programs.clang(cxx=True))
        run(["/bin/sh", "-c", plain], cwd=folder)
        (folder / "program").rename(folder / "unguarded")
        build = bug.compile.replace("$CC", "crashcheck-cc").replace("$CXX", "crashcheck-c++")
        use = bug.use.format(program="program", run="{run}", url="{url}")
        configure(folder, {"build": build, "workload": use})
        figures: dict[str, object] = {"training": train(folder, BUG_TRAINING, "--keep-going")}
        crashcheck(folder, "guard")
        seeds = range(BUG_TRAINING + 1, BUG_TRAINING + 1 + runs)
        found = series(folder, bug.use, "unguarded", "program", seeds, bug.options)
        return figures | found.json() | {"stalled": [str(stall) for stall in found.stalls]}


def _unpack(clone: Path, archive: str, folder: Path) -> None:
    words = ["show", f"HEAD:{archive}"] if "/" in archive else ["archive", "--prefix=x/", archive]
    packed = folder / "packed"
    with packed.open("wb") as output:
        done = subprocess.run(["git", "-C", str(clone), *words], stdout=output, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise CannotMeasure(f"{clone}: {done.stderr}")
    run(["tar", "xf", packed, "--strip-components=1"], cwd=folder)


def false_alarm() -> dict[str, object]:
    """A right order that training never showed: what its run takes, then that it is logged, relaxed and gone."""
    with scratch(50) as folder:
        shutil.copy(WORKLOADS / "late.c", folder)
        build = {"build": "crashcheck-cc -O1 -g -pthread late.c -o program"}
        configure(folder, {**build, "workload": "./program"})
        train(folder, 3)
        crashcheck(folder, "guard")
        figures: dict[str, object] = {
            "milliseconds_trained": _milliseconds([folder / "program"], ""),
            "milliseconds_alarmed": _milliseconds([folder / "program", "late"], f"log={folder / 'log'}"),
            "logged": [str(stall) for stall in stalls(folder, folder / "log")],
        }
        configure(folder, {**build, "workload": "./program late"})
        figures["relaxed"] = relax(folder)
        figures["milliseconds_relaxed"] = _milliseconds([folder / "program", "late"], f"log={folder / 'after'}")
        figures["logged_after_that"] = [str(stall) for stall in stalls(folder, folder / "after")]
    return figures


def _milliseconds(command: list[str | Path], options: str) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, env={OPTIONS: options}, capture_output=True)
    if done.returncode != 0:
        raise CannotMeasure(f"{command} ended with {done.returncode}")
    return round(1e3 * (time.perf_counter() - started), 1)


def _reference() -> dict[str, object]:
    """The sets, the algorithm and the bias on 1,000 interleavings each, against tests/support/reference_guard.py."""
    tests = programs.CHECKOUT / "tests" / "runtime" / "guard" / "test_algorithm.py"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests), "-k", "thousand"]
    return {"equal": run(words, cwd=programs.CHECKOUT).strip().splitlines()[-1]}
