"""`crashcheck try`: the folder ends as the command alone would leave it, and the exit status is the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.cli import main
from crashcheck.cli.try_command import MOST_FILES, apply_changes
from crashcheck.errors import EXIT_FAILED, EXIT_FINDINGS


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
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"f": b"new content"}


def test_a_large_folder_is_refused_until_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MOST_FILES + 1):
        (tmp_path / str(number)).touch()
    monkeypatch.chdir(tmp_path)
    assert main(["try", "--", "true"]) == EXIT_FAILED
    assert "[try-folder]" in capsys.readouterr().err


def test_changes_of_a_copy_are_applied_to_the_folder(tmp_path: Path) -> None:
    first, final, folder = (tmp_path / name for name in ("first", "final", "folder"))
    for root in (first, folder):
        (root / "gone").mkdir(parents=True)
        (root / "gone" / "a").write_bytes(b"a")
        (root / "same").write_bytes(b"same")
        (root / "link").symlink_to("same")
    (final / "new").mkdir(parents=True)
    (final / "new" / "b").write_bytes(b"b")
    (final / "same").write_bytes(b"same")
    (final / "link").symlink_to("new/b")
    untouched = (folder / "same").stat().st_ino
    apply_changes(first, final, folder)
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["link", "new", "new/b", "same"]
    assert (folder / "link").read_bytes() == b"b"
    assert (folder / "same").stat().st_ino == untouched
