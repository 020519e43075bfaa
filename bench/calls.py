"""What recording system calls costs, in CPU seconds of program and recorder: bare calls, scripts, sqlite3 and LevelDB.

Of the two stores also what the analysis costs, of all operations and of half of them; of LevelDB all representatives.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.measure import CannotMeasure, Spread, interleaved, ratio, run, scratch
from crashcheck.runtime.build import build_runtime

WRITES, READS, TRANSACTIONS, PUTS = 100_000, 200_000, 6_000, 50_000
SCRIPT_WRITES = 20_000  # of one byte, by a function that a function calls; each has the script's lines
_SCRIPTS = (
    (
        "python3",
        "-c",
        "import sys\ndef put(f):\n f.write(b'x')\ndef many(f, n):\n for i in range(n): put(f)\n"
        "many(open(sys.argv[1] + '/f', 'wb', 0), int(sys.argv[2]))",
    ),
    (
        "perl",
        "-e",
        "sub put { syswrite $_[0], 'x' } sub many { my ($f, $n) = @_; put($f) for 1..$n }"
        "open my $f, '>', \"$ARGV[0]/f\"; many($f, $ARGV[1])",
    ),
    (
        "ruby",
        "-e",
        "def put(f) f.syswrite('x') end; def many(f, n) n.times { put(f) } end;"
        "many(File.open(ARGV[0] + '/f', 'w'), ARGV[1].to_i)",
    ),
    (
        "php",
        "-r",
        "function put($f) { fwrite($f, 'x'); } function many($f, $n) { for ($i = 0; $i < $n; $i++) put($f); }"
        "many(fopen($argv[1] . '/f', 'w'), (int)$argv[2]);",
    ),
    (
        "bash",
        "-c",
        'put() { echo -n x >&3; }; many() { for ((i = 0; i < $1; i++)); do put; done; }; exec 3>"$0/f"; many $1',
    ),
)
EXPLORED_PUTS = 1_000  # of which all representatives are executed
MEGABYTES = 1500  # the files, and their bytes in the trace
_SOURCE = Path(__file__).resolve().parent / "workloads" / "calls.c"
_LEVELDB = Path(__file__).resolve().parents[1] / "tests" / "real" / "calls" / "leveldb.cc"
# Run by itself, so that its memory is its own.
_ANALYSE = """
import json, resource, sys, time
from crashcheck.analyzer.behaviours import find_behaviours, find_groups
from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.reader import read
started = time.process_time()
trace = read(sys.argv[1])
graph = build(trace, "ext4", Options(0, "ext4"))
built = time.process_time()
groups = find_groups(find_behaviours(graph, None))
print(json.dumps({
    "events": len(trace.events), "updates": len(graph), "groups": len(groups),
    "graph_seconds": round(built - started, 3), "groups_seconds": round(time.process_time() - built, 3),
    "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
}))
"""


def measure(repetitions: int) -> dict[str, object]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotMeasure("no C compiler was found")
    with scratch(MEGABYTES) as folder:
        program = folder / "calls"
        run([compiler, "-O2", _SOURCE, "-o", program])
        figures: dict[str, object] = {
            "writes_of_4096_bytes": _calls(repetitions, folder, [str(program), "{}", "writes", str(WRITES)], WRITES),
            "reads_outside": _calls(repetitions, folder, [str(program), "{}", "reads", str(READS)], READS),
        }
        for command in _SCRIPTS:
            if shutil.which(command[0]):
                words = [*command, "{}", str(SCRIPT_WRITES)]
                figures[f"writes_of_{command[0]}"] = _calls(repetitions, folder, words, SCRIPT_WRITES)
    with tempfile.TemporaryDirectory(prefix="crashcheck-bench-") as name:  # on a disk: in memory a sync is nothing
        for store in (_sqlite3, _leveldb):
            try:
                figures[store.__name__.removeprefix("_")] = store(repetitions, Path(name))
            except CannotMeasure as error:
                figures[store.__name__.removeprefix("_")] = {"not_measured": str(error)}
    return figures


def _sqlite3(repetitions: int, folder: Path) -> dict[str, object]:
    if shutil.which("sqlite3") is None:
        raise CannotMeasure("sqlite3 is not installed")

    def command(count: int) -> list[str]:
        script = folder / f"{count}.sql"
        lines = ["create table t(a);", *(f"insert into t values({i});" for i in range(count))]
        script.write_text("\n".join(lines), encoding="ascii")
        return ["sqlite3", "{}/db", f".read {script}"]

    figures = _calls(repetitions, folder, command(TRANSACTIONS), TRANSACTIONS)
    return figures | _analyses(folder, command, TRANSACTIONS)


def _leveldb(repetitions: int, folder: Path) -> dict[str, object]:
    compiler, program = shutil.which("g++") or shutil.which("c++"), folder / "leveldb"
    if compiler is None:
        raise CannotMeasure("no C++ compiler was found")
    run([compiler, "-O1", _LEVELDB, "-o", program, "-lleveldb"])

    def command(count: int) -> list[str]:
        return [str(program), "{}", "put", str(count)]

    figures = _calls(repetitions, folder, command(PUTS), PUTS) | _analyses(folder, command, PUTS)
    return figures | {"representatives": _representatives(folder, program)}


def _representatives(folder: Path, program: Path) -> dict[str, object]:
    """All representatives of a run of EXPLORED_PUTS operations."""
    words = {"workload": ["{pool}", "put", str(EXPLORED_PUTS)], "check": ["{pool}", "get", "{stdout}"]}
    lines = [f"[{table}]\ncommand = {json.dumps([str(program), *rest])}" for table, rest in words.items()]
    lines[0] += '\nrecorder = "syscalls"'
    lines += ['[pool]\nfiles = ["*"]', '[model]\nname = "ext4"', '[strategy]\nname = "pathfinder"']
    (folder / "crashcheck.toml").write_text("\n".join(lines), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = folder / "report.json"
    command = [sys.executable, "-m", "crashcheck", "run", "--budget", "15m", "--format", f"json={report}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise CannotMeasure(done.stderr[-500:])
    found = json.loads(report.read_text(encoding="utf-8"))
    return {
        "operations": EXPLORED_PUTS,
        "feasible": found["run"]["states"]["feasible"],
        "groups": len(found["groups"]),
        "executed": found["run"]["states"]["executed"],
        "stopped": found["run"]["stop_reason"],
        "findings": len(found["findings"]),
        "seconds": found["run"]["seconds"],
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
    }


def _calls(repetitions: int, folder: Path, command: Sequence[str], count: int) -> dict[str, object]:
    """Microseconds of CPU for each call, and ratios to the program alone."""
    recorder = str(build_runtime().syscalls)
    ways: dict[str, Callable[[], float]] = {
        "native": lambda: _spent(folder, command, lambda work, words: words),
        "recorded": lambda: _spent(
            folder, command, lambda work, words: [recorder, str(work / "trace"), str(work / "pool"), *words]
        ),
    }
    values = interleaved(repetitions, ways, warm=False)
    return {
        "microseconds_each": {
            way: Spread.of([1e6 * one / count for one in all_]).json() for way, all_ in values.items()
        },
        "ratio_to_native": {way: ratio(values, way, "native").json() for way in ways if way != "native"},
        "count": count,
    }


def _spent(folder: Path, command: Sequence[str], wrapped: Callable[[Path, list[str]], list[str]]) -> float:
    """CPU seconds of a command in a new folder, and of what records it."""
    work = folder / "work"
    (work / "pool").mkdir(parents=True)
    words = wrapped(work, [word.replace("{}", str(work / "pool")) for word in command])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(work)
    if done.returncode != 0:
        raise CannotMeasure(f"`{' '.join(words)}` ended with {done.returncode}: {done.stderr[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _analyses(folder: Path, command: Callable[[int], list[str]], count: int) -> dict[str, object]:
    """CPU seconds and memory from the trace to the groups under ext4, of all operations and of half of them."""
    return {"analysed": _analysis(folder, command(count)), "analysed_half": _analysis(folder, command(count // 2))}


def _analysis(folder: Path, command: Sequence[str]) -> dict[str, object]:
    work = folder / "analysed"
    (work / "pool").mkdir(parents=True)
    words = [word.replace("{}", str(work / "pool")) for word in command]
    run([str(build_runtime().syscalls), work / "trace", work / "pool", *words])
    figures: dict[str, object] = json.loads(run([sys.executable, "-c", _ANALYSE, work / "trace"]))
    figures["trace_bytes"] = os.stat(work / "trace").st_size
    shutil.rmtree(work)
    return figures
