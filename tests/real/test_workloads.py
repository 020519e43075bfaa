"""The workloads and checks themselves, built with ordinary compilers: what crashcheck receives is right."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MODES = [
    *(("lmdb", mode, "data.mdb") for mode in ("default", "nometasync", "nosync")),
    *(("lmdb", f"writemap{mode}", "data.mdb") for mode in ("", "-nometasync", "-mapasync", "-nosync")),
    *(("tkrzw", mode, "data.tkh") for mode in ("hard", "hard-many-pages", "soft")),
    *(("kyotocabinet", mode, "data.kch") for mode in ("hard", "soft")),
]

LaidOut = Callable[[str, str, str], Path]


def _pool(folder: Path, pool: Path, mode: str, transactions: int) -> Path:
    pool.mkdir()
    for count in (0, transactions):
        subprocess.run([folder / "workload", mode, pool, str(count)], check=True, timeout=120)
    return pool


def _check(folder: Path, pool: Path, acked: int, promise: str) -> int:
    return subprocess.run([folder / "check", pool, str(acked), promise], timeout=60, capture_output=True).returncode


@pytest.mark.parametrize("transactions", [0, 1, 8, 20, 61, 200])
@pytest.mark.parametrize(("program", "mode", "_data"), MODES)
def test_the_check_accepts_what_a_whole_run_leaves(
    laid_out: LaidOut, tmp_path: Path, program: str, mode: str, _data: str, transactions: int
) -> None:
    folder = laid_out(program, "plain", "plain")
    assert _check(folder, _pool(folder, tmp_path / "pool", mode, transactions), transactions, "durable") == 0


@pytest.mark.parametrize(
    ("acked", "promise", "exit_code"),
    [
        (30, "durable", 0),
        (29, "durable", 0),  # the next transaction was under way
        (28, "durable", 1),  # the one after it had not begun
        (31, "durable", 1),
        (31, "all-but-last", 0),
        (32, "all-but-last", 1),
        (200, "consistent", 0),
        (28, "consistent", 1),
    ],
)
@pytest.mark.parametrize(("program", "mode"), [("lmdb", "default"), ("tkrzw", "hard"), ("kyotocabinet", "hard")])
def test_the_check_counts_transactions_against_what_was_acknowledged(
    laid_out: LaidOut, tmp_path: Path, program: str, mode: str, acked: int, promise: str, exit_code: int
) -> None:
    folder = laid_out(program, "plain", "plain")
    assert _check(folder, _pool(folder, tmp_path / "pool", mode, 30), acked, promise) == exit_code


@pytest.mark.parametrize(("program", "mode", "data"), [(p, m, d) for p, m, d in MODES if m in ("default", "hard")])
def test_the_check_rejects_a_byte_changed_in_a_value(
    laid_out: LaidOut, tmp_path: Path, program: str, mode: str, data: str
) -> None:
    folder = laid_out(program, "plain", "plain")
    pool = _pool(folder, tmp_path / "pool", mode, 30)
    other = tmp_path / "other"
    shutil.copytree(pool, other)
    content = bytearray((other / data).read_bytes())
    at = content.rindex(b"log/000030")
    content[at + len("log/000030") + 12] ^= 1
    (other / data).write_bytes(content)
    assert _check(folder, pool, 30, "durable") == 0
    assert _check(folder, other, 30, "durable") == 1
