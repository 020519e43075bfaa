"""Oracles: what says whether a crash image is consistent, a file each."""

from __future__ import annotations

from typing import Protocol

from crashcheck.checker.process import Ended
from crashcheck.checker.result import Verdict


class Oracle(Protocol):
    """Judges one run of the check; pure, so that a verdict does not depend on where it ran."""

    name: str

    def judge(self, ended: Ended, pool: str) -> Verdict:
        """`pool`: the image folder's path, written as {pool} wherever the output names it."""
        ...
