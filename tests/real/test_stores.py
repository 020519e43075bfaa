"""Stores of other people under crashes of the file system, each with a check of its own (docs/system-calls.md)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from real_programs import run_with_check

pytestmark = pytest.mark.slow

CALLS = Path(__file__).resolve().parent / "calls"
STATES = 150
NONE: set[str] = set()
REPLACED = """x=$(cat {pool}/f); [ "$x" = new ] || { [ "$x" = old ] && ! grep -q done {stdout}; }"""
OLD = "printf old > {pool}/f"
NODE = "cd {pool} && node -e "
CALLS_OF_NODE = (
    "const fs=require('fs'); const d=fs.openSync('t','w'); fs.writeSync(d,'new'); fs.fsyncSync(d); fs.closeSync(d);"
    " fs.renameSync('t','f'); fs.fsyncSync(fs.openSync('.')); console.log('done')"
)
PROMISES_OF_NODE = (
    "const fs=require('fs/promises'); (async()=>{const d=await fs.open('t','w'); await d.writeFile('new');"
    " await d.sync(); await d.close(); await fs.rename('t','f'); const p=await fs.open('.');"
    " await p.sync(); console.log('done')})()"
)
GDBM = (
    "gdbmtool -n {pool}/db store k0 v0",
    "for i in 1 2 3 4 5; do gdbmtool {pool}/db store k$i v$i && echo k$i || exit 1; done",
    "for k in $(cat {stdout}); do gdbmtool -r {pool}/db fetch $k || exit 1; done; gdbmtool -r {pool}/db count",
)


def built(name: str, *libraries: str) -> str:
    """The program of tests/real/calls, or a skip where its library is not installed."""
    target = Path(name).stem
    compiler = "g++" if name.endswith(".cc") else "gcc"
    return f"{compiler} -O1 {CALLS / name} -o {{programs}}/{target} {' '.join(f'-l{library}' for library in libraries)}"


def found(tmp_path: Path, setup: str, workload: str, check: str, model: str) -> list[str]:
    """The messages of the findings."""
    report = run_with_check(tmp_path, setup, workload, check, model, STATES)
    assert not report["run"]["states"]["flaky"]
    return [finding["message"] for finding in report["findings"]]


@pytest.mark.parametrize(
    ("setup", "workload", "check", "model", "expected"),
    [
        (OLD, f'{NODE}"{CALLS_OF_NODE}"', REPLACED, "ext4", NONE),
        (OLD, f'{NODE}"{PROMISES_OF_NODE}"', REPLACED, "ext4", NONE),
        (
            OLD,
            f"""{NODE}"require('fs').writeFileSync('f','new')" """,
            REPLACED,
            "ext4",
            {"a crash between the size 0 of f and the size 3 of f leaves a state that the check rejects"},
        ),
        (*GDBM, "ext4", NONE),
        (*GDBM, "posix", NONE),
    ],
    ids=["node", "node-promises", "node-write", "gdbm", "gdbm-posix"],
)
def test_programs_lose_what_they_are_known_to_lose(
    setup: str, workload: str, check: str, model: str, expected: set[str], tmp_path: Path
) -> None:
    if shutil.which("node" if "node" in workload else "gdbmtool") is None:
        pytest.skip("the program is not installed")
    assert set(found(tmp_path, setup, workload, check, model)) == expected


NEW_LMDB = "data.mdb can survive a crash without"
LOST_NAME = "the directory db can be lost after later output was printed"


@pytest.mark.parametrize(
    ("source", "libraries", "before", "model", "expected"),
    [
        ("leveldb.cc", ["leveldb"], 0, "ext4", ""),
        ("leveldb.cc", ["leveldb"], 0, "posix", LOST_NAME),
        ("lmdb.c", ["lmdb"], 0, "ext4", NEW_LMDB),
        ("lmdb.c", ["lmdb"], 3, "ext4", ""),
        ("lmdb.c", ["lmdb"], 3, "posix", ""),
        ("xapian.cc", ["xapian"], 3, "ext4", "the rename of db/v.tmp to db/iamglass can be lost"),
    ],
)
def test_libraries_lose_what_they_are_known_to_lose(
    source: str, libraries: list[str], before: int, model: str, expected: str, tmp_path: Path
) -> None:
    build = built(source, *libraries).format(programs=tmp_path)
    if subprocess.run(build, shell=True, capture_output=True).returncode != 0:
        pytest.skip(f"{libraries[0]} is not installed")
    program = tmp_path / Path(source).stem
    setup = f"{program} {{pool}} put {before}" if before else "true"
    messages = found(tmp_path, setup, f"{program} {{pool}} put 10", f"{program} {{pool}} get {{stdout}}", model)
    assert any(expected in message for message in messages) if expected else messages == []


def test_redis_refuses_a_log_that_ends_in_zeros(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis is not installed")
    script = CALLS / "redis.sh"
    messages = found(tmp_path, "true", f"{script} put {{pool}}", f"{script} get {{pool}} {{stdout}}", "ext4")
    assert messages
    assert all("appendonly.aof.1.incr.aof" in message and "reads zeros there" in message for message in messages)
