"""Programs that the checker's tests run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parent
sys.path.append(str(SOURCES.parent))  # for tests/support


def compiled(name: str, folder: Path) -> Path:
    program = folder / name
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCES / f"{name}.c"], check=True)
    return program


@pytest.fixture(scope="session")
def clauses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """clauses.c: a check whose arguments are claims about words of the file."""
    return compiled("clauses", tmp_path_factory.mktemp("clauses"))


@pytest.fixture(scope="session")
def vandal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vandal.c: does to an image what its argument says."""
    return compiled("vandal", tmp_path_factory.mktemp("vandal"))
