"""Wall time of building LMDB and LevelDB with the wrapper over the clang that it wraps, warm."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import programs
from bench.measure import CannotMeasure, Spread, interleaved, ratio, scratch

PROGRAMS = ("lmdb", "leveldb")


def measure(repetitions: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    real = programs.real_programs()
    tools = {
        "clang": real.Tools("clang", programs.clang(), programs.clang(cxx=True), ""),
        "crashcheck": real.Tools("crashcheck", programs.wrapper(), programs.wrapper(cxx=True), ""),
    }
    for name in PROGRAMS:
        try:
            origin = real.source(name)
        except real.Unavailable as error:
            raise CannotMeasure(str(error)) from error
        for part in ("configure", "build"):
            if part == "configure" and len(real.PROGRAMS[name].build) == 1:
                continue
            with scratch(500) as folder:
                values = interleaved(
                    repetitions,
                    {label: _building(real, name, tool, origin, folder, part) for label, tool in tools.items()},
                )
            figures[f"{name}_{part}"] = {
                "seconds": {label: Spread.of(numbers).json() for label, numbers in values.items()},
                "ratio": ratio(values, "crashcheck", "clang").json(),
                "jobs": os.cpu_count(),
            }
    return figures


def _building(real: Any, name: str, tools: Any, origin: Path, folder: Path, part: str) -> Callable[[], float]:
    """Builds a fresh copy; only the part's own step is timed (the last step builds, those before it configure)."""

    def build() -> float:
        tree = folder / f"{name}-{tools.label}"
        real.copy_source(origin, tree)
        *configure, make = real.build_steps(name, tools)
        seconds = {"configure": 0.0, "build": 0.0}
        for which, steps in (("configure", configure), ("build", [make])):
            start = time.perf_counter()
            for step in steps:
                done = subprocess.run(step, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                if done.returncode != 0:
                    raise CannotMeasure(f"building {name} with {tools.cc} failed:\n{done.stdout[-2000:]}")
            seconds[which] = time.perf_counter() - start
            if which == part:
                break
        return seconds[part]

    return build
