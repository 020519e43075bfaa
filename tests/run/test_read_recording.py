"""What is found out of a recording before a crash state is made, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.analyzer.trace.completeness import Completeness, check
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.config import load
from crashcheck.stages import recording
from support.tracing import TraceBuilder


def test_no_crash_state_waits_until_the_trace_is_compared_with_the_final_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashcheck.toml").write_text(
        '[workload]\ncommand = "true"\n[pool]\nfiles = ["p"]\n[check]\ncommand = "true"\n[model]\nname = "px86"\n'
    )
    trace = TraceBuilder(tmp_path / "trace.cct")
    trace.file("p", 64)
    trace.store("p", 0, 8, 1)
    trace.save()
    for folder, last in (("first", bytes(8)), ("pool", b"\1" * 8)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p").write_bytes(bytes(56) + last)
    compared: list[Trace] = []

    def compare(trace: Trace, first: Path, final: Path) -> Completeness:
        compared.append(trace)
        return check(trace, first, final)

    monkeypatch.setattr(recording, "check_completeness", compare)

    run = recording.read_recording(load(tmp_path), recording.earlier_recording(tmp_path))
    subject = run.subject
    subject.content.patches(subject.space.full(0))
    assert compared == []
    assert subject.unexplained()["p"] == ((0, 1), (56, 64))
    assert run.completeness.unexplained_bytes == 9
    assert len(compared) == 1
