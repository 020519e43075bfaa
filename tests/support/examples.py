"""Copies of the examples, built once for all processes of a test run, and used by one test at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

from crashcheck.config import load
from support.compilers import needs_libpmem
from support.paths import EXAMPLES

NOT_COPIED = shutil.ignore_patterns("buggy", "fixed", "check", ".crashcheck")


class BuiltExamples:
    """`built(name)`: a folder with the example's sources and its programs, built by its own [build] command.

    No other process gets the same folder until `close`: two runs in one folder wait for each other, and mention it.
    """

    def __init__(self, folder: Path, commands: Path) -> None:
        self._folder = folder
        self._locks: dict[str, IO[str]] = {}
        self._path = f"{commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

    def __call__(self, name: str) -> Path:
        if name == "pmem-log":
            needs_libpmem()
        folder = once(self._folder / name, self._build)
        if name not in self._locks:
            self._locks[name] = folder.with_name(f"{name}.used").open("w", encoding="ascii")
            fcntl.flock(self._locks[name], fcntl.LOCK_EX)
        return folder

    def close(self) -> None:
        """Let others use the folders."""
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    def _build(self, folder: Path) -> None:
        shutil.copytree(EXAMPLES / folder.name, folder, ignore=NOT_COPIED)
        command = load(folder / "buggy.toml").build.command
        assert command is not None
        environment = {**os.environ, "PATH": self._path}
        done = subprocess.run(command.argv(pool=""), cwd=folder, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), "it builds without a warning"
        build_only_what_was_edited(folder)


def build_only_what_was_edited(folder: Path) -> None:
    """Examples build all of their programs in each run: the compiler may be another one. In a test it never is."""
    makefile = folder / "Makefile"
    makefile.write_text(makefile.read_text(encoding="utf-8").replace(" FORCE\n", "\n"), encoding="utf-8")


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, which `make` fills in the first process that asks; the others wait for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    ready = folder.with_name(f"{folder.name}.ready")
    with open(folder.with_name(f"{folder.name}.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            ready.touch()
    return folder
