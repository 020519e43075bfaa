"""The recorder of system calls, on programs that it knows nothing of: what it records, and that nothing is missing."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.persistence.names import name_updates
from crashcheck.analyzer.trace import calls, replay
from crashcheck.analyzer.trace.completeness import causes
from crashcheck.analyzer.trace.reader import ROOT, Trace, read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import build
from crashcheck.runtime.record import Recording, Workload, record
from crashcheck.runtime.trace_format import CreateFlag, Kind, OutputKind, StoreFlag, SyncKind
from crashcheck.runtime.validate import read_notes
from crashcheck.stages.run_summary import recording_warnings
from support import compilers
from support.outputs import outputs
from support.paths import RUNTIME_PROGRAMS
from support.strace import Row, by_strace, by_trace

SOURCE = RUNTIME_PROGRAMS / "folder_calls.c"
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("calls") / "calls"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compilers.c_compiler(), *flags, str(SOURCE), "-o", str(target), "-lpthread"], check=True)
    return str(target)


def traced(folder: Path, *command: str, **options: object) -> tuple[Trace, Recording]:
    workload = Workload(command, ["*"], timeout_s=60.0, recorder="syscalls", **options)  # type: ignore[arg-type]
    recording = record(workload, folder)
    return read(recording.trace), recording


def is_whole(trace: Trace, recording: Recording) -> bool:
    return replay.check(trace, recording.first, recording.pool).whole


@pytest.fixture
def part(tmp_path: Path, program: str) -> Callable[..., tuple[Trace, Recording]]:
    """Records one part of programs/folder_calls.c, of which every change must be in the trace."""

    def run(name: str, **options: object) -> tuple[Trace, Recording]:
        trace, recording = traced(tmp_path / "run", program, "{pool}", name, **options)
        assert is_whole(trace, recording)
        return trace, recording

    return run


Part = Callable[..., tuple[Trace, Recording]]


def updates(trace: Trace) -> list[str]:
    """Updates and syncs in order: kind, inode's first path, offset, bytes."""
    out = []
    kinds = (Kind.WRITE, Kind.TRUNCATE, Kind.ALLOCATE, Kind.STORE, Kind.SYNC_BEGIN)
    for index in np.flatnonzero(np.isin(trace.events["kind"], np.array(kinds, dtype=np.uint8))).tolist():
        event = trace.events[index]
        kind, file = Kind(int(event["kind"])), int(event["file"])
        path = next(iter(trace.inodes[file].paths), "-") if file else "*"
        if kind == Kind.SYNC_BEGIN:
            out.append(f"{SyncKind(int(event['aux'])).name} {path}")
        elif kind in (Kind.WRITE, Kind.STORE):
            out.append(f"{kind.name} {path} {int(event['offset'])} {trace.data(index).decode('latin-1')}")
        else:
            out.append(f"{kind.name} {path} {int(event['offset'])}")
    return out


def test_names_are_followed_whatever_they_are(part: Part) -> None:
    trace, _ = part("names")
    found = [(type(event).__name__, event.name) for event in calls.name_events(trace)]
    assert found == [
        ("Create", "a"),
        ("Create", "a\n\udcff"),
        ("MakeFolder", "d"),
        ("MakeFolder", "gone"),
        ("RemoveFolder", "gone"),
        ("Link", "b"),
        ("Symlink", "s"),
        ("Rename", "d"),
        ("RenameExchange", "a"),
        ("Unlink", "b"),
        ("Create", "fifo"),
    ]
    folder = next(inode.id for inode in trace.inodes.values() if inode.paths == ("d",))
    syncs = trace.events[trace.events["kind"] == Kind.SYNC_BEGIN]
    assert syncs["file"].tolist() == [folder]


def test_a_creation_shows_whether_its_name_had_to_be_new(tmp_path: Path) -> None:
    trace, _ = traced(tmp_path, "/bin/sh", "-c", "mktemp -p {pool} fXXXXXX && echo > {pool}/g")
    created = trace.events[trace.events["kind"] == Kind.NAME_CREATE]
    assert created["flags"].tolist() == [CreateFlag.EXCLUSIVE, 0]


