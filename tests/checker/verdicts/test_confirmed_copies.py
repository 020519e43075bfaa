"""What a copy of a waiting check shows is confirmed by runs from the beginning, and never counts against them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crashcheck.checker.verdicts.copies import CopiesDiffer
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.runtime.build import INCLUDE, build_runtime
from support import compilers
from support.checked_worlds import World, two_stores, words

SOURCE = r"""
#include <crashcheck.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Takes the next letter of a file: p passes, f fails. */
int main(int count, char **words)
{
    CRASHCHECK_READY();
    FILE *runs = fopen(words[1], "r+");
    int number = 0, letter = EOF;
    if (count < 2 || !runs || fscanf(runs, "%d ", &number) != 1)
        return 9;
    for (int skip = 0; skip <= number; skip++)
        letter = getc(runs);
    rewind(runs);
    fprintf(runs, "%03d", number + 1);
    fclose(runs);
    return letter != 'p';
}
"""

UNCRASHED = "ppp"  # a copy, one run from the beginning, another copy


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    (folder / "letters.c").write_text(SOURCE)
    command = [*compilers.c_compiler(), "-D_GNU_SOURCE", f"-I{INCLUDE}", str(folder / "letters.c")]
    subprocess.run([*command, "-o", str(folder / "letters")], check=True)
    return folder / "letters"


def runs_that(tmp_path: Path, program: Path, letters: str) -> tuple[World, Path]:
    file = tmp_path / "runs"
    file.write_text(f"000 {letters}")
    world = World(tmp_path / "world", words([str(program), str(file)]), two_stores, preload=build_runtime().shared)
    return world, file


def executed(executor: Executor, world: World) -> bool:
    """Whether a state passes, by the verdict and by the run that is written down for other searches."""
    judged = executor.judged(executor.submit(world.space.full(0)))
    assert judged is not None
    assert judged.verdict.passed is (judged.run.ended.status == 0)
    return judged.verdict.passed


# In this order: the copy, the run from the beginning, another copy, another run from the beginning.
@pytest.mark.parametrize(
    ("letters", "passes", "flaky"),
    [("pp", True, False), ("ff", False, False), ("fpp", True, True), ("pff", False, True), ("fpff", True, True)],
)
def test_the_run_from_the_beginning_counts(
    letters: str, passes: bool, flaky: bool, tmp_path: Path, program: Path
) -> None:
    world, file = runs_that(tmp_path, program, UNCRASHED + letters)
    with world.executor() as executor:
        assert executor.try_copies().passed
        assert executed(executor, world) is passes
        assert [note.startswith("flaky: ") for note in executor.notes] == [True] * flaky
    assert file.read_text().startswith(f"{len(UNCRASHED + letters):03}")


@pytest.mark.parametrize(("letters", "how"), [("fpfp", "fails (fail)"), ("pfpf", "passes")])
def test_two_ways_that_differ_twice_end_the_search(letters: str, how: str, tmp_path: Path, program: Path) -> None:
    world, _ = runs_that(tmp_path, program, UNCRASHED + letters)
    with world.executor() as executor:
        assert executor.try_copies().passed
        with pytest.raises(CopiesDiffer, match=rf"^the check {how[:5]}.* where it continues at crashcheck_ready\(\)"):
            executed(executor, world)


@pytest.mark.parametrize("letters", ["fpp", "pfp", "ppf"])
def test_no_copy_is_made_where_the_final_image_shows_a_difference(letters: str, tmp_path: Path, program: Path) -> None:
    world, file = runs_that(tmp_path, program, letters + "p")
    with world.executor() as executor:
        assert executor.try_copies().passed is (letters[1] == "p")
        assert executed(executor, world)
        (note,) = executor.notes
        assert "on the final image, the check ends otherwise or prints something else" in note
    assert file.read_text().startswith("004")


def test_few_of_those_that_pass_are_run_from_the_beginning(tmp_path: Path, program: Path) -> None:
    world, file = runs_that(tmp_path, program, "p" * 200)
    with world.executor() as executor:
        executor.try_copies()
        assert all(executed(executor, world) for _ in range(100))
    assert file.read_text().startswith(f"{len(UNCRASHED) + 100 + 7:03}")


def test_runs_that_explain_a_failure_are_from_the_beginning(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, file = runs_that(tmp_path, program, UNCRASHED + "f" + "p")
    with world.executor() as executor:
        executor.try_copies()
        ends, judge = [], executor.oracle.judge
        monkeypatch.setattr(executor.oracle, "judge", lambda end, *rest: ends.append(end) or judge(end, *rest))
        assert not executor.run(world.space.full(0)).passed
        assert [end.forked for end in ends] == [False]
    assert file.read_text().startswith("004")
