"""Writes genuine trace files from readable scripts, so that tests go through the real reader.

t = TraceBuilder(tmp_path / "t.cct")
t.file("a", size=4096)
t.store("a", 0, 8, 1)
t.clwb("a", 0)
t.sfence()
with t.thread(2):
    t.store("a", 64, 8, 2)
trace = t.trace()
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from crashcheck.analyzer.persistence.sync_intervals import folder_hash
from crashcheck.analyzer.trace.reader import Trace, read
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.trace_format import (
    ChunkKind,
    CreateFlag,
    FenceKind,
    FlushKind,
    Kind,
    OutputKind,
    Recorder,
    Status,
    StoreFlag,
    SyncKind,
    WriteFlag,
)

_PAYLOAD = fmt.CHUNK_BYTES - fmt.CHUNK_HEADER_BYTES


class TraceBuilder:
    """Each method records one event (the default seq is the next) and returns its seq."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[tuple[int, int, dict[str, int]]] = []  # thread, pid, fields
        self.accesses: list[tuple[int, int, dict[str, int]]] = []  # the same, of loads
        self.blob = bytearray()
        self.seq = 0
        self.current_thread = 1
        self.pid = 100
        self.files: dict[str, int] = {}
        self.status = int(Status.CLEAN_EXIT)
        self.recorder = Recorder.LINKED
        self.site = 0
        self.stack = 0
        self._stacks = 0
        self._sites = 1

    # Definitions.
    def file(self, path: str, size: int = 0, existed: bool = True) -> int:
        number = len(self.files) + 1
        self.files[path] = number
        self._record(Kind.FILE_DEF, file=number, data=os.fsencode(path), offset=size, flags=int(existed))
        return number

    def unit(self, key: int, sites: int, path: str) -> int:
        base = self._sites
        self._sites += sites
        self._record(Kind.UNIT_DEF, aux=base, offset=sites, data=key.to_bytes(8, "little") + os.fsencode(path))
        return base

    def stack_def(self, parent: int, site: int) -> int:
        self._stacks += 1
        self._record(Kind.STACK_DEF, stack=self._stacks, aux=parent, site=site)
        return self._stacks

    # Updates.
    def store(self, file: str, offset: int, size: int, value: int | bytes, flags: int = 0) -> int:
        data = value if isinstance(value, bytes) else value.to_bytes(size, "little")
        assert len(data) == size
        return self._record(Kind.STORE, file=self._file(file), offset=offset, data=data, flags=flags)

    def nt_store(self, file: str, offset: int, size: int, value: int | bytes) -> int:
        return self.store(file, offset, size, value, int(StoreFlag.NT))

    def locked_store(self, file: str, offset: int, size: int, value: int | bytes) -> int:
        """A successful locked read-modify-write: a fence, then its store with the next seq."""
        self.fence(FenceKind.LOCKED)
        return self.store(file, offset, size, value, int(StoreFlag.ATOMIC))

    def write(self, file: str, offset: int, data: bytes, flags: int = 0) -> int:
        return self._record(Kind.WRITE, file=self._file(file), offset=offset, data=data, flags=flags)

    def append(self, file: str, offset: int, data: bytes) -> int:
        return self.write(file, offset, data, int(WriteFlag.APPEND))

    def submit(self, file: str, offset: int, data: bytes) -> int:
        """A write that has not ended: `ended` ends it."""
        return self.write(file, offset, data, int(WriteFlag.PENDING))

    def ended(self, file: str, write: int) -> int:
        return self._record(Kind.WRITE_END, file=self._file(file), payload=write)

    def truncate(self, file: str, size: int) -> int:
        return self._record(Kind.TRUNCATE, file=self._file(file), offset=size)

    def create(self, file: str) -> int:
        if file not in self.files:
            self.file(file, existed=False)
        return self._record(Kind.CREATE, file=self._file(file))

    def unlink(self, file: str) -> int:
        return self._record(Kind.UNLINK, file=self._file(file))

    def rename(self, file: str | None, to: str, content: bytes) -> int:
        """`file` (None: one that is not watched) takes the name `to`."""
        for low in range(0, len(content), 4096):
            self._record(Kind.CONTENT, file=self._file(to), offset=low, data=content[low : low + 4096])
        return self._record(Kind.RENAME, file=self._file(to), aux=self._file(file) if file else 0, offset=len(content))

    # Reads.
    def load(self, file: str, offset: int, size: int = 8, **fields: int) -> int:
        """Takes no seq of its own: it has that of the next event."""
        return self._access(Kind.LOAD, self.seq + 1, file=self._file(file), offset=offset, size=size, **fields)

    def loads_left_out(self, begins: bool) -> int:
        """A gap between loads of this thread begins, or ends."""
        return self._access(Kind.LOAD_GAP, self.seq + 1, aux=int(begins))

    def _access(self, kind: Kind, seq: int, **fields: int) -> int:
        fields = {"site": self.site, "stack": self.stack, "instance_delta": fmt.NO_INSTANCE} | fields
        self.accesses.append((self.current_thread, self.pid, fields | {"seq": seq, "kind": int(kind)}))
        return seq

    # Order.
    def flush(self, kind: FlushKind, file: str, offset: int, size: int = 1) -> int:
        return self._record(Kind.FLUSH, file=self._file(file), offset=offset, size=size, aux=kind)

    def clflush(self, file: str, offset: int, size: int = 1) -> int:
        return self.flush(FlushKind.CLFLUSH, file, offset, size)

    def clflushopt(self, file: str, offset: int, size: int = 1) -> int:
        return self.flush(FlushKind.CLFLUSHOPT, file, offset, size)

    def clwb(self, file: str, offset: int, size: int = 1) -> int:
        return self.flush(FlushKind.CLWB, file, offset, size)

    def fence(self, kind: FenceKind = FenceKind.SFENCE) -> int:
        return self._record(Kind.FENCE, aux=kind)

    def sfence(self) -> int:
        return self.fence(FenceKind.SFENCE)

    def mfence(self) -> int:
        return self.fence(FenceKind.MFENCE)

    def sync_begin(self, kind: SyncKind, file: str | None = None, offset: int = 0, size: int = 0) -> int:
        number = self._file(file) if file is not None else 0
        return self._record(Kind.SYNC_BEGIN, file=number, offset=offset, size=size, aux=kind)

    def sync_end(self, begin: int, failed: bool = False) -> int:
        fields = next(f for _, _, f in self.records if f["seq"] == begin)
        return self._record(
            Kind.SYNC_END,
            file=fields["file"],
            offset=fields["offset"],
            size=fields["size"],
            aux=fields["aux"],
            payload=begin,
            flags=int(failed),
        )

    def sync(
        self, kind: SyncKind, file: str | None = None, offset: int = 0, size: int = 0, failed: bool = False
    ) -> int:
        return self.sync_end(self.sync_begin(kind, file, offset, size), failed)

    def msync(self, file: str, offset: int = 0, size: int = 0, failed: bool = False) -> int:
        return self.sync(SyncKind.MSYNC, file, offset, size, failed)

    def fsync(self, file: str, failed: bool = False) -> int:
        return self.sync(SyncKind.FSYNC, file, failed=failed)

    def fdatasync(self, file: str, failed: bool = False) -> int:
        return self.sync(SyncKind.FDATASYNC, file, failed=failed)

    def dirsync(self, folder: str | None = None) -> int:
        """fsync of a folder of the pool ("" is the pool itself); None: a trace that does not name it."""
        return self.sync(SyncKind.DIRSYNC, offset=0 if folder is None else folder_hash(folder))

    # What was acknowledged to the outside world.
    def begin(self, ordinal: int) -> int:
        return self._record(Kind.MARK_BEGIN, aux=ordinal)

    def end(self, ordinal: int) -> int:
        return self._record(Kind.MARK_END, aux=ordinal)

    def output(self, total_bytes: int) -> int:
        return self._record(Kind.OUTPUT, offset=total_bytes)

    def event(self, kind: Kind, **fields: int) -> int:
        """Any record at all."""
        return self._record(kind, **fields)

    def gap(self, numbers: int = 1) -> None:
        """Leaves `numbers` sequence numbers unused, as an atomic operation that stored nothing does."""
        self.seq += numbers

    @contextmanager
    def thread(self, number: int, pid: int | None = None) -> Iterator[TraceBuilder]:
        before = self.current_thread, self.pid
        self.current_thread, self.pid = number, pid if pid is not None else self.pid
        try:
            yield self
        finally:
            self.current_thread, self.pid = before

    # Output.
    def trace(self) -> Trace:
        return read(self.save())

    def image(self) -> bytes:
        return self.save().read_bytes()

    def save(self) -> Path:
        """Header, one blob chunk (spanning as many as it needs), then event chunks by thread.

        What a chunk does not use is a hole in the file: thousands of tests write traces of a few events.
        """
        chunks = 0
        with self.path.open("wb") as file:
            for span, data in self._chunks():
                file.seek(fmt.HEADER_BYTES + chunks * fmt.CHUNK_BYTES)
                file.write(data)
                chunks += span
            file.seek(0)
            file.write(self._header(chunks))
            file.truncate(fmt.HEADER_BYTES + chunks * fmt.CHUNK_BYTES)
        return self.path

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """Each with the number of chunks that it spans, and without the zeros at its end."""
        if self.blob:
            span = (len(self.blob) + fmt.CHUNK_HEADER_BYTES + fmt.CHUNK_BYTES - 1) // fmt.CHUNK_BYTES
            yield span, self._chunk(ChunkKind.BLOB, 0, 0, span, bytes(self.blob))
        per_chunk = _PAYLOAD // fmt.EVENT_BYTES
        for kind, all_records in ((ChunkKind.EVENTS, self.records), (ChunkKind.LOADS, self._load_records())):
            owners: dict[tuple[int, int], list[dict[str, int]]] = {}
            for thread, pid, fields in all_records:
                owners.setdefault((thread, pid), []).append(fields)
            if self.recorder == Recorder.SYSCALLS:
                owners = self._mixed() if kind == ChunkKind.EVENTS else {}
            for (thread, pid), fields_list in owners.items():
                for start in range(0, len(fields_list), per_chunk):
                    part = fields_list[start : start + per_chunk]
                    records = np.zeros(len(part), dtype=fmt.RECORD)
                    for name in fmt.RECORD.names or ():
                        records[name] = [fields.get(name, 0) for fields in part]
                    yield 1, self._chunk(kind, thread, pid, 1, records.tobytes())

    def _header(self, chunks: int) -> bytes:
        header = np.zeros(1, dtype=fmt.HEADER)
        header["magic"] = fmt.MAGIC
        header["version"] = fmt.VERSION
        header["header_bytes"] = fmt.HEADER_BYTES
        header["chunk_bytes"] = fmt.CHUNK_BYTES
        header["event_bytes"] = fmt.EVENT_BYTES
        header["next_seq"] = self.seq + 1
        header["next_chunk"] = chunks
        header["next_site"] = self._sites
        header["next_stack"] = self._stacks + 1
        header["next_thread"] = max((t for t, _, _ in self.records), default=0) + 1
        header["next_file"] = max(self.files.values(), default=0) + 1
        header["status"] = self.status
        header["main_pid"] = 100
        header["recorder"] = self.recorder
        return header.tobytes()

    def _mixed(self) -> dict[tuple[int, int], list[dict[str, int]]]:
        """Records of all threads in one chunk, as the recorder of system calls writes them."""
        return {(0, 0): [fields | {"instance_delta": thread} for thread, _, fields in self.records]}

    def _load_records(self) -> list[tuple[int, int, dict[str, int]]]:
        """Loads with the units, stacks and threads that they need; these are called what events call them."""
        if not self.accesses:
            return []
        kinds = int(Kind.UNIT_DEF), int(Kind.STACK_DEF)
        needed = [(1, pid, fields) for _, pid, fields in self.records if fields["kind"] in kinds]
        threads = sorted({(thread, pid) for thread, pid, _ in self.accesses} | {(1, pid) for _, pid, _ in needed})
        starts = [
            (thread, pid, {"seq": 1, "kind": int(Kind.THREAD_START), "thread": thread, "aux": thread})
            for thread, pid in threads
        ]
        return [*starts, *needed, *self.accesses]

    def _chunk(self, kind: ChunkKind, thread: int, pid: int, span: int, payload: bytes) -> bytes:
        header = np.zeros(1, dtype=fmt.CHUNK_HEADER)
        header["kind"], header["thread"], header["pid"] = kind, thread, pid
        header["chunks"], header["used_bytes"] = span, len(payload)
        return header.tobytes().ljust(fmt.CHUNK_HEADER_BYTES, b"\0") + payload

    def _file(self, file: str) -> int:
        return self.files[file] if file in self.files else self.file(file)

    def _record(self, kind: Kind, data: bytes | None = None, **fields: int) -> int:
        self.seq += 1
        fields.setdefault("site", self.site)
        fields.setdefault("stack", self.stack)
        fields.setdefault("instance_delta", fmt.NO_INSTANCE)
        fields |= {"seq": self.seq, "kind": int(kind)}
        if data is not None:
            fields["size"] = len(data)
            if len(data) <= fmt.INLINE_BYTES:
                fields["payload"] = int.from_bytes(data, "little")
            else:
                fields["payload"] = fmt.HEADER_BYTES + fmt.CHUNK_HEADER_BYTES + len(self.blob)
                self.blob += data
        self.records.append((self.current_thread, self.pid, dict(fields)))
        return self.seq


