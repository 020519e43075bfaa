"""What may survive a crash: the models of docs/crash-model.md, one file each.

A trace becomes a `PersistenceGraph`: the atomic pieces of updates, and which of them must persist before which.

Other rooms import `graph`, `graph_files`, `pieces` and `redundant_persists`.
"""

from __future__ import annotations

from collections.abc import Callable

from crashcheck.analyzer.persistence import eadr, page_cache, px86
from crashcheck.analyzer.persistence.graph import NEVER, Options, PersistenceGraph, Piece
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.errors import CrashcheckError

MODELS: dict[str, Callable[[Trace, Options], PersistenceGraph]] = {
    "px86": px86.build,
    "eadr": eadr.build,
    "page-cache": page_cache.build,
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
    return MODELS[model](trace, options or Options())
