"""Which compilers the machine has, so that a test asks for what it needs and not for a name.

The README promises a machine with any C compiler: gcc alone, clang alone, or none but the clang of the ziglang wheel.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver import toolchain
from crashcheck.runtime import build

# Every clang of the range that is measured. There may be only one without a version in its name, or the wheel's.
CLANGS = tuple(name for name in (f"clang-{major}" for major in range(14, 20)) if shutil.which(name))
NEWEST = CLANGS[-1] if CLANGS else ""  # for CRASHCHECK_CLANG: empty lets crashcheck-cc choose
UNWINDABLE = ("-fasynchronous-unwind-tables",)  # zig's clang describes no frames unless it is asked to
_CXX = {"cc": "c++", "gcc": "g++", "clang": "clang++"}


def c_compiler() -> list[str]:
    """The command of a C compiler for programs that are not instrumented."""
    return [*build.find_compiler()]


def archiver() -> list[str]:
    """The command of an `ar`."""
    return [*build._archiver(build.find_compiler())]


def needs_tools(*names: str) -> None:
    """Skips the test where one of these programs is not installed."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")


def cxx_compiler() -> list[str]:
    """The command of a C++ compiler for programs that are not instrumented. Skips the test if there is none."""
    for name in ("c++", "g++", "clang++", *(f"clang++-{major}" for major in range(22, 12, -1))):
        found = shutil.which(name)
        if found:
            return [found]
    pytest.skip("no C++ compiler here: needs c++, g++ or clang++")


def plain_clang(chosen: str = NEWEST, cxx: bool = False) -> list[str]:
    """The clang that crashcheck-cc runs if CRASHCHECK_CLANG is `chosen`, as a user would run it."""
    return toolchain.find_compiler({"PATH": os.environ.get("PATH", os.defpath), "CRASHCHECK_CLANG": chosen}).command(
        cxx
    )


def named(kind: str) -> tuple[str, str]:
    """The C and the C++ compiler of `kind`, gcc or clang, by path. Skips the test if the machine has none."""
    versioned = [f"{kind}-{major}" for major in range(22, 10, -1)]
    for name in (kind, *versioned):
        found = shutil.which(name)
        cxx = shutil.which(name.replace("gcc", "g++").replace("clang", "clang++"))
        if found and cxx:
            return found, cxx
    pytest.skip(f"no {kind} for C and C++ here")


def sanitizing(first: str, *flags: str) -> tuple[str, str]:
    """The C and C++ compiler of one family, gcc or clang, that link a program with `flags`: of `first` if it can.

    Debian's clang comes without the libraries of its sanitizers: it compiles with them and fails to link.
    Skips the test if no compiler can.
    """
    for kind in sorted(("clang", "gcc"), key=lambda kind: kind != first):
        for name in (kind, *(f"{kind}-{major}" for major in range(22, 10, -1))):
            c, cxx = name, name.replace("gcc", "g++").replace("clang", "clang++")
            if shutil.which(c) and shutil.which(cxx) and _links(c, "c", flags) and _links(cxx, "c++", flags):
                return c, cxx
    pytest.skip(f"no compiler here links with {' '.join(flags)}: install gcc, or clang's libclang-rt-dev")


def crashcheck_cc_links(*flags: str) -> bool:
    """Whether the clang that crashcheck-cc runs has the libraries that `flags` need."""
    return _links("\0".join(plain_clang()), "c", flags)


def has_libpmem() -> bool:
    return Path("/usr/include/libpmem.h").exists()


def needs_libpmem() -> None:
    """Skips the test if libpmem's header is not installed."""
    if not has_libpmem():
        pytest.skip("libpmem-dev is not installed")


def needs_libpmem2() -> None:
    """Skips the test if libpmem2's header is not installed."""
    if not Path("/usr/include/libpmem2.h").exists():
        pytest.skip("libpmem2-dev is not installed")


def needs_plain_clang(*tools: str, flags: tuple[str, ...] = ()) -> None:
    """Skips the test where crashcheck-cc runs no installed clang, or one without `tools` or the libraries of `flags`.

    The ziglang wheel's clang is not a program that others find.
    """
    compiler = toolchain.find_compiler()
    if compiler.zig:
        pytest.skip("no clang is installed here")
    path = Path(compiler.path)
    missing = [tool for tool in tools if shutil.which(path.with_name(path.name.replace("clang", tool))) is None]
    if missing or not crashcheck_cc_links(*flags):
        pytest.skip(f"{compiler.path} is here without {', '.join(missing) or f'the libraries of {flags}'}")


def needs_static() -> None:
    """Skips the test if the C compiler here links no static programs: ziglang's cannot, with the machine's library."""
    if not _links("\0".join(c_compiler()), "c", ("-static",)):
        pytest.skip("the C compiler here links no static programs: install gcc or clang, and libc6-dev")


@functools.cache
def _links(command: str, language: str, flags: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command.split("\0"), *flags, "-x", language, "-", "-o", str(Path(folder) / "program")],
            input="int main(void) { return 0; }\n",
            text=True,
            capture_output=True,
            check=False,
        )
    return done.returncode == 0
