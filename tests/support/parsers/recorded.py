"""Parsers of recordings: traces and notes."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.calls import allocations, injected_faults, name_events
from crashcheck.analyzer.trace.dump import lines
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import FlushKind
from crashcheck.runtime.validate import read_notes
from support.parsers.parser import Parser
from support.tracing import CallsBuilder, TraceBuilder

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
    for events in (name_events, allocations, injected_faults):
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


def _notes(data: bytes, folder: Path) -> None:
    (folder / "trace.notes").write_bytes(data)
    read_notes(folder / "trace")


PARSERS = {
    "trace": Parser(_trace, _traces),
    "notes": Parser(_notes, lambda _: [b"pattern\ta.log\nprivate\tb.db\n"]),
}
