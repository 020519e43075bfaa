"""`crashcheck try`: the folder ends as the command alone would leave it, and the exit status is the verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crashcheck.cli import main
from crashcheck.cli.try_command import MOST_FILES
from crashcheck.copied_folder import apply_changes
from crashcheck.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS
from crashcheck.runtime.record import Workload, record


def test_an_unsynced_rename_is_found_and_the_folder_ends_as_the_command_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "f").write_bytes(b"old content")
    monkeypatch.chdir(folder)
    command = f"printf 'new content' > tmp; mv tmp {folder}/f; echo ready"
    assert main(["try", "--states", "50", "--", "sh", "-c", command.replace(f"{folder}/", "")]) == EXIT_FINDINGS
    printed = capsys.readouterr().out
    assert printed.startswith("ready\n")
    assert "the rename of tmp to f can survive a crash without 11 bytes at offset 0x0 of tmp" in printed
    assert "add fsync of tmp before the rename of tmp to f" in printed
    assert "other syncs are missing, too: the rename of tmp to f can be lost after later output was printed" in printed
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"f": b"new content"}


def test_a_temporary_file_elsewhere_that_a_command_removes_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As compilers do; but an older file there that is removed does, as of mv from another file system."""
    folder, older, own = tmp_path / "folder", tmp_path / "older", tmp_path / "own"
    folder.mkdir()
    older.touch()
    monkeypatch.chdir(folder)
    for removed, verdict in ((own, EXIT_CLEAN), (older, EXIT_FINDINGS)):
        command = f"echo made > {own}; cp {own} f; rm {removed}"
        assert main(["try", "--states", "50", "--", "sh", "-c", command]) == verdict
        (folder / "f").unlink()
    assert "the size 5 of f can be lost after later output was printed" in capsys.readouterr().out


def test_a_large_folder_is_refused_until_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MOST_FILES + 1):
        (tmp_path / str(number)).touch()
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--", "true"]) == EXIT_FAILED
    assert "[try-folder]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (
            "echo x > f; exit 3",
            "`sh -c 'echo x > f; exit 3'` exited with status 3: no crash state was checked. [workload-failed]",
        ),
        ("true", "`sh -c true` changed nothing in {folder}. [nothing-persistent]"),
    ],
)
def test_an_error_names_the_users_command_and_folder(
    command: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--", "sh", "-c", command]) == EXIT_FAILED
    assert f"crashcheck: {error.format(folder=tmp_path)}\n" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["f"] * ("> f" in command)


SETUP = """
echo gone > a; mkdir gone; echo x > gone/a; echo same > same; ln -s same link; echo one > h1; ln h1 h2; chmod 640 h1
echo two > moved; mkdir d; echo in > d/in; echo long > kept; ln kept ../outside; echo s > swap; mkdir becomes
"""
COMMAND = """
rm -r gone; mkdir new; echo b > new/b; ln -sfn new/b link; echo more >> h2; mv moved d/moved; ln d/moved again; mv d e
echo longer > kept; rm swap; mkdir swap; echo i > swap/i; rmdir becomes; echo f > becomes
echo p > p; chmod 604 p; ln p q
rm a; echo again > a; mkfifo fifo
"""


def listed(folder: Path) -> dict[str, tuple[int, str]]:
    """Of each path its mode and what it holds."""
    out = {}
    for path in sorted(folder.rglob("*")):
        held = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ""
        out[str(path.relative_to(folder))] = (path.lstat().st_mode, held)
    return out


def numbers(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_ino for path in folder.rglob("*")}


@pytest.mark.parametrize("followed", [True, False])
def test_a_folder_becomes_what_a_command_made_of_its_copy(followed: bool, tmp_path: Path) -> None:
    """Without a trace, too; then files are recognised by their paths."""
    folder, alone = tmp_path / "folder", tmp_path / "alone"
    for place in (folder, alone):
        place.mkdir()
        subprocess.run(["sh", "-ec", SETUP], cwd=place, check=True)
        (tmp_path / "outside").rename(tmp_path / f"outside-{place.name}")
    workload = Workload(
        ["sh", "-ec", f"cd {{pool}}; {COMMAND}"],
        ["*"],
        setup=["cp", "-a", f"{folder}/.", "{pool}"],
        recorder="syscalls",
    )
    recording = record(workload, tmp_path / "run")
    before = numbers(folder)
    trace = recording.trace if followed else tmp_path / "none"
    apply_changes(recording.first, recording.pool, folder, trace)
    subprocess.run(["sh", "-ec", COMMAND], cwd=alone, check=True)
    assert listed(folder) == listed(alone)
    after = numbers(folder)
    assert after["same"] == before["same"]
    assert (after["h1"], after["p"]) == (after["h2"], after["q"])
    if followed:
        assert (after["h1"], after["again"], after["e/moved"]) == (before["h1"], before["moved"], before["moved"])
        assert (tmp_path / "outside-folder").read_text() == "longer\n"
        assert after["a"] != before["a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_are_those_that_the_command_leaves(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, owner in (("a", 1234), ("b", 1234)):
        (folder / name).write_text(name)
        os.chown(folder / name, owner, owner)
    command = "cd {pool}; echo more >> a; chown 77:78 b; echo c > c; chown 79:80 c"
    copied = ["cp", "-a", f"{folder}/.", "{pool}"]
    recording = record(Workload(["sh", "-ec", command], ["*"], setup=copied, recorder="syscalls"), tmp_path / "run")
    apply_changes(recording.first, recording.pool, folder, recording.trace)
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in folder.iterdir()}
    assert owners == {"a": (1234, 1234), "b": (77, 78), "c": (79, 80)}


def test_a_call_that_is_not_followed_leaves_no_verdict_although_every_byte_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    collapse = "import ctypes, os; f = os.open('f', os.O_RDWR | os.O_CREAT); os.write(f, bytes(12288)); "
    collapse += (
        "assert ctypes.CDLL(None).fallocate(f, 8, ctypes.c_long(4096), ctypes.c_long(4096)) == 0; os.unlink('f')"
    )
    assert main(["try", "--states", "50", "--", sys.executable, "-c", collapse]) == EXIT_FAILED
    printed = capsys.readouterr()
    if "AssertionError" in printed.err:
        pytest.skip("the file system collapses no range")
    assert printed.out.startswith(
        "No verdict: not all changes were recorded: fallocate that collapses or inserts a range; "
    )
    assert "To get a verdict: let the program use a call that is followed (docs/limits.md)" in printed.out


def test_a_command_that_fails_without_io_uring_is_shown_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    needs = "import ctypes, sys; open('f', 'w').close(); sys.exit(ctypes.CDLL(None).syscall(425, 1, bytes(256)) < 0)"
    assert main(["try", "--", sys.executable, "-c", needs]) == EXIT_FAILED
    assert "It was refused io_uring: --io-uring permits it." in capsys.readouterr().err
