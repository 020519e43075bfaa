"""`crashcheck init`: a commented crashcheck.toml to start from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crashcheck.config import FILE_NAME
from crashcheck.errors import CrashcheckError

TEMPLATE = """\
# What crashcheck runs. Commands run in this file's folder; a string with shell syntax goes to /bin/sh, any other
# is split into words; a list is taken as it is. {pool} is a folder that crashcheck makes for the program's files.

[build]
# Builds the program with crashcheck-cc (and crashcheck-c++), drop-in compilers that record what it writes.
command = "make CC=crashcheck-cc CXX=crashcheck-c++"

# [setup]
# Makes the files that the workload starts from. Not recorded: a crash during setup is not tested.
# command = "./program create {pool}/data.db"

[workload]
# What is recorded: some tens of operations, small and deterministic. Surround each with crashcheck_op_begin() and
# crashcheck_op_end() (crashcheck.h) to tell what has been acknowledged.
command = "./program {pool}/data.db"
timeout_s = 60
# operations = ["store_put"]   # or name functions: each outermost call is an operation
# env = { PMEM_IS_PMEM_FORCE = "1" }

[pool]
# Which files in {pool} may lose updates in a crash.
files = ["*.db"]

[check]
# Opens the files as they are after a crash: exit 0 if they are consistent, anything else if not.
# {acked}: how many operations had been acknowledged; {stdout}: a file with what the workload had printed.
command = "./check {pool}/data.db {acked}"
# oracle = "exit-status"  # "output-equivalence": compare outputs instead (docs/output-equivalence.md)
# first = "check"        # "skip": the files before the workload are not meant to pass
timeout_s = 10
# memory_mib = 4096      # address space of a check; 0: no limit
# file_mib = 8192        # size of any one file that it writes; 0: no limit
# env = {}

[model]
# "px86": persistent memory behind volatile caches (clwb, sfence). "eadr": caches that survive.
# "page-cache": ordinary files through mmap and msync, or write and fsync.
name = "px86"
# tear = "none"          # page-cache: 512 or 4096 lets the sectors of a page persist one by one
# files = "ext4"         # page-cache: "posix" asks for the directory's fsync too

# [strategy]
# name = "ranked"        # all states, the likeliest to fail first. To compare: "pathfinder", "witcher", "random",
                         # "exhaustive" (all, but in another order), "bounded" (at most `deviations` lines or pages
# deviations = 2         # that lost, or kept, something)

# [budget]
# seconds = 300          # of searching; the report says what was not looked at
# states = 100000        # given alone, there is no time limit

# [record]
# mapping = "fixed"      # files reopen at the address where they were mapped, as raw pointers in them need
# memory = "persistent"  # or "all": volatile memory's loads and stores as well; slower

# [report]
# fail_on = "warning"    # the exit code is 1 from this level on: "none", "note", "warning" or "error"

# [[suppress]]           # findings to live with; also by a comment in the source (docs/policy.md)
# file = "third_party/*"
# kinds = ["ordering"]
# reason = "why"
"""


# By the file that shows a build system: in a folder of its own, so that no object of another compiler is taken over.
APART = "build-crashcheck"
BUILDS = {
    "CMakeLists.txt": f"cmake -S . -B {APART} -DCMAKE_C_COMPILER=crashcheck-cc -DCMAKE_CXX_COMPILER=crashcheck-c++ "
    f"&& cmake --build {APART}",
    "meson.build": f"{{ test -d {APART} || CC=crashcheck-cc CXX=crashcheck-c++ meson setup {APART}; }} "
    f"&& ninja -C {APART}",
    "configure": f"mkdir -p {APART} && cd {APART} && ../configure CC=crashcheck-cc CXX=crashcheck-c++ && make",
}


def template(folder: Path) -> str:
    """TEMPLATE with the build command for the build system that `folder` shows; that of make if it shows none."""
    for file, command in BUILDS.items():
        if (folder / file).is_file():
            made = TEMPLATE.replace("make CC=crashcheck-cc CXX=crashcheck-c++", command)
            return made.replace('"./program', f'"./{APART}/program').replace('"./check', f'"./{APART}/check')
    return TEMPLATE


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("init", help=f"write a commented {FILE_NAME}")
    parser.add_argument("folder", nargs="?", default=".", help="where to write it (default: here)")


def main(args: argparse.Namespace) -> int:
    path = Path(args.folder) / FILE_NAME
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template(path.parent))
    except FileExistsError:
        raise CrashcheckError(
            "init-exists", f"{path} exists already.", "Nothing was changed. Remove it first, or edit it."
        ) from None
    except OSError as error:
        raise CrashcheckError("init-unwritable", f"{path} cannot be written: {error.strerror}.") from None
    print(f"Wrote {path}. Edit its commands, then: crashcheck run -c {path}")
    return 0
