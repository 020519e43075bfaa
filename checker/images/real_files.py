"""The files that a run really had at a moment, as an image: what `kill -9` would have left."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crashcheck.runtime import sparse
from crashcheck.runtime.patterns import regular_files, watched_files

if TYPE_CHECKING:
    from crashcheck.analyzer.trace.reader import Trace
    from crashcheck.runtime.record import NthEvent


@dataclass(frozen=True, slots=True, eq=False)
class RealFiles:
    """The watched files just before an event, copied while the run was recorded once more, and that recording."""

    folder: Path
    trace: Trace
    stdout: Path  # all that it printed
    addresses: Path  # where it mapped files


# Just before the event of a number (`seq`), or just after a named one; None: they could not be copied.
Snapshot = Callable[["int | NthEvent"], "RealFiles | None"]


def write_real_image(first: Path, real: Path, folder: Path, patterns: Sequence[str]) -> None:
    """Write the first image into `folder`, which must not exist, but with the watched files that are in `real`."""
    sparse.copy_tree(first, folder)
    for path in watched_files(folder, patterns):
        if not (real / path).is_file():
            (folder / path).unlink()
    for path in regular_files(real):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
        sparse.copy_file(real / path, target)
        os.chmod(target, mode)
