"""What one thread's stores, flushes, fences, marks, output and syncs become in the trace."""

from __future__ import annotations

from collections.abc import Callable

from support.decode import CLEAN_EXIT


def test_each_event_of_a_small_program_is_recorded_in_order(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("basic")
    kinds = [event.kind for event in trace.events]
    assert kinds == [
        "THREAD_START", "FILE_DEF", "CREATE", "TRUNCATE", "MAP", "MARK_BEGIN", "UNIT_DEF", "STORE", "STORE", "FLUSH",
        "FENCE", "MARK_END", "SYNC_BEGIN", "SYNC_END", "UNMAP", "OUTPUT", "EXIT",
    ]  # fmt: skip
    store = trace.of("STORE")[0]
    assert (store.offset, store.size, store.data) == (24, 8, b"\x34\x12" + bytes(6))
    assert (store.delta, trace.index(store), store.stack) == (8, 7, 0)
    assert trace.of("STORE")[1].data == b"x"
    assert trace.of("OUTPUT")[0].offset == len("done\n")
    assert trace.status == CLEAN_EXIT
    assert recording.end.exit_code == 0
