"""Oracles, one file per oracle: what a run of the check means for its crash state.

Of those of system calls, `versions`, `open_files`, `copied_data` and `recreated` are what `snapshot` knows of files.

Other rooms import `acknowledged`, `exit_status`, `histories`, `output_equivalence`, `references`, `snapshot` and
`symptoms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import FINAL
from crashcheck.checker.results import Verdict


class Oracle(Protocol):
    """Judges one run of the check: a verdict does not depend on where it ran, nor on what ran before."""

    name: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be judged, for the report's warnings."""
        ...

    def stages(self, point: int) -> tuple[bytes, ...]:
        """Files of operations that the check must run at a crash point (FIRST, FINAL: uncrashed), one run per file."""
        ...

    def context(self, point: int) -> bytes:
        """What judging a run at a crash point depends on besides the run and its stages; empty if on nothing."""
        ...

    def arrived(self, ended: Ended, names: Mapping[str, str], point: int) -> None:
        """A run has ended and will be judged later: start other runs that this judgement needs."""
        ...

    def judge(self, ended: Ended, names: Mapping[str, str], point: int = FINAL) -> Verdict:
        """`names`: paths of the worker that ran it, and how the output must name them ("{pool}")."""
        ...

    def assume_reopenable(self) -> None:
        """Judge by fewer runs from now on: as if a clean close and reopen changed nothing, until one does."""
        ...

    def is_borne_out(self, point: int) -> bool:
        """Whether runs at a crash point are judged as they would be without that assumption; from then on without it
        if not. To be asked before a finding rests on it."""
        ...
