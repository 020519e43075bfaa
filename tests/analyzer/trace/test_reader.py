"""Reading traces: one order out of many threads, and a clear error for every file that is not a whole trace."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from crashcheck.analyzer.trace.accesses import payloads_of
from crashcheck.analyzer.trace.reader import UnitDef, WatchedFile, read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import trace_format as fmt
from crashcheck.runtime.seal import seal
from crashcheck.runtime.trace_format import ChunkKind, Kind, Status
from support.tracing import TraceBuilder


@pytest.fixture
def t(tmp_path: Path) -> TraceBuilder:
    return TraceBuilder(tmp_path / "trace.cct")


def slug_of(path: Path) -> tuple[str, str]:
    with pytest.raises(CrashcheckError) as caught:
        read(path)
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value.slug, caught.value.message


def patched(t: TraceBuilder, at: int, data: bytes) -> Path:
    image = bytearray(t.image())
    image[at : at + len(data)] = data
    t.path.write_bytes(image)
    return t.path


def test_threads_are_merged_by_seq(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    with t.thread(2):
        t.store("a", 8, 8, 2)
    t.store("a", 16, 8, 3)
    with t.thread(3, pid=101):
        t.store("a", 24, 8, 4)
    trace = t.trace()
    stores = trace.events[trace.events["kind"] == Kind.STORE]
    assert stores["offset"].tolist() == [0, 8, 16, 24]
    assert stores["thread"].tolist() == [1, 2, 1, 3]
    assert stores["pid"].tolist() == [100, 100, 100, 101]
    assert trace.truncated == ""


def test_gaps_in_seq_are_legal(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.gap(5)
    t.store("a", 0, 8, 2)
    assert t.trace().events["seq"].tolist() == [1, 2, 8]


def test_payloads_are_in_the_record_or_in_a_blob(t: TraceBuilder) -> None:
    t.store("a", 0, 3, b"abc")
    t.write("a", 0, bytes(range(200)) * 3000)
    t.write("a", 0, b"")
    trace = t.trace()
    assert trace.data(1) == b"abc"
    assert trace.data(2) == bytes(range(200)) * 3000
    assert trace.data_range(2, 199, 3) == b"\xc7\0\1"
    assert trace.data(3) == b""


def test_payloads_of_any_size_are_gathered_in_their_order(t: TraceBuilder) -> None:
    sizes = (3, 4096, 511, 8, 512, 9, 513, 0)
    data = [bytes((at + 7 * number) % 251 for at in range(size)) for number, size in enumerate(sizes)]
    for number, each in enumerate(data):
        t.write("a", 8192 * number, each)
    trace = t.trace()
    writes = trace.events[trace.events["kind"] == Kind.WRITE]
    assert payloads_of(trace.raw, writes).tobytes() == b"".join(data)


def test_a_range_is_no_payload(t: TraceBuilder) -> None:
    t.flush(fmt.FlushKind.CLWB, "a", 0, 4096)
    t.msync("a", 0, 8192)
    assert [t.trace().data(i) for i in (1, 2, 3)] == [b"", b"", b""]


def test_many_chunks_of_one_thread(t: TraceBuilder) -> None:
    for value in range(12000):
        t.store("a", 0, 8, value)
    trace = t.trace()
    assert len(trace) == 12001
    assert trace.events["payload"][1:].tolist() == list(range(12000))


def test_files_units_and_stacks_are_known(t: TraceBuilder) -> None:
    t.file("däta/a b.db", 4096)
    t.file("new", 0, existed=False)
    base = t.unit(0xFEED, 10, "/opt/pro gram")
    inner = t.stack_def(t.stack_def(0, base + 1), base + 2)
    trace = t.trace()
    assert trace.files == {1: WatchedFile(1, "däta/a b.db", True, 4096), 2: WatchedFile(2, "new", False, 0)}
    assert trace.units == (UnitDef(base, 10, 0xFEED, "/opt/pro gram"),)
    assert trace.stack(inner) == (base + 2, base + 1)
    assert trace.stack(0) == ()


def test_the_first_definition_of_a_file_counts(t: TraceBuilder) -> None:
    number = t.file("a", 0, existed=False)
    t.create("a")
    t.event(Kind.FILE_DEF, file=number, size=1, payload=ord("a"), offset=8, flags=1)
    assert t.trace().files == {number: WatchedFile(number, "a", False, 0)}


def test_a_site_is_found_through_its_units_facts(t: TraceBuilder) -> None:
    base = t.unit(7, 2, "m")
    facts = SimpleNamespace(unit={7: SimpleNamespace(sites=("first", "second"))}.__getitem__)
    trace = t.trace()
    assert trace.site(base + 1, facts) == "second"
    assert trace.site(0, facts) is None
    assert trace.site(base + 2, facts) is None
    assert trace.site(base, None) is None
    assert trace.site(base, SimpleNamespace(unit={}.__getitem__)) is None


def test_a_trace_cut_by_kill_is_readable_and_marked_as_cut(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.status = 0
    trace = t.trace()
    assert len(trace) == 2
    assert "ended without exit" in trace.truncated
    assert "seq 2" in trace.truncated


def test_a_reserved_chunk_at_the_end_is_legal_after_kill(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.status = 0
    image = bytearray(t.image())
    header = np.frombuffer(bytes(image[: fmt.HEADER.itemsize]), dtype=fmt.HEADER).copy()
    header["next_chunk"] += 1
    image[: fmt.HEADER.itemsize] = header.tobytes()
    t.path.write_bytes(image)
    assert len(read(t.path)) == 2
    t.path.write_bytes(image + bytes(fmt.CHUNK_BYTES))
    assert len(read(t.path)) == 2


def test_missing_file(tmp_path: Path) -> None:
    assert slug_of(tmp_path / "none")[0] == "trace-missing"


def test_unreadable_file(tmp_path: Path) -> None:
    assert slug_of(tmp_path)[0] == "trace-unreadable"


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert slug_of(path)[0] == "trace-truncated"


def test_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "elf"
    path.write_bytes(b"\x7fELF" + bytes(9000))
    slug, message = slug_of(path)
    assert slug == "trace-foreign"
    assert "CRSHTRC" in message


def test_future_version(t: TraceBuilder) -> None:
    slug, message = slug_of(patched(t, 8, b"\x63\0\0\0"))
    assert slug == "trace-version"
    assert "99" in message
    assert f"expected {fmt.VERSION}" in message
    assert "newer" in message


def test_header_cut_short(t: TraceBuilder) -> None:
    t.path.write_bytes(t.image()[:100])
    assert slug_of(t.path)[0] == "trace-truncated"


def test_chunks_cut_short(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.path.write_bytes(t.image()[: fmt.HEADER_BYTES + 100])
    slug, message = slug_of(t.path)
    assert slug == "trace-truncated"
    assert str(fmt.HEADER_BYTES + 100) in message


def test_a_whole_chunk_missing_from_a_clean_trace(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    t.path.write_bytes(t.image()[: fmt.HEADER_BYTES])
    assert slug_of(t.path)[0] == "trace-truncated"


@pytest.mark.parametrize(
    ("at", "data"),
    [
        pytest.param(12, b"\1\0\0\0", id="header field"),
        pytest.param(fmt.HEADER_BYTES, b"\x09\0\0\0", id="chunk kind"),
        pytest.param(fmt.HEADER_BYTES + 16, b"\x01", id="half a record"),
        pytest.param(fmt.HEADER_BYTES + 16, b"\0\0\0\x10", id="more than a chunk in use"),
        pytest.param(fmt.HEADER_BYTES + fmt.CHUNK_HEADER_BYTES, bytes(8), id="seq 0"),
        pytest.param(fmt.HEADER_BYTES + fmt.CHUNK_HEADER_BYTES, b"\2", id="a seq twice"),
        pytest.param(fmt.HEADER_BYTES + fmt.CHUNK_HEADER_BYTES + fmt.EVENT_BYTES + 36, b"\7", id="unknown file"),
        pytest.param(fmt.HEADER_BYTES + fmt.CHUNK_HEADER_BYTES + fmt.EVENT_BYTES + 16, b"\x20", id="payload outside"),
    ],
)
def test_damage_is_found(t: TraceBuilder, at: int, data: bytes) -> None:
    t.store("a", 0, 8, 1)
    assert slug_of(patched(t, at, data))[0] == "trace-corrupt"


@pytest.mark.parametrize(("bit", "slug"), [(Status.DISK_FULL, "trace-disk-full"), (Status.TOO_MANY, "trace-too-many")])
def test_a_recording_that_gave_up(t: TraceBuilder, bit: Status, slug: str) -> None:
    t.store("a", 0, 8, 1)
    t.status = int(bit)
    t.save()
    assert slug_of(t.path)[0] == slug


def test_blob_chunks_are_skipped_by_their_span(t: TraceBuilder) -> None:
    t.write("a", 0, bytes(3 * fmt.CHUNK_BYTES))
    t.store("a", 0, 1, 1)
    trace = t.trace()
    first = trace.raw[fmt.HEADER_BYTES : fmt.HEADER_BYTES + fmt.CHUNK_HEADER.itemsize].view(fmt.CHUNK_HEADER)[0]
    assert (int(first["kind"]), int(first["chunks"])) == (ChunkKind.BLOB, 4)
    assert trace.events["kind"].tolist() == [Kind.FILE_DEF, Kind.WRITE, Kind.STORE]


def test_every_flipped_bit_of_a_sealed_trace_is_found(t: TraceBuilder) -> None:
    t.write("a", 0, bytes(range(100)))
    t.store("a", 8, 8, 7)
    t.save()
    seal(t.path)
    image = t.path.read_bytes()
    assert len(read(t.path)) == 3
    record = fmt.HEADER_BYTES + fmt.CHUNK_BYTES + fmt.CHUNK_HEADER_BYTES + 2 * fmt.EVENT_BYTES
    payload, blob, unused = record + 40, fmt.HEADER_BYTES + fmt.CHUNK_HEADER_BYTES + 50, len(image) - 1
    for at in (payload, blob, unused, fmt.HEADER_BYTES - 1):
        t.path.write_bytes(image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :])
        slug, message = slug_of(t.path)
        assert (slug, "its checksum is" in message) == ("trace-corrupt", True)


def test_a_sealed_trace_that_was_cut_is_reported_as_cut(t: TraceBuilder) -> None:
    t.store("a", 8, 8, 7)
    t.save()
    seal(t.path)
    t.path.write_bytes(t.path.read_bytes()[:-1000])
    assert slug_of(t.path)[0] == "trace-truncated"
    t.path.write_bytes(t.path.read_bytes()[: fmt.HEADER_BYTES + 20])
    assert slug_of(t.path)[0] == "trace-truncated"


def test_high_thread_and_stack_numbers_cost_no_memory(t: TraceBuilder) -> None:
    t.store("a", 0, 8, 1)
    with t.thread((1 << 32) - 2):
        t.load("a", 0, 8)
    t.save()
    image = bytearray(t.path.read_bytes())
    chunk = fmt.HEADER_BYTES + fmt.CHUNK_BYTES + fmt.CHUNK_HEADER_BYTES
    records = np.frombuffer(image, fmt.RECORD, 2, chunk).copy()
    assert records["kind"].tolist() == [Kind.THREAD_START, Kind.LOAD]
    records["kind"][0] = Kind.STACK_DEF
    records["stack"] = (1 << 32) - 1
    image[chunk : chunk + records.nbytes] = records.tobytes()
    t.path.write_bytes(image)
    tracemalloc.start()
    trace = read(t.path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 << 20
    assert len(trace.loads) == 1


def test_a_file_outside_the_pool_is_refused(t: TraceBuilder) -> None:
    t.store("../../etc/passwd", 0, 8, 1)
    t.save()
    assert slug_of(t.path)[0] == "trace-corrupt"
