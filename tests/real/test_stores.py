"""Stores of other people under crashes of the file system, each with a check of its own (docs/found.md)."""

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
# gdbmtool ends with 0 whatever it misses: what it prints decides.
GDBM = (
    "for i in 1 2 3 4 5; do gdbmtool {pool}/db store k$i v && echo k$i || exit 1; done",
    'for k in $(cat {stdout}); do [ "$(gdbmtool -r {pool}/db fetch $k)" = v ] || exit 1; done',
)
OLD_GDBM = "gdbmtool -n {pool}/db store k0 v"


def built(name: str, *libraries: str) -> str:
    """The program of tests/real/calls, or a skip where its library is not installed."""
    target = Path(name).stem
    compiler = "g++" if name.endswith(".cc") else "gcc"
    return f"{compiler} -O1 {CALLS / name} -o {{programs}}/{target} {' '.join(f'-l{library}' for library in libraries)}"


LOST = "can be lost in a crash although"


def found(tmp_path: Path, setup: str, workload: str, check: str, model: str, whole: bool = False) -> list[str]:
    """The messages of the findings, of all crash states if `whole`."""
    report = run_with_check(tmp_path, setup, workload, check, model, STATES)
    assert not report["run"]["states"]["flaky"]
    assert not whole or report["run"]["stop_reason"] == "exhausted"
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
            {"`f` can be empty after a crash: it is emptied before it is written"},
        ),
        (OLD_GDBM, *GDBM, "ext4", NONE),
        (OLD_GDBM, *GDBM, "posix", NONE),
        ("true", *GDBM, "ext4", NONE),
        ("true", *GDBM, "posix", {f"the new file `db` {LOST}"}),
    ],
    ids=["node", "node-promises", "node-write", "gdbm", "gdbm-posix", "new-gdbm", "new-gdbm-posix"],
)
def test_programs_lose_what_they_are_known_to_lose(
    setup: str, workload: str, check: str, model: str, expected: set[str], tmp_path: Path
) -> None:
    if shutil.which("node" if "node" in workload else "gdbmtool") is None:
        pytest.skip("the program is not installed")
    messages = found(tmp_path, setup, workload, check, model)
    assert {next((known for known in expected if one.startswith(known)), one) for one in messages} == expected


NEW_LMDB = "`data.mdb` can have its new size after a crash without its new bytes, which read as zeros"
LOST_LMDB = f"the new file `data.mdb` {LOST}"
LOST_NAME = f"the new directory `db` {LOST}"
OLD_MANIFEST = "`db/CURRENT` can be the old one after a crash while `db/MANIFEST-000002` is gone"


def put(
    tmp_path: Path,
    source: str,
    library: str,
    before: int,
    model: str,
    puts: str = "10",
    get: str = "get",
    whole: bool = False,
) -> list[str]:
    """What is found in a program of tests/real/calls that stores, into a store with so many entries before."""
    build = built(source, library).format(programs=tmp_path)
    if subprocess.run(build, shell=True, capture_output=True).returncode != 0:
        pytest.skip(f"{library} is not installed")
    program = tmp_path / Path(source).stem
    setup = f"{program} {{pool}} put {before}" if before else "true"
    return found(
        tmp_path, setup, f"{program} {{pool}} put {puts}", f"{program} {{pool}} {get} {{stdout}}", model, whole
    )


@pytest.mark.parametrize(
    ("source", "library", "before", "model", "expected"),
    [
        ("leveldb.cc", "leveldb", 0, "ext4", ""),
        ("leveldb.cc", "leveldb", 0, "posix", LOST_NAME),
        ("leveldb.cc", "leveldb", 3, "ext4", ""),
        ("leveldb.cc", "leveldb", 3, "posix", OLD_MANIFEST),  # its issue 195
        ("lmdb.c", "lmdb", 0, "ext4", NEW_LMDB),
        ("lmdb.c", "lmdb", 0, "posix", LOST_LMDB),
        ("lmdb.c", "lmdb", 3, "ext4", ""),
        ("lmdb.c", "lmdb", 3, "posix", ""),
        ("xapian.cc", "xapian", 3, "ext4", "the rename of db/v.tmp to db/iamglass can be lost"),
    ],
)
def test_libraries_lose_what_they_are_known_to_lose(
    source: str, library: str, before: int, model: str, expected: str, tmp_path: Path
) -> None:
    messages = put(tmp_path, source, library, before, model)
    assert any(expected in message for message in messages) if expected else messages == []


@pytest.mark.parametrize("model", ["ext4", "ext4-writeback"])
def test_leveldb_syncs_a_new_manifest_before_current_names_it(model: str, tmp_path: Path) -> None:
    # Its issue 189, which 1.20 still has. Every state is judged.
    assert put(tmp_path, "leveldb.cc", "leveldb", 0, model, puts="1", whole=True) == []


@pytest.mark.parametrize("model", ["ext4", "ext4-strict", "posix"])
def test_repairing_a_leveldb_restores_a_value_whose_bytes_are_zeros(model: str, tmp_path: Path) -> None:
    # Its issue 251: RepairDB reads logs without their checksums.
    messages = put(tmp_path, "leveldb.cc", "leveldb", 1, model, puts="2 10000", get="repair")
    assert any("`db/000006.log`" in message for message in messages), messages


@pytest.mark.parametrize(("get", "model"), [("get", "ext4"), ("repair", "xfs")])
def test_opening_a_leveldb_drops_such_a_value_and_a_size_with_its_data_leaves_none(
    get: str, model: str, tmp_path: Path
) -> None:
    assert put(tmp_path, "leveldb.cc", "leveldb", 1, model, puts="2 10000", get=get) == []


def redis(tmp_path: Path, check: str, model: str, whole: bool = False) -> list[str]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis is not installed")
    script = CALLS / "redis.sh"
    return found(tmp_path, "true", f"{script} put {{pool}}", f"{script} {check} {{pool}} {{stdout}}", model, whole)


def test_redis_refuses_a_log_that_ends_in_zeros(tmp_path: Path) -> None:
    messages = redis(tmp_path, "get", "ext4")
    assert messages
    assert all("appendonly.aof.1.incr.aof" in message and "which read as zeros" in message for message in messages)


def test_redis_keeps_all_that_it_acknowledged_once_its_log_is_cut_off_where_it_is_damaged(tmp_path: Path) -> None:
    assert redis(tmp_path, "fix", "ext4", whole=True) == []


def test_redis_does_not_sync_the_folder_that_holds_its_log(tmp_path: Path) -> None:
    assert f"the new directory `appendonlydir` {LOST}" in "".join(redis(tmp_path, "fix", "posix"))
