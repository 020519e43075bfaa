"""A check that waits in crashcheck_ready(): each run from there on ends as one in a new process does."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from crashcheck.checker.execution.check_command import Acked
from crashcheck.checker.execution.process import Ended, Limits, Runner
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.execution.waiting import DESCRIPTOR
from crashcheck.runtime.build import INCLUDE, build_runtime
from crashcheck.runtime.supervise import own_children
from support import compilers

SOURCE = r"""
#include <crashcheck.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int begun; /* how many runs have begun here: more than one where a process waits */

static void *waits(void *unused) { pause(); return unused; }

static void before(const char *what, char *file)
{
    struct itimerval later = {.it_value = {100, 0}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    pthread_t thread;
    char text[8] = "";
    if (!strcmp(what, "writes")) { if (write(1, "written first\n", 14) < 0) exit(9); }
    if (!strcmp(what, "buffers")) printf("printed first\n");
    if (!strcmp(what, "thread")) pthread_create(&thread, NULL, waits, NULL);
    if (!strcmp(what, "opened")) { if (open("/etc/passwd", O_RDONLY) < 0) exit(9); }
    if (!strcmp(what, "piped")) { int ends[2]; if (pipe(ends)) exit(9); }
    if (!strcmp(what, "image")) close(open(file, O_RDONLY));
    if (!strcmp(what, "mapped")) mmap(NULL, 1, PROT_READ, MAP_PRIVATE, open(file, O_RDONLY), 0);
    if (!strcmp(what, "folder")) { *strrchr(file, '/') = 0; if (chdir(file)) exit(9); }
    if (!strcmp(what, "timer")) setitimer(ITIMER_REAL, &later, NULL);
    if (!strcmp(what, "posix timer")) timer_create(CLOCK_MONOTONIC, &event, &timer);
    if (!strcmp(what, "shares")) mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(what, "child")) { if (fork() == 0) { pause(); } }
    if (!strcmp(what, "orphan")) { if (fork() == 0) { if (fork()) _exit(0); pause(); } wait(NULL); }
    if (!strcmp(what, "caller")) { if (fork() == 0) { CRASHCHECK_READY(); _exit(0); } wait(NULL); }
    if (!strcmp(what, "twice")) CRASHCHECK_READY();
    if (!strcmp(what, "hangs")) pause();
    if (!strcmp(what, "flood")) for (int i = 0; i < 100000; i++) if (write(1, "all work\n", 9) < 0) exit(9);
    if (!strcmp(what, "input")) { if (read(0, text, 1) != 0) exit(9); }
}

static int after(const char *what, const char *file)
{
    char text[100] = "";
    FILE *from;
    int fd;
    if (!strcmp(what, "content")) {
        from = fopen(file, "r");
        printf("%s\n", fgets(text, sizeof text, from) ? text : "nothing");
        return text[0] != 'o';
    }
    if (!strcmp(what, "itself")) { /* what a process knows of itself */
        struct rlimit memory, files;
        getrlimit(RLIMIT_DATA, &memory);
        getrlimit(RLIMIT_FSIZE, &files);
        pid_t parent = (pid_t)atoi(getenv("PARENT"));
        printf("%d %d %d %d %ld %ld %s %d\n", getpid() == getpgrp(), getsid(0) == getsid(parent), getppid() == parent,
               getpid() == (pid_t)syscall(SYS_gettid), (long)memory.rlim_cur, (long)files.rlim_cur, getcwd(text, 90),
               (int)read(0, text + 90, 1));
        fprintf(stderr, "to standard error\n");
        for (fd = 3; fd < 100; fd++)
            if (fcntl(fd, F_GETFD) >= 0) printf("%d is open\n", fd);
    }
    if (!strcmp(what, "third")) return dprintf(3, "to the third\n") < 0;
    if (!strcmp(what, "again")) CRASHCHECK_READY();
    if (!strcmp(what, "exit 3")) return 3;
    if (!strcmp(what, "abort")) abort();
    if (!strcmp(what, "fault")) return *(volatile int *)NULL;
    if (!strcmp(what, "raise")) raise(SIGTERM);
    if (!strcmp(what, "hang")) { if (fork() == 0) { setsid(); if (fork() == 0) pause(); pause(); } pause(); }
    if (!strcmp(what, "leave")) { if (fork() == 0) { setsid(); pause(); } }
    if (!strcmp(what, "kill all")) kill(0, SIGKILL);
    if (!strcmp(what, "large")) { fd = open(file, O_WRONLY); return ftruncate(fd, 1 << 30) != 0; }
    if (!strcmp(what, "flood")) for (;;) puts("all work and no play");
    if (!strcmp(what, "hog")) { void *volatile block = malloc(1ul << 32); return block != NULL; }
    if (!strcmp(what, "threads")) {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
        pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&lock, &kind);
        if (pthread_mutex_lock(&lock) || pthread_mutex_unlock(&lock)) return 4;
        if (pthread_create(&thread, NULL, waits, NULL)) return 5;
        if (pthread_cancel(thread) || pthread_join(thread, NULL)) return 6;
    }
    if (!strcmp(what, "once")) return begun++;
    return 0;
}

