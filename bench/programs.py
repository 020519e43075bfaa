"""The bench's own C programs and other people's, built by clang and by crashcheck's wrapper."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

from bench.measure import CannotMeasure, run
from crashcheck.analyzer.compile.driver.toolchain import find_compiler

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent


def real_programs() -> ModuleType:
    """tests/real/real_programs.py: it knows how to fetch and build LMDB and LevelDB, and where the wrapper is."""
    folder = str(CHECKOUT / "tests" / "real")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("real_programs")


def wrapper(cxx: bool = False) -> str:
    return str(real_programs().command("crashcheck-c++" if cxx else "crashcheck-cc"))


def clang(cxx: bool = False) -> str:
    """The clang that the wrapper uses, so that only the instrumentation differs."""
    compiler = find_compiler()
    path = Path(compiler.path)
    found = shutil.which(path.with_name(path.name.replace("clang", "clang++")) if cxx else path)
    if compiler.zig or not found:
        raise CannotMeasure(
            f"There is no plain {'clang++' if cxx else 'clang'} beside {compiler.path} to compare with."
        )
    return str(found)


def flush_definition() -> str:
    """The write-back instruction that this processor has."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return next((f"-DFLUSH_{name.upper()}" for name in ("clwb", "clflushopt") if name in flags), "-DFLUSH_CLFLUSH")


def compile_program(compiler: str, name: str, output: Path) -> Path:
    """bench/workloads/<name>.c, optimised and with debug information as a user would build it."""
    source = HERE / "workloads" / f"{name}.c"
    words = [compiler, "-O2", "-g", f"-I{CHECKOUT / 'runtime'}", flush_definition(), str(source)]
    run([*words, "-o", str(output)])
    return output
