"""LevelDB is built by CMake with the wrapper, and behaves as its own test expects."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import real_programs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("tools", [real_programs.plain, real_programs.crashcheck], ids=["plain", "crashcheck"])
def test_leveldbs_own_test_of_its_c_interface_passes(tools: object, tmp_path: Path) -> None:
    # db/c_test.c needs no test framework; it opens, writes, iterates, snapshots, repairs, compacts and filters.
    assert callable(tools)
    compilers = tools()
    tree = real_programs.build("leveldb", compilers)
    objects = [compilers.cc, "-c", "-Iinclude", "-O2", "db/c_test.c", "-o", str(tmp_path / "c_test.o")]
    subprocess.run(objects, cwd=tree, check=True)
    linking = [
        compilers.cxx,
        str(tmp_path / "c_test.o"),
        "out/libleveldb.a",
        "-pthread",
        "-o",
        str(tmp_path / "c_test"),
    ]
    subprocess.run(linking, cwd=tree, check=True)
    result = subprocess.run(
        [tmp_path / "c_test"], env={"TEST_TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.splitlines()[-1] == "PASS"