int main(int count, char **words)
{
    char *file = count > 3 ? words[3] : NULL;
    struct rlimit memory, files;
    do /* they are set while this begins */
        getrlimit(RLIMIT_DATA, &memory), getrlimit(RLIMIT_FSIZE, &files);
    while (getenv("LIMITED") && (memory.rlim_cur == RLIM_INFINITY || files.rlim_cur == RLIM_INFINITY));
    before(words[1], file);
    if (!strcmp(words[1], "takes acked"))
        return printf("%ld\n", CRASHCHECK_READY_ACKED(atol(words[2]))) < 0;
    CRASHCHECK_READY();
    if (!strcmp(words[1], "reads acked"))
        return printf("%s\n", words[2]) < 0;
    return after(words[2], file);
}
"""

Run = Callable[..., Ended]
EXIT_3 = 3 << 8


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Built with a plain compiler: it finds crashcheck_ready() in what its runs preload."""
    folder = tmp_path_factory.mktemp("waiting")
    (folder / "program.c").write_text(SOURCE)
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-pthread", f"-I{INCLUDE}"]
    subprocess.run(
        [*compilers.c_compiler(), *flags, str(folder / "program.c"), "-o", str(folder / "program")], check=True
    )
    return str(folder / "program")


LIMITS = Limits(timeout_s=60, memory_bytes=1 << 30, file_bytes=1 << 20, kept_bytes=4096, output_bytes=1 << 20)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "pool"
    folder.mkdir(parents=True)
    (folder / "file").write_text("one\n")
    return folder


