"""Crash tests in a project's own test suite: a fixture of pytest, and a class for unittest.

`Crashes.check` calls a function in a recorded child of the test's process and then a check on each state that a crash
can leave of the files; `for state in crashes(function, ...)` runs the rest of the test with each. `ready` is for
checks that are programs of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crashcheck.testing.crash_test_case import CrashTestCase
    from crashcheck.testing.crashes import Crashes, Settings
    from crashcheck.testing.failure import CrashFound
    from crashcheck.testing.state import Done, State

__all__ = ["CrashFound", "CrashTestCase", "Crashes", "Done", "Settings", "State", "ready"]

_HOMES = {
    "CrashFound": "failure",
    "CrashTestCase": "crash_test_case",
    "Crashes": "crashes",
    "Done": "state",
    "Settings": "crashes",
    "State": "state",
}


def ready(acked: int = 0) -> int:
    """Let runs of a check that is a Python program continue here as copies (crashcheck_ready() of crashcheck.h).

    Call it after the imports, before the check reads any of its files. Returns {acked} of this copy: give what the
    check's words hold for that. Does nothing where crashcheck does not run the check.
    """
    import ctypes

    library = ctypes.CDLL(None)
    if not hasattr(library, "crashcheck_ready_acked"):
        return acked
    library.crashcheck_ready_acked.restype = ctypes.c_long
    return int(library.crashcheck_ready_acked(ctypes.c_long(acked)))


def __getattr__(name: str) -> Any:
    """Import what is asked for, and nothing before: pytest loads the plugin beside this in every project."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
