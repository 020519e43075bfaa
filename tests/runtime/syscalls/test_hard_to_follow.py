"""What hides a change of files from a recorder: it is followed, or named where it may have changed something."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.reader import Trace, read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.trace_format import Kind
from crashcheck.runtime.validate import read_notes
from support import compilers
from support.paths import RUNTIME_PROGRAMS

FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("hard") / "hard"
    source = RUNTIME_PROGRAMS / "hard_to_follow.c"
    subprocess.run([*compilers.c_compiler(), *FLAGS, str(source), "-o", str(target), "-lpthread"], check=True)
    return str(target)


def recorded(folder: Path, *command: str, **options: object) -> tuple[Trace, Recording]:
    workload = Workload(command, ["*"], timeout_s=60.0, recorder="syscalls", **options)  # type: ignore[arg-type]
    recording = record(workload, folder)
    return read(recording.trace), recording


def named(trace: Trace) -> list[str]:
    return [trace.data(int(at)).decode() for at in np.flatnonzero(trace.events["kind"] == Kind.UNMODELLED)]


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.mark.parametrize(
    ("part", "files"),
    [
        ("untraced", {"a": b"clone", "b": b"clone3"}),
        ("first-thread-ends", {"a": b"alone"}),
        ("own-descriptors", {"a": b"theirs", "b": b"mine"}),
        ("other-descriptors", {"a": b"by proc"}),
        ("passed-inside", {"a": b"child"}),
        ("unknown-call", {"a": b""}),
        ("harmless", {"a": b""}),
        pytest.param("another-root", {"b": b"inside"}, marks=ROOT),
        pytest.param("by-handle", {"a": b"n"}, marks=ROOT),
    ],
)
def test_every_change_is_in_the_trace_and_nothing_is_named(
    part: str, files: dict[str, bytes], program: str, tmp_path: Path
) -> None:
    trace, recording = recorded(tmp_path / "run", program, "{pool}", part)
    assert {path.name: path.read_bytes() for path in recording.pool.iterdir()} == files
    assert replay.check(trace, recording.first, recording.pool).whole
    assert named(trace) == []


@pytest.mark.parametrize("part", ["others-memory", "moved-mapping"])
def test_stores_that_another_process_makes_and_those_to_a_moved_mapping_precede_its_sync(
    part: str, program: str, tmp_path: Path
) -> None:
    trace, recording = recorded(tmp_path / "run", program, "{pool}", part)
    assert replay.check(trace, recording.first, recording.pool).whole
    kinds = [Kind(int(kind)) for kind in trace.events["kind"]]
    assert kinds.count(Kind.SYNC_END) == 1
    assert Kind.STORE in kinds[: kinds.index(Kind.SYNC_BEGIN)]
    assert Kind.STORE not in kinds[kinds.index(Kind.SYNC_BEGIN) :]
    assert named(trace) == []


def test_io_uring_is_refused_and_the_notes_say_so(program: str, tmp_path: Path) -> None:
    trace, recording = recorded(tmp_path / "run", program, "{pool}", "refused-uring")
    assert named(trace) == []
    assert ("io_uring", "refused") in read_notes(recording.trace)


def test_io_uring_that_was_allowed_is_named(program: str, tmp_path: Path) -> None:
    try:
        trace, _ = recorded(tmp_path / "run", program, "{pool}", "allowed-uring", io_uring="allow")
    except CrashcheckError as error:
        if "Operation not permitted" in str(error) or "Function not implemented" in str(error):
            pytest.skip("this kernel has no io_uring for us")
        raise
    assert named(trace) == ["io_uring"]


def test_a_program_that_does_without_io_uring_fails_with_the_way_out(program: str, tmp_path: Path) -> None:
    with pytest.raises(CrashcheckError) as caught:
        recorded(tmp_path / "run", program, "{pool}", "allowed-uring")
    assert caught.value.slug == "workload-failed"
    assert '[record] io_uring = "allow"' in str(caught.value)


@ROOT
def test_a_mount_inside_the_folder_is_named(program: str, tmp_path: Path) -> None:
    try:
        trace, _ = recorded(tmp_path / "run", program, "{pool}", "mounts")
    except CrashcheckError as error:
        if "Operation not permitted" in str(error):
            pytest.skip("mount is not permitted")
        raise
    assert named(trace) == ["mount on m"]


def test_a_descriptor_that_goes_to_a_process_outside_is_named_if_it_can_write(program: str, tmp_path: Path) -> None:
    """The same of a folder's descriptor is not."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            other, _ = listener.accept()
            with other:
                for number in range(2):
                    _, (taken,), _, _ = socket.recv_fds(other, 1, 1)
                    if number:
                        os.write(taken, b"unseen")
                    os.close(taken)
                    other.sendall(b"x")

        server = threading.Thread(target=serve)
        server.start()
        trace, recording = recorded(tmp_path / "run", program, "{pool}", "passed-outside", env={"OUTSIDE": str(path)})
        server.join()
    assert (recording.pool / "a").read_bytes() == b"unseen"
    assert named(trace) == ["a descriptor passed to another process on a"]


