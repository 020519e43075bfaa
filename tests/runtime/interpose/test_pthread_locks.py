"""Locks of libc in watched files: what each call leaves in them is recorded."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.completeness import check
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime import build
from support.command_line import run_crashcheck

# As code that crashcheck-cc compiled calls them.
WRAPPED = tuple(
    f"-D{line[2:-1]}=cc_wrap_{line[2:-1]}"
    for line in (build.INCLUDE / "models.def").read_text(encoding="utf-8").splitlines()
    if line.startswith(("X(pthread_", "X(sem_"))
)
MUTEX, RECURSIVE, RWLOCK, SPINLOCK, TURNED, FULL, TAKEN = (
    0,
    40,
    80,
    136,
    144,
    192,
    224,
)  # offsets in the program's structure


def test_of_threads_that_take_turns_every_byte_is_accounted_for(recorded: Callable[..., tuple]) -> None:
    _, recording = recorded("pthread_locks", "many-threads", flags=WRAPPED)
    assert check(read(recording.trace), recording.first, recording.pool).whole


def test_what_a_lock_holds_is_known_after_each_call(recorded: Callable[..., tuple]) -> None:
    trace, recording = recorded("pthread_locks", "one-thread", flags=WRAPPED)
    words: dict[int, list[int]] = {}
    for event in trace.of("STORE"):
        words.setdefault(event.offset, []).append(struct.unpack("<I", event.data[:4])[0])
    assert words[RECURSIVE] == [0, 1, 1, 1]  # made, locked, again by the same thread, released once
    assert words[MUTEX] == [0, 1, 0, 2]  # made, locked, released to wait, locked by one who waited
    assert words[SPINLOCK] == [1, 0]  # libc's free spin lock is 1
    assert (words[FULL], words[TAKEN]) == ([0], [1, 0])
    assert len(words[RWLOCK]) == 2
    assert check(read(recording.trace), recording.first, recording.pool).whole


COUNTER = r"""
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
struct counter { pthread_mutex_t mutex; char apart[24]; unsigned long value; };
int main(int argc, char **argv)
{
    int file = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (ftruncate(file, sizeof(struct counter)))
        return 2;
    struct counter *counter = mmap(0, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    INIT
    if (pthread_mutex_trylock(&counter->mutex))
        return 1;
    counter->value++;
    __builtin_ia32_clflush(&counter->value);
    __builtin_ia32_sfence();
    pthread_mutex_unlock(&counter->mutex);
    return argc < 1;
}
"""
CONFIG = """\
[build]
command = "crashcheck-cc -g -O1 -o counter counter.c -lpthread"
[workload]
command = "./counter {pool}/p"
[pool]
files = ["p"]
[check]
command = "./counter {pool}/p"
"""


@pytest.mark.parametrize(
    ("init", "code"), [("", 1), ("pthread_mutex_init(&counter->mutex, 0);", 0)], ids=["as it is", "made again"]
)
def test_a_mutex_that_a_crash_leaves_held_is_found(
    init: str, code: int, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "counter.c").write_text(COUNTER.replace("INIT", init), encoding="utf-8")
    (tmp_path / "crashcheck.toml").write_text(CONFIG, encoding="utf-8")
    done = run_crashcheck("run", "--format", "json=report.json", cwd=tmp_path, env=environment)
    assert done.returncode == code, done.stderr
    findings = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["findings"]
    fixes = [finding["fix"]["words"] for finding in findings]
    held = "no flush can help: `counter.mutex` at counter.c:14 is a lock that is still held after the crash, "
    then = "and the check fails for that; release it when the files are opened again"
    assert fixes == [held + then] * code
