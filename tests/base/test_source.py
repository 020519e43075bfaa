"""How source files are named in reports, and how their lines are read."""

from __future__ import annotations

from pathlib import Path

from crashcheck.source import SourceTree, source_line, source_lines, spoken


def test_a_file_in_the_project_is_named_relative_to_it_and_another_absolute(tmp_path: Path) -> None:
    project = tmp_path / "my project"
    (project / "src").mkdir(parents=True)
    tree = SourceTree(project)
    assert tree.relative(project / "src" / "a.c") == "src/a.c"
    assert tree.relative("src/../src/a.c") == "src/a.c"
    assert tree.relative("/usr/include/stdio.h") == "/usr/include/stdio.h"
    assert tree.relative(str(tmp_path / "my projects" / "a.c")) == str(tmp_path / "my projects" / "a.c")
    assert tree.relative("") == ""


def test_a_sentence_names_a_file_outside_the_project_without_its_folder() -> None:
    assert spoken("/usr/src/lmdb/mdb.c") == "mdb.c"
    assert spoken("src/mdb.c") == "src/mdb.c"
    assert spoken("") == ""


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
    assert SourceTree(tmp_path).source_line("größe.c", 2) == "int b;"


def test_a_line_or_file_that_does_not_exist_is_empty_text(tmp_path: Path) -> None:
    file = tmp_path / "a.c"
    file.write_text("x\n")
    assert [source_line(file, line) for line in (-1, 0, 3)] == ["", "", ""]
    assert source_line(tmp_path / "gone.c", 1) == ""
    assert source_line("<built-in>", 1) == ""
    assert source_line("", 1) == ""
    assert source_lines(tmp_path) == ()
