"""[[faults]] and `--fault`: a program that ignores a failed sync is found, and one that stops is clean."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crashcheck import config
from crashcheck.cli import main
from crashcheck.config import parse_fault
from crashcheck.config.faults import Fault
from crashcheck.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS, CrashcheckError

LEAST = """
[workload]
command = "./program {pool}"
recorder = "syscalls"
[pool]
files = ["*"]
[check]
oracle = "snapshot"
"""
REPLACE = "echo content > t; sync t || %s; mv t f; sync .; echo replaced"


def error_of(text: str) -> CrashcheckError:
    with pytest.raises(CrashcheckError) as caught:
        config.parse(text, Path("/project/crashcheck.toml"))
    return caught.value


def test_faults_are_read_from_the_file_and_from_the_command_line() -> None:
    read = config.parse(
        LEAST
        + '[[faults]]\ncall = "fsync"\n'
        + '[[faults]]\ncall = "write"\nerror = "ENOSPC"\nfile = "d/*.db"\nnth = 2\ntimes = 0',
        Path("/project/crashcheck.toml"),
    ).faults
    assert read == (Fault("fsync"), Fault("write", "ENOSPC", "d/*.db", 2, 0))
    assert [fault.text for fault in read] == ["fsync=EIO", "write=ENOSPC,file=d/*.db,nth=2,times=0"]
    assert tuple(parse_fault(fault.text) for fault in read) == read
    assert parse_fault("fsync") == Fault("fsync")


@pytest.mark.parametrize(
    ("table", "slug", "named", "hint"),
    [
        ('call = "fsnyc"', "config-value", "call is 'fsnyc'", "Did you mean 'fsync'?"),
        ('call = "pwrite64"', "config-value", "call is 'pwrite64'", "Did you mean 'write'?"),
        ('call = "fsync"\nerror = "ENOSPACE"', "config-value", "error is 'ENOSPACE'", "Did you mean 'ENOSPC'?"),
        ('call = "fsync"\nnht = 2', "config-unknown-key", "[[faults]] nht", "Did you mean 'nth'?"),
        ('call = "fsync"\nnth = 0', "config-value", "nth is 0", ""),
        ('call = "fsync"\nfile = "/etc/passwd"', "config-value", "is outside the pool", "Patterns are relative"),
        ('error = "EIO"', "config-required", "[[faults]] call is missing", "fsync"),
    ],
)
def test_a_mistake_in_a_fault_is_named_with_a_hint(table: str, slug: str, named: str, hint: str) -> None:
    error = error_of(f"{LEAST}[[faults]]\n{table}")
    assert error.slug == slug
    assert named in error.message
    assert hint in error.hint


def test_faults_need_the_recorder_of_system_calls() -> None:
    error = error_of(LEAST.replace('recorder = "syscalls"', "") + '[[faults]]\ncall = "fsync"')
    assert error.slug == "config-value"
    assert 'recorder = "syscalls"' in error.hint


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "f").write_text("earlier\n")
    monkeypatch.chdir(folder)
    return folder


def tried(*words: str) -> int:
    return main(["try", "--states", "100", *words])


def test_a_program_that_ignores_a_failed_sync_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--", "sh", "-c", REPLACE % ":"]
    assert tried(*command) == EXIT_CLEAN
    capsys.readouterr()
    assert tried("--fault", "fsync=EIO,file=t", *command) == EXIT_FINDINGS
    printed = capsys.readouterr().err
    assert "`f` can hold nothing but zeros after a crash: `t` is renamed to `f` before its data are synced" in printed
    assert ", after fsync of t was made to fail with EIO" in printed
    assert "stop where the sync of t fails" in printed
    assert "made to fail ([[faults]]): fsync of t with EIO; then the workload exited with status 0" in printed


def test_a_second_sync_does_not_bring_back_what_the_failed_one_dropped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tried("--fault", "fsync", "--", "sh", "-c", REPLACE % "sync t") == EXIT_FINDINGS
    assert "made to fail with EIO" in capsys.readouterr().err


def test_one_that_stops_is_clean_whatever_it_prints_to_standard_error(folder: Path) -> None:
    stop = "{ echo cannot sync >&2; rm t; exit 1; }"
    assert tried("--fault", "fsync", "--exit", "--", "sh", "-c", REPLACE % stop) == EXIT_CLEAN
    assert (folder / "f").read_text() == "earlier\n"


def test_replay_injects_the_fault_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tried("--fault", "fsync", "--", "sh", "-c", REPLACE % ":") == EXIT_FINDINGS
    printed = capsys.readouterr().err
    token = printed.partition("crashcheck replay ")[2].split()[0]
    project = printed.partition("add to its command: -c ")[2].split()[0]
    (folder / "f").write_text("earlier\n")
    (folder / "t").unlink(missing_ok=True)
    shutil.rmtree(Path(project) / ".crashcheck")
    assert main(["replay", token, "-c", project]) == EXIT_FINDINGS
    assert "the files are in no state that the run allows" in capsys.readouterr().out


def test_a_mistyped_fault_of_the_command_line_runs_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tried("--fault", "fsync=EIOO", "--", "touch", "made") == EXIT_FAILED
    assert "Did you mean 'EIO'?" in capsys.readouterr().err
    assert not (folder / "made").exists()
