"""A diff is read as git writes it, to the line, and nothing in a file can pass for a part of the diff."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.change.diff import Diff, git_diff, parse
from crashcheck.errors import CrashcheckError
from support.examples_tried import examples

IDENTITY = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
    )
    return done.stdout.decode()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, tagged `base`: ten lines in `a.c`."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.c").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    commit(folder, "first")
    git(folder, "tag", "base")
    return folder


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


def lines(diff: Diff, path: str) -> tuple[list[int], list[int], list[int]]:
    found = diff.files[path]
    return sorted(found.added), sorted(found.gone), sorted(found.shown)


def test_an_altered_line_is_added_and_three_lines_around_it_are_shown(repository: Path) -> None:
    text = (repository / "a.c").read_text()
    (repository / "a.c").write_text(text.replace("line 10\n", "other\n"))
    assert lines(git_diff(repository, "base"), "a.c") == ([10], [], list(range(7, 14)))


def test_a_line_taken_away_touches_the_lines_on_both_sides(repository: Path) -> None:
    text = (repository / "a.c").read_text()
    (repository / "a.c").write_text(text.replace("line 10\nline 11\n", ""))
    assert lines(git_diff(repository, "base"), "a.c") == ([], [9, 10], list(range(7, 13)))


def test_lines_taken_away_at_either_end_touch_what_is_left(repository: Path) -> None:
    (repository / "a.c").write_text("".join(f"line {n}\n" for n in range(2, 20)))
    assert lines(git_diff(repository, "base"), "a.c")[:2] == ([], [1, 18])


def test_what_was_committed_since_the_branch_point_and_what_was_not_both_count(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "feature")
    (repository / "b.c").write_text("one\ntwo\n")
    commit(repository, "second")
    git(repository, "checkout", "-q", "main")
    (repository / "main.c").write_text("not ours\n")
    commit(repository, "third")
    git(repository, "checkout", "-q", "feature")
    (repository / "a.c").write_text("first\n" + (repository / "a.c").read_text())
    found = git_diff(repository, "main")
    assert sorted(found.files) == ["a.c", "b.c"]
    assert lines(found, "b.c") == ([1, 2], [], [1, 2])
    assert found.changed("a.c") == frozenset({1})


def test_a_file_that_git_does_not_know_is_new_unless_it_is_ignored(repository: Path) -> None:
    (repository / ".gitignore").write_text("*.o\n")
    (repository / "new.c").write_text("one\ntwo")
    (repository / "new.o").write_text("one\n")
    (repository / "link.c").symlink_to("/etc/passwd")
    (repository / "binary").write_bytes(b"\0\n\n")
    found = git_diff(repository, "base")
    assert sorted(found.files) == [".gitignore", "new.c"]
    assert lines(found, "new.c") == ([1, 2], [], [1, 2])


def test_a_renamed_file_has_its_new_name_and_a_deleted_one_none(repository: Path) -> None:
    (repository / "gone.c").write_text("x\n")
    commit(repository, "second")
    git(repository, "mv", "a.c", "b.c")
    git(repository, "rm", "-q", "gone.c")
    (repository / "b.c").write_text((repository / "b.c").read_text() + "more\n")
    found = git_diff(repository, "HEAD")
    assert sorted(found.files) == ["b.c"]
    assert (found.files["b.c"].before, found.changed("b.c")) == ("a.c", frozenset({21}))


def test_a_rename_alone_a_mode_and_a_binary_file_have_no_lines(repository: Path) -> None:
    (repository / "tool").write_text("x\n")
    (repository / "data").write_bytes(b"\0")
    commit(repository, "second")
    git(repository, "mv", "a.c", "b.c")
    (repository / "tool").chmod(0o755)
    (repository / "data").write_bytes(b"\0\1")
    found = git_diff(repository, "HEAD")
    assert {path: lines(found, path) for path in found.files} == {
        path: ([], [], []) for path in ("b.c", "data", "tool")
    }


@pytest.mark.parametrize(
    "name", ["a b.c", 'quo"te.c', "tab\t.c", "ü.c", "new\nline.c", "a b/b a.c", "b/x", "-x", "trailing ", "\\.c"]
)
def test_names_that_git_quotes_or_leaves_are_read(repository: Path, name: str) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("one\n")
    commit(repository, "second")
    (repository / name).write_text("one\ntwo\n")
    assert lines(git_diff(repository, "HEAD"), name) == ([2], [], [1, 2])
    (repository / name).chmod(0o755)
    (repository / name).write_text("one\n")
    assert list(git_diff(repository, "HEAD").files) == [name]


def test_a_name_that_is_not_utf8_is_decoded_with_replacement(repository: Path) -> None:
    Path(os.fsdecode(os.fsencode(repository) + b"/\xff.c")).write_text("one\n")
    commit(repository, "second")
    assert "\ufffd.c" in git_diff(repository, "base").files


def test_a_file_without_a_newline_at_its_end(repository: Path) -> None:
    (repository / "a.c").write_text("".join(f"line {n}\n" for n in range(1, 20)) + "line 20")
    assert lines(git_diff(repository, "base"), "a.c") == ([20], [], [17, 18, 19, 20])


def test_text_that_looks_like_a_diff_is_text(repository: Path) -> None:
    sly = "-- a/evil.c\n++ b/evil.c\n@@ -1 +1 @@\ndiff --git a/evil.c b/evil.c\n+++ b/evil.c\n"
    (repository / "a.c").write_text(sly)
    commit(repository, "second")
    (repository / "a.c").write_text("x\n" + sly * 2)
    found = git_diff(repository, "HEAD")
    assert list(found.files) == ["a.c"]
    assert sorted(found.changed("a.c")) in ([1, 7, 8, 9, 10, 11], [1, 2, 3, 4, 5, 6])


def test_settings_of_the_repository_and_the_caller_change_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
    program.chmod(0o755)
    for key, value in (
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("diff.context", "0"),
        ("diff.external", str(program)),
        ("diff.evil.textconv", str(program)),
        ("core.fsmonitor", str(program)),
        ("core.pager", str(program)),
        ("color.ui", "always"),
        ("core.quotePath", "false"),
        ("diff.relative", "true"),
    ):
        git(repository, "config", key, value)
    (repository / ".gitattributes").write_text("*.c diff=evil\n")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    inner = repository / "inner"
    inner.mkdir()
    (repository / "a.c").write_text((repository / "a.c").read_text().replace("line 10\n", "other\n"))
    assert lines(git_diff(inner, "base"), "a.c") == ([10], [], list(range(7, 14)))
    assert not ran.exists()


@pytest.mark.parametrize("base", ["nothing", "--output=x", "", "a\0b", "base..HEAD", "base:a.c"])
def test_a_base_that_is_no_commit_is_refused(repository: Path, base: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        git_diff(repository, base)
    assert caught.value.slug == "diff-unknown-base"
    assert not (repository / "x").exists()


def test_a_base_without_a_common_ancestor_is_refused(repository: Path) -> None:
    git(repository, "checkout", "-q", "--orphan", "other")
    commit(repository, "alone")
    with pytest.raises(CrashcheckError, match="no common ancestor") as caught:
        git_diff(repository, "base")
    assert caught.value.slug == "diff-unknown-base"


def test_a_folder_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CrashcheckError) as caught:
        git_diff(tmp_path, "main")
    assert caught.value.slug == "diff-git-failed"


def test_a_machine_without_git_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CrashcheckError) as caught:
        git_diff(tmp_path, "main")
    assert caught.value.slug == "diff-no-git"


def test_the_output_of_diff_u_is_read() -> None:
    found = parse(b"--- old.c\t2026-01-01 00:00:00\n+++ new.c\t2026-01-02 00:00:00\n@@ -1,2 +1,2 @@\n a\r\n-b\n+c\n")
    assert lines(found, "new.c") == ([2], [], [1, 2])


def test_a_mail_with_a_patch_is_read() -> None:
    found = parse(
        "From 0 Mon Sep 17\nSubject: x\n\n---\n a.c | 1 +\n\ndiff --git a/a.c b/a.c\nindex 0..1 100644\n"
        "--- a/a.c\n+++ b/a.c\n@@ -0,0 +1 @@\n+x\n-- \n2.39\n"
    )
    assert lines(found, "a.c") == ([1], [], [1])


@pytest.mark.parametrize(
    "text",
    [
        "--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,3 @@\n a\n",
        "--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,999999999 @@\n a\n",
        "--- a/a.c\n+++ b/a.c\n@@ -1 +1 @@\n?\n",
        "--- a/a.c\n+++ b/a.c\n@@ -1 +1,2 @@\n a\n b\n",
        "diff --cc a.c\nindex 1,2..3\n",
    ],
    ids=["ends", "huge", "strange", "unbalanced", "merge"],
)
def test_a_diff_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        parse(text)
    assert caught.value.slug == "diff-malformed"


def test_nothing_is_no_change() -> None:
    assert parse("") == parse(b"\n") == Diff()
    assert Diff().changed("a.c") == Diff().shown("a.c") == frozenset()


PIECES = ["diff --git a/x b/x\n", "--- a/x\n", "+++ b/x\n", "@@ -1 +1 @@\n", "@@ -1,2 +0,0 @@\n", "-a\n", "+b\n"]
PIECES += [" c\n", "\n", '"\\', "\\ No newline\n", "rename to y\n", "\r\n", "\0"]


@given(st.lists(st.sampled_from(PIECES), max_size=20))
def test_any_text_is_read_or_refused(pieces: list[str]) -> None:
    try:
        parse("".join(pieces))
    except CrashcheckError as error:
        caught = error.slug
    else:
        caught = "diff-malformed"
    assert caught == "diff-malformed"


@settings(max_examples=examples(12))
@given(st.randoms(use_true_random=False))
def test_added_lines_and_gaps_are_those_of_a_plain_comparison(chance: random.Random) -> None:
    """Against diff itself: lines of the new file that are not in the old one, for files of distinct lines."""
    old = [f"{n}" for n in range(chance.randrange(30))]
    new = [chance.choice([text, f"new {n}"]) for n, text in enumerate(old) if chance.random() < 0.8]
    new += [f"end {n}" for n in range(chance.randrange(3))]
    with _files(old, new) as folder:
        raw = subprocess.run(["diff", "-u", "old", "new"], cwd=folder, capture_output=True, check=False).stdout
    found = parse(raw).files.get("new")
    assert sorted(found.added if found else ()) == [n for n, text in enumerate(new, 1) if text not in old]


class _files:
    def __init__(self, old: list[str], new: list[str]) -> None:
        self.texts = {"old": old, "new": new}

    def __enter__(self) -> str:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        for name, rows in self.texts.items():
            (Path(self.folder.name) / name).write_text("".join(f"{row}\n" for row in rows))
        return self.folder.name

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()
