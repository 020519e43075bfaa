"""A Python program that replaces its settings by a rename, recorded by its system calls, in any version."""

from __future__ import annotations

PROGRAM = """import os, sys

def save(folder, entry, value):
    name = os.path.join(folder, entry + ".json")
    with open(name + ".new", "w") as file:
        file.write("{%d: xxx}" % value)
        file.flush()
        SYNC
    os.rename(name + ".new", name)
    there = os.open(folder, os.O_RDONLY)
    os.fsync(there)
    os.close(there)

for number in range(ROUNDS):
    save(sys.argv[1], "settings", number)
    print("saved", number, flush=True)
"""
CHECK = """#!/bin/sh
test ! -e "$1/settings.json" || grep -q x} "$1/settings.json"
"""
CONFIG = """[workload]
command = "python3 store.py {pool}"
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = "sh check.sh {pool}"
[model]
name = "ext4"
"""
SYNC = "os.fsync(file.fileno())"


def files(sync: str = SYNC, rounds: int = 1) -> dict[str, str]:
    """A version; `sync` precedes the rename."""
    program = PROGRAM.replace("        SYNC\n", f"        {sync}\n" if sync else "")
    return {
        "store.py": program.replace("ROUNDS", str(rounds)),
        "check.sh": CHECK,
        "crashcheck.toml": CONFIG,
        ".gitignore": "/out.json\n",
    }
