"""What a followed check depended on is listed, and following it changes nothing about how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from crashcheck.checker.execution.process import Ended, Limits, Runner
from crashcheck.runtime.build import build_runtime
from support import compilers

SOURCE = r"""
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static void *reads(void *path) { close(open(path, O_RDONLY)); return NULL; }

int main(int count, char **words)
{
    char bytes[8], *what = words[1];
    struct stat state;
    pthread_t thread;
    static void *volatile block; /* so that it is allocated */
    if (strcmp(what, "unallocated"))
        free(block = malloc((size_t)count));
    if (!strcmp(what, "clock")) return time(NULL) == 0;
    if (!strcmp(what, "counter")) return __rdtsc() == 0;
    if (!strcmp(what, "random")) return getrandom(bytes, sizeof bytes, GRND_NONBLOCK) < 0;
    if (!strcmp(what, "unallocated")) return getrandom(bytes, sizeof bytes, GRND_NONBLOCK) < 0;
    if (!strcmp(what, "device")) return open("/dev/urandom", O_RDONLY) < 0;
    if (!strcmp(what, "socket")) return socket(AF_UNIX, SOCK_STREAM, 0) < 0;
    if (!strcmp(what, "timer")) return (int)alarm(9);
    if (!strcmp(what, "write")) return open(words[2], O_WRONLY | O_CREAT, 0600) < 0;
    if (!strcmp(what, "rename")) return rename(words[2], words[3]) != 0;
    if (!strcmp(what, "read")) return open(words[2], O_RDONLY) < 0;
    if (!strcmp(what, "look")) return stat(words[2], &state) != 0;
    if (!strcmp(what, "below")) return chdir("sub") || open("file", O_RDONLY) < 0;
    if (!strcmp(what, "thread")) return pthread_create(&thread, NULL, reads, words[2]) || pthread_join(thread, NULL);
    if (!strcmp(what, "kill")) return raise(SIGKILL);
    if (!strcmp(what, "fault")) return *(volatile int *)NULL;
    if (!strcmp(what, "child")) {
        if (fork() == 0)
            execl("/bin/cat", "cat", words[2], NULL);
        return wait(NULL) < 0;
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("followed")
    (folder / "program.c").write_text(SOURCE)
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-pthread"]
    subprocess.run(
        [*compilers.c_compiler(), *flags, str(folder / "program.c"), "-o", str(folder / "program")], check=True
    )
    return str(folder / "program")


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, program: str) -> Iterator[Run]:
    """Runs the program, followed, in tmp_path, from a process of its own; its images are in `images`."""
    (tmp_path / "images").mkdir()
    ours, theirs = get_context("fork").Pipe()
    process = get_context("fork").Process(target=_serve, args=(theirs, tmp_path, program))
    process.start()

    def one(*words: str, followed: bool = True) -> Ended:
        ours.send((words, followed))
        ended = ours.recv()
        assert isinstance(ended, Ended)
        return ended

    yield one
    ours.send(None)
    process.join()
    assert process.exitcode == 0


def _serve(connection: Connection, folder: Path, program: str) -> None:
    runner = Runner(Limits(timeout_s=60), folder)
    runner.follow_by(build_runtime().inputs, folder / "images", folder / "images")
    while (order := connection.recv()) is not None:
        words, followed = order
        connection.send(runner.run(program, [program, *words], {"A": "b"}, followed=followed))
    runner.close()


def records(ended: Ended) -> list[str]:
    assert ended.inputs is not None
    return os.fsdecode(ended.inputs).split("\0")[:-1]


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("clock", "it reads a clock"),
        ("counter", "it reads a clock"),
        ("random", "it reads random numbers"),
        ("unallocated", "it reads random numbers"),
        ("socket", "it uses the network or another process's socket"),
        ("timer", "it sets a timer"),
    ],
)
def test_what_no_list_can_hold_is_named(what: str, why: str, run: Run) -> None:
    ended = run(what)
    assert ended.status == 0
    assert [record for record in records(ended) if record.startswith("x")] == [f"x{why}"]


def test_files_that_a_check_reads_or_misses_are_listed_by_all_its_processes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").touch()
    assert "o/dev/urandom" in records(run("device"))
    assert f"o{tmp_path}/none" in records(run("read", "none"))
    assert f"s{tmp_path}/none" in records(run("look", f"{tmp_path}/none"))
    assert f"o{tmp_path}/sub/file" in records(run("below"))
    assert f"o{tmp_path}/in-a-thread" in records(run("thread", "in-a-thread"))
    child = records(run("child", "sub/file"))
    assert {"o/bin/cat", f"o{tmp_path}/sub/file"} <= {*child}
    assert not [record for record in child if record.startswith("x")]


def test_images_are_not_listed_and_changes_elsewhere_are_named(run: Run, tmp_path: Path, program: str) -> None:
    inside, outside = tmp_path / "images" / "file", tmp_path / "file"
    listed = records(run("write", str(inside)))
    assert not [record for record in listed if record.startswith("x") or "images" in record]
    assert f"o{program}" in listed
    assert f"xit may change {outside}" in records(run("write", str(outside)))
    assert f"xit may change {outside}" in records(run("rename", str(inside), str(outside)))
    assert f"xit may change {tmp_path}/images/../file" in records(run("write", f"{tmp_path}/images/../file"))


@pytest.mark.parametrize(("what", "status"), [("kill", signal.SIGKILL), ("fault", signal.SIGSEGV), ("none", 0)])
def test_a_followed_check_ends_as_one_that_is_not(what: str, status: int, run: Run) -> None:
    followed, alone = run(what), run(what, followed=False)
    assert followed.status & 0x7F == alone.status & 0x7F == status
    assert alone.inputs is None
