"""Compiling the recorder is a phase of its own, and only where it is not there yet."""

from __future__ import annotations

import pytest

from crashcheck.stages import recording


@pytest.mark.parametrize(("built", "phases"), [(True, []), (False, ["compiling the recorder (only this time)"])])
def test_the_first_use_says_that_it_compiles(built: bool, phases: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(recording, "is_built", lambda: built)
    monkeypatch.setattr(recording, "build_runtime", lambda: seen.append("built"))
    recording.prepare_recorder(seen.append)
    assert seen == phases + ["built"] * (not built)
