"""Reads of watched files, recorded from compiled programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.driver import wrapper
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.trace.reader import Trace, read
from crashcheck.checker.token import digest
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import EVENT, Kind
from support import compilers

PRELUDE = """
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *map(const char *pool)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/a.db", pool);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, 8192))
        exit(9);
    void *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}
#line 1 "loads.c"
"""
NODES = """
struct node { struct node *next; uint64_t key; char name[16]; _Atomic int uses; };
static uint64_t find(struct node *n, uint64_t key) { for (; n; n = n->next) if (n->key == key) return 1; return 0; }
static __attribute__((noinline)) int named(struct node *n) { return strcmp(n->name, "abc"); }
int main(int argc, char **argv)
{
    struct node *n = map(argv[1]);
    volatile uint64_t sink = find(n, 9);
    n[0].key = 5; n[1].key = 6; n[0].next = &n[1];
    sink = find(n, 6);
    sink = find(n, 6);
    char copy[16];
    memcpy(copy, n[1].name, sizeof copy);
    sink = (uint64_t)copy[argc];
    n[2] = n[1];
    n[0].uses++;
    sink = (uint64_t)atomic_load(&n[0].uses);
    sink = (uint64_t)named(n + 1);
    strcpy(n[2].name, n[1].name);
    return 0;
}
"""

Build = Callable[..., Path]


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    monkeypatch.setenv("CRASHCHECK_FALLBACK", "")

    def build(source: str, *flags: str) -> Path:
        path = tmp_path / "loads.c"
        path.write_text(PRELUDE + source, encoding="utf-8")
        program = tmp_path / f"program-{len(os.listdir(tmp_path))}"
        assert wrapper.run([*flags, "-g", "-pthread", str(path), "-o", str(program)], False) == 0
        return program

    return build


def run(program: Path, loads: bool = False) -> tuple[Trace, str]:
    work = program.parent / f"record-{len(os.listdir(program.parent))}"
    recording = record(Workload([str(program), "{pool}"], ["*.db"], loads=loads, timeout_s=60.0), work)
    return read(recording.trace), recording.stdout.read_text(encoding="ascii")


def described(trace: Trace, program: Path, rows: np.ndarray) -> list[str]:
    facts = ProgramFacts.load([program])
    lines = []
    for row in rows:
        site = trace.site(int(row["site"]), facts)
        callers = [trace.site(number, facts) for number in trace.stack(int(row["stack"]))]
        assert site is not None
        assert all(caller is not None for caller in callers)
        inside = "".join(f" < {caller.line}" for caller in callers if caller is not None)
        lines.append(f"{site.variable or site.kind}+{int(row['offset']):#x},{int(row['size'])} @ {site.line}{inside}")
    return lines


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_reads_are_recorded_with_site_place_and_calls_and_repeated_ones_once(compiled: Build, level: str) -> None:
    program = compiled(NODES, level)
    trace, _ = run(program, loads=True)
    assert set(trace.loads["kind"]) == {Kind.LOAD}
    assert described(trace, program, trace.loads) == [
        "node.key+0x8,8 @ 3 < 8",
        "node.next+0x0,8 @ 3 < 8",
        "node.key+0x8,8 @ 3 < 10",
        "node.next+0x0,8 @ 3 < 10",
        "node.key+0x30,8 @ 3 < 10",
        "node.key+0x8,8 @ 3 < 11",
        "node.next+0x0,8 @ 3 < 11",
        "node.key+0x30,8 @ 3 < 11",
        "node.name[]+0x38,16 @ 13",
        "load+0x28,40 @ 15",
        "node.uses+0x20,4 @ 16",
        "node.uses+0x20,4 @ 17",
        "node.name[]+0x38,1 @ 4 < 18",
        "node.name[]+0x38,1 @ 19",
    ]


def test_events_are_the_same_with_and_without_reads(compiled: Build) -> None:
    program = compiled(NODES, "-O2")
    (without, _), (with_reads, _) = run(program), run(program, True)
    assert len(without.loads) == 0
    assert len(with_reads.loads) > 10
    for name in EVENT.names or ():
        if name not in ("pid", "payload"):
            assert np.array_equal(without.events[name], with_reads.events[name]), name
    data = [[trace.data(i) for i in range(len(trace))] for trace in (without, with_reads)]
    assert data[0] == data[1]
    assert digest(without) == digest(with_reads)


def test_a_read_has_the_number_of_the_event_that_follows(compiled: Build) -> None:
    program = compiled(NODES, "-O0")
    trace, _ = run(program, loads=True)
    stores = trace.events[trace.events["kind"] == Kind.STORE]
    first = int(stores["seq"][0])
    before = trace.loads[trace.loads["seq"] <= first]
    assert described(trace, program, before) == ["node.key+0x8,8 @ 3 < 8", "node.next+0x0,8 @ 3 < 8"]
    added = next(event for event in stores if int(event["offset"]) == 0x20)
    read_by = trace.loads[(trace.loads["offset"] == 0x20) & (trace.loads["seq"] <= added["seq"])]
    assert described(trace, program, read_by) == ["node.uses+0x20,4 @ 16"]


REPEATED = """
int main(int argc, char **argv)
{
    volatile uint64_t *at = map(argv[1]);
    uint64_t sum = (uint64_t)argc;
    for (int i = 0; i < 6; i++)
        sum += at[i / 3];
    for (int i = 0; i < 4; i++)
        sum += at[i % 2];
    at[9] = sum;
    return 0;
}
"""


def test_only_a_read_that_repeats_the_latest_of_its_site_is_left_out(compiled: Build) -> None:
    program = compiled(REPEATED, "-O0")
    trace, _ = run(program, loads=True)
    assert [(int(load["offset"]), described(trace, program, [load])[0][-1]) for load in trace.loads] == [
        (0, "7"),
        (8, "7"),
        (0, "9"),
        (8, "9"),
        (0, "9"),
        (8, "9"),
    ]


MANY = """
int main(int argc, char **argv)
{
    volatile uint64_t *at = map(argv[1]);
    uint64_t sum = (uint64_t)argc;
    for (int i = 0; i < 700000; i++) {
        sum += at[i % 1000];
        if (i % 100000 == 99999)
            at[1001] = sum;
    }
    sum += at[1000];
    at[1002] = sum;
    return 0;
}
"""


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_reads_of_a_long_run_are_left_out_between_gaps_only(compiled: Build, level: str) -> None:
    program = compiled(MANY, level)
    trace, _ = run(program, loads=True)
    assert trace.gaps["aux"].tolist() == [1, 0] * (len(trace.gaps) // 2)
    bounds = trace.gaps["offset"].tolist()
    assert bounds[0] == 1 << 17
    assert bounds[1::2] == bounds[0::2]
    places = trace.loads["offset"].astype(np.int64) // 8
    for stretch in np.split(places, bounds[0::2]):
        steps = np.diff(stretch) % 1000
        assert bool(np.all(steps[:-1] == 1))
    assert (1 << 17) + 4 * 4096 < len(trace.loads) < 200000
    # a site that few reads are known of
    assert described(trace, program, trace.loads[-1:]) == ["load+0x1f40,8 @ 11"]
    assert int(trace.gaps["seq"][-1]) == int(trace.loads["seq"][-1]) == int(trace.events["seq"][-2])


READS_AFTER_FORK = """
#include <sys/wait.h>
int main(int argc, char **argv)
{
    volatile uint64_t *at = map(argv[1]);
    uint64_t sum = at[argc];
    if (fork() == 0) {
        sum += at[argc];
        _exit(0);
    }
    wait(NULL);
    at[9] = sum;
    return 0;
}
"""


def test_a_forked_child_reads_in_its_own_name(compiled: Build) -> None:
    program = compiled(READS_AFTER_FORK, "-O0")
    trace, _ = run(program, loads=True)
    assert described(trace, program, trace.loads) == ["load+0x10,8 @ 6", "load+0x10,8 @ 8"]
    parent, child = trace.loads
    assert int(parent["pid"]) != int(child["pid"])
    assert int(parent["thread"]) == int(trace.events[trace.events["kind"] == Kind.STORE]["thread"][0])
    assert int(child["thread"]) != int(parent["thread"])


def sanitizing(sanitizer: str) -> list[str]:
    """Flags for `sanitizer`; where its library is missing, one that traps. Skips the test if none does."""
    flags = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    if compilers.crashcheck_cc_links(*flags):
        return flags
    if sanitizer != "undefined":
        pytest.skip(f"this clang has no library for {flags[0]}: install libclang-rt-dev")
    return [*flags, "-fsanitize-trap=all"]


@pytest.mark.parametrize("sanitizer", ["address", "undefined"])
def test_reads_of_a_sanitized_program_are_recorded_as_of_any_other(compiled: Build, sanitizer: str) -> None:
    program = compiled(NODES, "-O1", *sanitizing(sanitizer))
    trace, _ = run(program, loads=True)
    plain = compiled(NODES, "-O1")
    expected, _ = run(plain, loads=True)

    def ordinary(of: Trace, made_by: Path) -> list[str]:
        return [line for line in described(of, made_by, of.loads) if line.startswith(("node.key", "node.next"))]

    assert ordinary(trace, program) == ordinary(expected, plain) != []


def test_code_compiled_for_loads_runs_under_sanitizers(compiled: Build) -> None:
    program = compiled(NODES, "-O1", *sanitizing("undefined"))
    done = subprocess.run([str(program), str(program.parent)], check=False)
    assert done.returncode == 0
