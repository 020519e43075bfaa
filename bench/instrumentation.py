"""Instrumentation time per 10,000 lines of a unit's IR, by phase, on one unit of LMDB and one of LevelDB."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm

from bench import programs
from bench.measure import CannotMeasure, Spread, interleaved, ratio, run, scratch
from crashcheck.analyzer.compile.instrument.unit import UnitOptions, canonical_text, emit, instrument_text

UNITS = (
    ("lmdb", "libraries/liblmdb", "mdb.c", ("-pthread", "-O2", "-g")),
    (
        "leveldb",
        ".",
        "db/version_set.cc",
        ("-I.", "-Iinclude", "-Iout/include", "-std=c++11", "-DLEVELDB_PLATFORM_POSIX=1", "-O2", "-g"),
    ),
)


def measure(repetitions: int) -> dict[str, object]:
    real = programs.real_programs()
    figures: dict[str, object] = {}
    for package, folder, unit, flags in UNITS:
        try:
            # The build leaves generated headers (port_config.h) where the unit finds them.
            tree = real.build(package, real.plain()) / folder
        except real.Unavailable as error:
            raise CannotMeasure(str(error)) from error
        figures[unit] = _measure(repetitions, tree, unit, flags)
    return figures


def _measure(repetitions: int, tree: Path, unit: str, flags: tuple[str, ...]) -> dict[str, object]:
    cxx = unit.endswith(".cc")
    clang, wrapper = programs.clang(cxx), programs.wrapper(cxx)
    with scratch(200) as folder:
        bitcode, result = folder / "unit.bc", folder / "unit.o"
        to_bitcode = [clang, *flags, "-c", "-emit-llvm", "-Xclang", "-disable-llvm-passes", unit, "-o", str(bitcode)]
        run(to_bitcode, cwd=tree)
        options = UnitOptions(unit, str(tree), clang, level="2", keep_debug=True)
        text = canonical_text(bitcode.read_bytes(), options)
        instrumented, facts = instrument_text(text, options)
        values = interleaved(
            repetitions,
            {
                "clang, front end to bitcode": lambda: _timed(lambda: run(to_bitcode, cwd=tree)),
                "parse and print": lambda: _timed(lambda: canonical_text(bitcode.read_bytes(), options)),
                "rewrite": lambda: _timed(lambda: instrument_text(text, options)),
                "parse again and verify": lambda: _timed(lambda: _verify(instrumented)),
                # It parses and verifies as well: what optimising and emitting cost is the difference.
                "parse again to object": lambda: _timed(lambda: emit(instrumented, options)),
                "parse again to object, uninstrumented": lambda: _timed(lambda: emit(text, options)),
                "whole wrapper": lambda: _timed(
                    lambda: run([wrapper, *flags, "-c", unit, "-o", str(result)], cwd=tree)
                ),
                "whole clang": lambda: _timed(lambda: run([clang, *flags, "-c", unit, "-o", str(result)], cwd=tree)),
            },
        )
    lines = text.count("\n")
    per_10k = {name: Spread.of([1e3 * second * 1e4 / lines for second in times]) for name, times in values.items()}
    return {
        "ir_lines": lines,
        "ir_lines_instrumented": instrumented.count("\n"),
        "sites": len(facts.sites),
        "ms_per_10000_lines": {name: spread.json() for name, spread in per_10k.items()},
        "ratio_wrapper_to_clang": ratio(values, "whole wrapper", "whole clang").json(),
    }


def _verify(text: str) -> None:
    llvm.parse_assembly(text, context=llvm.create_context()).verify()


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
