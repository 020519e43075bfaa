"""Only part of a program is guarded: what is not hot (bias), or what the program marks (AI §3.3)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.concurrency.observations import ObservationKind, read_log
from support.command_line import run_crashcheck
from support.compilers import c_compiler
from support.thread_project import ThreadProject

AT_ONCE = "stall=0,most=0"  # a violation is logged, and the thread continues

HOT = """
#include <pthread.h>
#include <string.h>
static int ready, seen, hot[64];
static void warm(void) {
    for (int i = 0; i < 64; i++)
        hot[i] = 1;
}
static void heat(void) {
    for (int i = 0; i < 200; i++)
        hot[i % 64]++;
}
static void set(void) { ready = 1; }
static void *reader(void *unused) {
    seen = ready;
    heat();
    return unused;
}
int main(int argc, char **argv) {
    pthread_t thread;
    int late = argc > 1 && strcmp(argv[1], "late") == 0;
    if (!late) {
        warm();
        set();
    }
    pthread_create(&thread, NULL, reader, NULL);
    pthread_join(thread, NULL);
    if (late)
        set();
    return 0;
}
"""

MARKED = """
#include <pthread.h>
#include <crashcheck.h>
static int in_function, in_block, in_inner_block, outside, by_address, other;
static void function(void) {
    CRASHCHECK_GUARD_FUNCTION();
    in_function++;
}
static void add(int *place) { *place += 1; }
static void *body(void *unused) {
    function();
    outside++;
    if (unused == NULL) {
        CRASHCHECK_GUARD_BLOCK();
        in_block++;
        for (int i = 0; i < 2; i++)
            in_inner_block++;
    }
    CRASHCHECK_GUARD_ADDRESS(&by_address);
    by_address++;
    add(&other);
    return unused;
}
int main(void) {
    pthread_t thread;
    for (int time = 0; time < 2; time++) {
        if (pthread_create(&thread, NULL, body, NULL) != 0)
            return 1;
        pthread_join(thread, NULL);
    }
    return in_function != 2 || in_block != 2 || by_address != 2;
}
"""


class Project(ThreadProject):
    def __init__(self, folder: Path, environment: dict[str, str], program: str) -> None:
        settings = f'env = {{CRASHCHECK_GUARD = "{AT_ONCE}"}}\n'
        super().__init__(folder, environment, program, flags="$FLAGS", settings=settings)

    def run(self, *words: str, status: int = 0) -> list[str]:
        done = run_crashcheck(*words, cwd=self.folder, env=self.environment)
        assert done.returncode == status, done.stdout + done.stderr
        return (done.stdout + done.stderr).splitlines()

    def program(self, *words: str) -> None:
        (self.folder / "log").unlink(missing_ok=True)
        options = {"CRASHCHECK_GUARD": f"{AT_ONCE},log={self.folder / 'log'}"}
        subprocess.run([self.folder / "program", *words], env=options, check=True)

    def lines_of(self, name: str) -> set[int]:
        """The source lines of the sites in a file of what was learned."""
        document = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return {int(site["where"].rpartition(":")[2]) for site in document["sites"]}


def line_of(program: str, text: str) -> int:
    (number,) = [number for number, line in enumerate(program.splitlines(), 1) if text in line]
    return number


WARM_LINE = line_of(HOT, "hot[i] = 1")
HOT_LINE = line_of(HOT, "hot[i % 64]++")
SET_LINE = line_of(HOT, "void set(void)")
READ_LINE = line_of(HOT, "seen = ready")
LEFT_ALONE = f"% of the accesses to shared memory: program.c:{HOT_LINE} heat hot, program.c:{WARM_LINE} warm hot"
LATE = f"not learned: program.c:{READ_LINE} reader ready (thread 2): after nothing of another thread"


def violating_lines(report: list[str]) -> set[int]:
    places = [line.split()[2] for line in report if line.startswith("not learned")]
    return {int(place.removeprefix("program.c:")) for place in places}


@pytest.fixture
def hot(tmp_path: Path, environment: dict[str, str]) -> Project:
    project = Project(tmp_path, environment, HOT)
    project.run("learn", "--runs", "1")
    return project


def test_a_hot_group_is_left_alone_and_the_others_stay_guarded(hot: Project) -> None:
    built = hot.run("guard", "--bias")
    assert [line for line in built if line.startswith("left alone: 99.")] == built[1:]
    assert LEFT_ALONE in built[1]
    hot.program("late")
    reported = hot.run("guard", "report", "log", status=1)
    assert violating_lines(reported) == {READ_LINE, SET_LINE}
    assert reported[0].startswith(LATE)
    assert reported[-1] == built[1]


def test_the_threshold_is_kept_until_another_is_chosen(hot: Project) -> None:
    assert hot.run("guard", "--bias", "0")[0].startswith("guarded: 0 accesses")
    hot.run("guard", "--bias", "50")
    assert LEFT_ALONE in hot.run("guard")[-1]
    all_again = hot.run("guard", "--bias", "100")
    assert (len(all_again), LEFT_ALONE in all_again[0]) == (1, False)
    hot.program("late")
    assert violating_lines(hot.run("guard", "report", "log", status=1)) == {READ_LINE, HOT_LINE, SET_LINE}


@pytest.mark.parametrize("words", [("--bias", "101"), ("--bias", "-1"), ("relax", "--bias", "5")])
def test_a_threshold_that_makes_no_sense_is_refused(hot: Project, words: tuple[str, ...]) -> None:
    assert "[bad-option]" in hot.run("guard", *words, status=2)[0]


@pytest.fixture
def marked(tmp_path: Path, environment: dict[str, str]) -> Project:
    return Project(tmp_path, environment, MARKED)


def marked_lines(*texts: str) -> set[int]:
    return {line_of(MARKED, text) for text in texts}


BY_MARK = ("in_function++", "in_block++", "in_inner_block++")


@pytest.mark.parametrize("flags", ["", "-O2"])
def test_only_marked_functions_and_blocks_are_learned_and_guarded(marked: Project, flags: str) -> None:
    marked.environment["FLAGS"] = flags
    marked.run("learn", "--marked", "--runs", "1")
    assert marked.lines_of("crashcheck.marked.json") == marked_lines(*BY_MARK)
    marked.source(MARKED.replace("outside++", "outside--").replace("unused == NULL", "!unused"))
    built = marked.run("guard", "--marked")
    assert built[0].startswith("guarded: 6 accesses to shared memory")
    marked.program()
    report = marked.run("guard", "--marked", "report", "log")
    # The function of the blocks changed: they are counted. What is not marked was never hooked.
    (untrained,) = [line for line in report if line.startswith("not judged")]
    assert "4 sites" in untrained


def test_whoever_accesses_a_marked_address_is_learned_once_a_run_without_marks_has_shown_it(marked: Project) -> None:
    marked.run("learn", "--runs", "1")
    marked.run("learn", "--marked", "--runs", "1")
    assert marked.lines_of("crashcheck.marked.json") == marked_lines(*BY_MARK, "by_address++", "by_address != 2")
    marked.run("guard", "--marked")
    marked.program()
    assert marked.run("guard", "--marked", "report", "log") == ["no violation"]
    assert [unit.source for unit in read_log(marked.folder / "log").units] == [str(marked.folder / "program.c")]
    assert len(read_log(marked.folder / "log").of(ObservationKind.UNTRAINED)) == 0


def test_marks_need_no_crashcheck(marked: Project) -> None:
    header = Path(__file__).parents[3] / "runtime" / "include"
    for flags in (["-O0"], ["-O2"]):
        command = [*c_compiler(), *flags, f"-I{header}", "-Wall", "-Werror", "-pthread", "-o", "plain", "program.c"]
        subprocess.run(command, cwd=marked.folder, check=True)
        subprocess.run([marked.folder / "plain"], check=True)


def test_what_was_learned_of_marked_accesses_is_not_mixed_with_the_rest(marked: Project) -> None:
    marked.run("learn", "--marked", "--runs", "1")
    assert "[learned-marked]" in marked.run("learn", "--file", "crashcheck.marked.json", status=2)[0]
    marked.source("int x; int *p = &x; int main(void) { return *p; }\n")
    error = marked.run("learn", "--marked", "--runs", "1", status=2)[0]
    assert "no marked access" in error
    assert "[learn-nothing]" in error
