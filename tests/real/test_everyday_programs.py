"""What everyday programs can lose, by `crashcheck try`: the table of docs/system-calls.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

STATES = "300"
NUMBERS = "seq 1 3000 > f"
REPLACE = """
import os, sys
with open("f.tmp", "w") as file:
    file.write("new\\n" * 1000)
    file.flush()
    os.fsync(file.fileno())
os.rename("f.tmp", "f")
if sys.argv[1:]:
    os.fsync(os.open(".", os.O_RDONLY))
print("done", flush=True)
"""
WAL = "sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1)'"
INSERT = ["sqlite3", "db", "insert into t values(2); select 'done'"]
ALL, LOOSE, NONE = {"ext4", "ext4-strict", "posix"}, {"ext4", "posix"}, set[str]()


@pytest.mark.parametrize("model", sorted(ALL))
@pytest.mark.parametrize(
    ("setup", "command", "found"),
    [
        (NUMBERS, ["gzip", "f"], ALL),
        (NUMBERS, ["xz", "f"], ALL),
        (NUMBERS, ["bzip2", "f"], ALL),
        (NUMBERS, ["zstd", "-q", "--rm", "f"], ALL),
        (NUMBERS, ["lz4", "-q", "--rm", "f", "f.lz4"], ALL),
        (NUMBERS, ["sort", "-r", "-o", "f", "f"], ALL),
        (f"{NUMBERS}; seq 9000 12000 > g", ["cp", "g", "f"], ALL),
        (NUMBERS, ["sh", "-c", "seq 5 4000 | tee f >/dev/null"], ALL),
        ("seq 1 3000 > f; tar cf t.tar f; seq 5 4000 > f", ["tar", "xf", "t.tar"], ALL),
        (NUMBERS, ["sed", "-i", "s/1/2/", "f"], LOOSE),
        (NUMBERS, ["perl", "-i", "-pe", "s/1/2/", "f"], LOOSE),
        (NUMBERS, ["gzip", "--synchronous", "f"], NONE),
        (WAL, INSERT, NONE),
        (NUMBERS, ["python3", "-c", REPLACE], ALL),
        (NUMBERS, ["python3", "-c", REPLACE, "sync"], NONE),
    ],
    ids=lambda value: " ".join(value)[:24] if isinstance(value, list) else None,
)
def test_everyday_programs_lose_what_they_are_known_to_lose(
    setup: str, command: list[str], found: set[str], model: str, tmp_path: Path
) -> None:
    for name in {command[0], setup.split()[0]}:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    folder = tmp_path / "folder"
    folder.mkdir()
    subprocess.run(["sh", "-c", setup], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    tried = subprocess.run(
        [sys.executable, "-m", "crashcheck", "try", "--states", STATES, "--model", model, "--", *command],
        cwd=folder,
        env={**os.environ, "CRASHCHECK_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert tried.returncode == (1 if model in found else 0), tried.stdout + tried.stderr
