"""Members of one instance may have one record, and atomic operations may be left out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.concurrency.observations import ObservationKind, read_log
from support.command_line import run_crashcheck
from support.thread_project import ThreadProject

# A text is replaced in two critical sections, and read before, after or, in the schedule "between", between these.
# There the writer waits until the reader has read, or is stalled.
TWO_SECTIONS = """
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
extern unsigned crashcheck_guard_stalled(void) __attribute__((weak));
struct text { const char *bytes; size_t length; };
static struct text global;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t begun, ended;
static int wrong;
static void lock_reads(void) {
#ifdef LOCKED
    pthread_mutex_lock(&lock);
#endif
}
static void unlock_reads(void) {
#ifdef LOCKED
    pthread_mutex_unlock(&lock);
#endif
}
static void read_text(struct text *text) {
    (void)text;
    lock_reads();
    const char *bytes = MEMBER(bytes);
    size_t length = MEMBER(length);
    unlock_reads();
    wrong |= strlen(bytes) != length;
}
static void *reader(void *text) {
    sem_wait(&begun);
    read_text(text);
    sem_post(&ended);
    return NULL;
}
static void let_read(int wait) {
    int read = 0;
    sem_post(&begun);
    while (wait && !read && !(crashcheck_guard_stalled && crashcheck_guard_stalled())) {
        sem_getvalue(&ended, &read);
        sched_yield();
    }
}
int main(int argc, char **argv) {
    const char *schedule = argc > 1 ? argv[1] : "";
    pthread_t thread;
    struct text *text = malloc(sizeof *text);
    MEMBER(bytes) = "old";
    MEMBER(length) = 3;
    sem_init(&begun, 0, 0);
    sem_init(&ended, 0, 0);
    pthread_create(&thread, NULL, reader, text);
    if (strcmp(schedule, "1") == 0)
        let_read(1);
    pthread_mutex_lock(&lock);
    MEMBER(bytes) = "newer";
    pthread_mutex_unlock(&lock);
    if (strcmp(schedule, "between") == 0)
        let_read(1);
    pthread_mutex_lock(&lock);
    MEMBER(length) = 5;
    pthread_mutex_unlock(&lock);
    if (strcmp(schedule, "2") == 0)
        let_read(0);
    pthread_join(thread, NULL);
    return wrong;
}
"""

ATOMICS = """
#include <pthread.h>
#include <stdatomic.h>
static _Atomic int counter, expected = 2;
static int plain;
static void *body(void *unused) {
    atomic_fetch_add(&counter, 1);
    while (atomic_load(&counter) < 1)
        atomic_store(&counter, 1);
    int two = 2;
    atomic_compare_exchange_strong(&expected, &two, 3);
    plain++;
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, NULL);
    pthread_join(thread, NULL);
    body(NULL);
    return plain != 2;
}
"""


class Project(ThreadProject):
    def run(self, *words: str, status: int = 0) -> list[str]:
        done = run_crashcheck(*words, cwd=self.folder, env=self.environment)
        assert done.returncode == status, done.stdout + done.stderr
        return (done.stdout + done.stderr).splitlines()

    def program(self, *words: str, options: str = "stall=1000000,most=100") -> int:
        (self.folder / "log").unlink(missing_ok=True)
        environment = {"CRASHCHECK_GUARD": f"{options},log={self.folder / 'log'}"}
        return subprocess.run([self.folder / "program", *words], env=environment, check=False).returncode


def of_text(tmp_path: Path, environment: dict[str, str], member: str, flags: str = "") -> Project:
    project = Project(tmp_path, environment, TWO_SECTIONS, flags=f"'-DMEMBER(name)={member}name' {flags}")
    project.workload("./program {run}")
    return project


@pytest.mark.parametrize("member", ["text->", "global."])
def test_members_with_one_record_show_an_access_between_two_updates_that_belong_together(
    tmp_path: Path, environment: dict[str, str], member: str
) -> None:
    project = of_text(tmp_path, environment, member)
    project.run("learn", "--runs", "2")
    project.run("guard")
    assert project.program("between") == 1
    assert project.run("guard", "report", "log") == ["no violation"]
    (project.folder / "crashcheck.learned.json").unlink()
    project.run("learn", "--objects", "--runs", "2")
    project.run("guard")
    assert [project.program(schedule) for schedule in ("1", "2", "between")] == [0, 0, 0]
    (violation,) = project.run("guard", "report", "log", status=1)
    assert violation.endswith(" 1 resolved, 0 not")


def test_a_stall_in_a_critical_section_that_the_other_thread_needs_is_in_vain_and_named(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    project = of_text(tmp_path, environment, "text->", "-DLOCKED")
    project.run("learn", "--objects", "--runs", "2")
    project.run("guard")
    assert project.program("between", options="stall=1000,most=10") == 1
    assert project.run("guard", "report", "log", status=1)[0].endswith(" 0 resolved, 1 not")


def test_atomic_operations_are_observed_and_guarded_unless_they_are_left_out(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    project = Project(tmp_path, environment, ATOMICS)
    variables: dict[int, set[str]] = {}
    for option in ((), ("--without-atomics",), ()):
        if option or not variables:
            (project.folder / "crashcheck.learned.json").unlink(missing_ok=True)
        project.run("learn", "--runs", "1", *option)  # the third continues as the file was begun
        project.run("guard")
        assert project.program() == 0
        assert len(read_log(project.folder / "log").of(ObservationKind.UNTRAINED)) == 0
        document = json.loads((project.folder / "crashcheck.learned.json").read_text(encoding="utf-8"))
        variables[len(variables)] = {site["variable"] for site in document["sites"]} - {"thread"}
    assert variables == {0: {"counter", "expected", "plain"}, 1: {"plain"}, 2: {"plain"}}


def test_a_file_that_was_begun_otherwise_is_not_added_to(tmp_path: Path, environment: dict[str, str]) -> None:
    project = Project(tmp_path, environment, ATOMICS)
    project.run("learn", "--runs", "1")
    for option in ("--objects", "--without-atomics"):
        (error, _) = project.run("learn", "--runs", "1", option, status=2)
        assert f"was learned without {option}. [learned-otherwise]" in error
        assert "[bad-option]" in project.run("learn", "--check", option, status=2)[0]
