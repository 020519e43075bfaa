"""The models of file systems: every state that was seen on real ext4 is allowed, and no impossible one."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.analyzer.persistence.graph import STALE_BYTE
from crashcheck.checker.states.counting import count_states
from support.folders import Recorded
from support.litmus.file_systems import ALL, LITMUS, Litmus
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
