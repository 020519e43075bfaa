"""Where crashcheck keeps what it builds once for all runs: the recorder, compiled templates."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return CRASHCHECK_CACHE, else the user's cache folder; it need not exist."""
    chosen = os.environ.get("CRASHCHECK_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "crashcheck"
