"""`--resume` searches the last recording again, if another one would be of the same program and configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.store import Store
from crashcheck.config import Config, load
from crashcheck.stages.recording import earlier_recording
from crashcheck.stages.resumed import note_recorded, resumed
from support.tracing import TraceBuilder

CONFIG = """
[workload]
command = "./program {pool}"
operations_file = "operations"
[pool]
files = ["*"]
[check]
command = "true"
[model]
name = "px86"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a program, its operations and one recording."""
    for name, text in (("crashcheck.toml", CONFIG), ("program", "one"), ("operations", "put 1\n")):
        (tmp_path / name).write_text(text)
    run = Store(tmp_path).new_run()
    builder = TraceBuilder(run.path / "trace.cct")
    builder.unit(1, 1, str(tmp_path / "program"))
    builder.store("a", 0, 4, 1)
    for folder in ("first", "pool"):
        (run.path / folder).mkdir()
        (run.path / folder / "a").write_text(folder)
    (run.path / "addresses").write_text("200000000000\t0\t4\ta\n")
    note_recorded(config_of(tmp_path), earlier_recording(run.path), builder.trace())
    run.close()
    return tmp_path


def config_of(project: Path) -> Config:
    return load(str(project / "crashcheck.toml"))


def test_the_recording_is_copied_whole(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Store(project).new_run()
    recording = resumed(config_of(project), run.path)
    run.close()
    assert recording is not None
    assert recording.folder == run.path
    assert [(recording.folder / name).read_text() for name in ("first/a", "pool/a")] == ["first", "pool"]
    assert recording.trace.is_file()
    assert recording.addresses.is_file()
    assert capsys.readouterr().err.startswith("crashcheck: continues with the recording of ")


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("program", "two", "{}/program has changed"),
        ("operations", "put 2\n", "the configuration or the operations have changed"),
        ("crashcheck.toml", CONFIG.replace("./program", "./program -v"), "the configuration or the operations have"),
        (".crashcheck/{}/recorded.json", "[]", "{}/recorded.json cannot be read"),
    ],
)
def test_what_has_changed_is_recorded_again(
    file: str, text: str, why: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = Store(project).newest()
    (project / file.format(run.name)).write_text(text)
    assert resumed(config_of(project), project / "nowhere") is None
    where = run if "recorded.json" in file else project
    assert f"crashcheck: records again: {why.format(where)}" in capsys.readouterr().err


def test_a_recording_that_was_not_completed_is_none(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = Store(project).newest()
    (run / "recorded.json").unlink()
    assert resumed(config_of(project), project / "nowhere") is None
    assert "no run of this configuration has left a recording" in capsys.readouterr().err
