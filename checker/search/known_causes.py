"""Failing states whose site signature is known: counted with its finding, without runs, but for samples."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from crashcheck.checker.findings.register import DraftFinding
from crashcheck.checker.results import Verdict
from crashcheck.checker.states.signature import SiteSignatures
from crashcheck.checker.strategies.plan import Choice
from crashcheck.checker.subject import Subject

CONFIRMATIONS = 3  # different operations in which runs must have shown the same finding to be the reason


@dataclass(slots=True)
class _Known:
    """The finding that explains the states with one signature. `counted`: states since then, without runs."""

    finding: DraftFinding
    operations: set[int] = field(default_factory=set)
    counted: int = 0


class KnownCauses:
    """Signatures of failing states that one finding has explained, by counterfactual runs, in several operations.

    The signature of a failing state is the group that it tests, its site signature, whether an operation was under
    way, and how the check ended. Of the states of a known signature the 1st, 2nd, 4th, 8th, … are explained as if it
    were new; if another finding is the reason of one, the signature is never trusted again.
    """

    def __init__(self, subject: Subject, signatures: SiteSignatures) -> None:
        self._points = subject.space.points
        self._signatures = signatures
        self._known: dict[Hashable, _Known | None] = {}  # None: several findings share the signature

    def finding(self, choice: Choice, verdict: Verdict) -> DraftFinding | None:
        """The finding to count a state with; None if it has to be explained by runs."""
        known = self._known.get(self._signature(choice, verdict)) if self._known else None
        if known is None or len(known.operations) < CONFIRMATIONS:
            return None
        known.counted += 1
        return None if known.counted & (known.counted - 1) == 0 else known.finding

    def explained(self, choice: Choice, verdict: Verdict, finding: DraftFinding) -> None:
        """Note that runs have shown a finding to be the reason of a failing state."""
        signature = self._signature(choice, verdict)
        known = self._known.setdefault(signature, _Known(finding))
        if known is None:
            return
        if known.finding is not finding:
            self._known[signature] = None
            return
        known.operations.add(int(self._points[choice.state.point].acked))

    def _signature(self, choice: Choice, verdict: Verdict) -> Hashable:
        point = self._points[choice.state.point]
        ended = verdict.outcome, verdict.exit_code, verdict.signal
        return choice.group, self._signatures.of(choice.state), point.begun - point.acked, ended
