"""Fork, exec, dlopen and sudden death: one trace, with whose event each is."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.reader import read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.build import RuntimeLibrary, find_compiler
from crashcheck.runtime.record import Workload, record
from support.decode import CLEAN_EXIT, decode
from support.paths import RUNTIME_PROGRAMS


def test_a_forked_child_is_a_thread_and_process_of_its_own(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("processes", "fork")
    stores = {event.data: (event.thread, event.pid) for event in trace.of("STORE")}
    parent = stores[b"a"]
    assert parent == stores[b"c"] == stores[b"e"]
    assert parent[1] == trace.main_pid
    assert len({parent, stores[b"b"], stores[b"d"]}) == 3
    assert [event.payload for event in trace.of("FORK")] == [stores[b"b"][1]]
    fork = trace.of("FORK")[0]
    assert all(event.seq > fork.seq for event in trace.events if event.pid == stores[b"b"][1])
    assert [(event.kind, event.aux) for event in trace.of("MARK_BEGIN", "MARK_END")] == [
        ("MARK_BEGIN", 1), ("MARK_BEGIN", 2), ("MARK_END", 2), ("MARK_END", 1),
    ]  # fmt: skip
    assert [event.aux for event in trace.of("EXIT")] == [0, 0, 1]
    assert len(trace.of("UNIT_DEF")) == 1


def test_exec_continues_the_same_trace_with_the_same_file_ids(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("processes", "exec")
    assert [(event.data, event.file, event.offset) for event in trace.of("STORE")] == [
        (b"a", 1, 0), (b"b", 1, 1), (b"c", 2, 0),
    ]  # fmt: skip
    assert trace.files() == {"a.db": 1, "b.db": 2}
    bases = [event.aux for event in trace.of("UNIT_DEF")]
    assert bases == [1, 101]
    assert [event.site for event in trace.of("STORE")] == [2, 103, 104]
    assert len(trace.of("EXEC")) == 1
    assert {event.pid for event in trace.events} == {trace.main_pid}


def test_spawned_and_vforked_programs_record_too(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("processes", "spawn")
    stores = trace.of("STORE")
    assert [event.data for event in stores] == [b"a", b"b", b"c", b"b", b"c", b"z"]
    assert len({event.pid for event in stores}) == 3
    assert trace.status == CLEAN_EXIT


def test_a_process_that_joins_one_in_full_run_shares_its_order(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("processes", "race")
    assert len({event.seq for event in trace.events}) == len(trace.events)
    by_place: dict[int, list[int]] = {}
    for event in trace.of("STORE"):
        by_place.setdefault(event.offset, []).append(event.payload)
    assert by_place[0] == list(range(1, int(recording.stderr.read_text()) + 1))
    assert by_place[4096] == list(range(1, 10001))


@pytest.fixture(scope="module")
def plugin(library: RuntimeLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("plugin folder") / "plugin é.so"
    command = [*find_compiler(), "-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{library.include}"]
    subprocess.run(
        [*command, str(RUNTIME_PROGRAMS / "plugin.c"), "-o", str(target), f"-L{library.shared.parent}", "-lcrashcheck"],
        check=True,
    )
    return target


def test_a_loaded_library_brings_its_own_unit(recorded: Callable[..., tuple], plugin: Path) -> None:
    trace, _ = recorded("processes", "dlopen", str(plugin))
    units = trace.of("UNIT_DEF")
    assert all(unit.data[:8] == (0x1122334455667788).to_bytes(8, "little") for unit in units)
    assert [unit.data[8:].decode() for unit in units[1:]] == [str(plugin)] * 2
    assert [event.data.decode() for event in trace.of("DLOPEN")] == [str(plugin)] * 2 + ["libnowhere-to-be-found.so"]
    assert [event.site for event in trace.of("STORE")] == [2, 104, 204]


def test_kill_nine_leaves_every_event_before_it(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("processes", "killed", must_succeed=False)
    assert recording.end.signal == signal.SIGKILL
    assert [event.payload for event in trace.of("STORE")] == list(range(1, 12346))
    assert trace.status == 0


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}") and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]


def test_no_process_outlives_a_workload(recorded: Callable[..., tuple]) -> None:
    _, recording = recorded("processes", "daemon")
    assert not alive(int((recording.pool / "daemon.pid").read_text()))


def test_a_workload_that_hangs_is_stopped_and_quoted(recorded: Callable[..., tuple], tmp_path: Path) -> None:
    with pytest.raises(CrashcheckError) as caught:
        recorded("processes", "hangs", timeout_s=1.0)
    assert caught.value.slug == "workload-timeout"
    assert "was stopped after 1 s" in caught.value.message
    assert "about to hang" in caught.value.message
    assert not alive(int((tmp_path / "run1" / "pool" / "main.pid").read_text()))


def test_a_workload_that_fails_is_quoted_with_its_status(recorded: Callable[..., tuple]) -> None:
    with pytest.raises(CrashcheckError) as caught:
        recorded("processes", "fails", "3")
    assert caught.value.slug == "workload-failed"
    assert "exited with status 3" in caught.value.message
    assert "this went wrong" in caught.value.message


def test_the_recorder_keeps_no_descriptor_of_its_own(recorded: Callable[..., tuple]) -> None:
    _, recording = recorded("processes", "descriptors", must_update=False)
    assert recording.stdout.read_text() == "1 descriptors\n4\n"


def test_without_a_trace_the_program_runs_as_if_nothing_were_there(
    program: Callable[..., Path], library: RuntimeLibrary, tmp_path: Path
) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(library.shared)}
    done = subprocess.run(
        [str(program("basic")), str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


def test_two_programs_of_one_command_share_the_trace(recorded: Callable[..., tuple], program, tmp_path: Path) -> None:
    line = f"{program('basic')} {{pool}} && echo between && {program('maps')} {{pool}} two-files"
    recording = record(Workload(["/bin/sh", "-c", line], ["*.db"], timeout_s=60), tmp_path / "shared")
    trace = decode(recording.trace)
    assert trace.files() == {"a.db": 1, "b.db": 2}
    assert [event.offset for event in trace.of("OUTPUT")] == [5, 13]


@pytest.mark.parametrize(
    "line",
    [
        "{program} {pool} exec > {pool}/out; true",
        "{program} {pool} exec 2>&1 | cat > {pool}/out; true",
        "true && {program} {pool} exec && {program} {pool} exec again",
        "({program} {pool} exec) > /dev/null; (exit 0)",
    ],
)
def test_a_shell_is_not_the_program(program: Callable[..., Path], tmp_path: Path, line: str) -> None:
    command = ["dash", "-c", line.replace("{program}", str(program("processes")))]
    recording = record(Workload(command, ["*.db"], timeout_s=60), tmp_path / "w")
    trace = decode(recording.trace)
    assert [event.data for event in trace.of("STORE")][:3] == [b"a", b"b", b"c"]
    assert trace.status == CLEAN_EXIT
    assert read(recording.trace).truncated == ""


def test_a_shell_does_not_hide_that_the_program_died(program: Callable[..., Path], tmp_path: Path) -> None:
    command = ["dash", "-c", f"{program('processes')} {{pool}} killed > /dev/null; true"]
    recording = record(Workload(command, ["*.db"], timeout_s=60), tmp_path / "w")
    assert recording.end.exit_code == 0
    assert "killed" in read(recording.trace).truncated
