"""Crash tests by unittest."""

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from typing import Any

from crashcheck.testing.boundary import bounded, end_run, here
from crashcheck.testing.crashes import SECONDS, STATES, Crashes, Settings


class CrashTestCase(unittest.TestCase):
    """A TestCase with `crashes`. The environment variable CRASH_STATE chooses the only state to see, by its token."""

    crash_model = "ext4"
    crash_states = STATES
    crash_seconds = SECONDS

    @property
    def crashes(self) -> Crashes:
        """As the fixture of pytest."""
        token = os.environ.get("CRASH_STATE", "")
        settings = Settings(self.crash_model, self.crash_states, self.crash_seconds, token, again=self._again)
        return Crashes(lambda: settings)

    def _again(self, token: str) -> str:
        return f"CRASH_STATE={token} python -m unittest {self.id()}"

    def _callTestMethod(self, method: Callable[[], Any]) -> Any:
        """What unittest calls a test by: a run of the test with one state ends here."""
        with bounded():
            result = super()._callTestMethod(method)  # type: ignore[misc]
            if here.is_run and not self._outcome.success:  # type: ignore[attr-defined]  # a subTest has failed
                end_run(AssertionError("a subTest failed"))
            return result
