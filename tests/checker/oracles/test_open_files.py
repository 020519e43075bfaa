"""Files that are not open at a crash point are whole: verdicts are those of an oracle that reads all files."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from checker.oracles.test_snapshot_by_reference import FIRST, Sequence
from crashcheck.checker.images.piecewise import FilePatch
from crashcheck.checker.images.sparse_bytes import SparseBytes
from crashcheck.checker.oracles.copied_data import in_logs
from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import OutputKind
from support.folders import Recorded
from support.tracing import CallsBuilder

STATES = 120  # of a sequence


class AllOpen:
    """As OpenFiles, of which all files are open."""

    def __init__(self, files: frozenset[int]) -> None:
        self._files = files

    def at(self, crash: int) -> frozenset[int]:
        return self._files

    pending = at


class Acknowledged(Sequence):
    """Calls, of which some are acknowledged."""

    def __call__(self, t: CallsBuilder) -> None:
        super().__call__(t)
        t.acknowledge(OutputKind.PIPE, b"done")
        self.rewrite()
        self.append()


@pytest.mark.parametrize("seed", range(30))
def test_verdicts_are_those_of_an_oracle_that_looks_at_all_files(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Recorded(tmp_path, Acknowledged(random.Random(seed)), FIRST, ("ext4", "posix", "ext4-strict")[seed % 3])
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    states = run.states[:: max(1, len(run.states) // STATES)]
    verdicts = [oracle.judge_state(state) for state in states]
    oracle._open = AllOpen(frozenset(run.trace.inodes))  # type: ignore[assignment]
    monkeypatch.setattr(run.content, "touched", lambda state: None)
    monkeypatch.setattr(run.content, "moved", lambda state: None)
    assert verdicts == [oracle.judge_state(state) for state in states]


@pytest.mark.parametrize("seed", range(12))
def test_a_file_whose_last_bytes_are_one_of_its_versions_lacks_none(seed: int, tmp_path: Path) -> None:
    run = Recorded(tmp_path, Acknowledged(random.Random(seed)), FIRST, "ext4")
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    versions, known = oracle._versions, 0
    for point, crash in enumerate(run.space.points.event.tolist()):
        whole = run.space.full(point)
        for inode in oracle._counted_files & set(run.content.paths(whole).values()):
            span = versions.span(inode, crash, None)
            if versions.is_issued(inode, crash, span):
                known += 1
                assert versions.distance(inode, oracle._counts_of(whole, inode), span) == 0
    assert known


def sparse(data: bytes) -> SparseBytes:
    return SparseBytes([FilePatch("f", True, len(data), ((0, data),))])


def test_what_logs_hold_is_found_in_files_with_holes_as_in_their_bytes() -> None:
    choose, found = random.Random(1), []
    for _ in range(60):
        wanted = b"".join(choose.choice([bytes(64), choose.randbytes(64), bytes(4096)]) for _ in range(4))
        log = choose.choice([bytes(5000), b"", bytes(8192)]) + wanted + bytes(choose.choice([0, 9000]))
        held = choose.choice([b"", wanted[:100], bytes(len(wanted))])
        torn = bytearray(log)
        if log.strip(b"\0") and choose.random() < 0.5:
            torn[choose.choice([at for at, byte in enumerate(log) if byte])] ^= 255
        pieces = [(held[at : at + 64], wanted[at : at + 64]) for at in range(0, len(wanted), 64)]
        plain = all(here == there or not any(there) or there in torn for here, there in pieces)
        assert in_logs(sparse(held), sparse(wanted), [sparse(bytes(torn))]) is plain
        found.append(plain)
    assert 10 < np.count_nonzero(found) < 58


def test_of_a_short_file_a_log_is_a_copy() -> None:
    assert in_logs(SparseBytes(), sparse(b"short"), [sparse(b"another"), sparse(b"short")])
    assert not in_logs(SparseBytes(), sparse(b"short"), [sparse(b"a short one")])


def test_a_file_of_a_terabyte_is_looked_for_by_its_data() -> None:
    data, end = bytes(range(1, 129)), 1 << 40
    wanted = SparseBytes([FilePatch("f", True, end, ((end - 128, data),))])
    log = SparseBytes([FilePatch("log", True, end, ((4090, data),))])
    assert in_logs(SparseBytes(), wanted, [log])
    assert not in_logs(SparseBytes(), wanted, [sparse(data[:100])])