def test_a_run_whose_only_changes_are_not_followed_is_no_run_that_changed_nothing(program: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / "a").touch()
    with pytest.raises(CrashcheckError) as caught:
        recorded(tmp_path / "run", program, "{pool}", "ioctl", first_image=first)
    assert caught.value.slug == "not-followed"


NARROW = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct iovec parts[2] = {{"ab", 2}, {"cd", 2}};
    if (count != 2 || chdir(words[1]) != 0 || fopen("/etc/passwd", "r") == NULL)
        return 1;
    int file = open("big", O_RDWR | O_CREAT, 0644), mapped = open("m", O_RDWR | O_CREAT, 0644);
    pwrite(file, "far", 3, 5000000000LL);
    ftruncate(file, 5000000100LL);
    posix_fallocate(file, 0, 4096);
    writev(file, parts, 2);
    pwritev(file, parts, 2, 100);
    fsync(file);
    mkdir("d", 0755);
    rename("big", "d/big");
    symlink("d", "s");
    ftruncate(mapped, 8192);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 4096);
    strcpy(at, "mapped");
    return msync(at, 4096, MS_SYNC);
}
"""


def test_the_calls_of_a_32_bit_program_are_followed(tmp_path: Path) -> None:
    source, target = tmp_path / "narrow.c", tmp_path / "narrow"
    source.write_text(NARROW, encoding="utf-8")
    command = [
        shutil.which("gcc") or "cc",
        "-m32",
        "-D_GNU_SOURCE",
        "-D_FILE_OFFSET_BITS=64",
        str(source),
        "-o",
        str(target),
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no 32-bit compiler (gcc-multilib)")
    trace, recording = recorded(tmp_path / "run", str(target), "{pool}")
    assert replay.check(trace, recording.first, recording.pool).whole
    assert named(trace) == []
    assert (recording.pool / "d" / "big").stat().st_size == 5_000_000_100
    kinds = [Kind(int(kind)).name for kind in trace.events["kind"]]
    assert [kind for kind in kinds if kind in ("WRITE", "SYNC_END", "NAME_RENAME", "STORE")] == [
        *("WRITE", "WRITE", "WRITE", "SYNC_END", "NAME_RENAME", "STORE", "SYNC_END")
    ]


INTERRUPTS = r"""
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words)
{
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (count != 2 || chdir(words[1]) != 0 || low == MAP_FAILED)
        return 1;
    int file = open("a", O_WRONLY | O_CREAT, 0644);
    long result;
    strcpy(low, "by interrupt");
    __asm__ volatile("int $0x80" : "=a"(result) : "0"(4L), "b"((long)file), "c"(low), "d"(12L) : "memory");
    return result == 12 ? 0 : 2;
}
"""


def test_a_32_bit_call_of_a_64_bit_program_is_followed(tmp_path: Path) -> None:
    source, target = tmp_path / "interrupts.c", tmp_path / "interrupts"
    source.write_text(INTERRUPTS, encoding="utf-8")
    subprocess.run([*compilers.c_compiler(), "-D_GNU_SOURCE", str(source), "-o", str(target)], check=True)
    try:
        trace, recording = recorded(tmp_path / "run", str(target), "{pool}")
    except CrashcheckError:
        pytest.skip("this kernel makes no 32-bit calls")
    assert (recording.pool / "a").read_bytes() == b"by interrupt"
    assert replay.check(trace, recording.first, recording.pool).whole
    assert named(trace) == []
