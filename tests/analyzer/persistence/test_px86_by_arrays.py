"""px86 decides lines with ordinary stores by arrays: it must be what a pass over the events decides."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from crashcheck.analyzer.persistence import build, px86
from crashcheck.runtime.trace_format import FlushKind, StoreFlag, SyncKind
from support.tracing import TraceBuilder

BYTES = 8 * 64


def random_events(t: TraceBuilder, seed: int) -> None:
    random = Random(seed)
    for name in ("a", "b"):
        t.file(name, BYTES)
    for _ in range(60):
        name, at = random.choice("ab"), random.randrange(BYTES - 80)
        t.current_thread = random.choice((1, 1, 2))
        match random.choice(("store", "store", "store", "nt", "write", "flush", "flush", "fence", "fence", "sync")):
            case "store":
                t.store(name, at, size := random.choice((1, 8, 80)), random.randbytes(size))
            case "nt" if seed % 2:
                t.store(name, at, 8, random.randbytes(8), StoreFlag.NT)
            case "write" if seed % 2:
                t.write(name, at, random.randbytes(8))
            case "flush":
                t.flush(random.choice(list(FlushKind)), name, at, random.choice((1, 64, 300)))
            case "fence":
                t.fence()
            case "sync":
                kind = random.choice((SyncKind.MSYNC, SyncKind.FSYNC, SyncKind.SYNC))
                begin = t.sync_begin(kind, None if kind is SyncKind.SYNC else name, 0, 0)
                t.store(name, at, 8, random.randbytes(8))
                t.sync_end(begin, failed=random.random() < 0.2)


@pytest.mark.parametrize("seed", range(40))
def test_lines_become_durable_when_a_pass_over_the_events_finds_them_durable(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = TraceBuilder(tmp_path / "trace.cct")
    random_events(t, seed)
    trace = t.trace()
    by_arrays = build(trace, "px86").durable_from.tolist()
    monkeypatch.setattr(px86, "_MOST_COVERS", -1)  # so that nothing is decided by arrays
    assert by_arrays == build(trace, "px86").durable_from.tolist()