_FOLDER, _FILE, _SYMLINK = 0o40755, 0o100644, 0o120777


class CallsBuilder(TraceBuilder):
    """A trace of system calls. Paths are those at that moment; they find the inodes that file ids represent.

    t = CallsBuilder(tmp_path / "t.cct", {"d/": None, "d/f": b"old"})  # what is there at first
    t.open("d/f.tmp")
    t.write("d/f.tmp", 0, b"new")
    t.fsync("d/f.tmp")
    t.move("d/f.tmp", "d/f")
    t.fsync("d")
    """

    def __init__(self, path: Path, first: Mapping[str, bytes | None] | None = None) -> None:
        super().__init__(path)
        self.recorder = Recorder.SYSCALLS
        self.starts: set[int] = set()
        self.inode("", _FOLDER, existed=True)
        for name, content in (first or {}).items():
            if name.endswith("/"):
                self.inode(name.rstrip("/"), _FOLDER, existed=True)
            else:
                self.inode(name, _FILE, existed=True, size=len(content or b""), dense=True)

    def inode(
        self, path: str, mode: int, existed: bool = False, size: int = 0, named: bool = True, dense: bool = False
    ) -> int:
        """Defines one, which `path` finds from then on. `named` off: it has no name in the trace (O_TMPFILE)."""
        number = self._inodes = getattr(self, "_inodes", 0) + 1
        self.files[path] = number
        data = os.fsencode(path) if named else b""
        self._record(Kind.INODE_DEF, file=number, aux=mode, offset=size, flags=existed + 2 * dense, data=data)
        return number

    def open(self, path: str, mode: int = _FILE, exclusive: bool = False) -> int:
        """Creates a file."""
        self.inode(path, mode)
        return self._names(Kind.NAME_CREATE, path, flags=int(CreateFlag.EXCLUSIVE) * exclusive)

    def temporary(self, path: str) -> int:
        """Creates a file as mkstemp does."""
        return self.open(path, 0o100600, exclusive=True)

    def tmpfile(self, handle: str) -> int:
        """O_TMPFILE: a file without a name, which `handle` finds until `link`."""
        return self.inode(handle, _FILE, named=False)

    def mkdir(self, path: str) -> int:
        self.inode(path, _FOLDER)
        return self._names(Kind.NAME_MKDIR, path)

    def symlink(self, target: str, path: str) -> int:
        self.inode(path, _SYMLINK)
        return self._names(Kind.NAME_SYMLINK, path, second=target)

    def link(self, path: str, to: str) -> int:
        self.files[to] = self.files[path]
        return self._names(Kind.NAME_LINK, to)

    def remove(self, path: str) -> int:
        """unlink."""
        seq = self._names(Kind.NAME_UNLINK, path)
        del self.files[path]
        return seq

    def rmdir(self, path: str) -> int:
        seq = self._names(Kind.NAME_RMDIR, path)
        del self.files[path]
        return seq

    def move(self, path: str, to: str) -> int:
        """rename."""
        replaced = self.files.get(to, 0)
        seq = self._names(Kind.NAME_RENAME, path, to, replaced)
        moved = {to + old[len(path) :]: old for old in self.files if old == path or old.startswith(path + "/")}
        self.files |= {new: self.files.pop(old) for new, old in moved.items()}
        return seq

    def exchange(self, path: str, to: str) -> int:
        """renameat2 with RENAME_EXCHANGE, of files."""
        seq = self._names(Kind.NAME_EXCHANGE, path, to, self.files[to])
        self.files[path], self.files[to] = self.files[to], self.files[path]
        return seq

    def allocate(self, path: str, offset: int, size: int, mode: int = 0) -> int:
        return self._record(Kind.ALLOCATE, file=self.files[path], offset=offset, payload=size, aux=mode)

    def sync_all(self, failed: bool = False) -> int:
        return self.sync(SyncKind.SYNC, failed=failed)

    def compared(self, path: str, offset: int, data: bytes) -> int:
        """A store that was found by comparing a mapping."""
        return self.store(path, offset, len(data), data, int(StoreFlag.COMPARED))

    def map(self, path: str) -> int:
        return self._record(Kind.MAP, file=self._file(path))

    def acknowledge(self, kind: OutputKind, data: bytes = b"") -> int:
        """Output to the world outside; use `output` for standard output."""
        return self._record(Kind.OUTPUT, aux=kind, data=data)

    def call_site(self, module: str, offset: int) -> int:
        """A site, for the fields `site` and for `stack_def`."""
        modules = self.__dict__.setdefault("_modules", {})
        if module not in modules:
            modules[module] = len(modules) + 1
            self._record(Kind.MODULE_DEF, aux=modules[module], data=os.fsencode(module))
        site = self._sites
        self._sites += 1
        self._record(Kind.SITE_DEF, site=site, aux=modules[module], offset=offset)
        return site

    def python_site(self, file: str, name: str, line: int) -> int:
        """The same of a function of Python 3.8 that has one line."""
        head = np.zeros((), dtype=fmt.CODE)
        head["version"], head["first_line"] = 0x0308, line
        head["file_bytes"], head["name_bytes"] = len(os.fsencode(file)), len(name.encode())
        code = self._codes = getattr(self, "_codes", 0) + 1
        self._record(Kind.CODE_DEF, aux=code, data=head.tobytes() + os.fsencode(file) + name.encode())
        site = self._sites
        self._sites += 1
        self._record(Kind.SITE_DEF, site=site, aux=code, flags=int(fmt.SiteFlag.IN_CODE))
        return site

    def _record(self, kind: Kind, data: bytes | None = None, **fields: int) -> int:
        if self.current_thread not in self.starts:
            self.starts.add(self.current_thread)
            super()._record(Kind.THREAD_START, aux=self.current_thread, payload=self.pid)
        return super()._record(kind, data, **fields)

    def _file(self, file: str) -> int:
        return self.files[file]

    def _names(self, kind: Kind, path: str, to: str = "", replaced: int = 0, second: str = "", flags: int = 0) -> int:
        names = np.zeros((), dtype=fmt.NAMES)
        folder, _, name = path.rpartition("/")
        if to:
            to_folder, _, second = to.rpartition("/")
            names["to_folder"], names["replaced"] = self.files[to_folder], replaced
        names["name_bytes"] = len(os.fsencode(name))
        data = names.tobytes() + os.fsencode(name) + os.fsencode(second)
        return self._record(kind, file=self.files[path], folder=self.files[folder], data=data, flags=flags)
