"""Whether the trace accounts for every byte of the final image."""

from __future__ import annotations

import resource
from pathlib import Path
from random import Random

import pytest

from crashcheck.analyzer.trace.completeness import Completeness, causes, check
from crashcheck.runtime.trace_format import Kind
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


def test_many_updates_together_leave_what_they_leave_one_by_one(t: TraceBuilder) -> None:
    size, random = 300_000, Random(1)
    expected = bytearray(random.randbytes(size))
    before = bytes(expected)
    t.file("a", size)
    for length in (*(random.choice((1, 3, 8, 8, 100, 3_000)) for _ in range(400)), 70_000, 8, 5):
        at = random.choice((65_530, random.randrange(size - length)))  # often across the end of a block
        expected[at : at + length] = data = random.randbytes(length)
        t.store("a", at, length, data)
    assert compare(t, before, bytes(expected)).whole


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


def test_a_renamed_file_has_the_content_that_it_took_along(t: TraceBuilder) -> None:
    t.file("a", 16)
    t.create("b")
    t.write("b", 0, b"new content")
    t.rename("b", "a", b"new content")
    t.store("b", 0, 3, b"???")  # it has no name any more
    result = compare(t, b"\7" * 16, b"new content")
    assert result.whole
    assert [(file.path, file.exists, file.replayed_exists) for file in result.files] == [
        ("a", True, True), ("b", False, False),
    ]  # fmt: skip


def test_a_deleted_file_is_gone_and_begins_again_empty(t: TraceBuilder) -> None:
    t.file("a", 16)
    t.store("a", 0, 8, 1)
    t.unlink("a")
    assert compare(t, bytes(16), None).whole
    t.create("a")
    t.write("a", 2, b"x")
    assert compare(t, bytes(16), b"\0\0x").whole


def test_what_is_not_accounted_for_has_a_place_and_a_cause(t: TraceBuilder) -> None:
    t.file("a", 16)
    t.store("a", 0, 1, 1)
    result = compare(t, bytes(16), b"\1\0\7\7\0" + bytes(10) + b"\7")
    assert causes(t.trace(), result, []) == (
        "a: 3 bytes at 0x2–0x3, 0xf–0xf are not accounted for: "
        "written by a library or process that was not built with crashcheck-cc, or by a function without a model",
    )
    assert causes(t.trace(), result, [("deleted", "a (deleted)")])[0].endswith(": it was written after it was deleted")
    t.event(Kind.UNMODELLED, file=1, data=b"splice")
    assert causes(t.trace(), result, [])[0].endswith(": splice is not modelled")
    (t.path.parent / "final" / "a").unlink()
    gone = check(t.trace(), t.path.parent / "first", t.path.parent / "final")
    assert causes(t.trace(), gone, []) == ("a: the file is gone: splice is not modelled",)
    assert causes(t.trace(), compare(t, None, b"\1" + bytes(15)), []) == ()
