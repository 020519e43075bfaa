"""strace instead of our recorder: of the same program both give the same events."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.trace import replay as replays
from crashcheck.analyzer.trace.reader import Trace, read
from crashcheck.config.faults import Fault
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import record as recorders
from crashcheck.runtime.build import RuntimeLibrary, build_runtime
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.strace.convert import convert
from crashcheck.runtime.trace_format import NAME_KINDS, Kind
from crashcheck.runtime.validate import read_notes
from crashcheck.stages.run_summary import recording_warnings
from support import compilers
from support.paths import RUNTIME_PROGRAMS

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")

SOURCE = RUNTIME_PROGRAMS / "folder_calls.c"
SHOWN = np.array(
    [Kind.WRITE, Kind.TRUNCATE, Kind.ALLOCATE, Kind.SYNC_BEGIN, Kind.SYNC_END, Kind.OUTPUT, *NAME_KINDS], dtype=np.uint8
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("calls") / "calls"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1"]
    subprocess.run([*compilers.c_compiler(), *flags, str(SOURCE), "-o", str(target), "-lpthread"], check=True)
    return str(target)


def recorded(folder: Path, recorder: str, command: Sequence[str], first: Path | None = None) -> tuple[Trace, Recording]:
    recording = record(Workload(command, ["*"], timeout_s=60.0, recorder=recorder, first_image=first), folder)
    return read(recording.trace), recording


def events(trace: Trace) -> list[tuple[object, ...]]:
    """What changed, in order: call, kind, the first paths of inode and directory, range, bytes."""
    out: list[tuple[object, ...]] = []
    process = {int(pid): f"process {at}" for at, pid in enumerate(dict.fromkeys(trace.events["pid"].tolist()))}
    for index in np.flatnonzero(np.isin(trace.events["kind"], SHOWN)).tolist():
        event = trace.events[index]
        kind = Kind(int(event["kind"]))
        inode = trace.inodes.get(int(event["file"]))
        sync = kind in (Kind.SYNC_BEGIN, Kind.SYNC_END)
        data = trace.data(index) if kind in (Kind.WRITE, Kind.OUTPUT, *NAME_KINDS) else b""
        if inode is not None and inode.paths == ("db-journal",) and kind == Kind.WRITE:
            data = b"%d bytes" % len(data)  # sqlite3 puts random numbers into them
        range_ = (0, 0) if kind in NAME_KINDS else (int(event["offset"]), int(event["size"]) if sync else 0)
        out.append(
            (
                *(kind.name, int(event["call"]), process[int(event["pid"])]),
                inode.paths if inode is not None else (),
                *(int(event["aux"]), int(event["folder"]), int(event["flags"]), *range_, data),
            )
        )
    return out


def same_events(tmp_path: Path, *command: str, first: Path | None = None) -> None:
    own, own_run = recorded(tmp_path / "own", "syscalls", command, first)
    other, other_run = recorded(tmp_path / "other", "strace", command, first)
    there, here = os.fsencode(tmp_path / "own"), os.fsencode(tmp_path / "other")
    expected = [tuple(v.replace(there, here) if isinstance(v, bytes) else v for v in row) for row in events(own)]
    assert events(other) == expected
    assert expected
    assert replays.check(own, own_run.first, own_run.pool).whole
    assert replays.check(other, other_run.first, other_run.pool).whole
    assert other.truncated == own.truncated == ""
    ((reason, text),) = read_notes(other_run.trace)
    assert (reason, text) == ("strace", "[workload] recorder asks for it")


@pytest.mark.parametrize("part", ["names", "unnamed", "again", "writes", "allocations", "forks"])
def test_a_program_in_c_has_the_same_events(part: str, tmp_path: Path, program: str) -> None:
    same_events(tmp_path, program, "{pool}", part)


PYTHON = """
import os, pathlib, shelve
os.chdir(os.sys.argv[1])
pathlib.Path("a").write_text("text" * 5000)
with open("a", "r+b") as file:
    file.seek(100); file.write(b"middle"); file.flush(); os.fsync(file.fileno())
    file.seek(0, 2); file.write(b"end"); file.truncate(30000)
copy = os.dup(os.open("b", os.O_RDWR | os.O_CREAT | os.O_APPEND))
os.write(copy, b"one"); os.pwrite(copy, b"two", 0)
os.makedirs("d/e"); os.rename("a", "d/e/a"); os.symlink("d/e", "s"); os.replace("s/a", "d/b"); os.link("b", "s/c")
if os.fork() == 0:
    os.write(copy, b"child"); os._exit(0)