@pytest.mark.parametrize("recorder", ["syscalls", "strace"])
def test_a_file_is_dense_if_it_has_no_hole_and_no_block_that_was_only_allocated(recorder: str, tmp_path: Path) -> None:
    if recorder == "strace" and not shutil.which("strace"):
        pytest.skip("strace is not installed")
    first = tmp_path / "first"
    (first / "d").mkdir(parents=True)
    (first / "d" / "whole").write_bytes(b"o" * 5000)
    (first / "empty").write_bytes(b"")
    with (first / "hole").open("wb") as file:
        file.write(b"o" * 4096)
        file.truncate(1 << 20)
    with (first / "allocated").open("wb") as file:
        file.write(b"o" * 4096)
        os.posix_fallocate(file.fileno(), 0, 8192)
    workload = Workload(["/bin/sh", "-c", "echo > {pool}/new"], ["*"], recorder=recorder, first_image=first)
    trace = read(record(workload, tmp_path / "run").trace)
    assert {inode.paths[0]: inode.dense for inode in trace.inodes.values() if inode.is_file} == {
        "d/whole": True,
        "empty": False,
        "hole": False,
        "allocated": False,
        "new": False,
    }


def test_a_file_without_a_name_gets_one(part: Part) -> None:
    trace, _ = part("unnamed")
    (event,) = calls.name_events(trace)
    assert isinstance(event, calls.Link)
    assert trace.inodes[event.inode].paths == ()
    assert (event.folder, event.name) == (ROOT, "named")


def test_a_new_file_is_a_new_inode_even_if_its_number_was_used_before(part: Part) -> None:
    trace, _ = part("again")
    assert len(trace.inodes) == 1 + 50 + 1
    renames = [event for event in calls.name_events(trace) if isinstance(event, calls.Rename)]
    assert [event.replaced for event in renames] == [0, *(event.inode for event in renames[:-1])]


def test_writes_have_their_place_bytes_and_syncs(part: Part) -> None:
    trace, _ = part("writes")
    assert updates(trace) == [
        "WRITE w 0 1234567890",
        "WRITE w 10 abcdefghijkl",
        "WRITE w 5 P",
        "WRITE w 100 abcdefghijkl",
        "WRITE w 112 end",
        "WRITE w 115 END",
        "WRITE synced 0 s",
        "ODSYNC synced",
        "WRITE w 50 ab",
        "OSYNC w",
        "WRITE w2 0 s",
        "OSYNC w2",
        "TRUNCATE w 3",
        "TRUNCATE w 5000",
        "TRUNCATE w2 0",
        "SYNC *",
        "SYNC *",
        "FDATASYNC w",
    ]


def test_every_mode_of_fallocate_is_replayed(part: Part) -> None:
    trace, _ = part("allocations")
    first = next(calls.allocations(trace))
    assert (first.offset, first.size, first.mode) == (100, 5000, 3)


def test_bytes_that_fallocate_moves_are_not_accounted_for(tmp_path: Path, program: str) -> None:
    """Crash images leave them where they are, so that no failing state that holds them is proved."""
    trace, recording = traced(tmp_path, program, "{pool}", "moves", must_succeed=False)
    if recording.end.exit_code == 77:
        pytest.skip("the file system here collapses no range")
    completeness = replay.check(trace, recording.first, recording.pool)
    assert completeness.unexplained == {"f": ((4096, 8192),)}
    assert causes(trace, completeness, ()) == (
        "f: 4096 bytes at 0x1000–0x1fff are not accounted for: "
        "fallocate that collapses or inserts a range is not modelled",
    )


def test_copies_inside_the_kernel_have_the_bytes_of_the_target(part: Part) -> None:
    trace, _ = part("copies")
    found = [line for line in updates(trace) if line.startswith("WRITE target")]
    assert [line.split(" ", 3)[2] for line in found] == ["20000", "0", "40000"]
    assert found[2].endswith("through a pipe")


def test_stores_through_mappings_are_found_where_their_order_matters(part: Part) -> None:
    trace, _ = part("maps")
    assert updates(trace) == [
        "TRUNCATE m 12288",
        "STORE m 10 first",
        "MSYNC m",
        "STORE m 4090 second",
        "STORE m 4096  over two pages",
        "WRITE m 8192 by a call",
        "STORE m 0 r",  # before the output
        "STORE m 100 c",  # by the child
        "TRUNCATE o 8192",
        "STORE o 5 o",
        "STORE m 200 e" + "\0" * 39 + "f",  # at the end; of one page, so one store
    ]
    stores = trace.events[trace.events["kind"] == Kind.STORE]
    assert set(stores["flags"].tolist()) == {StoreFlag.COMPARED}
    seen = trace.events["seq"][trace.events["kind"] == Kind.OUTPUT][0]
    assert (stores["seq"] < seen).tolist() == [True, True, True, True, False, False, False]


