"""Amplification: a sync after each call that empties or creates a file leaves a part of the crash states."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.analyzer.persistence import Options
from support.folders import Recorded
from support.litmus.file_systems import ALL, LITMUS, Litmus
from support.tracing import CallsBuilder

OLD, NEW = b"o" * 4096, b"n" * 8192


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize("litmus", LITMUS, ids=lambda litmus: litmus.name)
def test_each_state_of_an_amplified_run_is_one_of_the_run(litmus: Litmus, model: str, tmp_path: Path) -> None:
    (tmp_path / "amplified").mkdir()
    run = Recorded(tmp_path, litmus.program, litmus.first, model)
    amplified = Recorded(tmp_path / "amplified", litmus.program, litmus.first, model, Options(amplify=True))
    all_of_them = {litmus.text(folder) for folder in run.folders(litmus.since)}
    assert {litmus.text(folder) for folder in amplified.folders(litmus.since)} <= all_of_them


@pytest.mark.parametrize("model", ALL)
def test_an_emptied_file_is_empty_after_its_call_returned(model: str, tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.write("g", 0, NEW)
        t.truncate("f", 0)
        t.write("f", 0, NEW)
        t.write("f", 0, NEW)

    run = Recorded(tmp_path, program, {"f": OLD, "g": OLD}, model, Options(amplify=True))
    last = [run.folder(state) for state in run.states if state.point == len(run.space.points) - 1]
    assert {folder["f"] == b"" for folder in last} == {False, True}  # the rewriting may be lost
    assert all(folder["f"] != OLD for folder in last)
    assert {folder["g"] for folder in last} == {NEW}
