"""Calls of the C library on watched files: writes, syncs, sizes, names, stdio, and what fills a mapping."""

from __future__ import annotations

from collections.abc import Callable

from crashcheck.analyzer.trace.completeness import check
from crashcheck.analyzer.trace.reader import read
from support.decode import BULK, LIBRARY

MSYNC, FSYNC, FDATASYNC, SYNC, OSYNC, ODSYNC, RANGE, DIRSYNC = 1, 3, 4, 5, 6, 7, 8, 9
APPEND = 1


def updates(trace) -> list[tuple[str, int, bytes]]:
    return [(event.kind, event.offset, event.data) for event in trace.of("WRITE", "TRUNCATE", "CREATE")]


def test_every_kind_of_write_is_recorded_with_its_place(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("calls", "writes")
    assert updates(trace) == [
        ("CREATE", 0, b""),
        ("WRITE", 0, b"hello"),
        ("WRITE", 100, b"0123456789"),
        ("WRITE", 5, b"abcde"),
        ("WRITE", 50, b"abcde"),
        ("WRITE", 10, b"!"),
    ]
    assert replay(trace) == (recording.pool / "a.db").read_bytes()


def replay(trace, file: int = 1) -> bytes:
    """The file as its recorded writes make it, from nothing."""
    image = bytearray()
    for event in trace.of("WRITE", "STORE", "TRUNCATE"):
        if event.file != file:
            continue
        if event.kind == "TRUNCATE":
            image = image[: event.offset] + bytes(max(0, event.offset - len(image)))
            continue
        image.extend(bytes(max(0, event.offset + event.size - len(image))))
        image[event.offset : event.offset + event.size] = event.data
    return bytes(image)


def test_a_synchronous_write_carries_the_sync_of_its_range(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("calls", "synced-writes")
    events = [
        (event.kind, event.aux, event.offset, event.size, event.flags)
        for event in trace.of("WRITE", "SYNC_BEGIN", "SYNC_END")
    ]
    assert events == [
        ("WRITE", 0, 0, 4, 0), ("SYNC_BEGIN", OSYNC, 0, 4, 0), ("SYNC_END", OSYNC, 0, 4, 0),
        ("WRITE", 0, 8, 4, 0), ("SYNC_BEGIN", ODSYNC, 8, 4, 0), ("SYNC_END", ODSYNC, 8, 4, 0),
        ("WRITE", 0, 12, 4, APPEND), ("WRITE", 0, 16, 4, APPEND),
        ("WRITE", 0, 2, 4, 0), ("SYNC_BEGIN", ODSYNC, 2, 4, 0), ("SYNC_END", ODSYNC, 2, 4, 0),
        ("WRITE", 0, 0, 4, 0),
        ("WRITE", 0, 20, 4, APPEND),
    ]  # fmt: skip
    assert replay(trace) == (recording.pool / "a.db").read_bytes()


def test_syncs_are_intervals_on_a_file_a_folder_or_everything(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("calls", "syncs", must_update=False)
    begins = [(event.aux, event.file, event.offset, event.size) for event in trace.of("SYNC_BEGIN")]
    assert begins == [
        (FSYNC, 1, 0, 0), (FDATASYNC, 1, 0, 0), (RANGE, 1, 8, 16), (SYNC, 0, 0, 0), (SYNC, 0, 0, 0),
        (DIRSYNC, 0, 0xCBF29CE484222325, 0), (DIRSYNC, 0, 0x85944171F73967E8, 0),
    ]  # fmt: skip
    ends = trace.of("SYNC_END")
    assert [event.payload for event in ends] == [event.seq for event in trace.of("SYNC_BEGIN")]
    assert [event.flags for event in ends] == [0] * 7


def test_changes_of_size_and_existence_are_recorded_once_and_only_if_they_happen(recorded) -> None:
    trace, _ = recorded("calls", "sizes", must_update=False)
    events = [(event.kind, event.file, event.offset) for event in trace.of("CREATE", "TRUNCATE")]
    assert events == [
        ("CREATE", 1, 0), ("TRUNCATE", 1, 100), ("TRUNCATE", 1, 40), ("TRUNCATE", 1, 60), ("TRUNCATE", 1, 200),
        ("TRUNCATE", 1, 300), ("TRUNCATE", 1, 0), ("CREATE", 2, 0),
    ]  # fmt: skip
    assert [event.data for event in trace.of("UNMODELLED")] == [b"fallocate"]


def test_an_existing_file_is_defined_with_its_first_size(recorded: Callable[..., tuple]) -> None:
    _, first = recorded("calls", "writes")
    trace, _ = recorded("calls", "sizes", first_image=first.pool, must_update=False)
    known = trace.of("FILE_DEF")[0]
    assert (known.data, known.flags, known.offset) == (b"a.db", 1, 110)
    assert [event.file for event in trace.of("CREATE")] == [2]


def test_links_and_copies_in_the_kernel_are_named_as_not_modelled(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("calls", "names")
    names = [event.data for event in trace.of("UNMODELLED")]
    assert names == [b"link", b"unlink", b"sendfile", b"copy_file_range"]
    assert updates(trace) == [("WRITE", 0, b"after")]


def test_what_is_read_into_a_mapping_is_stored(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("calls", "reads")
    events = [(event.offset, event.data, event.flags) for event in trace.of("STORE")]
    flags = BULK | LIBRARY
    assert events == [
        (10, b"0123456789abcdef", flags),
        (100, b"456789abcdef", flags),
        (200, b"4567", flags),
        (300, b"89abcdef", flags),
        (400, b"012345", flags),
    ]


def test_a_vectored_write_is_one_update_whatever_its_parts(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("calls", "vectored")
    data = b"ab" + b"x" * 600 + b"yz"
    assert updates(trace)[-3:] == [("WRITE", 4000, data), ("WRITE", 8192, b"ab"), ("WRITE", 8194, data)]
    synced = [(event.offset, event.size) for event in trace.of("SYNC_BEGIN")]
    assert synced == [(8192, 2), (8194, 604)]
    assert replay(trace) == (recording.pool / "a.db").read_bytes()


def test_names_that_change_are_recorded_with_the_content_that_they_then_have(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("calls", "renames")
    names = {number: name for name, number in trace.files().items()}
    told = [
        (event.kind, names[event.file], names.get(event.aux), event.offset) for event in trace.of("RENAME", "UNLINK")
    ]
    assert told == [
        ("RENAME", "a.db", "b.db", 3 << 20), ("UNLINK", "c.db", None, 0), ("UNLINK", "d.db", None, 0),
        ("RENAME", "e.db", None, 5),
    ]  # fmt: skip
    assert [(names[event.file], event.offset, event.size, event.data[:6]) for event in trace.of("CONTENT")] == [
        ("a.db", 0, 4096, b"newer!"), ("a.db", 2 << 20, 4096, b"tail\0\0"), ("e.db", 0, 5, b"comes"),
    ]  # fmt: skip
    after = [(names[event.file], event.offset, event.data) for event in trace.of("STORE", "WRITE")][5:]
    assert after == [
        ("a.db", 6, b"?"),
        ("a.db", 7, b"W"),
        ("c.db", 0, b"again"),
        ("d.db", 0, b"moved"),
        ("e.db", 0, b"goes"),
    ]
    assert trace.of("UNMODELLED") == []
    assert check(read(recording.trace), recording.first, recording.pool).whole


def test_output_is_recorded_when_it_reaches_the_file(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("streams", "prints")
    events = [event.data.decode() if event.kind == "STORE" else event.offset for event in trace.of("STORE", "OUTPUT")]
    assert events == ["a", 4, "b", 8, "c", 14, "d", "e", 18, "f", "g", 19]
    assert recording.stdout.read_text() == "one\ntwo\nthree\nfour5"


def test_files_written_through_stdio_are_followed(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("streams", "files")
    assert trace.of("UNMODELLED") == []
    for name, file in trace.files().items():
        assert replay(trace, file) == (recording.pool / name).read_bytes()
    writes = [event.data for event in trace.of("WRITE") if event.file == 1]
    assert writes[:4] == [b"hello 5\n!", b"0123456789", b"LL", b"E"]
    sync = trace.of("SYNC_BEGIN")[0]
    assert [event.data for event in trace.of("WRITE") if event.seq < sync.seq] == [b"hello 5\n!"]
    assert [event.data for event in trace.of("WRITE") if event.file == 2] == [b"left to exit"]


def test_string_functions_store_what_they_wrote(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("library", "strings")
    stores = [(event.offset, event.data) for event in trace.of("STORE")]
    assert stores == [
        (0, b"abc\0"), (3, b"de\0"), (10, b"x\0\0\0"), (5, b"fg\0"), (7, b"hi\0"), (100, b"12345\0"),
        (200, b"printed!\0"),
    ]  # fmt: skip
    assert {event.flags for event in trace.of("STORE")} == {BULK | LIBRARY}
    assert {event.site for event in trace.of("STORE")} == {0}


def test_a_wrapped_call_has_the_site_that_announced_it(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("library", "sited")
    stores = [(event.site, event.offset, event.data) for event in trace.of("STORE")]
    assert stores == [(6, 0, b"12345678"), (7, 64, b"zzz"), (9, 128, b"n-42\0"), (0, 256, b"x")]