class Served:
    """Runs commands in a process of its own, which is what a worker is."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._ours, theirs = get_context("fork").Pipe()
        self.process = get_context("fork").Process(target=_serve, args=(theirs, folder, limits))
        self.process.start()
        self.env = {"LD_PRELOAD": str(build_runtime().shared), "PARENT": str(self.process.pid)}

    def __call__(
        self,
        program: str,
        *words: str,
        forks: bool = True,
        timeout_s: float | None = None,
        acked: Acked | None = None,
    ) -> Ended:
        self._ours.send((program, words, self.env, forks, timeout_s, acked))
        ended = self._ours.recv()
        assert isinstance(ended, Ended)
        return ended

    def limit_files(self, most: int) -> None:
        """From now on, what runs there may have so many descriptors."""
        self.children()  # it has begun
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(self.process.pid or 0, resource.RLIMIT_NOFILE, (most, hard))

    def children(self) -> list[int]:
        """Processes that are there between runs."""
        self._ours.send("children")
        found = self._ours.recv()
        assert isinstance(found, list)
        return found

    def close(self) -> None:
        self._ours.send(None)
        self.process.join()
        assert self.process.exitcode == 0


def _serve(connection: Connection, folder: Path, limits: Limits) -> None:
    for fd in map(int, os.listdir("/proc/self/fd")):  # those of other tests, which a worker does not have
        with contextlib.suppress(OSError):
            if fd > 2 and fd != connection.fileno() and not os.get_inheritable(fd):
                os.close(fd)
    runner = Runner(limits, folder)
    runner.wait_below(folder / "root")
    while (order := connection.recv()) is not None:
        if order == "children":
            connection.send(own_children())
            continue
        program, words, env, forks, timeout_s, acked = order
        pool = str(folder / "root" / "pool")
        limit = None if timeout_s is None else TimeLimit(timeout_s)
        connection.send(runner.run(program, [program, *words], env, None, None, limit, pool, forks=forks, acked=acked))
    runner.close()
    assert own_children() == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[Limits], Served]]:
    made: list[Served] = []

    def make(limits: Limits) -> Served:
        made.append(Served(tmp_path, limits))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def run(served: Callable[[Limits], Served], program: str, pool: Path) -> Run:
    """Runs the program: what it does before crashcheck_ready(), and after that."""
    runs = served(LIMITS)
    runs.env["LIMITED"] = "1"

    def one(before: str, after: str, *, forks: bool = True, timeout_s: float | None = None) -> Ended:
        return runs(program, before, after, str(pool / "file"), forks=forks, timeout_s=timeout_s)

    return one


@pytest.mark.parametrize(("what", "processes"), [("takes acked", 1), ("reads acked", 3)])
def test_each_run_has_its_own_number_of_acknowledged_operations(
    what: str, processes: int, served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    """One process serves all numbers if it asks for them; else each number needs one of its own."""
    runs = served(LIMITS)
    for number in (3, 5, 40, 5, 3):
        for forks in (False, True):
            acked = Acked(number, (program, what, "{acked}"))
            ended = runs(program, what, str(number), forks=forks, acked=acked)
            assert (ended.status, ended.forked, ended.output) == (0, forks, f"{number}\n".encode())
    assert len(runs.children()) == processes


def test_a_check_without_acked_among_its_words_gets_its_own_number_back(
    served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    runs = served(LIMITS)
    for number in ("3", "5", "3"):
        assert runs(program, "takes acked", number).output == f"{number}\n".encode()
    assert len(runs.children()) == 2


def plain(ended: Ended) -> Ended:
    return ended._replace(seconds=0.0, forked=False, refused="")


@pytest.mark.parametrize(
    "after",
    ["", "content", "itself", "exit 3", "abort", "fault", "raise", "leave", "kill all", "threads", "hog", "again"]
    + ["large", "once"],
)
@pytest.mark.parametrize("before", ["", "writes", "buffers", "twice", "input"])
def test_a_run_that_continues_ends_as_one_from_the_beginning(before: str, after: str, run: Run) -> None:
    anew = run(before, after, forks=False)
    assert not anew.forked
    for _ in range(3):
        continued = run(before, after)
        assert (continued.forked, continued.refused) == (True, "")
        assert plain(continued) == plain(anew)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("thread", "the check has 2 threads there"),
        ("opened", "the check has /etc/passwd open there (descriptor 3)"),
        ("piped", "the check has pipe open there (descriptor 3)"),
        ("image", "the check has opened files that differ between its runs ({pool}/file)"),
        ("mapped", "the check has opened files that differ between its runs ({pool}/file)"),
        ("folder", "the current folder of the check is inside the image"),
        ("timer", "the check has set a timer"),
        ("posix timer", "the check has set a timer"),
        ("shares", "the check shares /dev/zero (deleted) with other processes there"),
        ("child", "the check has started a process that still runs there"),
        ("orphan", "the check has started a process that still runs there"),
        ("caller", "a process that the check starts calls it"),
        ("flood", "the check has printed more than is kept of its output"),
    ],
)
def test_what_a_copy_would_share_or_lack_is_refused_and_the_run_is_as_usual(before: str, why: str, run: Run) -> None:
    anew = run(before, "exit 3", forks=False)
    refused = run(before, "exit 3")
    assert refused.refused.startswith(why)
    assert not refused.forked
    assert plain(refused) == plain(anew)
    later = run(before, "exit 3")
    assert (later.forked, later.refused) == (False, "")
    assert plain(later) == plain(anew)


def test_each_run_sees_the_files_as_they_are_then(run: Run, pool: Path) -> None:
    contents = ["one", "two", "three", "four"]
    seen = []
    for content in contents:
        (pool / "file").write_text(content)
        ended = run("", "content")
        assert ended.forked
        seen.append(ended.output.decode().strip())
    assert seen == contents


def test_a_process_never_stands_for_one_with_other_words_or_another_environment(
    served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    runs = served(LIMITS)
    count = 0
    for _ in range(3):
        for number in range(7):
            runs.env["NUMBER"] = str(number % 2)
            words = ("-c", f"exec {program} '' 'exit 3' {number} $NUMBER {pool}/file")
            ended = runs("/bin/sh", *words)
            count += ended.forked
            assert ended.status == EXIT_3
    assert count > 0


def test_words_decide_which_process_continues(served: Callable[[Limits], Served], pool: Path) -> None:
    runs = served(LIMITS)
    script = "import ctypes, sys; word = sys.argv[1]; ctypes.CDLL(None).crashcheck_ready(); print(word, sys.argv[2])"
    seen = [
        runs(sys.executable, "-S", "-c", script, str(word), str(pool)).output.decode()
        for word in (1, 2, 1, 3, 4, 5, 6, 5, 1, 2, 6, 6)
    ]
    assert seen == [f"{word} {pool}\n" for word in (1, 2, 1, 3, 4, 5, 6, 5, 1, 2, 6, 6)]


def test_no_more_than_a_few_processes_wait(served: Callable[[Limits], Served], program: str, pool: Path) -> None:
    runs = served(LIMITS)
    for number in (*range(20), *range(20)):
        runs(program, "", "", str(pool), str(number))
    assert len(runs.children()) == 4


@pytest.mark.parametrize("wrapper", ["exec {}", "export A=1; exec env B=2 {}"])
def test_what_a_shell_becomes_waits(wrapper: str, served: Callable[[Limits], Served], program: str, pool: Path) -> None:
    runs = served(LIMITS)
    line = wrapper.format(f"{program} '' content {pool}/file")
    assert [runs("/bin/sh", "-c", line).forked for _ in range(2)] == [True, True]


def test_what_a_shell_starts_does_not_wait(served: Callable[[Limits], Served], program: str, pool: Path) -> None:
    runs = served(LIMITS)
    ended = runs("/bin/sh", "-c", f"{program} '' 'exit 3'; echo $?")
    assert not ended.forked
    assert ended.refused.startswith("a process that the check starts calls it")
    assert ended.output == b"3\n"


def test_a_run_that_hangs_is_ended_with_all_that_it_started(run: Run, pool: Path) -> None:
    run("", "hang", timeout_s=0.2)
    ended = run("", "hang", timeout_s=0.2)
    assert (ended.forked, ended.timed_out) == (True, True)
    assert run("", "content").status == 0


def test_a_check_that_hangs_before_the_point_is_a_time_out(run: Run) -> None:
    ended = run("hangs", "", timeout_s=0.2)
    assert (ended.forked, ended.timed_out, ended.refused) == (False, True, "")


def test_a_run_leaves_nothing_but_the_process_that_waits(
    served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    runs = served(LIMITS)
    for after in ("leave", "hang", "kill all", "abort"):
        runs(program, "", after, str(pool / "file"), timeout_s=0.5)
        runs(program, "", after, str(pool / "file"), timeout_s=0.5)
    assert len(runs.children()) == 4


def test_endless_output_is_cut_off(run: Run) -> None:
    run("", "flood")
    ended = run("", "flood")
    assert (ended.forked, ended.limit) == (True, "output")
    assert ended.output.startswith(b"all work and no play\n")


def test_a_process_that_ended_while_it_waited_is_replaced(
    served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    runs = served(LIMITS)
    command = (program, "", "content", str(pool / "file"))
    runs(*command)
    (waiting,) = runs.children()
    os.kill(waiting, signal.SIGKILL)
    ended = runs(*command)
    assert (ended.forked, ended.status) == (True, 0)
    assert runs.children() != [waiting]
    assert len(runs.children()) == 1


def test_nothing_waits_where_the_check_never_calls(served: Callable[[Limits], Served], pool: Path) -> None:
    runs = served(LIMITS)
    ended = runs("/bin/ls", str(pool))
    assert (ended.forked, ended.refused, runs.children()) == (False, "", [])


def test_each_output_that_is_compared_is_that_of_a_new_process(
    served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    limits = replace(LIMITS, apart=True, outputs=("stdout", "stderr", "fd 3"))
    runs = served(limits)
    runs.env["LIMITED"] = "1"
    for after in ("itself", "third"):
        command = (program, "writes", after, str(pool / "file"))
        anew = runs(*command, forks=False)
        assert [each.data for each in anew.compared[2:]] == [b"to the third\n" if after == "third" else b""]
        for _ in range(2):
            continued = runs(*command)
            assert continued.forked
            assert plain(continued) == plain(anew)


def test_nothing_waits_once_the_worker_was_killed(tmp_path: Path, program: str, pool: Path) -> None:
    runs = Served(tmp_path, LIMITS)
    assert runs(program, "", "content", str(pool / "file")).forked
    (waiting,) = runs.children()
    handle = os.pidfd_open(waiting)
    runs.process.kill()
    runs.process.join()
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    assert poll.poll(60_000)
    os.close(handle)


def test_a_descriptor_that_every_check_inherits_hinders_no_copy(
    served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    """Terminals, make and job systems leave some to all that they start."""
    ends = os.pipe()
    os.set_inheritable(ends[1], True)
    runs = served(LIMITS)
    for end in ends:
        os.close(end)
    for _ in range(2):
        ended = runs(program, "", "exit 3", str(pool / "file"))
        assert (ended.forked, ended.refused, ended.status) == (True, "", EXIT_3)


def test_a_check_that_may_open_few_files_runs_as_usual(
    served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    runs = served(LIMITS)
    runs.limit_files(DESCRIPTOR)
    ended = runs(program, "", "exit 3", str(pool / "file"))
    assert (ended.forked, ended.refused, ended.status) == (False, "", EXIT_3)


def test_a_process_that_does_not_answer_costs_the_run_nothing(
    served: Callable[[Limits], Served], program: str, pool: Path
) -> None:
    runs = served(LIMITS)
    command = (program, "", "content", str(pool / "file"))
    runs(*command)
    (waiting,) = runs.children()
    os.kill(waiting, signal.SIGSTOP)
    ended = runs(*command, timeout_s=2)
    assert (ended.forked, ended.status, ended.timed_out) == (True, 0, False)
    assert waiting not in runs.children()
