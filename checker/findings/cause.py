"""What is to blame for a failing crash state: X, the update that was lost, and Y, the one that persisted without it."""

from __future__ import annotations

from dataclasses import dataclass

from crashcheck.checker.results import FindingKind, Outcome, Verdict
from crashcheck.checker.states.space import CrashState

_DIED = (Outcome.SIGNAL, Outcome.TIMEOUT)
CUT_SHORT = "not minimised to the end: the budget was spent"


def kind_of_part(verdict: Verdict) -> FindingKind:
    """Of a state in which something persisted in part: by how the check ended."""
    return FindingKind.RECOVERY_FAILURE if verdict.outcome in _DIED else FindingKind.ATOMICITY


@dataclass(frozen=True, slots=True)
class Cause:
    """A failing state in its smallest form, and what is to blame."""

    kind: FindingKind
    state: CrashState
    verdict: Verdict
    lost: int | None  # X: the piece that did not persist; of a prefix, the first that was not issued yet
    kept: int | None  # Y: the piece that persisted although X did not; None where none is needed
    prefix: bool = False  # no reordering is needed
    torn: bool = False  # X and Y are pieces of one store or library call
    since: int | None = None  # of `unpersisted`: operations acknowledged before X was issued
    moment: int | None = None  # of a prefix: the event before which the program is killed
    until: int | None = None  # of a prefix: the piece with which the program is right again; None if not known
    complete: bool = True  # False where the budget ended first
    given_up: bool = False  # of a prefix: the beginning of the stretch was searched for, and not found
    killed: int | None = None  # of others: the event before which `kill -9` shows the same, after X was issued
    former: int | None = None  # the first update lost, where X is the bytes of a file that grew without them

    @property
    def no_sync_helps(self) -> bool:
        """Whether something has to be atomic, instead of durable in time."""
        return self.lost is None or self.prefix or self.torn

    @property
    def cut_short(self) -> bool:
        """Whether a state that loses something was not minimised to the end."""
        return not (self.complete or self.prefix)
