"""Lets these tests import the helpers of the others, and makes the check that they share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))


@pytest.fixture(scope="session")
def clauses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/checker/clauses.c: a check whose arguments are claims about words of the file."""
    program = tmp_path_factory.mktemp("clauses") / "clauses"
    source = TESTS / "checker" / "clauses.c"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program
