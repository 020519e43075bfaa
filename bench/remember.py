"""An executor that runs each crash image once, however many strategies ask for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crashcheck.checker.results import Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.verdicts.executor import Executor


class Remembering(Executor):
    """Verdicts by fingerprint, over all searches of one recording. What strategies execute is counted by the search."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._verdicts: dict[bytes, Verdict] = {}
        self._known: dict[int, Verdict] = {}
        self._under_way: dict[int, bytes] = {}
        self._remembered = 0

    def submit(self, state: CrashState, *args: Any, **options: Any) -> int:
        fingerprint = self.workers.content.fingerprint(state)
        verdict = self._verdicts.get(fingerprint)
        if verdict is None:
            ticket = super().submit(state, *args, **options)
            self._under_way[ticket] = fingerprint
            return ticket
        self._remembered += 1
        ticket = -self._remembered  # the workers count upwards
        self._known[ticket] = verdict
        return ticket

    def result(self, ticket: int, timeout_s: float | None = None) -> Verdict | None:
        known = self._known.pop(ticket, None)
        if known is not None:
            return known
        verdict = super().result(ticket, timeout_s)
        if verdict is not None and ticket in self._under_way:
            # Of what passed nobody reads the output.
            kept = replace(verdict, output="") if verdict.passed else verdict
            self._verdicts[self._under_way.pop(ticket)] = kept
        return verdict

    def forget(self) -> None:
        """Every image is run again from here on."""
        self._verdicts.clear()

    def settle(self) -> None:
        """Wait for what a search that ended early has left under way."""
        self._known.clear()
        for ticket in list(self._under_way):
            self.result(ticket)
