"""Programs that the checker's tests run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support import compilers
from support.paths import TESTS


def compiled(source: Path, folder: Path, *flags: str) -> Path:
    program = folder / source.stem
    flags = ("-O1", "-Wall", "-Wextra", "-Werror", *flags)
    subprocess.run([*compilers.c_compiler(), *flags, "-o", program, source], check=True)
    return program


@pytest.fixture(scope="session")
def clauses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """clauses.c: a check whose arguments are claims about words of the file."""
    return compiled(TESTS / "checker" / "clauses.c", tmp_path_factory.mktemp("clauses"))


@pytest.fixture(scope="session")
def mapped_clauses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """clauses.c, which maps the file."""
    return compiled(TESTS / "checker" / "clauses.c", tmp_path_factory.mktemp("mapped"), "-DMAPPED")


@pytest.fixture(scope="session")
def vandal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vandal.c: damages an image in the way that its argument names."""
    return compiled(TESTS / "checker" / "images" / "vandal.c", tmp_path_factory.mktemp("vandal"))