MAPPED = """
import mmap, os, sys
os.chdir(sys.argv[1])
def new(name, flags=0):
    return os.open(name, os.O_RDWR | os.O_CREAT | flags)
table, log, direct = new("table"), new("log"), new("direct", os.O_DSYNC)
os.ftruncate(table, 4096)
at = mmap.mmap(table, 4096)
calls = [
    lambda: os.fsync(log), lambda: os.write(direct, b"w"), lambda: os.sync(), lambda: os.ftruncate(log, 0),
    lambda: os.rename("log", "old"), lambda: os.link("old", "more"), lambda: os.unlink("more"),
    lambda: new("later"), lambda: new("old", os.O_TRUNC),
]
for byte, call in enumerate(calls, 1):
    at[byte] = byte
    call()
"""


def test_stores_through_a_mapping_are_before_what_orders_other_files(tmp_path: Path) -> None:
    """A table that is changed before its log is synced is clean otherwise: it would seem to change afterwards."""
    trace, _ = traced(tmp_path / "run", sys.executable, "-c", MAPPED, "{pool}")
    marks = (Kind.STORE, Kind.SYNC_BEGIN, Kind.TRUNCATE, *(kind for kind in Kind if kind.name.startswith("NAME_")))
    kinds = trace.events["kind"][np.isin(trace.events["kind"], np.array(marks, dtype=np.uint8))]
    names = [Kind(int(kind)).name for kind in kinds]
    begun = names[names.index("STORE") :]
    assert begun[0::2] == ["STORE"] * 9
    assert begun[1::2] == [
        *("SYNC_BEGIN", "SYNC_BEGIN", "SYNC_BEGIN", "TRUNCATE"),
        *("NAME_RENAME", "NAME_LINK", "NAME_UNLINK", "NAME_CREATE", "TRUNCATE"),
    ]


def test_threads_take_turns_and_syncs_overlap(part: Part) -> None:
    trace, recording = part("threads")
    shared = (recording.pool / "shared").read_bytes()
    number = next(inode.id for inode in trace.inodes.values() if inode.paths == ("shared",))
    writes = np.flatnonzero((trace.events["kind"] == Kind.WRITE) & (trace.events["file"] == number))
    assert b"".join(trace.data(int(index)) for index in writes) == shared
    assert len(np.unique(trace.events["thread"][writes])) == 4
    assert set(trace.events["pid"].tolist()) == {int(trace.events["pid"][0])}


def test_descriptors_are_followed_through_fork_exec_and_sockets(part: Part) -> None:
    trace, recording = part("forks")
    assert updates(trace) == [
        "WRITE inherited 0 child\n",
        "WRITE inherited 6 child\n",
        "WRITE inherited 12 child\n",
        "WRITE inherited 18 executed\n",
        "WRITE passed 100 passed",
    ]
    assert len(np.unique(trace.events["pid"])) == 5
    assert outputs(trace) == [(OutputKind.STDOUT, b"done\n")]
    assert recording.stdout.read_bytes() == b"done\n"


PIECES = """
import os, sys
def pieces(*texts):
    for text in texts:
        os.write(1, text.encode())
pieces("saved", " ", "1", "\\n")
pieces("saving ")
open(sys.argv[1] + "/file", "w").close()
pieces("done", "\\n", "x" * 250, "y" * 10, "z\\n")
"""


def test_a_line_that_is_printed_in_pieces_is_one_output_unless_something_changes_in_between(tmp_path: Path) -> None:
    trace, recording = traced(tmp_path / "run", sys.executable, "-c", PIECES, "{pool}")
    printed = [b"saved 1\n", b"saving ", b"done\n", b"x" * 250, b"y" * 10 + b"z\n"]
    assert outputs(trace) == [(OutputKind.STDOUT, line) for line in printed]
    sizes = trace.events["offset"][trace.events["kind"] == Kind.OUTPUT]
    assert sizes.tolist() == np.cumsum([len(line) for line in printed]).tolist()
    assert recording.stdout.read_bytes() == b"".join(printed)


