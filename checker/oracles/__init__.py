"""Oracles: what says whether a crash image is consistent, a file each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from crashcheck.checker.process import Ended
from crashcheck.checker.result import Verdict

FIRST = -1  # instead of a crash point: the image before the workload
FINAL = -2  # the image after it


class Oracle(Protocol):
    """Judges one run of the check; pure, so that a verdict does not depend on where it ran."""

    name: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be judged, for the report's warnings."""
        ...

    def stages(self, point: int) -> tuple[bytes, ...]:
        """Files of operations that the check is to run at a crash point (FIRST, FINAL: uncrashed), a run each."""
        ...

    def judge(self, ended: Ended, names: Mapping[str, str], point: int = FINAL) -> Verdict:
        """`names`: paths of the worker that ran it, and what the output is to call them ("{pool}")."""
        ...
