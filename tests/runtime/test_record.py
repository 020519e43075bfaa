"""Recordings that go well, and each way in which one can be of no use."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.trace.reader import read as read_trace
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.build import RuntimeLibrary
from crashcheck.runtime.record import NthEvent, Workload, record
from crashcheck.runtime.sparse import copy_tree
from crashcheck.runtime.trace_format import Kind
from support import compilers
from support.decode import DISK_FULL, decode
from support.paths import RUNTIME_PROGRAMS


def error(call: Callable[[], object], slug: str) -> str:
    with pytest.raises(CrashcheckError) as caught:
        call()
    assert caught.value.slug == slug
    assert caught.value.hint
    return caught.value.message


def test_a_file_that_no_pattern_matches_is_named(recorded: Callable[..., tuple]) -> None:
    message = error(lambda: recorded("basic", files=["*.pool", "log/*"]), "nothing-persistent")
    assert "a.db: in the pool, but no pattern of [pool] files matches it" in message
    assert "watched: *.pool, log/*" in message


def test_a_private_mapping_is_named(recorded: Callable[..., tuple]) -> None:
    message = error(lambda: recorded("maps", "private", files=["a.*"], first_image=None), "nothing-persistent")
    assert "a.db: mapped with MAP_PRIVATE" in message


def test_a_mapped_file_outside_the_pool_is_named(program: Callable[..., Path], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [str(program("basic")), str(elsewhere)]
    message = error(lambda: record(Workload(command, ["*.db"], timeout_s=60), tmp_path / "work"), "nothing-persistent")
    assert f"{elsewhere / 'a.db'}: mapped for writing, but it is outside the pool folder" in message


@pytest.fixture
def plain(tmp_path: Path) -> Callable[..., Path]:
    def build(*flags: str) -> Path:
        target = tmp_path / "plain"
        source = RUNTIME_PROGRAMS / "plain.c"
        subprocess.run([*compilers.c_compiler(), *flags, str(source), "-o", str(target)], check=True)
        return target

    return build


def test_a_program_built_without_the_wrapper_is_named(plain: Callable[..., Path], tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / "a.db").write_bytes(bytes(4096))
    command = [str(plain()), "{pool}"]
    message = error(
        lambda: record(Workload(command, ["*.db"], first_image=first, timeout_s=60), tmp_path / "work"),
        "not-instrumented",
    )
    assert "a.db: used by a program that was not built with crashcheck-cc" in message


def test_a_static_program_without_the_recorder_leaves_no_trace(plain: Callable[..., Path], tmp_path: Path) -> None:
    compilers.needs_static()
    command = [str(plain("-static")), "{pool}", "a.db", "make"]
    assert "the recorder never ran" in error(
        lambda: record(Workload(command, ["*.db"], timeout_s=60), tmp_path / "work"), "no-trace"
    )


def test_a_command_that_is_not_there_is_a_failed_workload(tmp_path: Path) -> None:
    message = error(lambda: record(Workload(["./no-such-program"], ["*"]), tmp_path / "work"), "workload-failed")
    assert "cannot run ./no-such-program: No such file or directory" in message


@pytest.mark.parametrize("script", ["echo out; echo no >&2; exit 4", "echo no; exit 4"], ids=["stderr", "stdout alone"])
def test_a_command_that_fails_is_quoted(script: str, recorded: Callable[..., tuple], tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", script]
    of_setup = error(lambda: recorded("basic", setup=command), "setup-failed")
    of_workload = error(lambda: record(Workload(command, ["*"]), tmp_path / "work"), "workload-failed")
    for message in (of_setup, of_workload):
        assert "exited with status 4" in message
        assert message.endswith("\nno")


def test_setup_has_a_time_of_its_own(tmp_path: Path) -> None:
    setup = ["sh", "-c", "echo begun; sleep 600"]
    workload = Workload(["true"], ["*"], timeout_s=600, setup=setup, setup_timeout_s=0.5)
    message = error(lambda: record(workload, tmp_path / "work"), "setup-timeout")
    assert message == "the setup command was stopped after 0.5 s: sh -c echo begun; sleep 600\nbegun"


def test_a_folder_with_a_recording_is_not_used_again(program: Callable[..., Path], tmp_path: Path) -> None:
    command = [str(program("basic")), "{pool}"]
    record(Workload(command, ["*.db"], timeout_s=60), tmp_path / "work")
    assert "holds an earlier recording" in error(
        lambda: record(Workload(command, ["*.db"]), tmp_path / "work"), "record-folder"
    )


def test_setup_is_not_recorded_and_its_files_are_the_first_image(recorded: Callable[..., tuple]) -> None:
    setup = ["/bin/sh", "-c", "mkdir '{pool}/log' && printf first > '{pool}/a.db' && printf note > '{pool}/log/notes'"]
    trace, recording = recorded("basic", setup=setup)
    assert (recording.first / "a.db").read_bytes() == b"first"
    assert (recording.first / "log" / "notes").read_bytes() == b"note"
    definition = trace.of("FILE_DEF")[0]
    assert (definition.offset, definition.flags) == (5, 1)
    assert trace.of("CREATE") == []
    assert len({event.pid for event in trace.events}) == 1


def test_the_workload_gets_its_environment_and_an_empty_standard_input(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", 'printf %s "$ANSWER" > "$POOL_HERE/a.db"; cat; printf "%s" "$CRASHCHECK_UNKNOWN"']
    recording = record(
        Workload(command, ["*"], env={"ANSWER": "42", "POOL_HERE": "{pool}"}, timeout_s=60), tmp_path / "w"
    )
    assert (recording.pool / "a.db").read_text() == "42"
    assert recording.stdout.read_bytes() == b""


def test_paths_with_spaces_and_other_letters_work(program: Callable[..., Path], tmp_path: Path) -> None:
    work = tmp_path / "a folder, with ünïcödé 文件"
    recording = record(Workload([str(program("basic")), "{pool}"], ["*.db"], timeout_s=60), work)
    assert decode(recording.trace).files() == {"a.db": 1}
    assert len(decode(recording.trace).of("STORE")) == 2


def test_the_recorder_may_be_kept_in_a_folder_with_a_space(
    program: Callable[..., Path], library: RuntimeLibrary, tmp_path: Path
) -> None:
    home = tmp_path / "my: cache"
    home.mkdir()
    shared = home / "libcrashcheck.so"
    shutil.copy(library.shared, shared)
    moved = dataclasses.replace(library, shared=shared)
    command = ["/bin/sh", "-c", "cat /proc/self/maps > {pool}/maps.db"]
    recording = record(Workload(command, ["*.db"], timeout_s=60), tmp_path / "w", runtime=moved)
    assert f" {shared}\n" in (recording.pool / "maps.db").read_text()


def test_two_runs_of_one_program_are_the_same_trace(recorded: Callable[..., tuple]) -> None:
    one, two = (recorded("maps", "two-mappings")[0] for _ in range(2))
    pids = [[(e.seq, e.kind, e.offset, e.data, e.site, e.stack) for e in trace.events] for trace in (one, two)]
    assert pids[0] == pids[1]


def limited(program: Path, tmp_path: Path, kib: int) -> list[str]:
    """A command that may write files of `kib` KiB only; the trace needs more."""
    return ["/bin/bash", "-c", f"ulimit -f {kib}; exec '{program}' {{pool}} 200000"]


def test_a_full_disk_stops_the_recording_and_not_the_program(program: Callable[..., Path], tmp_path: Path) -> None:
    small = program("inserts", "-DENTRIES=4096")
    message = error(
        lambda: record(Workload(limited(small, tmp_path, 3000), ["*.db"], timeout_s=120), tmp_path / "w"),
        "record-disk-full",
    )
    assert "later events are missing" in message
    trace = decode(tmp_path / "w" / "trace.cct")
    assert trace.status & DISK_FULL
    assert trace.of("STORE")
    assert b"ns" in (tmp_path / "w" / "stderr").read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_file_system_without_room_stops_the_recording(program: Callable[..., Path], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        command = [str(program("inserts", "-DENTRIES=4096")), "{pool}", "100000"]
        error(lambda: record(Workload(command, ["*.db"], timeout_s=120), disk / "w"), "record-disk-full")
        assert decode(disk / "w" / "trace.cct").status & DISK_FULL
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_workload_that_finds_no_room_in_the_pool_is_distinguished_from_one_that_fails(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        command = ["/bin/sh", "-c", "head -c 100000000 /dev/zero > {pool}/a.db"]
        message = error(lambda: record(Workload(command, ["*.db"], timeout_s=120), disk / "w"), "record-disk-full")
        assert "the workload exited with status 1" in message
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_program_of_another_hooks_version_is_refused_and_runs_on(recorded: Callable[..., tuple]) -> None:
    message = error(lambda: recorded("basic", flags=("-DHOOKS_VERSION=77",)), "hooks-version")
    assert "another version than this recorder's" in message


def test_a_snapshot_is_the_files_just_before_its_event(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("calls", "counts")
    store = trace.of("STORE")[5]
    write = trace.of("WRITE")[5]
    assert (store.payload, write.payload) == (6, 6)
    for event, expected in ((store, (5, 5)), (write, (6, 5))):
        again, recording = recorded("calls", "counts", snapshot=event.seq)
        folder = recording.snapshot
        assert sorted(path.name for path in folder.iterdir()) == ["deep.db", "written.db"]
        with open(folder / "deep.db", "rb") as deep:
            mapped = int.from_bytes(deep.read(8), "little")
        assert (mapped, int.from_bytes((folder / "written.db").read_bytes(), "little")) == expected
        assert (folder / "deep.db").stat().st_size == 1 << 30
        assert (folder / "deep.db").stat().st_blocks < 1024
        assert [one.seq for one in again.events] == [one.seq for one in trace.events]
        assert len(again.of("STORE")) == 10


def test_a_snapshot_is_the_files_after_the_nth_event_of_a_site(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("calls", "counts")
    whole = read_trace(recording.trace)
    store = trace.of("STORE")[5]
    stored = whole.events[(whole.events["kind"] == Kind.STORE) & (whole.events["seq"] <= store.seq)]
    site = int(stored["site"][-1])
    unit = whole.unit_of(site)
    nth = int(np.count_nonzero(stored["site"] == site))
    _, again = recorded("calls", "counts", snapshot=NthEvent(unit.key, site - unit.base, nth))
    with open(again.snapshot / "deep.db", "rb") as deep:
        assert int.from_bytes(deep.read(8), "little") == store.payload
    assert int.from_bytes((again.snapshot / "written.db").read_bytes(), "little") == store.payload - 1


def test_copies_keep_holes_links_and_modes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "folder").mkdir(parents=True)
    sparse = source / "folder" / "sparse"
    with open(sparse, "wb") as file:
        file.seek(1 << 30)
        file.write(b"end")
        file.truncate((1 << 30) + 5000)
    sparse.chmod(0o640)
    (source / "link").symlink_to("folder/sparse")
    os.mkfifo(source / "pipe")
    copy_tree(source, target)
    copy = target / "folder" / "sparse"
    assert copy.stat().st_size == (1 << 30) + 5000
    assert copy.stat().st_blocks <= sparse.stat().st_blocks
    assert copy.stat().st_mode & 0o777 == 0o640
    with open(copy, "rb") as file:
        file.seek(1 << 30)
        assert file.read(4) == b"end\0"
    assert os.readlink(target / "link") == "folder/sparse"
    assert not (target / "pipe").exists()


def test_an_interrupted_recording_leaves_no_process(program: Callable[..., Path], tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from crashcheck.runtime.record import Workload, record; "
        "record(Workload([sys.argv[1], '{pool}', 'hangs'], ['*.db']), pathlib.Path(sys.argv[2]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    work = tmp_path / "w"
    runner = subprocess.Popen(
        [sys.executable, "-c", code, str(program("processes")), str(work)], env=environment, stderr=subprocess.DEVNULL
    )
    pid_file = work / "pool" / "main.pid"
    while not (pid_file.exists() and pid_file.read_text()):
        assert runner.poll() is None
    runner.send_signal(2)
    assert runner.wait() != 0
    assert not os.path.exists(f"/proc/{pid_file.read_text()}")
