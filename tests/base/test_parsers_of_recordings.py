"""Parsers of recorded system calls and of what is kept of runs take any input, as those in test_parsers do."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck import crash_image
from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.calls import Allocate, Names, allocations, injected_faults, name_events, outputs
from crashcheck.analyzer.trace.dump import lines
from crashcheck.analyzer.trace.reader import ROOT, read
from crashcheck.checker.kept.dependencies import Dependencies, Unkept
from crashcheck.checker.kept.store import KeptImages, Unusable
from crashcheck.errors import CrashcheckError
from crashcheck.reports.github.client import _new_side
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.strace.convert import convert
from crashcheck.runtime.trace_format import Kind, OutputKind
from support.fuzzing import Edits, WholeFile, changed, changes, fuzzed, must_take
from support.tracing import CallsBuilder

_NAMES = ("POOL", "a", "b", "d", "s", "new", "out")
_HEX = {name: "".join(f"\\x{byte:02x}" for byte in name.encode()) for name in _NAMES}
STRACE = """\
7 execve("{a}", ["{a}"], 0x7ffd) = 0
7 openat(-100<{POOL}>, "{a}", 0102, 0644) = 3<{POOL}{a}>
7 write(3<{POOL}{a}>, "{new}", 3) = 3
7 pwritev2(3<{POOL}{a}>, [{{iov_base="{new}", iov_len=3}}, {{iov_base="{a}", iov_len=1}}], 2, 8, 0x2) = 4
7 fsync(3<{POOL}{a}> <unfinished ...>
8 +++ killed by SIGKILL +++
7 <... fsync resumed>) = 0
7 clone(child_stack=NULL, flags=0x100|17) = 9
9 mkdirat(-100<{POOL}>, "{d}", 0755) = 0
9 symlink("{d}", "{s}") = 0
9 rename("{a}", "{b}") = 0
7 copy_file_range(3<{POOL}{a}>, [0] => [5], 3<{POOL}{a}>, NULL, 5, 0) = 3
7 fallocate(3<{POOL}{a}>, 0, 0, 99) = 0
7 sync_file_range(3<{POOL}{a}>, 0, 99, 7) = 0
7 renameat2(-100<{POOL}>, "{b}", -100<{POOL}>, "{d}", 0x2) = 0
7 socketpair(1, 1, 0, [4<UNIX:[1]>, 5<UNIX:[2]>]) = 0
7 sendto(4<UNIX:[1]>, "{out}", 3, 0, NULL, 0) = 3
7 mmap(NULL, 4096, 3, 1, 3<{POOL}{a}>, 0) = 0x7f00
7 fcntl(3<{POOL}{a}>, 0x406, 9) = 9<{POOL}{a}>
7 chdir("{d}") = 0
7 unlink("{b}") = 0
7 +++ exited with 0 +++
""".format(**_HEX).encode()
PATCH = b"@@ -1,3 +1,4 @@ int f(void)\n int a;\n-int b;\n+int c;\n\\ No newline at end of file\n@@ -9 +10 @@\n+x\n"
LISTING = b"o/etc/passwd\0s/etc\0l/a b\0cuname\0xit reads a clock\0oit may change /tmp/x\0"


@fuzzed
@given(changes)
def test_lines_of_strace(tmp_path_factory: pytest.TempPathFactory, edits: Edits) -> None:
    folder = tmp_path_factory.mktemp("strace")
    for name in ("pool", "first"):
        (folder / name).mkdir()
    (folder / "first" / "b").write_bytes(b"before")
    pool = "".join(f"\\x{byte:02x}" for byte in os.fsencode(folder / "pool") + b"/")
    (folder / "printed").write_bytes(changed(STRACE.replace(_HEX["POOL"].encode(), pool.encode()), edits))
    trace, names = folder / "trace", [folder / name for name in ("first", "pool", "cwd", "stdout", "stderr")]

    def every(printed: Path) -> None:
        convert(printed, trace, *names)
        for line in lines(read(trace), None, True):
            assert line

    must_take(every, folder / "printed")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> WholeFile:
    t = CallsBuilder(tmp_path_factory.mktemp("calls") / "trace.cct", {"d/": None, "d/a": b"before", "b": b""})
    t.site = t.call_site("/bin/program", 0x1234)
    t.stack = t.stack_def(0, t.site)
    t.open("d/t", exclusive=True)
    t.write("d/t", 0, b"new")
    t.allocate("d/t", 0, 4096)
    t.fsync("d/t")
    t.move("d/t", "d/a")
    t.mkdir("e")
    t.symlink("d/a", "e/s")
    t.link("b", "e/b")
    t.exchange("b", "d/a")
    t.remove("e/b")
    t.acknowledge(OutputKind.SOCKET, b"done")
    t.output(5)
    t.dirsync("d")
    t.sync_all()
    t.save()
    return WholeFile(t.path)


places = st.tuples(st.integers(0, 2), st.integers(0, 2400)).map(
    lambda at: fmt.HEADER_BYTES + at[0] * fmt.CHUNK_BYTES + at[1]
)


@fuzzed
@given(st.lists(st.tuples(places, st.binary(min_size=1, max_size=4)), max_size=4))
def test_traces_of_system_calls(calls: WholeFile, edits: list[tuple[int, bytes]]) -> None:
    path = calls.path
    image = np.frombuffer(calls.content, np.uint8).copy()
    for at, new in edits:
        image[at : at + len(new)] = np.frombuffer(new, np.uint8)[: max(0, len(image) - at)]
    path.write_bytes(image.tobytes())

    def every(path: Path) -> None:
        trace = read(path)
        for line in lines(trace, None, True):
            assert line
        for events in (name_events, allocations, outputs, injected_faults):
            list(events(trace))
        replay.check(trace, path.parent, path.parent)

    must_take(every, path)


def test_an_output_of_an_unknown_kind_is_damage(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t.event(Kind.OUTPUT, aux=99)
    with pytest.raises(CrashcheckError, match="output of kind 99"):
        t.trace()


def test_a_fault_of_a_call_whose_name_is_damaged_is_shown(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t._record(Kind.FAULT, b"\xff\0a", aux=5)
    assert [fault.call for fault in injected_faults(t.trace())] == ["\ufffd"]


def test_a_directory_within_itself_has_a_path_for_each_of_its_entries(tmp_path: Path) -> None:
    names = Names({(ROOT, "d"): 2, (2, "d"): 2, (2, "a"): 3})
    assert names.paths() == {"d": 2, "d/d": 2, "d/a": 3}


def test_a_directory_that_is_renamed_into_itself_is_no_line_of_strace(tmp_path: Path) -> None:
    for name in ("pool", "first"):
        (tmp_path / name).mkdir()
    pool = tmp_path / "pool"
    (tmp_path / "printed").write_text(f'7 mkdir("{pool}/d", 0755) = 0\n7 rename("{pool}/d", "{pool}/d/e") = 0\n')
    with pytest.raises(CrashcheckError, match=r"line 2 .* would be within itself"):
        convert(
            tmp_path / "printed",
            tmp_path / "trace",
            *(tmp_path / name for name in ("first", "pool", "cwd", "stdout", "stderr")),
        )


def test_zeros_over_a_large_range_take_no_time_for_what_holds_no_data(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t.open("a")
    t.truncate("a", 1 << 60)
    t.allocate("a", 0, 1 << 60, Allocate.ZERO_RANGE | Allocate.KEEP_SIZE)
    (tmp_path / "first").mkdir()
    files = replay.check(t.trace(), tmp_path / "first", tmp_path / "first").files
    assert [file.path for file in files] == ["a"]


def test_a_symbolic_link_that_the_first_image_lacks_is_a_difference(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "trace.cct")
    t.inode("link", 0o120777, existed=True)
    t.open("a")
    (tmp_path / "first").mkdir()
    assert not replay.check(t.trace(), tmp_path / "first", tmp_path / "first").whole


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("image")
    (folder / "pool" / "d").mkdir(parents=True)
    (folder / "pool" / "d" / "a").write_bytes(b"data" * 300)
    (folder / "addresses").write_bytes(b"1")
    crash_image._pack(folder / "x", folder / "pool", {"acked": 3, "id": "a1"}, b"out", folder / "addresses")
    return gzip.decompress((folder / "x").read_bytes())


@fuzzed
@given(changes, changes, st.booleans())
def test_crash_images(
    tmp_path_factory: pytest.TempPathFactory, archive: bytes, edits: Edits, packed: Edits, again: bool
) -> None:
    """`again`: with checksums that fit, so that what the members hold is reached."""
    folder = tmp_path_factory.mktemp("image")
    whole = changed(archive, edits)
    if again:
        with contextlib.suppress(tarfile.TarError):
            whole = _with_checksums(archive, edits)
    (folder / "image").write_bytes(changed(gzip.compress(whole, 1, mtime=0), packed))
    must_take(partial(crash_image._unpack, folder=folder / "out"), folder / "image")
    assert {path.name for path in folder.iterdir()} <= {"image", "out"}


def _with_checksums(archive: bytes, edits: Edits) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=out, mode="w") as new:
        for member in old:
            file = old.extractfile(member)
            data = changed(file.read() if file else b"", edits)
            member.name = changed(member.name.encode(), edits).decode("utf-8", "surrogateescape").replace("\0", "")
            member.size, member.pax_headers = len(data), {}
            with contextlib.suppress(ValueError):
                new.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("kept") / "kept.db"
    kept = KeptImages(path)
    kept.add(b"base", [(("o/etc/passwd", "cuname"), b"state", bytes([n]) * 16) for n in range(50)])
    kept.add_run(b"base", ("o/etc/passwd",), b"state", b"result")
    kept.close()
    return path.read_bytes()


@fuzzed
@given(changes, st.booleans())
def test_databases_of_kept_verdicts(
    tmp_path_factory: pytest.TempPathFactory, database: bytes, edits: Edits, same_length: bool
) -> None:
    path = tmp_path_factory.mktemp("kept") / "kept.db"
    if same_length:
        edits = [(share, len(new), new) for share, _, new in edits]
    path.write_bytes(changed(database, edits))
    with contextlib.suppress(Unusable):
        kept = KeptImages(path)
        try:
            for number, listing, _ in kept.listings(b"base"):
                Dependencies(()).state(listing)
                kept.images(number)
                kept.run(number)
            kept.last_used(b"base")
            kept.add_run(b"base", ("o/etc/group",), b"new", b"result")
            kept.add(b"base", [(("o/etc/group",), b"new", b"image")])
            kept.add(b"other", [(("o/etc/group",), b"new", b"image")])
        finally:
            kept.close()


@fuzzed
@given(changes)
def test_records_of_what_a_check_used(edits: Edits) -> None:
    dependencies = Dependencies(())
    listing = dependencies.listing(changed(LISTING, edits))
    if not isinstance(listing, Unkept):
        dependencies.state(listing)
        dependencies.unchanged()


@fuzzed
@given(changes)
def test_patches_of_pull_requests(edits: Edits) -> None:
    list(_new_side(changed(PATCH, edits).decode("utf-8", "replace")))
