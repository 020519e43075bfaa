"""How source files are named in reports, and how their lines are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.source import Repository, SourceTree, repository_of, source_line, source_lines, spoken, spoken_line


def test_a_file_in_the_project_is_named_relative_to_it_and_another_absolute(tmp_path: Path) -> None:
    project = tmp_path / "my project"
    (project / "src").mkdir(parents=True)
    tree = SourceTree(project)
    assert tree.relative(project / "src" / "a.c") == "src/a.c"
    assert tree.relative("src/../src/a.c") == "src/a.c"
    assert tree.relative("/usr/include/stdio.h") == "/usr/include/stdio.h"
    assert tree.relative(str(tmp_path / "my projects" / "a.c")) == str(tmp_path / "my projects" / "a.c")
    assert tree.relative("") == ""


def test_a_file_of_a_go_module_is_the_projects_without_the_modules_name(tmp_path: Path) -> None:
    """As `go build -trimpath` names it."""
    (tmp_path / "go.mod").write_text("module example.org/store // a comment\n\ngo 1.22\n")
    (tmp_path / "cmd").mkdir()
    assert SourceTree(tmp_path).relative("example.org/store/log/log.go") == "log/log.go"
    (tmp_path / ".git").mkdir()
    assert SourceTree(tmp_path / "cmd").relative("example.org/store/log/log.go") == "../log/log.go"
    assert SourceTree(tmp_path).relative("example.org/storefront/log.go") == "example.org/storefront/log.go"
    assert SourceTree(tmp_path).relative("example.org/store/log.c") == "example.org/store/log.c"


def test_a_sentence_names_a_file_outside_the_project_without_its_folder() -> None:
    assert spoken("/usr/src/lmdb/mdb.c") == "mdb.c"
    assert spoken("src/mdb.c") == "src/mdb.c"
    assert spoken("") == ""
    assert spoken_line("/usr/src/lmdb/mdb.c", 12) == "mdb.c:12"
    assert spoken_line("<-e>", 2) == "line 2 of -e"
    assert spoken_line("<stdin>", 2) == "line 2 of stdin"


def test_a_project_reached_through_a_link_is_the_same_project(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert SourceTree(tmp_path / "link").relative(tmp_path / "real" / "a.c") == "a.c"
    assert SourceTree(tmp_path / "real").relative(tmp_path / "link" / "a.c") == "a.c"


def test_a_line_is_stripped_and_counted_as_the_compiler_counts(tmp_path: Path) -> None:
    file = tmp_path / "größe.c"
    file.write_bytes(b"int a;\x0c\n\tint b; \r\n\xff\n")
    assert source_line(file, 1) == "int a;"
    assert source_line(file, 2) == "int b;"
    assert source_line(file, 3) == "\N{REPLACEMENT CHARACTER}"


def test_a_line_or_file_that_does_not_exist_is_empty_text(tmp_path: Path) -> None:
    file = tmp_path / "a.c"
    file.write_text("x\n")
    assert [source_line(file, line) for line in (-1, 0, 3)] == ["", "", ""]
    assert source_line(tmp_path / "gone.c", 1) == ""
    assert source_line("<built-in>", 1) == ""
    assert source_line("", 1) == ""
    assert source_lines(tmp_path) == ()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "db" / "src").mkdir(parents=True)
    (folder / ".git").mkdir()
    return folder


def test_the_repository_is_the_project_apart_from_what_is_installed_in_it(root: Path) -> None:
    tree = SourceTree(root / "db")
    assert tree.relative(root / "db" / "src" / "a.c") == "src/a.c"
    assert tree.relative(root / "lib" / "queue.c") == "../lib/queue.c"
    assert tree.relative("../lib/queue.c") == "../lib/queue.c"
    assert SourceTree(root / "db" / "src").relative(root / "queue.c") == "../../queue.c"
    assert tree.relative(root.parent / "queue.c") == str(root.parent / "queue.c")
    header = root / ".venv" / "ziglang" / "lib" / "include" / "emmintrin.h"
    assert tree.relative(header) == str(header)
    assert repository_of(root / "db").name("../lib/queue.c") == "lib/queue.c"


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
