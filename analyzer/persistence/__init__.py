"""What may survive a crash: the models of docs/crash-model.md, one file each.

A trace becomes a `PersistenceGraph`: the atomic pieces of updates, and which of them must persist before which.

Other rooms import `graph`, `graph_files`, `names`, `page_cache`, `pieces`, `redundant_persists`, `shown_names` and
`sync_intervals`.
"""

from __future__ import annotations

from collections.abc import Callable

from crashcheck.analyzer.persistence import eadr, page_cache, px86
from crashcheck.analyzer.persistence.filesystem import btrfs, ext4, ext4_strict, ext4_writeback, posix, xfs
from crashcheck.analyzer.persistence.graph import NEVER, Options, PersistenceGraph, Piece
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.errors import CrashcheckError
from crashcheck.models import family_of
from crashcheck.runtime.trace_format import Recorder

MODELS: dict[str, Callable[[Trace, Options], PersistenceGraph]] = {
    "px86": px86.build,
    "eadr": eadr.build,
    "page-cache": page_cache.build,
    "ext4": ext4.build,
    "ext4-strict": ext4_strict.build,
    "posix": posix.build,
    "ext4-writeback": ext4_writeback.build,
    "xfs": xfs.build,
    "btrfs": btrfs.build,
}

__all__ = ["MODELS", "NEVER", "Options", "PersistenceGraph", "Piece", "build"]


def build(trace: Trace, model: str, options: Options | None = None) -> PersistenceGraph:
    """The persistence graph of `trace` under `model`. Raises CrashcheckError unknown-model."""
    if model not in MODELS:
        raise CrashcheckError(
            "unknown-model",
            f"unknown model {model!r}, expected one of {', '.join(sorted(MODELS))}",
            "Set [model] name.",
        )
    if family_of(model).names != (trace.recorder is Recorder.SYSCALLS):
        of_calls = [name for name in MODELS if family_of(name).names is (trace.recorder is Recorder.SYSCALLS)]
        how = "of system calls" if trace.recorder is Recorder.SYSCALLS else "of a program that crashcheck-cc built"
        raise CrashcheckError(
            "model-recorder",
            f"the model {model!r} does not fit a recording {how}",
            f"Use one of {', '.join(of_calls)}, or change [workload] recorder.",
        )
    return MODELS[model](trace, options or Options())
