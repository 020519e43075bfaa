from __future__ import annotations

from pathlib import Path

import pytest

from support.versions import Project


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    return Project(tmp_path, environment)