os.wait()
os.write(copy, b"parent"); os.unlink("b"); os.write(copy, b"deleted")
print("done", flush=True)
"""
SHELL = """
cd "$1"; echo one > a; echo two >> a; cp a b; mv b c; ln c d; ln -s c e; mkdir f; mv c f/g; (cd f; echo x > ../h; rm g)
printf 'not\\nplain' > "$(printf 'n\\n\\377')"; sort -o a a; sync a; sync .; rm -r f; echo done
"""


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("sh", ["sh", "-c", SHELL, "sh", "{pool}"]),
        ("python", [sys.executable, "-S", "-B", "-c", PYTHON, "{pool}"]),
        ("gzip", ["sh", "-c", "cd {pool} && seq 20000 > big && gzip -n --synchronous big"]),
        ("tar", ["sh", "-c", "cd {pool} && mkdir t && echo 1 >t/a && tar --mtime=@0 -cf a t && rm -r t && tar xf a"]),
        ("dd", ["dd", "if=/dev/zero", "of={pool}/z", "bs=5000", "count=3", "oflag=dsync", "status=none"]),
        ("xz", ["sh", "-c", "cd {pool} && seq 20000 > big && xz -T1 big"]),
        (
            "sqlite3",
            ["sqlite3", "{pool}/db", "create table t(a); insert into t values(1); update t set a=2; select * from t;"],
        ),
        (
            "sqlite3",
            ["sqlite3", "{pool}/db", "pragma locking_mode=exclusive; pragma journal_mode=truncate; create table t(a);"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_everyday_programs_have_the_same_events(name: str, command: list[str], tmp_path: Path) -> None:
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    same_events(tmp_path, *command)


def test_what_strace_cannot_show_is_named_and_no_byte_is_invented(tmp_path: Path, program: str) -> None:
    for part, named in (
        ("copies", "splice from a source"),
        ("maps", "stores through a mapping"),
        ("unmodelled", "io_"),
    ):
        trace, recording = recorded(tmp_path / part, "strace", [program, "{pool}", part])
        found = {trace.data(int(at)).decode() for at in np.flatnonzero(trace.events["kind"] == Kind.UNMODELLED)}
        assert any(text.startswith(named) for text in found)
        assert replays.check(trace, recording.first, recording.pool).whole == (part == "unmodelled")


def quoted(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def converted(tmp_path: Path, *lines: str) -> Trace:
    """What `lines` of strace are as a trace; the folder is `tmp_path`/pool and was empty."""
    for name in ("first", "pool"):
        (tmp_path / name).mkdir()
    (tmp_path / "printed").write_text("\n".join(lines) + "\n")
    folders = (tmp_path / "first", tmp_path / "pool", tmp_path, tmp_path / "out", tmp_path / "err")
    convert(tmp_path / "printed", tmp_path / "trace", *folders)
    return read(tmp_path / "trace")


def test_a_write_that_was_printed_in_part_is_named_by_its_return_value(tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    opened = f"3<{quoted(pool + '/f')}>"
    lines = (
        f'7 openat(-100<{quoted(pool)}>, "{quoted("f")}", 0x41, 0644) = {opened}',
        f'7 write({opened}, "{quoted("abcd")}"..., 10) = 10',
        f'7 write({opened}, "{quoted("next")}", 4 <unfinished ...>',
        "8 +++ exited with 0 +++",
        "7 <... write resumed>)                  = 4",
        "7 +++ exited with 0 +++",
    )
    trace = converted(tmp_path, *lines)
    writes = trace.events[trace.events["kind"] == Kind.WRITE]
    assert writes["offset"].tolist() == [0, 10]
    (cut,) = np.flatnonzero(trace.events["kind"] == Kind.UNMODELLED)
    assert trace.data(int(cut)) == b"a write that strace printed in part"


def test_a_child_that_writes_before_its_parents_fork_returns_shares_the_position(tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    opened = f"3<{quoted(pool + '/f')}>"
    trace = converted(
        tmp_path,
        f'7 openat(-100<{quoted(pool)}>, "{quoted("f")}", 0102, 0644) = {opened}',
        f'7 write({opened}, "{quoted("parent")}", 6) = 6',
        "7 clone(child_stack=NULL, flags=0x1200011 <unfinished ...>",
        f'8 write({opened}, "{quoted("child")}", 5) = 5',
        "7 <... clone resumed>, child_tidptr=0x7f0000000000) = 8",
        f'8 write({opened}, "{quoted("again")}", 5) = 5',
        "8 +++ exited with 0 +++",
        f'7 write({opened}, "{quoted("after")}", 5) = 5',
        "7 +++ exited with 0 +++",
    )
    writes = trace.events[trace.events["kind"] == Kind.WRITE]
    assert writes["offset"].tolist() == [0, 6, 11, 16]


def test_a_copy_from_a_file_that_is_too_large_to_be_kept_is_named_and_no_byte_is_invented(tmp_path: Path) -> None:
    pool = str(tmp_path / "pool")
    opened, size = f"3<{quoted(pool + '/f')}>", 1 << 50
    trace = converted(
        tmp_path,
        f'7 openat(-100<{quoted(pool)}>, "{quoted("f")}", 0102, 0644) = {opened}',
        f"7 ftruncate({opened}, {size}) = 0",
        f"7 copy_file_range({opened}, [0], {opened}, [100], 8, 0) = 8",
        "7 +++ exited with 0 +++",
    )
    assert trace.events["offset"][trace.events["kind"] == Kind.TRUNCATE].tolist() == [size]
    assert not (trace.events["kind"] == Kind.WRITE).any()
    (noted,) = np.flatnonzero(trace.events["kind"] == Kind.UNMODELLED)
    assert trace.data(int(noted)) == b"copy_file_range from a source that strace does not show"


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CrashcheckError, match="line 2 of what strace printed cannot be read") as refused:
        converted(tmp_path, f'7 openat(-100</>, "{quoted("f")}", 0102, 0644) = 3</f>', "7 rename() = 0")
    assert refused.value.slug == "record-failed"


def recorder_without_seccomp(folder: Path) -> RuntimeLibrary:
    """One that a container refuses the filter: it has run nothing."""
    script = folder / "recorder"
    script.write_text('#!/bin/sh\nprintf "seccomp\\tOperation not permitted\\n" > "$1.notes"\nexit 125\n')
    script.chmod(0o755)
    return replace(build_runtime(), syscalls=script)


WRITES = Workload(["sh", "-c", "echo text > {pool}/f"], ["*"], recorder="syscalls")


def test_strace_is_the_fallback_where_no_filter_is_permitted_and_the_report_says_so(tmp_path: Path) -> None:
    recording = record(WRITES, tmp_path / "run", runtime=recorder_without_seccomp(tmp_path))
    assert [kind for kind, *_ in events(read(recording.trace))] == ["NAME_CREATE", "WRITE"]
    assert recording_warnings(ProgramFacts.load(()), recording) == (
        "recorded by strace (a seccomp filter is not permitted: Operation not permitted): stores through mappings and "
        "call stacks are not known",
    )


def test_strace_is_the_fallback_where_there_is_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler() -> RuntimeLibrary:
        raise CrashcheckError("no-c-compiler", "no C compiler was found")

    monkeypatch.setattr(recorders, "build_runtime", no_compiler)
    recording = record(WRITES, tmp_path / "run")
    assert read_notes(recording.trace) == [("strace", "no C compiler was found")]
    with pytest.raises(CrashcheckError) as caught:
        record(replace(WRITES, faults=(Fault("write"),)), tmp_path / "faulty")
    assert caught.value.slug == "no-c-compiler"


def test_without_strace_or_the_right_to_trace_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = recorder_without_seccomp(tmp_path)
    fake = tmp_path / "bin" / "strace"
    fake.parent.mkdir()
    monkeypatch.setenv("PATH", str(fake.parent))
    with pytest.raises(CrashcheckError) as caught:
        record(replace(WRITES, recorder="strace"), tmp_path / "missing")
    assert caught.value.slug == "strace-missing"
    with pytest.raises(CrashcheckError) as caught:
        record(WRITES, tmp_path / "neither", runtime=without)
    assert caught.value.slug == "ptrace-not-permitted"
    assert "seccomp" in caught.value.message
    fake.write_text("#!/bin/sh\necho 'strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(CrashcheckError) as caught:
        record(replace(WRITES, recorder="strace"), tmp_path / "refused")
    assert caught.value.slug == "ptrace-not-permitted"
    assert "PTRACE_TRACEME" in caught.value.message