def test_marked_operations_are_in_the_trace_of_a_program_that_has_our_recorder(tmp_path: Path) -> None:
    library = build.build_runtime()
    target, source = tmp_path / "marked", SOURCE.with_name("marked.c")
    linked = [
        f"-I{library.include}",
        str(source),
        "-o",
        str(target),
        str(library.link),
        f"-Wl,-rpath,{library.shared.parent}",
    ]
    subprocess.run([*compilers.c_compiler(), "-Wl,--no-as-needed", *linked], check=True)
    trace, recording = traced(tmp_path / "run", str(target), "{pool}")
    kinds = [Kind.MARK_BEGIN, Kind.MARK_END, Kind.WRITE, Kind.SYNC_END]
    shown = trace.events[np.isin(trace.events["kind"], np.array(kinds, dtype=np.uint8))]
    assert [(Kind(int(e["kind"])).name, int(e["aux"]) if e["kind"] != Kind.SYNC_END else 0) for e in shown] == [
        *[("MARK_BEGIN", 1), ("WRITE", 0), ("SYNC_END", 0), ("MARK_END", 1)],
        *[("MARK_BEGIN", 2), ("WRITE", 0), ("MARK_BEGIN", 3), ("SYNC_END", 0), ("MARK_END", 3), ("MARK_END", 2)],
    ]
    assert read_notes(recording.trace) == [("mark", "crashcheck_op_end without crashcheck_op_begin in the same thread")]


def test_a_daemon_ends_with_the_command_and_its_stores_are_kept(part: Part) -> None:
    trace, recording = part("daemon")
    assert (recording.pool / "d").read_bytes()[:13] == b"by the daemon"
    ((reason, process),) = read_notes(recording.trace)
    pid, _, program = process.partition(" ")
    assert reason == "ended"
    assert program
    assert not Path(f"/proc/{pid}").exists()
    assert trace.truncated == ""
    assert recording_warnings(ProgramFacts.load(()), recording) == (
        "processes that the workload left running: 1. They were ended with it",
    )


def test_a_trace_of_a_killed_program_is_marked(tmp_path: Path, program: str) -> None:
    trace, recording = traced(tmp_path / "run", program, "{pool}", "killed", must_succeed=False)
    assert recording.end.signal == 9
    assert "killed" in trace.truncated
    assert is_whole(trace, recording)


def test_what_comes_from_outside_has_its_content_and_what_leaves_is_seen(tmp_path: Path, program: str) -> None:
    outside = tmp_path / "outside"
    (outside / "tree" / "d").mkdir(parents=True)
    (outside / "tree" / "d" / "f").write_bytes(b"hi")
    os.link(outside / "tree" / "d" / "f", outside / "tree" / "same")
    (outside / "old").touch()
    first = tmp_path / "first"
    first.mkdir()
    (first / "out").symlink_to(outside)
    trace, recording = traced(tmp_path / "run", program, "{pool}", "outward", first_image=first)
    assert is_whole(trace, recording)
    renames = [event for event in calls.name_events(trace) if isinstance(event, calls.Rename)]
    assert [(event.folder, event.name, event.to_folder, event.to_name) for event in renames] == [
        (0, "", ROOT, "in"),
        (0, "", ROOT, "tree"),
        (ROOT, "in", 0, ""),
    ]
    shown = [update.change.text for update in name_updates(trace)[1] if "rename" in update.change.text]
    assert [shown[0], shown[-1]] == ["the rename of a file elsewhere to in", "the rename of in to elsewhere"]
    assert (recording.pool / "tree" / "same").read_bytes() == b"himore"
    assert outputs(trace) == [(OutputKind.NAME, b"out/old")]  # what the program made itself is no loss


@pytest.mark.parametrize("call", ["os.rmdir(d)", "os.rename(d, chr(120))"])
def test_a_call_that_fails_on_a_directory_by_its_dot_changes_nothing(tmp_path: Path, call: str) -> None:
    """As pax does; the kernel refuses both."""
    program = f"""
import contextlib, os
os.mkdir("d")
d = "d/."
with contextlib.suppress(OSError):
    {call}
open("d/f", "w").write("x")
"""
    trace, recording = traced(tmp_path / "run", "sh", "-c", f"cd {{pool}}; {sys.executable} -c '{program}'")
    assert is_whole(trace, recording)
    assert {path for inode in trace.inodes.values() for path in inode.paths} == {"", "d", "d/f"}


