"""A finding's file is named as its repository names it, with links resolved, and never out of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.repository import Repository, repository_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "db" / "src").mkdir(parents=True)
    (folder / ".git").mkdir()
    return folder


def test_the_project_may_be_below_the_root(root: Path) -> None:
    assert repository_of(root / "db") == Repository(root, "db")
    assert repository_of(root) == Repository(root, "")
    assert repository_of(root / "db").name("src/a.c") == "db/src/a.c"
    assert repository_of(root).name("src/a.c") == "src/a.c"


def test_a_worktree_has_a_file_where_others_have_a_folder(root: Path) -> None:
    (root / ".git").rmdir()
    (root / ".git").write_text("gitdir: elsewhere\n")
    assert repository_of(root / "db").prefix == "db"


def test_without_a_repository_the_project_is_its_own_root(tmp_path: Path) -> None:
    assert repository_of(tmp_path).name("a.c") == "a.c"


def test_a_file_outside_has_no_name(root: Path) -> None:
    here = repository_of(root / "db")
    assert [
        here.name(file) for file in ("/usr/include/x.h", "../../x.c", "../..", "..", "", "a\0b", f"{root}x/a.c")
    ] == [""] * 7
    assert here.name("../lib/x.c") == "lib/x.c"
    assert here.name(f"{root}/lib/./x.c") == "lib/x.c"


def test_links_are_resolved_within_the_repository_only(root: Path) -> None:
    (root / "db" / "src" / "a.c").write_text("")
    (root / "db" / "linked").symlink_to("src")
    (root / "db" / "out").symlink_to("/usr")
    here = repository_of(root / "db")
    assert here.name("linked/a.c") == "db/src/a.c"
    assert here.name("out/include/x.h") == "db/out/include/x.h"


def test_the_projects_folder_may_be_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(root / "db")
    assert repository_of(tmp_path / "way").name("src/a.c") == "db/src/a.c"


def test_a_name_that_no_file_can_have_keeps_its_text(root: Path) -> None:
    assert repository_of(root).name("x" * 5000) == "x" * 5000
    assert repository_of(root).name("\ud800.c") == "\ud800.c"
