"""After a check, whatever it did, the image is what it was; and it follows the crash points."""

from __future__ import annotations

import mmap
import os
import random
import stat
import subprocess
from pathlib import Path

import pytest

from crashcheck.checker.images import image_folder
from crashcheck.checker.images.image_folder import FOLDER, LINK, ImageFolder, Patch, home, write_image
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


@pytest.mark.parametrize("deed", DEEDS)
def test_a_file_that_a_state_lacks_or_replaces_comes_back(
    deed: str, image: ImageFolder, first: Path, vandal: Path
) -> None:
    for _ in range(2):
        image.apply((("log/a", False, 0, ()), ("p", False, 0, ()), ("p", True, 4096, ((0, b"another"),))))
        assert not (image.pool / "log/a").exists()
        assert (image.pool / "p").read_bytes() == b"another".ljust(4096, b"\0")
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


def deeds(chance: random.Random, pool: Path) -> None:
    """What a check may do to its folder."""
    for _ in range(chance.randrange(4)):
        paths = sorted(pool.rglob("*"))
        path = chance.choice(paths) if paths else pool / "p"
        if not path.is_symlink() and path.is_dir():
            (path / "made").write_bytes(b"made by the check")
            continue
        match chance.randrange(8):
            case 0:
                path.unlink(missing_ok=True)
            case 1:
                path.chmod(0o600, follow_symlinks=False) if not path.is_symlink() else path.unlink()
            case 2:
                os.link(path, pool / f"link{chance.randrange(99)}", follow_symlinks=False)
            case 3:
                path.rename(pool / "moved")
            case 4:
                (pool / "p").unlink(missing_ok=True)
                (pool / "p").symlink_to("log")
            case 5 if path.is_file():
                path.write_bytes(b"rewritten")
            case 6 if path.is_file():
                os.truncate(path, 3)
            case _ if path.is_file() and path.stat().st_size:
                with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
                    mapping[0] = 255


def random_patches(chance: random.Random) -> list[Patch]:
    """As FolderContent makes them: names that go, then folders and files, some from nothing, then further names."""
    gone = chance.sample(["p", "log/a", "not watched", "pointer"], chance.randrange(3))
    out: list[Patch] = [(path, False, 0, ()) for path in gone]
    if chance.random() < 0.2:
        out.append(("dir", True, FOLDER, ()))
    for path in chance.sample(["p", "log/a", "new", "not watched"], chance.randrange(4)):
        size = chance.choice([0, 10, 4096, 9000])
        out += [(path, True, chance.choice([0, size]), ())] * chance.randrange(2)
        out.append((path, True, size, ((size // 2, b"data"[: size - size // 2]),)))
    made = [path for path, exists, size, _ in out if exists and size >= 0]
    if made and chance.random() < 0.2:
        out.append(("other", True, LINK, ((0, os.fsencode(made[0])),)))
    return out


@pytest.mark.parametrize("linked", [False, True])
def test_states_are_those_of_new_folders_whatever_checks_of_earlier_ones_did(
    linked: bool, image: ImageFolder, first: Path, tmp_path: Path
) -> None:
    chance = random.Random(1)
    if linked:
        image.advance([("second", True, LINK, ((0, b"p"),))])
    for number in range(30):
        patches = random_patches(chance)
        root = tmp_path / f"new{number}"
        root.mkdir()
        new = ImageFolder(first, root)
        if linked:
            new.advance([("second", True, LINK, ((0, b"p"),))])
        new.apply(patches)
        image.apply(patches)
        assert described(image.pool) == described(new.pool), patches
        assert names_of_one_file(image.pool) == names_of_one_file(new.pool), patches
        deeds(chance, image.pool)
        image.restore()
        assert described(image.pool) == described(image.base), patches
        new.close()


def names_of_one_file(folder: Path) -> set[frozenset[str]]:
    """The paths that are names of each file."""
    names: dict[int, set[str]] = {}
    for path in folder.rglob("*"):
        names.setdefault(path.lstat().st_ino, set()).add(str(path.relative_to(folder)))
    return set(map(frozenset, names.values()))
