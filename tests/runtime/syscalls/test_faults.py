"""Injected faults: the chosen call fails and does nothing, whatever the program is, and the trace holds it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.trace import calls, dump, replay
from crashcheck.analyzer.trace.reader import Trace, read
from crashcheck.config.faults import CALLS, Fault
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.trace_format import NAME_KINDS, Kind
from support import compilers
from support.paths import RUNTIME_PROGRAMS

SOURCE = RUNTIME_PROGRAMS / "failing_calls.c"

Failing = Callable[..., tuple[Trace, Recording, list[str]]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("faults") / "calls"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compilers.c_compiler(), *flags, str(SOURCE), "-o", str(target)], check=True)
    return str(target)


@pytest.fixture
def failing(tmp_path: Path, program: str) -> Failing:
    """Records programs/failing_calls.c with faults: the trace, the recording, and what it printed."""

    def run(*faults: Fault) -> tuple[Trace, Recording, list[str]]:
        first = tmp_path / "first"
        (first / "there").mkdir(parents=True)
        workload = Workload(
            [program, "{pool}"], ["*"], timeout_s=60.0, first_image=first, recorder="syscalls", faults=faults
        )
        recording = record(workload, tmp_path / "run")
        trace = read(recording.trace)
        assert replay.check(trace, recording.first, recording.pool).whole
        return trace, recording, recording.stdout.read_text().splitlines()

    return run


def test_every_call_can_fail_and_then_does_nothing(failing: Failing) -> None:
    opened = {"open": 3, "unlink": 1}  # the program's first opens make its files
    trace, recording, printed = failing(*(Fault(call, "ENOSPC", nth=opened.get(call, 1), times=0) for call in CALLS))
    assert printed == [f"{line.split()[0]} ENOSPC" for line in printed]
    assert {line.split()[0] for line in printed} == set(CALLS)
    assert recording.end.exit_code == 3
    found = list(calls.injected_faults(trace))
    assert [(fault.call, fault.error) for fault in found] == [(line.split()[0], "ENOSPC") for line in printed]
    assert {fault.call: fault.path for fault in found} == {
        **dict.fromkeys(CALLS, "a"),
        "msync": "b",
        "syncfs": "",
        "open": "c",
        "mkdir": "d",
        "rmdir": "there",
        "symlink": "s",
        "fsync": ".",
    }
    named = [event.name for event in calls.name_events(trace)]
    assert named == ["a", "b"]
    assert not np.isin(trace.events["kind"], np.array([Kind.WRITE, Kind.TRUNCATE, *NAME_KINDS[1:]])).any()


def test_the_chosen_number_of_calls_fails_from_the_nth_on_a_matching_file(failing: Failing) -> None:
    trace, _, printed = failing(Fault("fsync", nth=2), Fault("rename", "EROFS", "r"))
    assert [line for line in printed if not line.endswith(" done")] == ["rename EROFS", "fsync EIO"]
    assert [fault.path for fault in calls.injected_faults(trace)] == ["r", "."]


def test_a_sync_that_was_made_to_fail_is_recorded_as_failed(failing: Failing) -> None:
    trace, _, _ = failing(Fault("fdatasync", file="[a-c]"))
    ends = trace.events[trace.events["kind"] == Kind.SYNC_END]
    assert ends["flags"].tolist() == [0, 1, 0, 0, 0, 0]
    assert [line.split(" T1 ")[1].split(" @")[0] for line in dump.lines(trace) if " fault " in line] == [
        "fault inode-3+0x1,11 aux=5 = fdatasync<00>a"
    ]


def test_a_fault_that_no_call_meets_is_an_error(failing: Failing) -> None:
    with pytest.raises(CrashcheckError) as caught:
        failing(Fault("fsync", nth=3), Fault("write", file="*.db"))
    assert caught.value.slug == "workload-failed"  # it exits with 3 although no fault was injected


def test_a_fault_that_no_call_meets_is_named_with_the_calls_that_there_were(tmp_path: Path) -> None:
    for fault, counted in (
        (Fault("open", nth=3), "1 open call in"),
        (Fault("write", file="*.db"), "no write calls on"),
    ):
        workload = Workload(["sh", "-c", "echo > {pool}/a"], ["*"], recorder="syscalls", faults=(fault,))
        with pytest.raises(CrashcheckError) as caught:
            record(workload, tmp_path / fault.call)
        assert caught.value.slug == "fault-not-met"
        assert counted in caught.value.message
