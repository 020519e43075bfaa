"""After a check, whatever it did, the image is what it was; and it follows the crash points."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from crashcheck.checker.images import image_folder
from crashcheck.checker.images.image_folder import FOLDER, ImageFolder, Patch, home, write_image
from crashcheck.checker.images.inotify import works
from crashcheck.runtime import sparse

DEEDS = [
    *("nothing", "read", "mmap", "mmap-killed", "pwrite", "cut", "cut-and-grow", "grow", "unlink", "replace"),
    *("rename", "swap", "link", "symlink", "folder", "mode", "remove-all", "fifo"),
]


def described(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Every name below a folder with its mode and its bytes, or its target."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content: bytes | str = ""
        if stat.S_ISLNK(mode):
            content = os.readlink(path)
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = (mode, content)
    return found


@pytest.fixture
def first(tmp_path: Path) -> Path:
    folder = tmp_path / "first"
    (folder / "log").mkdir(parents=True)
    (folder / "p").write_bytes(bytes(range(256)) * 16)
    (folder / "log" / "a").write_bytes(b"a" * 5000)
    (folder / "not watched").write_bytes(b"left alone")
    (folder / "pointer").symlink_to("p")
    os.chmod(folder / "log" / "a", 0o640)
    return folder


@pytest.fixture(params=["watched", "compared"])
def image(request: pytest.FixtureRequest, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageFolder:
    """With inotify, and as where it does not work."""
    if request.param == "compared":
        monkeypatch.setattr(image_folder, "works", lambda folder: False)
    root = tmp_path / "worker"
    root.mkdir()
    return ImageFolder(first, root)


PATCHES: tuple[Patch, ...] = (("p", True, 4096, ((8, b"patched!"), (4088, b"the last"))),)


@pytest.mark.parametrize("deed", DEEDS)
def test_a_check_leaves_no_trace_in_the_image(deed: str, image: ImageFolder, first: Path, vandal: Path) -> None:
    for _ in range(2):
        image.apply(PATCHES)
        assert (image.pool / "p").read_bytes()[8:16] == b"patched!"
        subprocess.run([vandal, deed, image.pool], check=False)
        image.restore()
        assert described(image.pool) == described(first)


def test_patches_may_cut_grow_and_create_files(image: ImageFolder, first: Path) -> None:
    image.apply(
        (
            ("p", True, 100, ((0, b"short"),)),
            ("log/a", True, 9000, ((8000, b"long"),)),
            ("log/new/b", True, 3, ((0, b"new"),)),
        )
    )
    assert (image.pool / "p").read_bytes() == b"short" + (first / "p").read_bytes()[5:100]
    assert (image.pool / "log/a").read_bytes() == b"a" * 5000 + bytes(3000) + b"long" + bytes(996)
    assert (image.pool / "log/new/b").read_bytes() == b"new"
    image.restore()
    assert described(image.pool) == described(first)


def test_a_patch_may_remove_a_file(image: ImageFolder, first: Path) -> None:
    image.apply((("p", False, 0, ()),))
    assert not (image.pool / "p").exists()
    image.restore()
    assert described(image.pool) == described(first)


def test_the_base_moves_forward_and_starts_again(image: ImageFolder, first: Path) -> None:
    image.advance((("p", True, 5000, ((4999, b"!"),)), ("new", True, 2, ((0, b"hi"),))))
    moved = described(image.pool)
    assert moved["new"][1] == b"hi"
    assert moved["p"][1] == (first / "p").read_bytes() + bytes(903) + b"!"
    image.apply((("p", True, 10, ()), ("new", True, 3, ((2, b"?"),))))
    (image.pool / "new").unlink()
    image.restore()
    assert described(image.pool) == moved
    image.reset()
    assert described(image.pool) == described(first) == described(image.base)


@pytest.mark.parametrize("patches", [[("new/f", True, 1, ((0, b"f"),))], [("new", True, FOLDER, ())]])
def test_what_a_check_does_in_a_folder_that_came_with_the_base_is_undone(
    patches: list[Patch], image: ImageFolder
) -> None:
    image.advance(patches)
    image.apply([])
    (image.pool / "new" / "made by the check").touch()
    image.restore()
    assert described(image.pool) == described(image.base)


def test_what_the_base_lost_is_restored_when_it_starts_again(image: ImageFolder, first: Path) -> None:
    image.advance((("p", False, 0, ()),))
    assert not (image.pool / "p").exists()
    image.reset()
    assert described(image.pool) == described(first)


def test_a_sparse_gigabyte_costs_what_it_holds(tmp_path: Path) -> None:
    first, root = tmp_path / "first", tmp_path / "worker"
    first.mkdir()
    root.mkdir()
    with (first / "p").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(700 << 20)
        file.write(b"data")
    image = ImageFolder(first, root)
    image.apply((("p", True, 1 << 30, ((900 << 20, b"state"),)),))
    with (image.pool / "p").open("r+b") as file:
        file.seek(512 << 20)
        file.write(b"check")
    image.restore()
    held = sparse.data_bytes(image.pool)
    assert held < 1 << 20
    assert sparse.equal_files(first / "p", image.pool / "p")
    assert sparse.equal_files(image.base / "p", image.pool / "p")


def test_inotify_reports_writes_here(tmp_path: Path) -> None:
    assert works(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_images_go_to_the_work_folder_where_memory_has_no_room(tmp_path: Path) -> None:
    memory, work = tmp_path / "memory", tmp_path / "work"
    memory.mkdir()
    work.mkdir()
    assert home(work, 1000, 2, shared_memory=memory).parent == memory
    assert home(work, 1 << 60, 2, shared_memory=memory).parent == work
    assert home(work, 1000, 2, shared_memory=tmp_path / "missing").parent == work


def test_images_of_a_run_that_was_killed_are_removed_and_those_of_a_live_one_kept(tmp_path: Path) -> None:
    dead, alive = home(tmp_path, 0, 1, tmp_path / "none"), home(tmp_path, 0, 1, tmp_path / "none")
    for folder in (dead, alive):
        lock = image_folder.lock(folder)
        os.utime(lock, (0, 0))
        if folder is dead:
            os.close(lock)
    image_folder.remove_abandoned(tmp_path, shared_memory=tmp_path / "none")
    assert [path for path in (dead, alive) if path.exists()] == [alive]
    os.close(lock)


def test_a_written_image_is_the_first_one_with_the_patches(first: Path, tmp_path: Path) -> None:
    write_image(first, PATCHES, tmp_path / "image")
    expected = bytearray((first / "p").read_bytes())
    expected[8:16], expected[4088:] = b"patched!", b"the last"
    assert (tmp_path / "image" / "p").read_bytes() == bytes(expected)
    assert (tmp_path / "image" / "not watched").read_bytes() == b"left alone"
