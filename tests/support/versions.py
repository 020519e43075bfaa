"""Versions of a project in a git repository, searched one against the other."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.caches import cache_of_its_own
from support.command_line import run_crashcheck
from support.ledger import APART, files

GIT = ("git", "-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


class Project:
    """A repository with a ledger, and runs of it against its first commit."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.origin = self.folder
        self.cache = cache_of_its_own(folder / "cache")
        self.environment = {
            **environment,
            "CRASHCHECK_CACHE": str(self.cache),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        self.git("init", "-q", "-b", "main")

    def checkout_elsewhere(self, name: str, commit: str) -> None:
        """Continue in a fresh clone, with the cache alone, as a CI job does."""
        self.folder = self.origin.parent / name
        subprocess.run([*GIT, "clone", "-q", str(self.origin), str(self.folder)], env=self.environment, check=True)
        self.git("checkout", "-q", "-B", "main", commit)

    def bases(self) -> list[str]:
        """How often each worktree of a base was built, in lines."""
        trees = sorted((self.folder / ".crashcheck" / "base").glob("*/tree"))
        return [(tree / "built").read_text(encoding="utf-8") for tree in trees]

    def git(self, *arguments: str) -> None:
        subprocess.run([*GIT, *arguments], cwd=self.folder, env=self.environment, check=True)

    def write(self, first: str, padding: str = APART, more: Mapping[str, str] = {}) -> None:
        """A version. `first` follows the store of the owner; `padding` is between the two fields."""
        for name, text in {**files(first, padding), **more}.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "A version")

    def fix(self, *options: str) -> tuple[int, str]:
        """The exit code of `crashcheck fix`, and what it prints."""
        done = run_crashcheck("fix", *options, cwd=self.folder, env=self.environment)
        return done.returncode, done.stdout + done.stderr

    def search(self, *options: str) -> tuple[int, str]:
        """The exit code of a run of the present commit alone, and what it prints on standard error.

        Without its progress, of which a slow machine sees some.
        """
        done = run_crashcheck("run", *options, cwd=self.folder, env=self.environment)
        return done.returncode, re.sub(r"^crashcheck: .* in this phase\)\n", "", done.stderr, flags=re.MULTILINE)

    def run(self, *options: str, fixes: bool = False) -> tuple[int, dict[str, Any]]:
        """The exit code of a run against the first commit, and its JSON report. `fixes`: it suggests fixes."""
        words = ["run", "--base", "main~1", "--format", "json=out.json", *([] if fixes else ["--no-fixes"]), *options]
        done = run_crashcheck(*words, cwd=self.folder, env=self.environment)
        print(done.stdout, done.stderr)
        return done.returncode, json.loads((self.folder / "out.json").read_text(encoding="utf-8"))


def compared(report: dict[str, Any]) -> list[str]:
    return [finding["compared"] for finding in report["findings"]]