@pytest.mark.parametrize("name", ["f", "in/f"])
def test_files_below_a_directory_from_outside_have_their_whole_path(tmp_path: Path, name: str) -> None:
    made = tmp_path / "made" / name
    made.parent.mkdir(parents=True)
    made.write_bytes(b"content")
    command = f"echo x >>{made}; mkdir {{pool}}/a; mv {tmp_path}/made {{pool}}/a/b"
    trace, _ = traced(tmp_path / "run", "sh", "-c", command)
    table, _ = name_updates(trace)
    write = int(np.flatnonzero(trace.events["kind"] == Kind.WRITE)[0])
    assert table.path(int(trace.events["file"][write]), write) == f"a/b/{name}"


WRITE = "echo 2 >$f"


@pytest.mark.parametrize("enter", ["mv $f {pool}/in", "ln $f {pool}/in", "mv $d {pool}/in"])
@pytest.mark.parametrize(
    ("before", "synced"),
    [
        (WRITE, False),
        (f"{WRITE}; mv $f $d/g; mv $d/g $f", False),
        (f"{WRITE}; sync $f", True),
        (f"{WRITE}; sync -d $f", True),
        (f"{WRITE}; sync -f $f", True),
        (f"{WRITE}; sync", True),
        (f"{WRITE}; sync $d", False),
        (f"{WRITE}; sync $f; echo 3 >>$f", False),
        ("echo 2 | dd of=$f oflag=dsync status=none", True),
        ("true", True),
    ],
)
def test_a_file_from_outside_is_unsynced_if_the_run_wrote_it_and_did_not_sync_it(
    tmp_path: Path, before: str, synced: bool, enter: str
) -> None:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "f").write_text("1\n")
    trace, recording = traced(tmp_path / "run", "sh", "-c", f"d={folder}; f=$d/f; {before}; {enter}")
    assert is_whole(trace, recording)
    kinds = {int(kind) for kind in trace.events["kind"] if kind in (Kind.WRITE, Kind.CONTENT)}
    assert kinds == {Kind.CONTENT if synced else Kind.WRITE}


@pytest.mark.parametrize("copy", ["os.copy_file_range(a, b, 9)", "os.sendfile(b, a, 0, 9)"])
def test_what_the_kernel_copies_from_outside_is_unsynced(tmp_path: Path, copy: str) -> None:
    (tmp_path / "outside").write_text("1\n")
    program = f"import os; a = os.open('{tmp_path / 'outside'}', 0); b = os.open('{{pool}}/in', 66); {copy}"
    trace, recording = traced(tmp_path / "run", sys.executable, "-c", program)
    assert is_whole(trace, recording)
    assert {int(kind) for kind in trace.events["kind"] if kind in (Kind.WRITE, Kind.CONTENT)} == {Kind.WRITE}


def test_a_static_stripped_program_is_recorded(tmp_path: Path) -> None:
    compilers.needs_static()
    target = tmp_path / "static"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-static", "-s"]
    subprocess.run([*compilers.c_compiler(), *flags, str(SOURCE), "-o", str(target), "-lpthread"], check=True)
    trace, recording = traced(tmp_path / "run", str(target), "{pool}", "writes")
    assert is_whole(trace, recording)
    write = trace.events[trace.events["kind"] == Kind.WRITE][0]
    frames = [trace.call_sites[site] for site in (int(write["site"]), *trace.stack(int(write["stack"])))]
    assert {frame.module for frame in frames} == {str(target)}
    assert len(frames) > 2


def test_the_same_place_of_a_program_has_the_same_stack(part: Part) -> None:
    trace, _ = part("threads")
    number = next(inode.id for inode in trace.inodes.values() if inode.paths == ("shared",))
    writes = trace.events[(trace.events["kind"] == Kind.WRITE) & (trace.events["file"] == number)]
    assert len(np.unique(trace.calls(slice(None)))) > 1
    assert len({(int(e["site"]), int(e["stack"])) for e in writes}) <= 4


def test_a_dangling_link_from_outside_creates_a_file_inside(tmp_path: Path) -> None:
    link = tmp_path / "link"
    pool = tmp_path / "run" / "pool"
    link.symlink_to(pool / "made")
    trace, recording = traced(tmp_path / "run", "sh", "-c", f"echo x > {link}; echo y > {tmp_path / 'outside'}")
    assert is_whole(trace, recording)
    assert [event.name for event in calls.name_events(trace)] == ["made"]


