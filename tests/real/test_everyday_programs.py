"""What everyday programs can lose, by `crashcheck try`: the table of docs/found.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from real_programs import run_with_check

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
ALL = {"ext4", "ext4-strict", "ext4-writeback", "posix", "xfs", "btrfs"}
LOOSE, NONE = ALL - {"ext4-strict", "xfs"}, set[str]()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the recorder is built once."""
    return {**os.environ, "CRASHCHECK_CACHE": str(tmp_path_factory.mktemp("cache"))}


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
    setup: str, command: list[str], found: set[str], model: str, tmp_path: Path, cache: dict[str, str]
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
        env=cache,
        capture_output=True,
        text=True,
    )
    assert tried.returncode == (1 if model in found else 0), tried.stdout + tried.stderr


def test_two_runs_of_a_program_with_random_names_have_one_report(tmp_path: Path, cache: dict[str, str]) -> None:
    reports = []
    for number in "12":
        folder = tmp_path / number / "folder"
        folder.mkdir(parents=True)
        subprocess.run(["sh", "-c", NUMBERS], cwd=folder, check=True)
        subprocess.run(
            [
                *(sys.executable, "-m", "crashcheck", "try", "--states", STATES, "--format", f"markdown={number}.md"),
                *("--", "sed", "-i", "s/1/2/", "f"),
            ],
            cwd=folder,
            env=cache,
            capture_output=True,
        )
        reports.append((folder / f"{number}.md").read_text().replace(str(tmp_path / number), ""))
    assert "`XXXXXX`" in reports[0]
    assert reports[0] == reports[1]


TRANSACTION = """
n=$(sqlite3 "$1/db" "pragma integrity_check; select count(*) from t") || exit 1
echo "$n"
case $n in ok*1|ok*2) ;; *) exit 2 ;; esac
if grep -q done "$2"; then case $n in ok*2) ;; *) exit 3 ;; esac; fi
"""
FSCK = "cd {pool} && git fsck --no-dangling && git log --oneline"
REPOSITORY = (
    "cd {pool} && git init -q . && git config user.email a@b && git config user.name a"
    " && echo one > f && git add f && git commit -qm one"
)


@pytest.mark.parametrize(
    ("setup", "workload", "check", "kinds"),
    [
        (
            "sqlite3 {pool}/db 'create table t(x); insert into t values(1)'",
            """sqlite3 {pool}/db "insert into t values(2); select 'done'" """,
            f"sh -c '{TRANSACTION}' check {{pool}} {{stdout}}",
            {"unpersisted"},
        ),
        (
            "sqlite3 {pool}/db 'create table t(x); insert into t values(1)'",
            """sqlite3 {pool}/db "pragma synchronous=extra; insert into t values(2); select 'done'" """,
            f"sh -c '{TRANSACTION}' check {{pool}} {{stdout}}",
            NONE,
        ),
        (REPOSITORY, "cd {pool} && echo two > g && git add g && git commit -qm two", FSCK, {"ordering"}),
        (
            REPOSITORY,
            "cd {pool} && echo two > g && git -c core.fsync=all add g && git -c core.fsync=all commit -qm two",
            FSCK,
            NONE,
        ),
    ],
    ids=["sqlite3", "sqlite3-extra", "git", "git-fsync"],
)
def test_programs_with_a_check_lose_what_they_are_known_to_lose_on_ext4(
    setup: str, workload: str, check: str, kinds: set[str], tmp_path: Path
) -> None:
    for name in ("sqlite3", "git"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")

    report = run_with_check(tmp_path, setup, workload, check, "ext4", int(STATES))
    found = {finding["kind"] for finding in report["findings"]}
    assert (found & kinds, bool(found)) == (kinds, bool(kinds)), report
