"""Parsers of recordings: traces, what strace prints, notes."""

from __future__ import annotations

import os
from pathlib import Path

from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.calls import allocations, injected_faults, name_events, outputs
from crashcheck.analyzer.trace.dump import lines
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.strace.convert import convert
from crashcheck.runtime.trace_format import FlushKind
from crashcheck.runtime.validate import read_notes
from support.parsers.parser import Parser
from support.tracing import CallsBuilder, TraceBuilder

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


# Of a trace, the bytes that mean something: its header, and the first of each chunk.
_HEAD, _OF_CHUNK = 128, 2048


def compact(image: bytes) -> bytes:
    chunks = range(fmt.HEADER_BYTES, len(image), fmt.CHUNK_BYTES)
    return image[:_HEAD] + b"".join(image[at : at + _OF_CHUNK] for at in chunks)


def expanded(data: bytes) -> bytes:
    chunks = [data[at : at + _OF_CHUNK].ljust(fmt.CHUNK_BYTES, b"\0") for at in range(_HEAD, len(data), _OF_CHUNK)]
    return data[:_HEAD].ljust(fmt.HEADER_BYTES, b"\0") + b"".join(chunks[:8])


def _trace(data: bytes, folder: Path) -> None:
    path = folder / "trace.cct"
    path.write_bytes(expanded(data))
    trace = read(path)
    for line in lines(trace, None, True):
        assert line
    for events in (name_events, allocations, outputs, injected_faults):
        list(events(trace))
    replay.check(trace, folder, folder)


def run_of_stores(path: Path) -> TraceBuilder:
    t = TraceBuilder(path)
    base = t.unit(7, 10, "/program")
    t.stack_def(t.stack_def(0, base + 1), base + 2)
    t.write("a", 0, bytes(range(100)))
    t.store("a", 8, 8, 7)
    t.load("a", 8, 8)
    t.loads_left_out(True)
    t.flush(FlushKind.CLWB, "a", 8, 8)
    t.sfence()
    t.msync("a", 0, 4096)
    with t.thread(2):
        t.load("a", 8, 8)
    return t


def run_of_calls(path: Path) -> CallsBuilder:
    t = CallsBuilder(path, {"d/": None, "d/a": b"before", "b": b""})
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
    t.acknowledge(fmt.OutputKind.SOCKET, b"done")
    t.output(5)
    t.dirsync("d")
    t.sync_all()
    return t


def _traces(folder: Path) -> list[bytes]:
    return [compact(run(folder / "trace.cct").image()) for run in (run_of_stores, run_of_calls)]


def _strace(data: bytes, folder: Path) -> None:
    for name in ("pool", "first"):
        (folder / name).mkdir()
    (folder / "first" / "b").write_bytes(b"before")
    pool = "".join(f"\\x{byte:02x}" for byte in os.fsencode(folder / "pool") + b"/")
    (folder / "printed").write_bytes(data.replace(_HEX["POOL"].encode(), pool.encode()))
    trace, names = folder / "trace", [folder / name for name in ("first", "pool", "cwd", "stdout", "stderr")]
    convert(folder / "printed", trace, *names)
    for line in lines(read(trace), None, True):
        assert line


def _notes(data: bytes, folder: Path) -> None:
    (folder / "trace.notes").write_bytes(data)
    read_notes(folder / "trace")


PARSERS = {
    "trace": Parser(_trace, _traces),
    "strace": Parser(_strace, lambda _: [STRACE]),
    "notes": Parser(_notes, lambda _: [b"pattern\ta.log\nprivate\tb.db\n"]),
}
