"""A check's reads on real programs: the guard that only the check tests is found, and its violation is tested first."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crashcheck.checker.budget import OutOfTime
from crashcheck.config import BudgetConfig, Config, load, override
from crashcheck.interruption import KeepOn, always
from crashcheck.stages import phases, recording
from support import compilers
from support.command_line import run_crashcheck

STORE_H = """\
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <emmintrin.h>
#define LINE _Alignas(64)
#define RECORDS 12
struct record {
    LINE uint64_t hits;
    LINE uint64_t length;
    LINE uint64_t stamp;
    LINE uint64_t owner;
    LINE uint64_t value;
    LINE uint64_t valid;
};
struct store { struct record records[RECORDS]; };

static struct store *map_store(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct store)))
        exit(2);
    struct store *store = mmap(0, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (store == MAP_FAILED)
        exit(2);
    return store;
}
"""

# Every field is flushed and fenced together: only `value` must persist before `valid`, and only the check shows it.
WORKLOAD = """\
#include "store.h"
int main(int argc, char **argv) {
    struct store *store = map_store(argv[argc - 1]);
    for (uint64_t i = 0; i < RECORDS; i++) {
        struct record *record = &store->records[i];
        record->hits = 1;
        record->length = 8;
        record->stamp = i;
        record->owner = 3;
        record->value = 7 * i + 1;
        __builtin_ia32_clflushopt(&record->value);
        ORDER
        record->valid = 1;
        __builtin_ia32_clflushopt(&record->hits);
        __builtin_ia32_clflushopt(&record->length);
        __builtin_ia32_clflushopt(&record->stamp);
        __builtin_ia32_clflushopt(&record->owner);
        __builtin_ia32_clflushopt(&record->valid);
        _mm_sfence();
    }
    return 0;
}
"""

CHECK = """\
#include "store.h"
int main(int argc, char **argv) {
    struct store *store = map_store(argv[argc - 1]);
    int bad = 0;
    for (uint64_t i = 0; i < RECORDS; i++) {
        struct record *record = &store->records[i];
        if (record->valid && record->value != 7 * i + 1)
            bad = 1;
    }
    AND_MORE
    return bad;
}
"""

CONFIG = """\
[build]
command = "sh build.sh"
[workload]
command = "./workload {pool}/store.pm"
[pool]
files = ["store.pm"]
[check]
command = "./check {pool}/store.pm"
timeout_s = 5
[report]
fixes = false
"""


@pytest.fixture
def program(tmp_path: Path, environment: dict[str, str]) -> Program:
    return Program(tmp_path, environment)


class Program:
    """A workload and its check, as `write` puts them together."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self.write()

    def write(self, order: str = "", more: str = "", check_with: str = "crashcheck-cc") -> None:
        (self.folder / "store.h").write_text(STORE_H)
        (self.folder / "workload.c").write_text(WORKLOAD.replace("ORDER", order))
        (self.folder / "check.c").write_text(CHECK.replace("AND_MORE", more))
        flags = "-O1 -g -mclflushopt"
        (self.folder / "build.sh").write_text(
            f"set -e\ncrashcheck-cc {flags} -o workload workload.c\n{check_with} {flags} -o check check.c\n"
        )
        (self.folder / "crashcheck.toml").write_text(CONFIG)

    def invariants(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._done("invariants", "--json").stdout)
        return found

    def run(self, states: int, *more: str) -> dict[str, Any]:
        self._done("run", "--states", str(states), *more, "--format", "json=report.json", exits=(0, 1, 2))
        report: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return report

    def _done(self, *words: str, exits: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        done = run_crashcheck(*words, cwd=self.folder, env=self.environment)
        assert done.returncode in exits, done.stderr
        return done


def shown(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["first"], each["then"]) for each in report["invariants"] if each["violated"]]


UNKNOWN = "the check's reads are no evidence"


def test_a_guard_that_only_the_check_tests_is_listed_with_the_check_s_lines(program: Program) -> None:
    found = program.invariants()
    assert found["note"] == ""
    assert shown(found) == [("record.value", "record.valid")]
    (one,) = [each for each in found["invariants"] if each["violated"]]
    assert (one["rule"], one["shared"], one["held"], one["violated"]) == ("RO3", "record", 0, 12)
    places = {(read["access"]["file"], read["on"]["function"]) for read in one["reads"]}
    assert places == {("check.c", "main")}


