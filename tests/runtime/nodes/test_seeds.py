"""A node begins with a copy of its seed in each run, whatever earlier runs did to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld
from crashcheck.runtime.sparse import copy_tree, restore_tree
from support.node_runs import by_default, output

# Shows all that a node may see of its folder, and changes it.
_PROGRAM = """
import os, sys
for folder, folders, names in os.walk("."):
    for name in sorted(folders + names + ["."]):
        path = os.path.join(folder, name)
        print(path, os.lstat(path))
        if os.path.islink(path):
            print(os.readlink(path))
        elif os.path.isfile(path):
            print(open(path, "rb").read()[:100], os.listxattr(path))
open("changed", "r+").write("other")
os.remove("removed")
os.chmod("kept", 0o600)
os.remove("symbolic"); os.symlink("changed", "symbolic")
os.rename("below/moved", "moved"); os.rmdir("empty"); open("empty", "w")
os.remove("name"); open("below/grown", "a").write("more")
for number in range(300):
    open(f"below/{number:0200}", "w")
"""


def _fill(seed: Path) -> None:
    (seed / "below").mkdir(parents=True)
    (seed / "empty").mkdir()
    for name in ("changed", "removed", "kept", "below/moved", "below/grown", "one"):
        (seed / name).write_text(f"{name} as it was\n")
    (seed / "kept").chmod(0o640)
    (seed / "symbolic").symlink_to("kept")
    os.link(seed / "one", seed / "name")


def test_each_run_begins_with_the_seed(tmp_path: Path) -> None:
    _fill(tmp_path / "seed")
    command = NodeCommand(("python3", "-c", _PROGRAM), seed=tmp_path / "seed", crash=frozenset({"machine"}))
    shown = []
    for _ in range(3):
        world = NodeWorld([command], tmp_path / "world")
        results = by_default(world)
        assert results[-1].ended == 0, world.content(0).errors
        shown.append(output(results, 0))
        world.close()
    assert b"kept as it was" in shown[0]
    assert shown[1] == shown[0]
    assert shown[2] == shown[0]


# Shows its empty folder, and leaves one that is not.
_WITHOUT_SEED = """
import os, sys
print(os.lstat("."), os.listdir("."), os.listxattr("."))
os.makedirs("a/b"); os.symlink("a", "c")
for number in range(300):
    open(f"{number:0200}", "w")
os.utime(".", (5, 5))
exec(sys.argv[1])
"""


@pytest.mark.parametrize("more", ["pass", "os.chmod('.', 0o711)", "os.setxattr('.', 'user.mark', b'1')"])
def test_a_folder_without_seed_is_like_a_new_one_in_each_run(tmp_path: Path, more: str) -> None:
    shown = []
    for _ in range(3):
        world = NodeWorld([NodeCommand(("python3", "-c", _WITHOUT_SEED, more))], tmp_path / "world")
        results = by_default(world)
        assert results[-1].ended == 0, world.content(0).errors
        shown.append(output(results, 0))
        world.close()
    assert b"[] []" in shown[0]
    assert shown[1:] == shown[:1] * 2


def _tree(folder: Path) -> list[tuple[object, ...]]:
    entries: list[tuple[object, ...]] = []
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        name = path.relative_to(folder)
        entries.append((name, content, status.st_mode, status.st_nlink, status.st_uid, status.st_gid))
    return entries


def test_a_folder_is_restored_and_equal_files_stay(tmp_path: Path) -> None:
    seed, copy = tmp_path / "seed", tmp_path / "copy"
    _fill(seed)
    restore_tree(seed, copy)
    assert _tree(copy) == _tree(seed)
    kept, before = (copy / "kept").stat(), (copy / "below" / "grown").stat()
    os.utime(copy / "kept", (1, 1))
    (copy / "kept").chmod(0o777)
    (copy / "below" / "grown").write_text("longer than it was")
    (copy / "changed").unlink()
    (copy / "changed").mkdir()
    (copy / "changed" / "file").touch()
    (copy / "empty").rmdir()
    (copy / "empty").symlink_to("below")
    (copy / "name").write_text("both names")
    (copy / "other").touch()
    restore_tree(seed, copy)
    assert _tree(copy) == _tree(seed)
    assert (copy / "kept").stat().st_ino == kept.st_ino
    assert (copy / "kept").stat().st_mtime_ns >= kept.st_mtime_ns  # what a node sees is newer than its run
    assert (copy / "below" / "grown").read_text() == "below/grown as it was\n"
    assert before.st_size == (copy / "below" / "grown").stat().st_size


def test_a_file_with_an_attribute_of_an_earlier_run_is_made_anew(tmp_path: Path) -> None:
    seed, copy = tmp_path / "seed", tmp_path / "copy"
    _fill(seed)
    copy_tree(seed, copy)
    try:
        os.setxattr(copy / "kept", "user.run", b"1")
    except OSError:
        pytest.skip("the file system has no attributes of users")
    restore_tree(seed, copy)
    assert not os.listxattr(copy / "kept")
    assert _tree(copy) == _tree(seed)
