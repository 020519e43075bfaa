"""Packages of PyPI, tested by the fixture `crashes` in a test run of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PINNED = (
    *("bplustree==0.0.3", "larzdb==0.1.0", "leanqueue==0.1.0", "lxcore==0.2.0", "pysos==1.3.0", "semidbm==0.5.1"),
    *("yedb==0.2.25", "portalocker==4.4.2", "cachetools==8.0.2", "rwlock==0.0.7"),
    *("msgpack==1.2.4", "orjson==3.13.0"),
)
STORES = Path(__file__).parent / "packages" / "stores.py"


@pytest.fixture(name="installed", scope="module")
def installed_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages") / "lib" / "python3" / "site-packages"
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", folder, *PINNED]
    subprocess.run(command, check=True)
    return folder


def test_bugs_of_packages_are_found_and_not_in_edited_copies(installed: Path, tmp_path: Path) -> None:
    shutil.copy(STORES, tmp_path / "test_stores.py")
    paths = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_stores.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
