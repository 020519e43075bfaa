"""`crashcheck try` by an ordinary user, where the tests are run by root: the folder is that of the plain command."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from crashcheck.runtime.build import build_runtime
from support.command_line import SOURCES
from support.tried_commands import COMMANDS, CRASHCHECK, is_installed, left_by, trying

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can become another user"
)

USER = 54321  # nobody else has files of this one
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
QUICK = ("ln -s $PWD", "sed -i s", "mv config notes", "install -m 751")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder of the user, unlike those of pytest, which others cannot enter."""
    folder = Path(tempfile.mkdtemp(prefix="crashcheck-user-"))
    os.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def environment(home: Path) -> Mapping[str, str]:
    built = build_runtime().include.parent  # in a folder that others may not enter
    cache = home / "cache"
    shutil.copytree(built, cache / built.name)
    os.chown(cache, USER, USER)
    out = {**os.environ, "HOME": str(home), "CRASHCHECK_CACHE": str(cache), "PYTHONPATH": str(SOURCES)}
    if subprocess.run([*AS_USER, *CRASHCHECK, "--help"], env=out, cwd=home, capture_output=True).returncode != 0:
        pytest.skip("others cannot read this checkout or its interpreter")
    return out


@pytest.mark.parametrize(
    "command", [pytest.param(text, marks=() if text.startswith(QUICK) else pytest.mark.slow) for text in COMMANDS]
)
def test_the_folder_is_that_of_the_plain_command(command: str, home: Path, environment: Mapping[str, str]) -> None:
    if not is_installed(command):
        pytest.skip("not installed")
    plain, alone = left_by(["sh", "-c", command], home / "f", "typed\n", AS_USER, environment)
    tried, done = left_by(trying(command), home / "f", "typed\n", AS_USER, environment)
    assert tried == plain
    assert {owner for _, owner, *_ in tried.values()} == {USER}
    assert "Traceback" not in done.stderr
    assert "feasible" in done.stderr or "[nothing-persistent]" in done.stderr
    assert done.stdout == alone.stdout
