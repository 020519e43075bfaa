"""Lines of a checkout of the merge, as they are at the head of the pull request."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.results import Earlier, Edit, FindingKind, Fix
from crashcheck.reports.github.located import in_commit, lines_at, located
from support.reports.runs import LEVEL_HASH, run

ROWS = [f"line {number}" for number in range(1, 31)]
WHO = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def merge(tmp_path: Path) -> tuple[Path, str]:
    """The checkout of a merge, and the head: the base has put four lines above, and two before line 20."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(tmp_path), *WHO, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(rows: list[str]) -> None:
        (tmp_path / "a.c").write_text("\n".join(rows) + "\n", encoding="utf-8")
        git("add", "a.c")
        git("commit", "-q", "-m", "x")

    git("init", "-q", "-b", "main")
    commit(ROWS)
    git("checkout", "-q", "-b", "change")
    commit([*ROWS[:29], "changed"])
    head = git("rev-parse", "HEAD")
    git("checkout", "-q", "main")
    commit([*["above"] * 4, *ROWS[:19], *["between"] * 2, *ROWS[19:]])
    git("merge", "-q", "--no-ff", "-m", "merge", "change")
    return tmp_path, head


def test_each_line_of_the_merge_has_its_line_at_the_head_and_one_that_only_the_base_has_none(
    merge: tuple[Path, str],
) -> None:
    root, head = merge
    rows = (root / "a.c").read_text(encoding="utf-8").split("\n")
    at = lines_at(root, head)
    there = [at("a.c", number) for number in range(1, 37)]
    assert there == [0] * 4 + list(range(1, 20)) + [0] * 2 + list(range(20, 31))
    assert rows[there.index(30)] == "changed"


def test_a_file_that_the_head_does_not_have_gets_no_link(merge: tuple[Path, str]) -> None:
    root, head = merge
    (root / "made.c").touch()  # by the build, of a grammar
    there = in_commit(root, head, str)
    assert [there(file) for file in ("a.c", "made.c", "grammar.y", "")] == ["a.c", "", "", ""]
    assert in_commit(root, "f" * 40, str)("made.c") == "made.c"


def test_a_checkout_of_another_commit_keeps_its_lines(merge: tuple[Path, str]) -> None:
    root, _ = merge
    assert lines_at(root, "f" * 40)("a.c", 9) == 9
    assert lines_at(root / "..", "f" * 40)("a.c", 9) == 9


def test_a_finding_its_fix_and_its_words_have_the_lines_of_the_head(merge: tuple[Path, str]) -> None:
    root, head = merge
    fix = Fix("flush", "a flush", (Edit("a.c", 26, False, "    clwb(entry);"),), 6, 0, "the failing states pass")
    place = replace(LEVEL_HASH.location, file="a.c", line=10)
    words = "`a` (a.c:10) can survive a crash without `b` (a.c:24), see lib.c:10"
    gone = Earlier("ORD-2", FindingKind.ORDERING, "`a` (a.c:9) can survive a crash without `b` (b/c.c:8)", "fixed")
    whole = replace(run(replace(LEVEL_HASH, location=place, message=words, fix=fix)), again=(gone,))
    result = located(whole, str, lines_at(root, head), root)
    (found,) = result.findings
    assert (found.location.line, found.fix.edits[0].line if found.fix else 0) == (6, 20)
    assert [one.message for one in result.again] == ["`a` can survive a crash without `b`"]
    assert found.message == "`a` (a.c:6) can survive a crash without `b` (a.c:24 of the merge), see lib.c:10"


def test_a_file_that_no_place_names_has_its_name_from_the_repositorys_root_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "persist.h").touch()
    words = replace(LEVEL_HASH, message="put back `clflush` in persist (persist.h:11), not in (other.h:11)")
    result = located(run(words), lambda file: f"lib/{file}", lambda file, line: line, tmp_path)
    assert result.findings[0].message == "put back `clflush` in persist (lib/persist.h:11), not in (other.h:11)"
