"""Where seccomp filters are refused, as in some containers, programs stop at every call: the trace is the same."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.calls import injected_faults, name_events
from crashcheck.analyzer.trace.reader import Trace, read
from crashcheck.config.faults import Fault
from crashcheck.runtime import in_place
from crashcheck.runtime.build import RuntimeLibrary, build_runtime
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.trace_format import Kind
from crashcheck.runtime.validate import read_notes
from crashcheck.stages.run_summary import recording_warnings
from support import compilers
from support.paths import RUNTIME_PROGRAMS

FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]
Refusing = Callable[[int], RuntimeLibrary]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Compiles programs/<name>.c once."""
    folder = tmp_path_factory.mktemp("built")

    def program(name: str) -> str:
        target = folder / name
        if not target.exists():
            source = str(RUNTIME_PROGRAMS / f"{name}.c")
            subprocess.run([*compilers.c_compiler(), *FLAGS, source, "-o", str(target), "-lpthread"], check=True)
        return str(target)

    return program


@pytest.fixture
def refusing(tmp_path: Path, built: Callable[[str], str]) -> Refusing:
    """Our recorder where seccomp(2) and prctl(PR_SET_SECCOMP) answer with an error."""

    def library(error: int) -> RuntimeLibrary:
        own = build_runtime()
        script = tmp_path / f"recorder-{error}"
        words = shlex.join([built("without_filters"), str(error), str(own.syscalls)])
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return replace(own, syscalls=script)

    return library


def rows(trace: Trace, recording: Recording) -> list[tuple[object, ...]]:
    """Every event with all that it holds, process by process: between two of them the order of what does not depend on
    each other differs. Processes are numbered, and the recording's folder has one name."""
    pids = {int(pid): at for at, pid in enumerate(dict.fromkeys(trace.events["pid"].tolist()))}
    fields = ("kind", "call", "thread", "file", "folder", "flags", "offset", "size", "site", "stack", "aux")
    out: list[tuple[object, ...]] = []
    for index, event in enumerate(trace.events):
        data = trace.data(index).replace(os.fsencode(recording.folder), b"FOLDER")
        out.append((pids[int(event["pid"])], *(int(event[field]) for field in fields), data))
    return sorted(out, key=itemgetter(0))


def both(tmp_path: Path, workload: Workload, library: RuntimeLibrary) -> tuple[Trace, Recording]:
    """The recording without a filter, compared with the one by a filter."""
    traces = []
    for name, runtime in (("filtered", None), ("unfiltered", library)):
        recording = record(workload, tmp_path / name, runtime=runtime)
        traces.append((read(recording.trace), recording))
    (expected, by_filter), (found, recording) = traces
    assert rows(found, recording) == rows(expected, by_filter)
    assert found.inodes == expected.inodes
    assert found.truncated == expected.truncated
    notes = [note for note in read_notes(recording.trace) if note[0] != "ended"]
    assert notes[0][0] == "seccomp"
    assert notes[1:] == [note for note in read_notes(by_filter.trace) if note[0] != "ended"]
    return found, recording


PARTS = {
    "folder_calls": (
        *("names", "unnamed", "again", "writes", "allocations", "copies", "maps", "forks", "unmodelled", "daemon"),
        "killed",
    ),
    "hard_to_follow": (
        *("refused-uring", "untraced", "own-descriptors", "other-descriptors", "others-memory", "unknown-call"),
        *("moved-mapping", "harmless"),
    ),
}


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in PARTS.items() for part in parts])
def test_every_event_is_the_same(
    name: str, part: str, tmp_path: Path, built: Callable[[str], str], refusing: Refusing
) -> None:
    command = [built(name), "{pool}", part]
    workload = Workload(command, ["*"], timeout_s=60.0, recorder="syscalls", must_succeed=part != "killed")
    trace, recording = both(tmp_path, workload, refusing(errno.EPERM))
    assert replay.check(trace, recording.first, recording.pool).whole


COMMANDS = {
    "sh": "cd {pool}; echo a > f; (cp f g; mkdir d; mv g d/h); ln f i; rm i; sync d; echo done",
    "gzip": "cd {pool}; seq 9000 > s; split -l 3000 s; gzip -n xab; tar --mtime=@0 -cf t xaa xac; rm xa?; tar xf t",
    "sqlite3": "sqlite3 {pool}/db 'pragma journal_mode=off; create table t(a); insert into t values(1);'",
    "sort": "seq 9 -1 1 > {pool}/f; sort -o {pool}/f {pool}/f",
}


