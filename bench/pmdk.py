"""PMDK's example maps: crash states executed and decided after 30, 60 and 100 s, ranked beside pathfinder.

The variable PMDK names PMDK's sources, whose libpmemobj is built as docs/writing-a-check.md shows. The check is
built without crashcheck, against the libpmemobj of the system.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bench.measure import CannotMeasure, run, scratch
from bench.programs import CHECKOUT, HERE, clang, wrapper
from bench.search import calibration, cpu_since
from crashcheck import pipeline
from crashcheck.checker.budget import Budget, Progress
from crashcheck.checker.verdicts import prepare
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.config import Config, load, override
from crashcheck.stages.executor_setup import executor_of
from crashcheck.stages.recording import RecordedRun, record_check_reads, record_run
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import early_states, strategy_of
from crashcheck.stages.uncrashed import check_uncrashed

FOLDER = "PMDK"
MAPS = ("rtree", "hashmap_rp", "skiplist")
STRATEGIES = ("ranked", "pathfinder")
OPERATIONS = 200
MOMENTS = (30.0, 60.0, 100.0)  # seconds of a search whose budget is the last of them
_SOURCES = {
    "map": ("map", "map_rtree", "map_hashmap_rp", "map_skiplist"),
    "tree_map": ("rtree_map",),
    "hashmap": ("hashmap_rp",),
    "list_map": ("skiplist_map",),
}
_CONFIG = """
[setup]
command = "./workload {map} {{pool}}/map.pool setup"
[workload]
command = "./workload {map} {{pool}}/map.pool run {operations}"
env = {{ LD_LIBRARY_PATH = "{library}", PMEM_IS_PMEM_FORCE = "1" }}
[pool]
files = ["map.pool"]
[check]
command = "./check {map} {{pool}}/map.pool check {operations} {{acked}}"
env = {{ PMEM_IS_PMEM_FORCE = "1" }}
timeout_s = 30
[model]
name = "px86"
"""


def measure(repetitions: int) -> dict[str, object]:
    """Once, whatever `repetitions`: each search takes its whole budget."""
    named = os.environ.get(FOLDER, "")
    pmdk = Path(named).resolve()
    if not named or not (pmdk / "src" / "nondebug" / "libpmemobj.so").exists():
        raise CannotMeasure(
            f"{FOLDER} names no folder of PMDK's sources with libpmemobj built (docs/writing-a-check.md)."
        )
    with scratch(512) as folder:
        _compile(pmdk, wrapper(), ("-DRECORDED", f"-I{CHECKOUT / 'runtime' / 'include'}"), folder / "workload")
        _compile(pmdk, clang(), (), folder / "check")
        rows = {name: _measured(name, pmdk, folder) for name in MAPS}
        return {**rows, "calibration": calibration()}


def _compile(pmdk: Path, compiler: str, options: Sequence[str], output: Path) -> None:
    examples = pmdk / "src" / "examples" / "libpmemobj"
    sources = [examples / folder / f"{name}.c" for folder, names in _SOURCES.items() for name in names]
    include = [f"-I{examples / folder}" for folder in _SOURCES]
    library = [f"-L{pmdk / 'src' / 'nondebug'}"] if "-DRECORDED" in options else []
    words = [compiler, "-g", "-O1", *options, *include, f"-I{examples.parent}", f"-I{pmdk / 'src' / 'include'}"]
    run([*words, HERE / "workloads" / "maps.c", *sources, "-o", output, *library, "-lpmemobj", "-lpmem"])


def _measured(name: str, pmdk: Path, folder: Path) -> dict[str, object]:
    library = pmdk / "src" / "nondebug"
    config_file = folder / f"{name}.toml"
    config_file.write_text(_CONFIG.format(map=name, operations=OPERATIONS, library=library), encoding="utf-8")
    config, work = load(config_file), folder / name
    work.mkdir()
    recorded = record_check_reads(config, record_run(config, work))
    figures: dict[str, object] = {"events": len(recorded.subject.trace.events)}
    for strategy in STRATEGIES:
        configured = override(config, strategy=strategy)
        oracle = prepare.choose_oracle(configured, recorded.subject, recorded.folder)
        with executor_of(configured, recorded, work, pipeline.cores(), oracle) as executor:
            check_uncrashed(configured, recorded, executor)
            figures[strategy] = _searched(configured, recorded, executor)
    return figures


def _searched(config: Config, recorded: RecordedRun, executor: Executor) -> dict[str, object]:
    """One search; how far it was at MOMENTS, and the CPU of each process until it ended."""
    at: dict[float, Progress] = {}
    first: list[float] = []

    def watch(progress: Progress) -> None:
        at.update((moment, progress) for moment in MOMENTS if progress.elapsed_s <= moment)
        if progress.executed and not first:
            first.append(progress.elapsed_s)

    cpu = cpu_since(executor)
    budget = Budget(MOMENTS[-1])
    strategy = strategy_of(config, recorded, early=early_states(budget))
    found = search_of(config, recorded, executor, strategy, budget, progress=watch).run()
    main, own, checks = cpu()
    states = found.states
    return {
        "executed_after_seconds": {f"{moment:.0f}": at[moment].executed for moment in MOMENTS if moment in at},
        "decided_after_seconds": {f"{moment:.0f}": _rough(at[moment].explored) for moment in MOMENTS if moment in at},
        "feasible": _rough(states.feasible),
        "explored_runs": states.explored_runs,
        "not_explored": "; ".join(f"{_rough(each.left)}: {each.why}" for each in states.not_explored[:3]),
        "findings": "; ".join(f"{finding.kind.value} {finding.id}" for finding in found.findings),
        "end": found.stop_reason.value,
        "seconds": round(found.seconds, 1),
        "seconds_to_first_state": round(first[0], 2) if first else "none",
        "cpu_seconds": {"main process": round(main, 1), "workers": round(own, 1), "checks": round(checks, 1)},
        "load": round(os.getloadavg()[0], 1),
    }


def _rough(number: int) -> str:
    """A number that may be too large for a float."""
    digits = str(number)
    return digits if len(digits) < 7 else f"{digits[0]}.{digits[1]}e{len(digits) - 1}"
