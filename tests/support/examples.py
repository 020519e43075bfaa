"""Copies of the examples, built once for all processes of a test run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from crashcheck.config import load
from support.paths import EXAMPLES

NOT_COPIED = shutil.ignore_patterns("buggy", "fixed", "check", ".crashcheck")


class BuiltExamples:
    """`built(name)`: a folder with the example's sources and its programs, built by its own [build] command."""

    def __init__(self, folder: Path, commands: Path) -> None:
        self._folder = folder
        self._path = f"{commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

    def __call__(self, name: str) -> Path:
        return once(self._folder / name, self._build)

    def _build(self, folder: Path) -> None:
        shutil.copytree(EXAMPLES / folder.name, folder, ignore=NOT_COPIED)
        command = load(folder / "buggy.toml").build.command
        assert command is not None
        subprocess.run(command.argv(pool=""), cwd=folder, env={**os.environ, "PATH": self._path}, check=True)


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