@pytest.mark.parametrize("tool", COMMANDS)
def test_everyday_programs_have_the_same_events_whatever_the_refusal(
    tool: str, tmp_path: Path, refusing: Refusing
) -> None:
    compilers.needs_tools(tool)
    error = {"sh": errno.EACCES, "gzip": errno.EINVAL, "sqlite3": errno.ENOSYS, "sort": errno.EPERM}[tool]
    workload = Workload(["sh", "-c", COMMANDS[tool]], ["*"], timeout_s=60.0, recorder="syscalls")
    trace, recording = both(tmp_path, workload, refusing(error))
    assert replay.check(trace, recording.first, recording.pool).whole
    assert recording_warnings(ProgramFacts.load(()), recording) == (
        f"a seccomp filter is not permitted here ({os.strerror(error)}): each system call stopped the program, so it "
        "ran slowly",
    )


def test_calls_that_are_made_to_fail_and_32_bit_ones_are_the_same(tmp_path: Path, refusing: Refusing) -> None:
    source, target = tmp_path / "interrupts.c", tmp_path / "interrupts"
    source.write_text(INTERRUPTS, encoding="utf-8")
    subprocess.run([*compilers.c_compiler(), *FLAGS, str(source), "-o", str(target)], check=True)
    faults = (Fault("fsync"), Fault("write", "ENOSPC", nth=2))
    workload = Workload([str(target), "{pool}"], ["*"], timeout_s=60.0, recorder="syscalls", faults=faults)
    trace, recording = both(tmp_path, workload, refusing(errno.EPERM))
    assert replay.check(trace, recording.first, recording.pool).whole
    assert [(fault.call, fault.error) for fault in injected_faults(trace)] == [("write", "ENOSPC"), ("fsync", "EIO")]
    assert recording.end.exit_code == 7
    assert (recording.pool / "a").read_bytes() == b"1st"


INTERRUPTS = r"""
#include <errno.h>
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
    strcpy(low, "1st");
    for (int i = 0; i < 2; i++)
        __asm__ volatile("int $0x80" : "=a"(result) : "0"(4L), "b"((long)file), "c"(low), "d"(3L) : "memory");
    return (fsync(file) == -1 && errno == EIO) + 2 * (result == -ENOSPC) + 4;
}
"""


def test_threads_take_turns_and_each_change_is_recorded(
    tmp_path: Path, built: Callable[[str], str], refusing: Refusing
) -> None:
    workload = Workload([built("folder_calls"), "{pool}", "threads"], ["*"], timeout_s=60.0, recorder="syscalls")
    recording = record(workload, tmp_path / "run", runtime=refusing(errno.EPERM))
    trace = read(recording.trace)
    assert replay.check(trace, recording.first, recording.pool).whole
    assert int((trace.events["kind"] == Kind.WRITE).sum()) == 4 * 40 * 2
    assert int((trace.events["kind"] == Kind.SYNC_END).sum()) == 4 * 4


def test_stores_of_instrumented_code_are_in_order_with_the_calls(
    tmp_path: Path, refusing: Refusing, commands: Path
) -> None:
    plain, target = tmp_path / "plain.o", tmp_path / "table_and_log"
    sources = [str(RUNTIME_PROGRAMS / f"{name}.c") for name in ("table_and_log", "without_hooks")]
    subprocess.run([*compilers.c_compiler(), "-c", sources[1], "-o", str(plain)], check=True)
    compiler = [str(commands / "crashcheck-cc"), "-O1", "-g", "-fno-inline"]
    subprocess.run([*compiler, sources[0], str(plain), "-o", str(target), "-lpthread"], cwd=tmp_path, check=True)
    workload = Workload([str(target), "{pool}", "share"], ["*"], timeout_s=60.0, recorder="syscalls")
    trace, recording = both(tmp_path, workload, refusing(errno.EPERM))
    assert replay.check(trace, recording.first, recording.pool).whole
    stores = [trace.data(index).decode() for index in np.flatnonzero(trace.events["kind"] == Kind.STORE).tolist()]
    assert stores == ["parent", "thread", "child", "unhooked"]


def test_what_a_tried_command_leaves_running_goes_on(
    tmp_path: Path, refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_place, "build_runtime", lambda: refusing(errno.EPERM))
    folder, go, done = (tmp_path / name for name in ("folder", "go", "done"))
    folder.mkdir()
    for fifo in (go, done):
        os.mkfifo(fifo)
    script = f"(cat {go} > late; echo done > {done}) & echo a > a.tmp; mv a.tmp a"
    recording = in_place.record_in_place(in_place.InPlaceCommand(["sh", "-c", script], folder), tmp_path / "work")
    go.write_text("late")
    assert done.read_text() == "done\n"
    assert (folder / "late").read_text() == "late"
    assert [type(event).__name__ for event in name_events(read(recording.trace)) if event.name == "a.tmp"] == [
        *("Create", "Rename")
    ]
    assert [reason for reason, _ in read_notes(recording.trace)][:2] == ["seccomp", "left"]
