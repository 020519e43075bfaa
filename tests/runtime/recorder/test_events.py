"""The events of a program: of one thread, of several, in signal handlers: one order, and nothing lost or torn."""

from __future__ import annotations

from collections.abc import Callable

from support.decode import ATOMIC, CLEAN_EXIT

LOCKED = 3


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


def test_each_threads_stores_are_all_there_in_its_order(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("threads", "threads")
    assert len({event.seq for event in trace.events}) == len(trace.events)
    by_thread: dict[int, list[int]] = {}
    for event in trace.of("STORE"):
        by_thread.setdefault(event.thread, []).append(event.payload)
    assert len(by_thread) == 4
    assert all(values == list(range(1, 6001)) for values in by_thread.values())
    assert len(trace.of("THREAD_START")) == 5
    assert len(trace.of("UNIT_DEF")) >= 1


def test_atomic_additions_are_numbered_in_the_order_in_which_they_happened(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("threads", "atomics")
    added = [event for event in trace.of("STORE") if event.offset == 0]
    assert [event.payload for event in added] == list(range(1, 6001))
    assert {event.flags for event in added} == {ATOMIC}
    assert len({event.stack for event in added}) == 3
    defined = {event.stack: event.seq for event in trace.of("STACK_DEF")}
    assert all(defined[event.stack] < event.seq for event in added)


def test_a_failed_exchange_is_a_fence_and_no_store(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("threads", "atomics")
    last = trace.of("STORE")[-1]
    assert last.offset == 8
    after = [event for event in trace.of("FENCE", "STORE") if event.seq > last.seq]
    assert [(event.kind, event.aux, event.site - last.site) for event in after] == [("FENCE", LOCKED, 20)]


def test_a_signal_handler_that_stores_neither_deadlocks_nor_tears_a_record(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("threads", "signals")
    done, handled = (int(word) for word in recording.stderr.read_text().split())
    by_place: dict[int, list[int]] = {}
    for event in trace.of("STORE"):
        by_place.setdefault(event.offset, []).append(event.payload)
    assert by_place[0] == list(range(1, done + 1))
    assert by_place[512] == list(range(1, handled + 1))
    assert by_place[520] == list(range(1, done + handled + 1))


def test_a_fault_inside_an_atomic_does_not_keep_its_stripe(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("threads", "faults")
    assert [(event.offset, event.payload) for event in trace.of("STORE")] == [(0, 1), (4096, 1)]


def test_stacks_are_nodes_of_one_tree_written_once(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("threads", "stacks")
    base = trace.of("UNIT_DEF")[0].aux
    chains = [[site - base for site in trace.chain(event.stack)] for event in trace.of("STORE")]
    assert chains[:7] == [[], [11, 10], [11, 10], [12, 10], [12, 13], [13], [11, 10]]
    assert chains[7] == [50] * 511
    stacks = [event.stack for event in trace.of("STORE")]
    assert stacks[1] == stacks[2] == stacks[6]
    edges = [(event.aux, event.site) for event in trace.of("STACK_DEF")]
    assert len(set(edges)) == len(edges) == 5 + 511
