"""`crashcheck init`: a commented crashcheck.toml to start from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crashcheck.config import FILE_NAME
from crashcheck.errors import CrashcheckError

_BUILD = """\
# Builds the program with crashcheck-cc and crashcheck-c++: compilers that make it report what it writes to its files.
command = "make CC=crashcheck-cc CXX=crashcheck-c++"
"""
_WORKLOAD = """\
# What is recorded: a few dozen operations, the same in each run. Put crashcheck_op_begin() before each operation and
# crashcheck_op_end() after it (crashcheck.h), so that crashcheck knows which operations have been acknowledged.
command = "./program {pool}/data.db"
timeout_s = 60
# recorder = "syscalls"        # record the system calls of any program instead, without a build by crashcheck-cc
# operations = ["store_put"]   # or: names of functions; each outermost call is an operation. A pair begins and ends
#                              # one: ["transaction_begin", "transaction_commit"]
# env = { PMEM_IS_PMEM_FORCE = "1" }
"""
TEMPLATE = """\
# What crashcheck runs. Commands run in the folder of this file. A string with shell syntax is run by /bin/sh; any other
# string is split into words; a list is used as it is. {pool} is a folder that crashcheck makes for the program's files.

[build]
""" + _BUILD + """
# [setup]
# Makes the files that the workload starts from. It is not recorded: crashes during setup are not tested.
# command = "./program create {pool}/data.db"
# timeout_s = 60

[workload]
""" + _WORKLOAD + """
[pool]
# The files in {pool} that may lose updates in a crash.
files = ["*.db"]

[check]
# Opens the files as a crash left them. Exit status 0: they are consistent. Any other: they are not.
# {acked}: how many operations had been acknowledged; {stdout}: a file with what the workload had printed.
command = "./check {pool}/data.db {acked}"
# A server instead of a command: start, ready, client, stop (docs/writing-a-check.md).
# oracle = "exit-status"  # "output-equivalence": compare outputs instead (docs/output-equivalence.md)
# outputs = ["stdout"]   # those that output equivalence compares; also "stderr", "fd 3" and "{pool}/results.txt"
# first = "check"        # "skip": do not check the files as they are before the workload
timeout_s = 10
# memory_mib = 4096      # data of the check; 0: no limit
# file_mib = 8192        # size of each file that the check writes; 0: no limit
# env = {}

[model]
# "px86": persistent memory behind volatile caches (clwb, sfence). "eadr": persistent memory, the caches survive, too.
# "page-cache": ordinary files, written through mmap and msync, or write and fsync.
# For recorded system calls: "ext4" (their default), "ext4-strict", "ext4-writeback", "xfs", "btrfs" or "posix"
# (docs/file-systems.md).
name = "px86"
# tear = "none"          # page-cache: 512 or 4096: the sectors of a page may persist one by one
# files = "ext4"         # page-cache: "posix": a new file's name is durable only after an fsync of its directory
# amplify = true         # recorded system calls: as if a sync followed each call that empties or creates a file

# [strategy]
# name = "ranked"        # every state, those that are most likely to fail first; to compare: "pathfinder", "witcher",
                         # "random", "exhaustive" (every state, in another order), "bounded"
# deviations = 2         # bounded: at most this many cache lines (or pages) that lost, or kept, updates
# libraries = "last"     # ranked: groups that only code outside the repository updates; "equal": ranked as all others
# explore = true         # decide whole crash points by few runs of the check (docs/search.md)

# [budget]
# seconds = 300          # time for the search; the report lists what was not covered
# states = 100000        # crash states to check; if only this is given, there is no time limit

# [report]
# fail_on = "warning"    # exit with 1 for findings of this severity or higher: "none", "note", "warning" or "error"

