"""Oracles: what says whether a crash image is consistent, a file each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from crashcheck.checker.process import Ended
from crashcheck.checker.result import Verdict


class Oracle(Protocol):
    """Judges one run of the check; pure, so that a verdict does not depend on where it ran."""

    name: str

    def judge(self, ended: Ended, names: Mapping[str, str]) -> Verdict:
        """`names`: paths of the worker that ran it, and what the output is to call them ("{pool}")."""
        ...
