"""Results of searched commits, kept for later runs with `--base`: one report each, found by all that it depends on.

A report names no absolute folder and no machine, so a CI job may restore the folder on another one. The folder is
outside the workspace: what a change under review commits is never taken for a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
from dataclasses import replace
from pathlib import Path

import crashcheck
from crashcheck.analyzer.compile.driver.toolchain import find_compiler
from crashcheck.cache import cache_folder
from crashcheck.change.diff import run_git
from crashcheck.checker.kept.keys import sources
from crashcheck.checker.results import RunResult
from crashcheck.checker.store import FOLDER
from crashcheck.config import Config, ReportConfig
from crashcheck.errors import CrashcheckError
from crashcheck.reports.formats import json_report

MOST_RESULTS = 50
_SYSTEM = ("/etc/os-release", "/var/lib/dpkg/status")  # which libraries and compilers a build meets
_BUILD_VARIABLES = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("LIBRARY_PATH", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH"),
)


def results_folder() -> Path:
    """Where results are kept; it need not exist."""
    return cache_folder() / "results"


def key_of(commit: str, config: Config, name: str, depth: int) -> str:
    """Names a result by what decides it. `name`: of the configuration, from the repository's root.

    Which findings count (suppressions, the level that fails) changes no search.
    """
    searched = replace(config, path=Path(), folder=Path(), report=ReportConfig(), suppress=())
    digest = hashlib.sha256()
    for part in (commit, name, searched, depth, crashcheck.__version__, _compiler(), platform.machine(), _variables()):
        digest.update(repr(part).encode("utf-8", "surrogateescape") + b"\0")
    digest.update(sources().encode())  # between two releases its version stays the same
    for path in _SYSTEM:
        with contextlib.suppress(OSError):
            digest.update(Path(path).read_bytes())
    return digest.hexdigest()[:32]


def load(key: str) -> RunResult | None:
    """The result that was kept under `key`; None if there is none that can be read."""
    try:
        return json_report.load(_file(key).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, CrashcheckError):
        return None


def save(key: str, result: RunResult) -> None:
    """Keep a result, unless the search was broken off. A folder that cannot be written costs a search later."""
    if result.stop_reason.broken_off:
        return
    with contextlib.suppress(OSError):
        folder = results_folder()
        folder.mkdir(parents=True, exist_ok=True)
        # Several runs may write at once: each file gets its name when it is complete.
        handle, name = tempfile.mkstemp(dir=folder)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(json_report.render(result))
        os.replace(name, _file(key))
        known = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in known[:-MOST_RESULTS]:
            old.unlink()


def commit_of(folder: Path) -> str:
    """The commit that is checked out. Raises CrashcheckError(diff-no-git, keep-not-committed).

    A worktree of the commit holds nothing else, and a build may read any file, ignored ones as well.
    """
    root = Path(os.fsdecode(run_git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    for row in run_git(root, "status", "--porcelain", "--ignored", "-z").split(b"\0"):
        name = os.fsdecode(row[3:])
        if name and FOLDER not in Path(name).parts:
            message = f"the result is not kept for later runs with --base: {name} is not in the commit, or differs"
            raise CrashcheckError("keep-not-committed", message, "Only the result of a fresh checkout is kept.")
    return run_git(root, "rev-parse", "HEAD").decode("ascii").strip()


def _file(key: str) -> Path:
    return results_folder() / f"{key}.json"


def _compiler() -> str:
    try:
        return find_compiler().description()
    except (CrashcheckError, OSError):
        return ""


def _variables() -> list[tuple[str, str]]:
    return sorted(
        (name, value)
        for name, value in os.environ.items()
        if name in _BUILD_VARIABLES or (name.startswith("CRASHCHECK_") and name != "CRASHCHECK_CACHE")
    )
