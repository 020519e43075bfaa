"""The four links under src/crashcheck make one importable package of the folders at the top."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WINGS = ("analyzer", "runtime", "checker", "reports")


@pytest.mark.parametrize("wing", WINGS)
def test_the_link_exists_and_is_relative(wing: str) -> None:
    link = ROOT / "src" / "crashcheck" / wing
    assert link.is_symlink()
    assert os.readlink(link) == f"../../{wing}"
    assert link.resolve() == ROOT / wing


@pytest.mark.parametrize("wing", WINGS)
def test_the_wing_is_imported_under_the_name_of_the_package_only(wing: str) -> None:
    module = importlib.import_module(f"crashcheck.{wing}")
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == ROOT / wing / "__init__.py"


def test_every_folder_with_python_code_is_a_package() -> None:
    folders = {file.parent for wing in WINGS for file in (ROOT / wing).rglob("*.py")}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
