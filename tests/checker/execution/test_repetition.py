"""A process that repeats itself is known by its state, which is the same again; one that counts is not."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.repetition import repeats
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.results import Outcome
from support.checked_worlds import World, put_flag_first, words
from support.compilers import c_compiler

SOURCE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static volatile int flag;
static volatile uint64_t counter;
static volatile double number = 1;
struct node { struct node *next; long key; };

static int find(struct node *at, long key)
{
    for (; at; at = at->next)
        if (at->key == key)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    struct node *ring = calloc(100, sizeof *ring);
    struct timespec now;
    for (int i = 0; i < 100; i++)
        ring[i].next = &ring[(i + 1) % 100];
    puts("ready");
    fflush(stdout);
    if (!strcmp(argv[argc - 1], "waits for itself"))
        while (!flag)
            ;
    if (!strcmp(argv[argc - 1], "searches a ring"))
        return find(ring, 7);
    if (!strcmp(argv[argc - 1], "counts"))
        for (;;)
            counter++;
    if (!strcmp(argv[argc - 1], "multiplies"))
        for (;;)
            number *= 1.0000001;
    if (!strcmp(argv[argc - 1], "counts time"))
        while (__rdtsc() >> 62 == 0)
            ;
    if (!strcmp(argv[argc - 1], "reads a clock"))
        do
            clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec >> 40 == 0);
    if (!strcmp(argv[argc - 1], "asks the kernel"))
        for (;;)
            getppid();
    return 0;
}
"""


@pytest.fixture(scope="module", params=["-O0", "-O2"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loops")
    (folder / "loops.c").write_text(SOURCE)
    subprocess.run([*c_compiler(), request.param, "-o", folder / "loops", folder / "loops.c"], check=True)
    return folder / "loops"


@pytest.mark.parametrize(
    ("does", "known"),
    [
        ("waits for itself", True),
        ("searches a ring", True),
        ("counts", False),
        ("multiplies", False),
        ("counts time", False),
        ("reads a clock", False),
        ("asks the kernel", False),
    ],
)
def test_what_repeats_itself_is_known_by_its_state_and_goes_on(program: Path, does: str, known: bool) -> None:
    with subprocess.Popen([program, does], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found, ended = repeats(process.pid), process.poll()
        process.kill()
    assert (found, ended) == (known, None)


def test_a_process_that_has_ended_is_left_to_be_waited_for() -> None:
    process = subprocess.Popen(["true"])
    while Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
        pass
    assert not repeats(process.pid)
    assert process.wait() == 0


@pytest.mark.parametrize("shell", [False, True])
def test_a_check_that_repeats_itself_is_not_waited_for(program: Path, shell: bool, tmp_path: Path) -> None:
    """It would have hours."""
    ring = [str(program), "searches a ring"]
    check = words(["sh", "-c", shlex.join(ring) + "; true"] if shell else ring)
    here = World(tmp_path, check, lambda t: put_flag_first(t, 1), limits=Limits(timeout_s=100_000.0))
    with here.executor() as executor:
        executor.set_timeout(TimeLimit(50_000.0, None))
        assert executor.run(here.space.full(0), patient=True).outcome is Outcome.TIMEOUT
