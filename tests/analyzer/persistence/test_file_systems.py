"""The models of file systems: every state that was seen on real ext4 is allowed, and no impossible one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.persistence.direct_before import DirectPredecessors, one_by_one
from crashcheck.analyzer.persistence.graph import STALE_BYTE, Options
from crashcheck.analyzer.persistence.pieces import WORD_BYTES
from crashcheck.checker.states.counting import count_states
from crashcheck.runtime.trace_format import Kind, SyncKind
from support.folders import Folder, Program, Recorded
from support.litmus.file_systems import ALL, LITMUS, B, Litmus, done
from support.tracing import CallsBuilder

SEEN = ("ext4", "ext4-strict", "ext4-writeback", "posix")  # a real xfs or btrfs was not examined


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize("litmus", LITMUS, ids=lambda litmus: litmus.name)
def test_every_state_seen_on_real_ext4_is_allowed_and_no_impossible_one(
    litmus: Litmus, model: str, tmp_path: Path
) -> None:
    run = Recorded(tmp_path, litmus.program, litmus.first, model)
    allowed = {litmus.text(folder) for folder in run.folders(litmus.since)}
    if model in SEEN:
        seen = litmus.strict if model == "ext4-strict" else litmus.default
        assert set(seen) <= allowed
    impossible = [never for models, never in litmus.never.items() if model in models]
    assert [text for text in sorted(allowed) if any(never(text) for never in impossible)] == []


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize("litmus", LITMUS, ids=lambda litmus: litmus.name)
def test_each_state_is_counted_once_and_equal_folders_have_equal_fingerprints(
    litmus: Litmus, model: str, tmp_path: Path
) -> None:
    run = Recorded(tmp_path, litmus.program, litmus.first, model)
    assert len(set(run.states)) == len(run.states) == count_states(run.space).value
    by_print: dict[bytes, set[str]] = {}
    by_folder: dict[str, set[bytes]] = {}
    for state in run.states:
        key, folder = run.content.fingerprint(state), repr(sorted(run.folder(state).items()))
        folder += f" after {run.space.points[state.point].outputs}"
        by_print.setdefault(key, set()).add(folder)
        by_folder.setdefault(folder, set()).add(key)
    assert all(len(folders) == 1 for folders in by_print.values())
    assert all(len(keys) == 1 for keys in by_folder.values())


@pytest.mark.parametrize("allocated", [False, True])
def test_under_writeback_a_new_block_may_hold_old_bytes_unless_it_was_allocated_before(
    allocated: bool, tmp_path: Path
) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("f")
        if allocated:
            t.allocate("f", 0, 8192)
        t.truncate("f", 8192)
        t.write("f", 4096, b"n" * 100)

    run = Recorded(tmp_path, program, {}, "ext4-writeback")
    stale = bytes([STALE_BYTE]) * 4096
    written = b"n" * 100 + bytes(3996)
    blocks = {(folder.get("f") or b"")[4096:] for folder in run.folders()}
    assert blocks == {b"", bytes(4096), written} | (set() if allocated else {stale})


O1, N1 = b"o" * B, b"n" * B


def in_a_new_directory(t: CallsBuilder) -> None:
    t.mkdir("d")
    t.open("d/g")
    t.fsync("d/g")
    done(t)


def after_a_failed_fsync(t: CallsBuilder) -> None:
    t.open("g")
    t.fsync("g", failed=True)
    done(t)


def grown_before_another_is_synced(t: CallsBuilder) -> None:
    t.append("f", B, N1)
    t.open("g")
    t.write("g", 0, b"g")
    t.fsync("g")
    done(t)


def renamed(t: CallsBuilder) -> None:
    t.move("f", "g")


def in_a_directory_that_was_synced_before(t: CallsBuilder) -> None:
    t.fsync("")
    t.open("g")
    t.fsync("")
    done(t)


def three_short_appends_and_a_name(t: CallsBuilder) -> None:
    for at in range(3):
        t.append("f", 1 + at, b"n")
    t.open("m")


def into_a_reserved_block(t: CallsBuilder) -> None:
    t.open("f")
    t.allocate("f", 0, 8 * B, 1)
    t.append("f", 0, b"o")
    t.fdatasync("f")
    done(t)
    three_short_appends_and_a_name(t)


def cut_to_the_size_that_it_has(t: CallsBuilder) -> None:
    t.append("f", 0, b"n")
    t.truncate("f", 1)
    t.open("m")


def across_the_end_of_a_block(t: CallsBuilder) -> None:
    t.append("f", 1, b"n" * B)
    t.open("m")


def one_byte_of_a_new_block(t: CallsBuilder) -> None:
    t.append("f", B, b"n")


def a_block(t: CallsBuilder) -> None:
    t.append("f", B, N1)


def beyond_a_hole(t: CallsBuilder) -> None:
    t.write("f", 2 * B, N1)


def written_and_cut(t: CallsBuilder) -> None:
    t.write("f", 0, N1)
    t.truncate("f", B)


def cut_and_written(t: CallsBuilder) -> None:
    t.truncate("f", 0)
    t.write("f", 0, N1)


NONE_OR_M: tuple[Folder, ...] = ({}, {"m": b""})
# Each size with as many of the bytes; the name only with the last size.
SHORT_APPENDS: list[Folder] = [
    {"f": b"o" + (b"n" * kept).ljust(size, b"\0"), **name}
    for size in range(4)
    for kept in range(size + 1)
    for name in ([{}, {"m": b""}] if size == 3 else [{}])
]


@pytest.mark.parametrize(
    ("model", "tear", "first", "program", "since", "expected"),
    [
        ("btrfs", 0, {}, in_a_new_directory, 1, [{"d": None, "d/g": b""}]),
        ("btrfs", 0, {}, in_a_directory_that_was_synced_before, 1, [{"g": b""}]),
        ("ext4", 0, {"f": b"o"}, three_short_appends_and_a_name, 0, SHORT_APPENDS),
        ("ext4-strict", 0, {"f": b"o"}, three_short_appends_and_a_name, 0, SHORT_APPENDS),
        ("ext4", 0, {}, into_a_reserved_block, 1, SHORT_APPENDS),
        *(
            (
                model,
                0,
                {"f": b""},
                cut_to_the_size_that_it_has,
                0,
                [{"f": b""}, *({"f": f, **m} for f in (b"\0", b"n") for m in NONE_OR_M)],
            )
            for model in ("ext4", "ext4-strict")
        ),
        (
            "ext4-strict",
            0,
            {"f": b"o"},
            across_the_end_of_a_block,
            0,
            [
                {"f": f, **m}
                for m in ({}, {"m": b""})
                for f in (b"o", *(b"o" + x for x in (bytes(B - 1), b"n" * (B - 1), bytes(B - 1) + b"n", b"n" * B)))
            ],
        ),
        ("ext4", 0, {"f": O1}, renamed, 0, [{"f": O1}, {"g": O1}]),
        ("ext4", 0, {}, in_a_new_directory, 1, [{"d": None, "d/g": b""}]),
        (
            "ext4",
            0,
            {"f": O1},
            grown_before_another_is_synced,
            1,
            [{"f": O1 + end, "g": b"g"} for end in (b"", bytes(B), N1)],
        ),
        ("ext4", 0, {}, after_a_failed_fsync, 1, [{}, {"g": b""}]),
        ("btrfs", 0, {}, after_a_failed_fsync, 1, [{}, {"g": b""}]),
        ("ext4-strict", 0, {"f": O1}, one_byte_of_a_new_block, 0, [{"f": O1}, {"f": O1 + b"n"}]),
        ("ext4-strict", 512, {"f": O1}, a_block, 0, [{"f": O1}, {"f": O1 + N1}]),
        ("ext4-strict", 0, {"f": O1}, beyond_a_hole, 0, [{"f": O1}, {"f": O1 + bytes(B)}, {"f": O1 + bytes(B) + N1}]),
        ("ext4-strict", 0, {"f": O1 * 2}, written_and_cut, 0, [{"f": s + o} for s in (O1, N1) for o in (b"", O1)]),
        (
            "ext4-writeback",
            0,
            {"f": O1},
            cut_and_written,
            0,
            [{"f": body} for body in (O1, b"", bytes(B), bytes([STALE_BYTE]) * B, N1)],
        ),
    ],
)
def test_exactly_these_folders_survive(
    model: str, tear: int, first: Folder, program: Program, since: int, expected: list[Folder], tmp_path: Path
) -> None:
    found = Recorded(tmp_path, program, first, model, Options(tear)).folders(since)
    assert {frozenset(folder.items()) for folder in found} == {frozenset(folder.items()) for folder in expected}


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize("litmus", LITMUS[::3], ids=lambda litmus: litmus.name)
def test_what_must_persist_before_something_durable_is_durable_no_later(
    litmus: Litmus, model: str, tmp_path: Path
) -> None:
    def then_one_from_outside(t: CallsBuilder) -> None:
        litmus.program(t)
        t.open("last")
        t.event(Kind.CONTENT, file=t.files["last"], data=b"from outside")
        t.fsync("last")

    graph = Recorded(tmp_path, then_one_from_outside, litmus.first, model).graph
    for after, before in enumerate(graph.direct_before(range(len(graph)))):
        assert (graph.durable_from[list(before)] <= graph.durable_from[after]).all()


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize(
    ("ends", "lost"),
    [("before it", False), ("while it runs", True), ("after it", True), ("never", True), ("at once", False)],
)
def test_a_sync_covers_a_submitted_write_only_if_that_had_ended_when_it_began(
    ends: str, lost: bool, model: str, tmp_path: Path
) -> None:
    def program(t: CallsBuilder) -> None:
        write = (t.write if ends == "at once" else t.submit)("f", 0, b"n" * B)
        if ends == "before it":
            t.ended("f", write)
        sync = t.sync_begin(SyncKind.FDATASYNC, "f")
        if ends == "while it runs":
            t.ended("f", write)
        t.sync_end(sync)
        if ends == "after it":
            t.ended("f", write)
        done(t)

    run = Recorded(tmp_path, program, {"f": b"o" * B}, model)
    left = {folder["f"] for folder in run.folders(1)}
    assert left == ({b"o" * B, b"n" * B} if lost else {b"n" * B})
    assert {folder["f"] for folder in run.folders(0)} == {b"o" * B, b"n" * B}  # from its submission on it may survive


@pytest.mark.parametrize("model", ALL)
def test_a_later_sync_covers_a_write_that_an_earlier_one_found_under_way(model: str, tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        write = t.submit("f", 0, b"n" * B)
        t.write("f", B, b"m" * B)
        t.fdatasync("f")
        t.ended("f", write)
        t.fdatasync("f")
        done(t)

    run = Recorded(tmp_path, program, {"f": b"o" * 2 * B}, model)
    assert {folder["f"] for folder in run.folders(1)} == {b"n" * B + b"m" * B}


@pytest.mark.parametrize("model", ALL)
def test_what_all_updates_need_is_what_each_needs_that_is_asked_for_by_itself(model: str, tmp_path: Path) -> None:
    choose, compared = random.Random(1), 0
    for number, litmus in enumerate(LITMUS):
        graph = Recorded(tmp_path / str(number), litmus.program, litmus.first, model).graph
        for _ in range(8):
            ids = sorted(choose.sample(range(len(graph)), choose.randint(0, len(graph))))
            rows = np.array(ids, dtype=np.int64)
            at_once = one_by_one(graph, rows)
            if graph.extra or at_once is None:
                continue
            columns = (graph.granule, graph.mode, graph.layer, graph.kind, graph.file, graph.offset // WORD_BYTES)
            met, rest = DirectPredecessors(graph, ids), (column[rows].tolist() for column in columns)
            assert at_once == [met.of(*each) for each in zip(ids, *rest, strict=True)], litmus.name
            compared += 1
    assert compared > 100 or model in ("ext4-strict", "xfs", "btrfs")
