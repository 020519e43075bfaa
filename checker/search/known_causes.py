"""Failing states that look like ones already explained are counted by their look; samples of them are looked into."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from crashcheck.checker.findings.register import Draft
from crashcheck.checker.results import Verdict
from crashcheck.checker.states.signature import Looks
from crashcheck.checker.strategies.plan import Choice
from crashcheck.checker.subject import Subject

CONFIRMATIONS = 3  # different operations in which runs must have shown the same finding to be the reason


@dataclass(slots=True)
class _Known:
    """What runs said of the states with one look. `counted`: since then, without runs."""

    finding: Draft
    operations: set[int] = field(default_factory=set)
    counted: int = 0


class Recognised:
    """Looks that one finding has explained, by counterfactual runs, in several operations.

    A look is the group that a state tests, the static sites that it lost, those that it kept of what was pending,
    whether an operation was under way, and how the check ended. Of the states of a known look the 1st, 2nd, 4th,
    8th, … are looked into as if it were new; if another finding is the reason of one, the look is never trusted again.
    """

    def __init__(self, subject: Subject, looks: Looks) -> None:
        self._points = subject.space.points
        self._looks = looks
        self._known: dict[Hashable, _Known | None] = {}  # None: more than one finding looks like that

    def finding(self, choice: Choice, verdict: Verdict) -> Draft | None:
        """The finding to count a state with; None if it has to be looked into."""
        known = self._known.get(self._look(choice, verdict)) if self._known else None
        if known is None or len(known.operations) < CONFIRMATIONS:
            return None
        known.counted += 1
        return None if known.counted & (known.counted - 1) == 0 else known.finding

    def explained(self, choice: Choice, verdict: Verdict, finding: Draft) -> None:
        """Runs have shown that a finding is the reason of a failing state."""
        look = self._look(choice, verdict)
        known = self._known.setdefault(look, _Known(finding))
        if known is None:
            return
        if known.finding is not finding:
            self._known[look] = None
            return
        known.operations.add(int(self._points[choice.state.point].acked))

    def _look(self, choice: Choice, verdict: Verdict) -> Hashable:
        point = self._points[choice.state.point]
        ended = verdict.outcome, verdict.exit_code, verdict.signal
        return choice.group, self._looks.of(choice.state), point.begun - point.acked, ended
