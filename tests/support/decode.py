"""A second reader of traces, written from trace_format.h alone, so that tests need no other part."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

KINDS = {
    1: "STORE", 2: "WRITE", 3: "TRUNCATE", 4: "CREATE", 5: "FLUSH", 6: "FENCE", 7: "SYNC_BEGIN", 8: "SYNC_END",
    9: "MARK_BEGIN", 10: "MARK_END", 11: "OUTPUT", 16: "FILE_DEF", 17: "UNIT_DEF", 18: "STACK_DEF", 19: "THREAD_START",
    12: "LOAD", 15: "LOAD_GAP",
    20: "MAP", 21: "UNMAP", 22: "FORK", 23: "EXEC", 24: "DLOPEN", 25: "EXIT", 26: "UNMODELLED",
    27: "UNLINK", 28: "RENAME", 29: "CONTENT",
}  # fmt: skip
BYTES = {"STORE", "WRITE", "FILE_DEF", "UNIT_DEF", "MAP", "UNMAP", "EXEC", "DLOPEN", "UNMODELLED", "CONTENT"}
NT, ATOMIC, BULK, LIBRARY, JOINED = 1, 2, 4, 8, 32
CLEAN_EXIT, DISK_FULL, TOO_MANY, SEALED = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    kind: str
    flags: int
    file: int
    offset: int
    size: int
    site: int
    stack: int
    delta: int | None
    aux: int
    payload: int
    data: bytes
    thread: int
    pid: int


@dataclass(frozen=True, slots=True)
class Decoded:
    events: tuple[Event, ...]
    status: int
    main_pid: int

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    def files(self) -> dict[str, int]:
        return {event.data.decode(): event.file for event in self.of("FILE_DEF")}

    def index(self, event: Event) -> int:
        """The site's index in its unit."""
        base = max((unit.aux for unit in self.of("UNIT_DEF") if unit.aux <= event.site), default=0)
        return event.site - base

    def chain(self, stack: int) -> list[int]:
        """Call sites of a stack, innermost first."""
        nodes = {event.stack: event for event in self.of("STACK_DEF")}
        sites = []
        while stack:
            sites.append(nodes[stack].site)
            stack = nodes[stack].aux
        return sites


def decode(path: Path) -> Decoded:
    raw = path.read_bytes()
    magic, version, header, chunk_bytes, event_bytes = struct.unpack_from("<8sIIII", raw, 0)
    assert (magic, version, header, chunk_bytes, event_bytes) == (b"CRSHTRC\n", 8, 4096, 262144, 56)
    status, main_pid = struct.unpack_from("<II", raw, 56)
    return Decoded(tuple(sorted(_events(raw), key=lambda event: event.seq)), status & ~SEALED, main_pid)


def _events(raw: bytes) -> Iterable[Event]:
    at = 4096
    while at + 262144 <= len(raw):
        kind, thread, pid, chunks, used = struct.unpack_from("<IIIIQ", raw, at)
        if kind == 1:
            for place in range(at + 64, at + 64 + used, 56):
                yield _event(raw, place, thread, pid)
        at += 262144 * max(1, chunks)


def _event(raw: bytes, at: int, thread: int, pid: int) -> Event:
    seq, offset, size, site, stack, delta, kind, flags, _, file, aux, _, payload = struct.unpack_from(
        "<QQIIIIBBHIIIQ", raw, at
    )
    name = KINDS[kind]
    data = b""
    if name in BYTES:
        data = raw[at + 48 : at + 48 + size] if size <= 8 else raw[payload : payload + size]
        assert len(data) == size
    known = None if delta == 0xFFFFFFFF else delta
    return Event(seq, name, flags, file, offset, size, site, stack, known, aux, payload, data, thread, pid)
