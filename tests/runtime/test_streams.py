"""Standard output as acknowledgement, and files written through stdio."""

from __future__ import annotations

from collections.abc import Callable

from .test_calls import replay


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
