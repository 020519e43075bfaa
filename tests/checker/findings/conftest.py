"""Worlds whose check makes claims about words of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.checked_worlds import MakeWorld, World, words
from support.tracing import TraceBuilder


@pytest.fixture
def world(tmp_path: Path, clauses: Path) -> MakeWorld:
    def make(script: Callable[[TraceBuilder], None], *claims: str, name: str = "world", **more: object) -> World:
        check = words([str(clauses), "{pool}/p", "{acked}", *claims])
        return World(tmp_path / name, check, script, **more)  # type: ignore[arg-type]

    return make
