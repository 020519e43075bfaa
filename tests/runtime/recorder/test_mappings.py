"""Which stores reach a watched file through which mapping, and where files are mapped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.completeness import check
from crashcheck.analyzer.trace.reader import read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.build import RuntimeLibrary
from support.decode import BULK, JOINED, NT

PLACES = 1 << 45
PLACE = 1 << 36


def stores(trace) -> list[tuple[int, int, bytes]]:
    return [(event.file, event.offset, event.data) for event in trace.of("STORE")]


def test_two_mappings_of_one_file_agree_on_file_and_offset(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("maps", "two-mappings")
    assert stores(trace) == [(1, 5000, b"a"), (1, 5000, b"b"), (1, 8193, b"c")]
    assert [event.offset for event in trace.of("MAP")] == [0, 0, 8192]
    first, second, tail = (int(word, 16) for word in recording.stdout.read_text().split())
    assert (first, second, tail) == (PLACES, PLACES + (1 << 30), PLACES + (2 << 30) + 8192)
    assert recording.addresses.read_text().splitlines() == [
        f"{first:x}\t0\t4000\ta.db",
        f"{second:x}\t0\t4000\ta.db",
        f"{tail:x}\t2000\t1000\ta.db",
    ]


def test_each_file_has_a_place_of_64_gib(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("maps", "two-files")
    assert stores(trace) == [(1, 1, b"a"), (2, 2, b"b")]
    assert trace.files() == {"a.db": 1, "b.db": 2}
    assert [line.split("\t")[0] for line in recording.addresses.read_text().splitlines()] == [
        f"{PLACES:x}",
        f"{PLACES + PLACE:x}",
    ]


def test_a_moved_grown_or_split_mapping_keeps_its_offsets(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("maps", "moved")
    assert stores(trace) == [
        (1, 10, b"a"),
        (1, (1 << 20) - 1, b"b"),
        (1, 4097, b"c"),
        (1, 8193, b"d"),
        (1, 8192, b"e"),
    ]


def test_unmapped_and_covered_parts_are_not_persistent(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("maps", "unmapped-in-parts")
    assert stores(trace) == [(1, 4095, b"a"), (1, 8192, b"b"), (1, 8193, b"c")]
    assert [event.offset for event in trace.of("UNMAP")] == [4096, 0]


def test_no_number_of_mappings_is_too_many_for_one_call(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("maps", "many")
    every = [index * 8192 for index in range(100)]
    assert [event.offset for event in trace.of("SYNC_BEGIN")] == every
    assert [event.offset for event in trace.of("SYNC_END")] == every
    assert [event.offset for event in trace.of("UNMAP")] == every * 2
    assert stores(trace) == [(1, 99 * 8192, b"a")]


def test_a_copy_across_mappings_is_one_update(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("maps", "side-by-side")
    assert stores(trace) == [(1, 4094, b"abcd"), (1, 8190, b"ef"), (1, 0, b"gh"), (1, 0, b"z")]
    assert [bool(event.flags & JOINED) for event in trace.of("STORE")] == [False, False, True, False]


def test_a_mapping_is_recorded_while_its_file_has_a_watched_name(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("maps", "takes-a-name")
    assert stores(trace) == [(1, 4098, b"b"), (1, 4, b"c")]
    assert check(read(recording.trace), recording.first, recording.pool).whole


def test_the_programs_own_address_is_respected_and_noted(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("maps", "own-address")
    assert stores(trace) == [(1, 1, b"a"), (1, 2, b"b")]
    assert recording.stdout.read_text() == "0x300000000000 0x310000000000\n"
    assert recording.addresses.read_text() == "300000000000\t0\t2000\ta.db\n310000000000\t0\t2000\ta.db\n"


def test_a_private_mapping_is_not_persistent(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("maps", "private", must_update=False)
    assert trace.of("STORE", "MAP") == []


def test_memory_that_needs_no_sync_is_there_without_dax_if_the_model_has_it(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("maps", "without-sync", env={"CRASHCHECK_DAX": "1"})
    assert stores(trace) == [(1, 1, b"a")]
    _, recording = recorded("maps", "without-sync", must_update=False)
    assert recording.stdout.read_text() in ("", "Operation not supported\n")  # as the file system is


def test_msync_covers_whole_pages_and_is_recorded_with_its_failure(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("maps", "synced")
    begins = trace.of("SYNC_BEGIN")
    assert [(event.aux, event.offset, event.size) for event in begins] == [(1, 4096, 8192), (2, 0, 4096), (1, 1, 4096)]
    ends = trace.of("SYNC_END")
    assert [(event.payload, event.flags) for event in ends] == [
        (begins[0].seq, 0),
        (begins[1].seq, 0),
        (begins[2].seq, 1),
    ]


def test_bulk_and_wide_stores_carry_their_bytes(recorded: Callable[..., tuple]) -> None:
    trace, _ = recorded("maps", "bulk")
    copy, fill, wide, tail = trace.of("STORE")
    assert (copy.offset, copy.data, copy.flags) == (3, b"q" * 300000, BULK)
    assert (fill.offset, fill.data, fill.flags) == (400000, b"\x07" * 20, BULK)
    assert (wide.offset, wide.size, wide.data, wide.flags) == (500000, 16, b"\1" + bytes(7) + b"\2" + bytes(7), NT)
    assert wide.delta == 500000
    assert (tail.offset, tail.data) == (0, b"\x09" * 8)


def test_a_second_run_maps_files_where_the_first_did(
    recorded: Callable[..., tuple], program: Callable[..., Path], library: RuntimeLibrary
) -> None:
    _, first = recorded("maps", "where", "a.db", "b.db")
    expected = f"a.db {PLACES:#x}\nb.db {PLACES + PLACE:#x}\n"
    assert first.stdout.read_text() == expected
    table = first.addresses.read_bytes()
    # The check has no trace; it opens the files in another order.
    link = first.pool.parent / "link"
    link.symlink_to(first.pool)
    environment = {
        **os.environ,
        "CRASHCHECK_POOL": str(link),
        "CRASHCHECK_FILES": "*.db",
        "CRASHCHECK_ADDRESSES": str(first.addresses),
    }
    command = [str(program("maps")), str(first.pool), "where", "b.db", "a.db"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines(keepends=True)) == sorted(expected.splitlines(keepends=True))
    assert first.addresses.read_bytes() == table
    _, again = recorded("maps", "where", "b.db", "a.db", first_image=first.pool, addresses=first.addresses)
    assert sorted(again.stdout.read_text().splitlines()) == sorted(expected.splitlines())


def test_setup_gives_files_the_places_that_the_workload_finds(recorded: Callable[..., tuple], program) -> None:
    setup = [str(program("maps")), "{pool}", "where", "a.db", "b.db"]
    _, recording = recorded("maps", "where", "b.db", setup=setup)
    assert recording.stdout.read_text() == f"b.db {PLACES + PLACE:#x}\n"


@pytest.mark.parametrize(
    ("wish", "place"), [("10000000000", 1 << 40), ("7ffff0000000", PLACES)], ids=["its own", "one that was free"]
)
def test_pointers_that_setup_left_in_a_file_stay_right_whatever_address_the_program_asks_for(
    wish: str, place: int, recorded: Callable[..., tuple], program: Callable[..., Path]
) -> None:
    """As libpmemobj does, which asks for what is free in its process, and maps the header before the pool."""
    setup = [str(program("maps")), "{pool}", "linked", wish]
    trace, recording = recorded("maps", "linked", "20000000000", setup=setup)
    assert recording.stdout.read_text() == f"{place:#x} 2\n"
    assert trace.of("STORE")
    environment = {
        **os.environ,
        "CRASHCHECK_POOL": str(recording.pool),
        "CRASHCHECK_FILES": "*.db",
        "CRASHCHECK_ADDRESSES": str(recording.addresses),
    }
    check = [str(program("maps")), str(recording.pool), "linked", "30000000000"]
    done = subprocess.run(check, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{place:#x} 3\n"


@pytest.mark.parametrize("wish", ["7fea00000000", "7e0000000000", "100000000000", "7ff000000000"])
def test_a_program_has_its_address_in_setup_workload_and_check(
    wish: str, recorded: Callable[..., tuple], program: Callable[..., Path]
) -> None:
    trace, recording = recorded("maps", "insists", wish, setup=[str(program("maps")), "{pool}", "insists", wish])
    assert recording.stdout.read_text() == f"0x{wish}\n"
    assert stores(trace) == [(1, 0, b"\2")]
    environment = {
        **os.environ,
        "CRASHCHECK_POOL": str(recording.pool),
        "CRASHCHECK_FILES": "*.db",
        "CRASHCHECK_ADDRESSES": str(recording.addresses),
    }
    check = [str(program("maps")), str(recording.pool), "insists", wish]
    done = subprocess.run(check, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"0x{wish}\n"


@pytest.mark.parametrize("wish", ["7fea00000000", "100000000000"])
def test_an_address_that_is_not_free_is_why_the_workload_failed(wish: str, recorded: Callable[..., tuple]) -> None:
    with pytest.raises(CrashcheckError) as caught:
        recorded("maps", "insists", wish, "taken")
    assert caught.value.slug == "workload-failed"
    assert "\n  mapped elsewhere, as that was not free or [setup] mapped the file there: a.db, asked for at 0x" in str(
        caught.value
    )
    assert f"a.db, asked for at 0x{wish}, is at 0x" in str(caught.value)


def test_setup_has_an_environment_of_its_own_on_top_of_the_workloads(recorded: Callable[..., tuple]) -> None:
    setup = ["/bin/sh", "-c", 'echo "$ONE $BOTH" > {pool}/printed']
    _, recording = recorded(
        "maps", "two-files", setup=setup, env={"ONE": "1", "BOTH": "workload"}, setup_env={"BOTH": "{pool}"}
    )
    assert (recording.first / "printed").read_text() == f"1 {recording.pool}\n"


def test_a_file_larger_than_its_place_takes_several(recorded: Callable[..., tuple], program, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.mkdir()
    for name in ("a.db", "b.db"):
        (big / name).touch()
    os.truncate(big / "a.db", 3 * PLACE // 2)
    trace, recording = recorded("maps", "sparse", first_image=big)
    assert stores(trace) == [(1, 3 * PLACE // 2 - 1, b"x"), (2, 0, b"y")]
    assert [line.split("\t")[0] for line in recording.addresses.read_text().splitlines()] == [
        f"{PLACES:x}",
        f"{PLACES + 2 * PLACE:x}",
    ]
    assert (recording.first / "a.db").stat().st_blocks == 0
