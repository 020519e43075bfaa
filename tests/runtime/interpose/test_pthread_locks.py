"""Locks of libc in watched files: what each call leaves in them is recorded."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.completeness import check
from crashcheck.analyzer.trace.reader import read
from crashcheck.checker.findings.register import ROBUST_MUTEX
from crashcheck.checker.results import KILL_SHOWS_IT
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


ROBUST = r"""
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
struct pair { pthread_mutex_t mutex; char apart[24]; unsigned long left, right; };
int main(int argc, char **argv)
{
    int file = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (ftruncate(file, sizeof(struct pair)))
        return 2;
    struct pair *pair = mmap(0, sizeof *pair, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (argc > 2) {
        int got = pthread_mutex_trylock(&pair->mutex);
        return got != EOWNERDEAD && pair->left != pair->right; /* else it would repair the pair */
    }
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, ROBUST);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&pair->mutex, &kind);
    pthread_mutex_lock(&pair->mutex);
    pair->left++;
    pair->right++;
    pthread_mutex_unlock(&pair->mutex);
    __builtin_ia32_clflush(pair);
    return 0;
}
"""


@pytest.mark.parametrize(
    ("kind", "note"),
    [("PTHREAD_MUTEX_ROBUST", ROBUST_MUTEX), ("PTHREAD_MUTEX_STALLED", KILL_SHOWS_IT)],
)
def test_the_kernel_marks_a_robust_mutex_of_a_killed_process_so_no_note_claims_that_it_fails(
    kind: str, note: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "counter.c").write_text(ROBUST.replace("ROBUST);", f"{kind});"), encoding="utf-8")
    config = CONFIG.replace('[check]\ncommand = "./counter {pool}/p"', '[check]\ncommand = "./counter {pool}/p check"')
    (tmp_path / "crashcheck.toml").write_text(config, encoding="utf-8")
    done = run_crashcheck("run", "--format", "json=report.json", cwd=tmp_path, env=environment)
    assert done.returncode == 1, done.stderr
    findings = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["findings"]
    notes = [finding["note"] for finding in findings]
    assert any(note in each for each in notes), notes
    other = KILL_SHOWS_IT if note is ROBUST_MUTEX else ROBUST_MUTEX
    assert not any(other in each for each in notes), notes