def test_a_workload_that_keeps_the_order_has_nothing_to_violate(program: Program) -> None:
    program.write(order="_mm_sfence();")
    assert shown(program.invariants()) == []
    assert program.run(200)["findings"] == []


def test_the_state_that_violates_it_is_among_the_first(program: Program) -> None:
    """With a check whose reads are not seen, the same number of states does not find it."""
    assert len(program.run(2)["findings"]) == 1
    program.write(check_with=shlex.join(compilers.c_compiler()))
    unseen = program.run(2)
    assert unseen["findings"] == []
    assert unseen["run"]["warnings"] == []
    assert UNKNOWN in program.invariants()["note"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('if (getenv("CRASHCHECK_LOADS")) return 3;', "with its reads recorded it exited with status 3"),
        ('if (getenv("CRASHCHECK_LOADS")) pause();', "with its reads recorded it was stopped after 5 s"),
    ],
)
def test_a_check_that_cannot_be_recorded_is_a_warning_and_nothing_else(program: Program, more: str, why: str) -> None:
    program.write(more=more)
    report = program.run(200)
    (note,) = [text for text in report["run"]["warnings"] if UNKNOWN in text]
    assert note.endswith(why)
    assert len(report["findings"]) == 1


def test_no_more_than_half_of_a_budget_goes_to_a_check_that_hangs_when_recorded(program: Program) -> None:
    program.write(more='if (getenv("CRASHCHECK_LOADS")) pause();')
    report = program.run(20, "--budget", "4s", "--no-fixes")
    (note,) = [text for text in report["run"]["warnings"] if UNKNOWN in text]
    stopped = re.search(r"with its reads recorded it was stopped after (\d+(?:\.\d+)?) s$", note)
    assert stopped is not None
    assert 0 < float(stopped[1]) <= 2


def _is_over(keep_on: KeepOn) -> bool:
    try:
        keep_on()
    except OutOfTime:
        return True
    return False


def test_what_recording_the_check_took_is_taken_from_the_budget(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    given: list[float] = []
    limits: list[bool] = []

    def record_check_reads(config: Config, loaded: object, keep_on: KeepOn = always) -> object:
        nonlocal now
        now += 3
        limits.append(_is_over(keep_on))
        given.append(config.check.timeout_s)
        return loaded

    monkeypatch.setattr(recording, "record_check_reads", record_check_reads)
    for module in (recording, phases):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    whole = load(program.folder / "crashcheck.toml")
    loaded: Any = object()
    for budget, left in (("10s", 7), ("20s", 17), ("2s", 0)):
        config, same = recording.record_check_reads_in_budget(override(whole, budget=budget), loaded)
        assert same is loaded
        assert (config.budget.seconds, config.check) == (left, whole.check)
    config, _ = recording.record_check_reads_in_budget(replace(whole, budget=BudgetConfig(None, 3)), loaded)
    assert (config.budget.seconds, config.budget.states) == (None, 3)
    assert given == [5, 5, 1, 5]
    assert limits == [False, False, True, False]  # of 5, 10, 1 and any seconds, after 3


def test_a_check_that_updates_the_files_leaves_the_workload_s_image_as_it_was(program: Program) -> None:
    """Its own updates are no part of the run, and nothing of its copy is checked."""
    program.write(order="_mm_sfence();", more="store->records[0].value += 1; msync(store, sizeof *store, MS_SYNC);")
    report = program.run(50)
    assert (report["findings"], report["run"]["warnings"]) == ([], [])


def test_the_list_is_the_same_each_time(program: Program) -> None:
    program.environment["PYTHONHASHSEED"] = "1"
    first = program.invariants()
    program.environment["PYTHONHASHSEED"] = "2"
    assert program.invariants() == first


def test_the_strategies_that_ask_no_invariant_do_not_run_the_check_for_its_reads(program: Program) -> None:
    program.write(more='if (getenv("CRASHCHECK_LOADS")) return 3;')
    (program.folder / "crashcheck.toml").write_text(CONFIG + '[strategy]\nname = "bounded"\n')
    assert not [text for text in program.run(20)["run"]["warnings"] if UNKNOWN in text]
