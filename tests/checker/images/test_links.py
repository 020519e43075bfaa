"""Names of one file are hard links in an image, too, and stay links whatever a check does to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crashcheck.checker.images.image_folder import LINK, SYMLINK, ImageFolder, write_image
from crashcheck.runtime.sparse import copy_tree
from support.folders import Recorded
from support.tracing import CallsBuilder


def links(folder: Path) -> set[tuple[str, ...]]:
    names: dict[int, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            names.setdefault(path.stat().st_ino, []).append(str(path.relative_to(folder)))
    return {tuple(group) for group in names.values() if len(group) > 1}


def linked(folder: Path) -> None:
    """a = d/b, c = e, and f alone."""
    (folder / "d").mkdir(parents=True)
    for name in ("a", "c", "f"):
        (folder / name).write_text(name * 5)
    os.link(folder / "a", folder / "d" / "b")
    os.link(folder / "c", folder / "e")


ALL = {("a", "d/b"), ("c", "e")}


def test_every_state_of_a_program_that_links_has_the_links_of_its_names(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.link("f", "b")
        t.write("b", 0, b"written by its other name")
        t.open("tmp")
        t.write("tmp", 0, b"new")
        t.move("tmp", "f")
        t.fsync("")
        t.link("b", "c")
        t.remove("b")

    run = Recorded(tmp_path, program, {"f": b"old"}, "posix")
    seen = set()
    for state in run.states:
        names: dict[int, list[str]] = {}
        for path, inode in run.content.paths(state).items():
            names.setdefault(inode, []).append(path)
        expected = {tuple(sorted(group)) for group in names.values() if len(group) > 1}
        assert run.links(state) == expected
        seen.add(frozenset(expected))
    assert len(seen) > 3


def test_copies_have_the_links_of_the_original(tmp_path: Path) -> None:
    linked(tmp_path / "first")
    copy_tree(tmp_path / "first", tmp_path / "copy")
    assert links(tmp_path / "copy") == ALL


def test_a_patch_makes_a_link(tmp_path: Path) -> None:
    linked(tmp_path / "first")
    write_image(
        tmp_path / "first", [("a", True, LINK, ((0, b"c"),)), ("g", True, LINK, ((0, b"f"),))], tmp_path / "image"
    )
    assert links(tmp_path / "image") == {("a", "c", "e"), ("f", "g")}


@pytest.mark.parametrize(
    "damage",
    [
        "rm a; echo other > a",
        "rm d/b; ln c d/b",
        "rm a c; ln d/b c; ln e a",
        "echo more >> d/b; echo more >> e; echo more >> f",
        "ln f g; rm e; ln f e",
        "rm -r d e; ln -s a e",
    ],
)
def test_links_are_put_back_after_a_check(damage: str, tmp_path: Path) -> None:
    linked(tmp_path / "first")
    (tmp_path / "root").mkdir()
    image = ImageFolder(tmp_path / "first", tmp_path / "root")
    try:
        assert os.system(f"cd {image.pool} && {damage}") == 0
        image.restore()
        assert links(image.pool) == ALL
        assert [(image.pool / name).read_text() for name in ("a", "d/b", "c", "e", "f")] == [n * 5 for n in "aaccf"]
        assert sorted(path.name for path in image.pool.rglob("*")) == ["a", "b", "c", "d", "e", "f"]
    finally:
        image.close()


def test_a_socket_is_left_out_of_an_image(tmp_path: Path) -> None:
    """Of what has no content, a patch is a symbolic link without a target."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "f").touch()
    write_image(tmp_path / "first", [("socket", True, SYMLINK, ((0, b""),))], tmp_path / "image")
    assert [path.name for path in (tmp_path / "image").iterdir()] == ["f"]
