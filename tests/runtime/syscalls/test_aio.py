"""What io_submit does is recorded: a write is issued when it is submitted, and ends when the kernel reports it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.persistence.sync_intervals import write_ends
from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.reader import Trace, read
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.trace_format import Kind, SyncKind, WriteFlag
from support import compilers
from support.paths import RUNTIME_PROGRAMS

Part = Callable[[str], tuple[Trace, Recording]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("aio") / "aio"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(
        [*compilers.c_compiler(), *flags, str(RUNTIME_PROGRAMS / "aio_calls.c"), "-o", str(target)], check=True
    )
    return str(target)


@pytest.fixture
def part(tmp_path: Path, program: str) -> Part:
    """Records one part of programs/aio_calls.c, of which every change must be in the trace."""

    def run(name: str) -> tuple[Trace, Recording]:
        workload = Workload([program, "{pool}", name], ["*"], timeout_s=60.0, recorder="syscalls")
        recording = record(workload, tmp_path / "run")
        trace = read(recording.trace)
        assert replay.check(trace, recording.first, recording.pool).whole
        assert not (trace.events["kind"] == Kind.UNMODELLED).any()
        return trace, recording

    return run


def shown(trace: Trace) -> list[str]:
    """Writes, syncs and outputs in order."""
    out = []
    kinds = (Kind.WRITE, Kind.WRITE_END, Kind.SYNC_BEGIN, Kind.SYNC_END, Kind.OUTPUT)
    for index in np.flatnonzero(np.isin(trace.events["kind"], np.array(kinds, dtype=np.uint8))).tolist():
        event = trace.events[index]
        kind, file = Kind(int(event["kind"])), int(event["file"])
        path = trace.inodes[file].paths[0] if file else ""
        if kind == Kind.WRITE:
            out.append(f"{path} {int(event['offset'])} {trace.data(index).decode('latin-1')}")
        elif kind in (Kind.SYNC_BEGIN, Kind.SYNC_END):
            out.append(f"{kind.name} {SyncKind(int(event['aux'])).name} {path}")
        else:
            out.append(f"{kind.name} {path}".strip())
    return out


def test_writes_vectors_appends_and_syncs_are_in_the_order_in_which_they_were_submitted(part: Part) -> None:
    trace, _ = part("writes")
    assert shown(trace) == [
        "a 0 one",
        "a 8 two parts",
        "b 0 first ",
        "b 6 second",
        "SYNC_BEGIN FDATASYNC a",
        "SYNC_END FDATASYNC a",
        "a 32 synced",
        "SYNC_BEGIN ODSYNC a",
        "SYNC_END ODSYNC a",
        "SYNC_BEGIN FSYNC a",
        "SYNC_END FSYNC a",
        "OUTPUT",
    ]


def test_a_sync_ends_before_what_the_program_does_once_it_has_read_the_ring_itself(part: Part) -> None:
    trace, _ = part("ring")
    syncs = [word for word in shown(trace) if word.startswith("SYNC")]
    assert syncs == ["SYNC_BEGIN FDATASYNC a", "SYNC_END FDATASYNC a"] * 150
    assert shown(trace)[-2:] == ["SYNC_END FDATASYNC a", "OUTPUT"]


def test_only_what_the_kernel_accepted_is_a_write(part: Part) -> None:
    trace, recording = part("partly")
    assert shown(trace) == ["a 0 yes"]
    assert (recording.pool / "a").read_bytes() == b"yes"


def test_direct_writes_end_before_the_sync_that_the_program_submits_once_they_have(part: Part) -> None:
    trace, _ = part("direct")
    events = trace.events
    direct = np.flatnonzero((events["kind"] == Kind.WRITE) & (events["flags"] & WriteFlag.DIRECT != 0))
    assert len(direct) == 4
    begins = np.flatnonzero((events["kind"] == Kind.SYNC_BEGIN) & (events["aux"] == SyncKind.FDATASYNC))
    pending = np.flatnonzero((events["kind"] == Kind.WRITE) & (events["flags"] & WriteFlag.PENDING != 0))
    assert set(write_ends(trace)) == set(pending.tolist())
    assert all(end < begins[-1] for end in write_ends(trace).values())


def test_writes_of_one_thread_are_recorded_while_another_one_syncs(part: Part) -> None:
    trace, _ = part("beside")
    assert [word for word in shown(trace) if word.startswith("a ")] == [f"a {at} x" for at in range(500)]


def test_a_sync_whose_result_nobody_can_read_promises_nothing(part: Part) -> None:
    trace, _ = part("abandons")
    assert [word for word in shown(trace) if not word.startswith("SYNC_END")] == ["a 0 x", "SYNC_BEGIN FSYNC a"]
