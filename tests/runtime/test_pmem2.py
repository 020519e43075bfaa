"""libpmem2, whose functions are handed out for a mapping: what they do is recorded, for each granularity."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver import wrapper
from crashcheck.runtime.record import Workload, record
from support.compilers import needs_libpmem2
from support.decode import decode
from support.paths import RUNTIME_PROGRAMS

NT, COPY = 1, 4 | 8
CACHE_LINES = [
    ("STORE", 0, 1, 0), ("FLUSH", 0, 1, 0), ("FENCE", 0, 0, 0),
    ("STORE", 4096, 1, 0), ("FLUSH", 4096, 8, 0), ("FENCE", 0, 0, 0),
    ("STORE", 8192, 16, COPY), ("FLUSH", 8192, 16, 0), ("FENCE", 0, 0, 0),
    ("STORE", 8448, 512, COPY | NT), ("FENCE", 0, 0, 0),
    ("STORE", 12288, 64, COPY),
]  # fmt: skip
PAGES = [
    ("STORE", 0, 1, 0), ("SYNC_BEGIN", 0, 4096, 0),
    ("STORE", 4096, 1, 0), ("SYNC_BEGIN", 4096, 4096, 0),
    ("STORE", 8192, 16, COPY), ("SYNC_BEGIN", 8192, 4096, 0),
    ("STORE", 8448, 512, COPY), ("SYNC_BEGIN", 8192, 4096, 0),
    ("STORE", 12288, 64, COPY),
]  # fmt: skip


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [("BYTE", CACHE_LINES), ("CACHE_LINE", CACHE_LINES), ("PAGE", PAGES)],
    ids=["bytes", "cache lines", "pages"],
)
def test_what_a_mapping_s_functions_flush_fence_copy_and_sync_is_recorded(
    granularity: str, expected: list[tuple[str, int, int, int]], tmp_path: Path
) -> None:
    needs_libpmem2()
    program = tmp_path / "pmem2"
    assert wrapper.run(["-g", str(RUNTIME_PROGRAMS / "pmem2.c"), "-lpmem2", "-o", str(program)], False) == 0
    workload = Workload([str(program), "{pool}"], ["*.db"], {"PMEM2_FORCE_GRANULARITY": granularity}, timeout_s=60)
    trace = decode(record(workload, tmp_path / "w").trace)
    events = trace.of("STORE", "FLUSH", "FENCE", "SYNC_BEGIN")
    assert [(event.kind, event.offset, event.size, event.flags) for event in events] == expected