# [[suppress]]           # findings to accept; a comment in the source can do the same (docs/policy.md)
# file = "third_party/*"
# kinds = ["ordering"]
# reason = "why"
"""

_WORKLOAD_OF_CALLS = """\
# What is recorded: a few dozen operations, the same in each run. Let the program print each operation
# that is done, and flush: what it printed before a crash must not be lost.
command = "./program {pool}"
timeout_s = 60
recorder = "syscalls"
# env = {}
"""

# By the file that shows a build system. A separate folder, so that no object of another compiler is reused.
APART = "build-crashcheck"
BUILDS = {
    "CMakeLists.txt": f"cmake -S . -B {APART} -DCMAKE_C_COMPILER=crashcheck-cc -DCMAKE_CXX_COMPILER=crashcheck-c++ "
    f"&& cmake --build {APART}",
    "meson.build": f"{{ test -d {APART} || CC=crashcheck-cc CXX=crashcheck-c++ meson setup {APART}; }} "
    f"&& ninja -C {APART}",
    "configure": f"mkdir -p {APART} && cd {APART} && ../configure CC=crashcheck-cc CXX=crashcheck-c++ && make",
    "configure.ac": f"{{ test -f configure || autoreconf -i; }} && mkdir -p {APART} && cd {APART} "
    "&& ../configure CC=crashcheck-cc CXX=crashcheck-c++ && make",
}
# By the file that shows another language: what builds a program ("": nothing does), and what runs it.
LANGUAGES = {
    "Cargo.toml": ("cargo build", "./target/debug/program"),
    "go.mod": ("go build -o program .", "./program"),
    "pom.xml": ("mvn -q package", "java -jar target/program.jar"),
    "package.json": ("", "node program.js"),
    **dict.fromkeys(("pyproject.toml", "setup.py", "requirements.txt"), ("", "python3 program.py")),
}


_DESCRIPTION = f"Writes a {FILE_NAME} with comments and example commands, which you then edit."


def template(folder: Path) -> str:
    """TEMPLATE with the build command for the build system that `folder` has, else that of make.

    Of a language that crashcheck-cc does not compile, the system calls are recorded.
    """
    for file, command in BUILDS.items():
        if (folder / file).is_file():
            made = TEMPLATE.replace("make CC=crashcheck-cc CXX=crashcheck-c++", command)
            return made.replace('"./program', f'"./{APART}/program').replace('"./check', f'"./{APART}/check')
    for file, (build, program) in LANGUAGES.items():
        if (folder / file).is_file():
            return _of_calls(build, program)
    return TEMPLATE


def _of_calls(build: str, program: str) -> str:
    """TEMPLATE for a program whose system calls are recorded."""
    text = TEMPLATE
    for old, new in (
        (_BUILD, f'# Builds the program, as always.\ncommand = "{build}"\n' if build else '# command = "make"\n'),
        (_WORKLOAD, _WORKLOAD_OF_CALLS.replace("./program", program)),
        ('files = ["*.db"]', 'files = ["*"]'),
        ("# {acked}: how many operations had been acknowledged; {stdout}: a", "# {stdout}: a"),
        ('command = "./check {pool}/data.db {acked}"', f'command = "{program} check {{pool}} {{stdout}}"'),
        ('name = "px86"', 'name = "ext4"'),
    ):
        text = text.replace(old, new)
    return text


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("init", help=f"write a commented {FILE_NAME}", description=_DESCRIPTION)
    parser.add_argument(
        "folder", nargs="?", default=".", help="where to write it; it is made (default: the current folder)"
    )


def main(args: argparse.Namespace) -> int:
    path = Path(args.folder) / FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(template(path.parent))
    except FileExistsError:
        if not path.parent.is_dir():
            raise CrashcheckError("init-unwritable", f"{path.parent} is not a folder.") from None
        raise CrashcheckError(
            "init-exists", f"{path} already exists.", "Nothing was changed. Edit it, or remove it first."
        ) from None
    except OSError as error:
        raise CrashcheckError("init-unwritable", f"{path} cannot be written: {error.strerror}.") from None
    print(f"Wrote {path}. Edit its commands, then: crashcheck run -c {path}")
    return 0
