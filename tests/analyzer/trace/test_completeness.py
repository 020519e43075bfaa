"""Whether the trace accounts for every byte of the final image."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.completeness import Completeness, check
from support.tracing import TraceBuilder


@pytest.fixture
def t(tmp_path: Path) -> TraceBuilder:
    (tmp_path / "first").mkdir()
    (tmp_path / "final").mkdir()
    return TraceBuilder(tmp_path / "trace.cct")


def compare(t: TraceBuilder, first: bytes | None, final: bytes | None) -> Completeness:
    folder = t.path.parent
    for name, content in (("first", first), ("final", final)):
        if content is not None:
            (folder / name / "a").write_bytes(content)
    return check(t.trace(), folder / "first", folder / "final")


def test_a_whole_trace_explains_every_byte(t: TraceBuilder) -> None:
    t.file("a", 16)
    t.store("a", 4, 4, b"abcd")
    t.write("a", 14, b"wxyz")
    result = compare(t, bytes(16), bytes(4) + b"abcd" + bytes(6) + b"wxyz")
    assert result.whole
    assert (result.explained_bytes, result.unexplained_bytes, result.unexplained) == (8, 0, {})


def test_what_nobody_recorded_is_unexplained(t: TraceBuilder) -> None:
    t.file("a", 16)
    t.store("a", 0, 1, 1)
    result = compare(t, bytes(16), b"\1\0\7\7\0" + bytes(10) + b"\7")
    assert not result.whole
    assert result.unexplained == {"a": ((2, 4), (15, 16))}
    assert (result.explained_bytes, result.unexplained_bytes) == (1, 3)


def test_an_update_that_did_not_happen_is_unexplained(t: TraceBuilder) -> None:
    t.file("a", 16)
    t.store("a", 0, 2, b"\1\2")
    assert compare(t, bytes(16), b"\1" + bytes(15)).unexplained == {"a": ((1, 2),)}


def test_cut_and_grown_again_reads_as_zeros(t: TraceBuilder) -> None:
    t.file("a", 200_000)
    t.store("a", 150_000, 1, 5)
    t.truncate("a", 3)
    t.truncate("a", 200_000)
    t.store("a", 199_999, 1, 6)
    result = compare(t, b"\7" * 200_000, b"\7\7\7" + bytes(199_996) + b"\6")
    assert result.whole
    assert result.explained_bytes == 199_997


def test_a_created_file_and_a_missing_one(t: TraceBuilder) -> None:
    t.create("a")
    t.write("a", 0, b"hello")
    assert compare(t, None, b"hello").whole
    (t.path.parent / "final" / "a").unlink()
    gone = check(t.trace(), t.path.parent / "first", t.path.parent / "final")
    assert not gone.whole
    assert gone.files[0].replayed_exists
    assert not gone.files[0].exists


def test_a_size_nobody_recorded(t: TraceBuilder) -> None:
    t.file("a", 4)
    result = compare(t, b"abcd", b"abcd\0\0")
    assert not result.whole
    assert result.unexplained == {}
    assert (result.files[0].size, result.files[0].replayed_size) == (6, 4)


def test_memory_does_not_follow_the_size_of_a_sparse_file(t: TraceBuilder) -> None:
    gigabyte = 1 << 30
    t.file("a", gigabyte)
    t.store("a", gigabyte - 8, 8, 1)
    for name in ("first", "final"):
        path = t.path.parent / name / "a"
        path.touch()
        with path.open("r+b") as file:
            file.truncate(gigabyte)
            if name == "final":
                file.seek(gigabyte - 8)
                file.write(b"\1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = check(t.trace(), t.path.parent / "first", t.path.parent / "final")
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.whole
    assert result.explained_bytes == 1
    assert grown_kib < 64 * 1024