def test_no_process_is_left_when_the_time_is_over(tmp_path: Path) -> None:
    command = "echo $$ > {pool}/pid; sleep 1000 & wait"
    with pytest.raises(CrashcheckError) as caught:
        record(Workload(["sh", "-c", command], ["*"], timeout_s=2.0, recorder="syscalls"), tmp_path / "run")
    assert caught.value.slug == "workload-timeout"
    pid = (tmp_path / "run" / "pool" / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()
    trace = read(tmp_path / "run" / "trace.cct")
    assert calls.name_events(trace)[0].name == "pid"


def test_a_command_that_changes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CrashcheckError) as caught:
        traced(tmp_path / "run", "true")
    assert caught.value.slug == "nothing-persistent"


def test_where_ptrace_is_not_permitted_the_error_names_it(tmp_path: Path) -> None:
    # a traced process cannot be traced by another: as in a container without the permission
    recorder = build.build_runtime().syscalls
    pool = tmp_path / "pool"
    pool.mkdir()
    inner = [str(recorder), str(tmp_path / "inner"), str(pool), "true"]
    code = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "class F(ctypes.Structure): _fields_ = [('c', ctypes.c_ushort), ('t', ctypes.c_ubyte), "
        "('f', ctypes.c_ubyte), ('k', ctypes.c_uint)]\n"
        "class P(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('p', ctypes.POINTER(F))]\n"
        "filter = (F * 4)(F(0x20, 0, 0, 0), F(0x15, 0, 1, 101), F(6, 0, 0, 0x50001), F(6, 0, 0, 0x7fff0000))\n"
        "libc.prctl(38, 1, 0, 0, 0)\n"
        "assert libc.prctl(22, 2, ctypes.byref(P(4, filter))) == 0\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    done = subprocess.run(["python3", "-c", code, *inner], capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "ptrace is not permitted: Operation not permitted" in done.stderr
    assert read_notes(tmp_path / "inner") == [("ptrace", "Operation not permitted")]


STRICT = [*build.SYSCALLS_FLAGS, "-Wall", "-Wextra", "-Werror", f"-I{build.INCLUDE}"]


@SLOW
def test_the_recorder_runs_under_sanitizers(tmp_path: Path, program: str) -> None:
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    checked = tmp_path / "checked"
    sanitize = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    sources = map(str, build.syscalls_sources())
    subprocess.run(["gcc", *STRICT, *sanitize, *sources, "-o", str(checked)], check=True)
    for number, name in enumerate(("names", "again", "writes", "allocations", "copies", "maps", "threads", "forks")):
        pool = tmp_path / f"pool{number}"
        pool.mkdir()
        done = subprocess.run(
            [str(checked), str(tmp_path / f"t{number}"), str(pool), program, str(pool), name],
            capture_output=True,
            text=True,
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), name
        assert len(read(tmp_path / f"t{number}")) > 0


PYTHON = """
import os, pathlib
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
"""
COMMANDS = [
    pytest.param("exec {program} {pool} writes", id="writes"),
    pytest.param("exec {program} {pool} again", id="again"),
    pytest.param("exec {program} {pool} allocations", id="allocations"),
    pytest.param("exec {program} {pool} forks", id="forks"),
    pytest.param(f"exec {sys.executable} -S -B -c {shlex.quote(PYTHON)} {{pool}}", id="python"),
    pytest.param("gzip -n --synchronous {pool}/f", id="gzip"),
    pytest.param("xz -T1 {pool}/f", id="xz"),
    pytest.param("sort -o {pool}/f {pool}/f", id="sort"),
    pytest.param("dd if={pool}/f of={pool}/z bs=5000 oflag=dsync status=none", id="dd"),
    pytest.param(
        "cd {pool}; cp f g; mv g h; ln f i; ln -s i j; mkdir d; mv i d/k; sync d; rm -r d; echo x >> h", id="sh"
    ),
    pytest.param(
        "cd {pool}; tar --mtime=@0 -cf t f; rm f; tar xf t; cp f g; mv g h; rm f; ln h f", id="tar", marks=SLOW
    ),
]
# What they write differs from run to run: only how much is compared.
RANDOM = [
    pytest.param("sed -i s/1/2/ {pool}/f", id="sed"),
    pytest.param("sqlite3 {pool}/db 'create table t(a); insert into t values(1); update t set a=2;'", id="sqlite3"),
    pytest.param(
        "cd {pool}; git init -q .; git add f; git config user.email a@b; git commit -qm f", id="git", marks=SLOW
    ),
]


