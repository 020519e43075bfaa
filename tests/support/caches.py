"""Caches of a test's own, in which nothing has to be built again."""

from __future__ import annotations

from pathlib import Path

from crashcheck.cache import cache_folder
from crashcheck.runtime.build import build_runtime


def cache_of_its_own(folder: Path) -> Path:
    """Make `folder`, for CRASHCHECK_CACHE: without results, with the recorder and the templates of the user's cache."""
    folder.mkdir()
    for built in (build_runtime().include.parent, *cache_folder().glob("templates-*")):
        (folder / built.name).symlink_to(built)
    return folder
