"""Write a trace of system calls that neither of our recorders made: events are kept in memory, then go to a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import ChunkKind, Kind, Recorder, Status

_PER_CHUNK = (fmt.CHUNK_BYTES - fmt.CHUNK_HEADER_BYTES) // fmt.EVENT_BYTES
_FIELDS = fmt.RECORD.names or ()


class TraceWriter:
    """A trace of system calls in the making."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._blob = bytearray(fmt.CHUNK_HEADER_BYTES)  # it is the first chunk
        self._threads: dict[int, int] = {}

    def event(self, pid: int, kind: Kind, data: bytes | None = None, process: int | None = None, **fields: int) -> int:
        """Add an event and return its number. `pid`: its thread, 0: none. `data`: its bytes."""
        if pid and pid not in self._threads:
            self._threads[pid] = number = len(self._threads) + 1
            self._add(number, Kind.THREAD_START, {"aux": number, "payload": process or pid})
        if data is not None:
            fields["size"] = len(data)
            fields["payload"] = int.from_bytes(data, "little")
            if len(data) > fmt.INLINE_BYTES:
                fields["payload"] = fmt.HEADER_BYTES + len(self._blob)
                self._blob += data
        return self._add(self._threads.get(pid, 1), kind, fields)  # what no thread did is of the first

    def _add(self, thread: int, kind: Kind, fields: dict[str, int]) -> int:
        fields |= {"seq": len(self._rows) + 1, "kind": int(kind), "instance_delta": thread}
        self._rows.append(tuple(fields.get(name, 0) for name in _FIELDS))
        return len(self._rows)

    def save(self, path: Path, main_pid: int, files: int, clean: bool) -> None:
        """Write the trace. `files`: the highest id. Raises OSError."""
        span = -(-len(self._blob) // fmt.CHUNK_BYTES)
        parts = [self._rows[at : at + _PER_CHUNK] for at in range(0, len(self._rows), _PER_CHUNK)]
        header = np.zeros(1, dtype=fmt.HEADER)
        values = {
            "magic": fmt.MAGIC,
            "version": fmt.VERSION,
            "header_bytes": fmt.HEADER_BYTES,
            "chunk_bytes": fmt.CHUNK_BYTES,
            "event_bytes": fmt.EVENT_BYTES,
            "next_seq": len(self._rows) + 1,
            "next_chunk": span + len(parts),
            "next_thread": len(self._threads) + 1,
            "next_file": files + 1,
            "status": Status.CLEAN_EXIT if clean else 0,
            "main_pid": main_pid,
            "recorder": Recorder.SYSCALLS,
        }
        ones = ("site", "stack", "operation", "load_site", "load_stack", "load_thread")
        for name, value in (*values.items(), *((f"next_{one}", 1) for one in ones)):
            header[name] = value
        self._blob[: fmt.CHUNK_HEADER_BYTES] = _chunk(ChunkKind.BLOB, span, len(self._blob) - fmt.CHUNK_HEADER_BYTES)
        with open(path, "xb") as file:
            file.write(header.tobytes().ljust(fmt.HEADER_BYTES, b"\0"))
            file.write(self._blob)
            file.truncate(file.seek(fmt.HEADER_BYTES + span * fmt.CHUNK_BYTES))
            for rows in parts:
                records = np.array(rows, dtype=fmt.RECORD).tobytes()
                file.write((_chunk(ChunkKind.EVENTS, 1, len(records)) + records).ljust(fmt.CHUNK_BYTES, b"\0"))


def _chunk(kind: ChunkKind, chunks: int, used: int) -> bytes:
    header = np.zeros(1, dtype=fmt.CHUNK_HEADER)
    header["kind"], header["chunks"], header["used_bytes"] = kind, chunks, used
    return header.tobytes().ljust(fmt.CHUNK_HEADER_BYTES, b"\0")