def rows_by_both(command: str, folder: Path, program: str) -> tuple[list[Row], list[Row]]:
    """The recorded calls, and those that strace shows of a second run."""
    tool = shlex.split(command)[0]
    compilers.needs_tools("strace", *([tool] if tool not in ("exec", "cd") else ["git", "tar"]))
    first = folder / "first"
    first.mkdir()
    (first / "f").write_bytes(b"".join(b"%d\n" % (i * 7919 % 10007) for i in range(10007)))
    command = command.replace("{program}", program)
    trace, recording = traced(folder / "run", "sh", "-c", command, first_image=first)
    assert is_whole(trace, recording)
    shown = by_strace(["sh", "-c", command.replace("{pool}", str(first))], first, folder / "log")
    assert shown
    return by_trace(trace), shown


@pytest.mark.parametrize("command", COMMANDS)
def test_the_recorded_calls_are_those_that_strace_shows(command: str, tmp_path: Path, program: str) -> None:
    found, expected = rows_by_both(command, tmp_path, program)
    assert found == expected


@pytest.mark.parametrize("command", RANDOM)
def test_as_many_bytes_are_recorded_as_strace_shows(command: str, tmp_path: Path, program: str) -> None:
    found, expected = rows_by_both(command, tmp_path, program)
    assert [(call, len(data)) for call, _, data in found] == [(call, len(data)) for call, _, data in expected]


PROGRAMS = {
    "sqlite3": "sqlite3 {pool}/x.db 'create table t(a); insert into t values(1); pragma journal_mode=wal; "
    "insert into t values(3);'",
    "git": "cd {pool}; git init -q .; git add f; git config user.email a@b; git commit -qm f; git gc -q; git tag y",
    "python3": "python3 -c \"import dbm.dumb as d; s=d.open('{pool}/s'); s['a']=b'1'; s['b']=b'1'*1000; s.close()\"",
    "gdbmtool": "gdbmtool -n {pool}/g.db store a 1 \\; store b 2 \\; delete a",
    "tar": "cd {pool}; mkdir d; cp f d; ln -s f d/l; tar czf t d; rm -r d; tar xzf t; mv d ../d; mv ../d e",
    "cp": "cp -a {pool}/f {pool}/g; cp --sparse=always {pool}/f {pool}/h; cp --reflink=auto {pool}/f {pool}/i",
    "truncate": "cd {pool}; truncate -s 2G s; printf x | dd of=s bs=1 seek=2000000000 conv=notrunc; cp s t",
    "perl": "perl -pi -e s/1/2/ {pool}/f",
    "xz": "xz {pool}/f",
}


@SLOW
@pytest.mark.parametrize("tool", sorted(PROGRAMS))
def test_everyday_programs_are_recorded_whole(tool: str, tmp_path: Path) -> None:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    first = tmp_path / "first"
    first.mkdir()
    (first / "f").write_bytes(b"".join(b"%d\n" % i for i in range(10000)))
    trace, recording = traced(tmp_path / "run", "sh", "-c", PROGRAMS[tool], first_image=first)
    assert is_whole(trace, recording)
    assert not (trace.events["kind"] == Kind.UNMODELLED).any()
    assert np.count_nonzero(np.isin(trace.events["kind"], np.array([Kind.WRITE, Kind.STORE], dtype=np.uint8))) > 0


def test_what_another_process_changes_meanwhile_is_named(tmp_path: Path) -> None:
    trace, recording = traced(tmp_path / "run", "sh", "-c", "echo 1 > {pool}/a; echo 2 > {pool}/b; rm {pool}/b")
    (recording.pool / "a").write_bytes(b"other\n")
    (recording.pool / "new").touch()
    found = replay.check(trace, recording.first, recording.pool)
    assert not found.whole
    assert causes(trace, found, ()) == (
        "a: 6 bytes at 0x0–0x5 are not accounted for: another process changed it meanwhile, or a call that the "
        "recorder does not know",
        "new: the file is there, and by the trace it is not: another process changed it meanwhile, or a call "
        "that the recorder does not know",
    )
