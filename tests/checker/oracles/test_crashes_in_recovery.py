"""--depth 2 with output equivalence: a second crash, in the driver's recovery, leaves an operation done or not done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_crashcheck

LEDGER = """\
#include <fcntl.h>
#include <emmintrin.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "crashcheck.h"
#define LINE _Alignas(64)
#define MAGIC 0x6c6564676572
struct saved { LINE uint64_t account; uint64_t balance; };
struct account { LINE uint64_t balance; };
struct ledger {
    LINE uint64_t magic;
    LINE uint64_t logged; /* how many of the saved balances count */
    struct saved log[2];
    struct account accounts[3];
};

static void persist(const void *line) {
    _mm_clflush(line);
    _mm_sfence();
}

static void save(struct ledger *ledger, int slot, uint64_t account) {
    ledger->log[slot].account = account;
    ledger->log[slot].balance = ledger->accounts[account].balance;
    persist(&ledger->log[slot]);
}

static void move(struct ledger *ledger, uint64_t from, uint64_t to, uint64_t amount) {
    save(ledger, 0, from);
    save(ledger, 1, to);
    ledger->logged = 2;
    persist(&ledger->logged);
    ledger->accounts[from].balance -= amount;
    persist(&ledger->accounts[from]);
    ledger->accounts[to].balance += amount;
    persist(&ledger->accounts[to]);
    ledger->logged = 0;
    persist(&ledger->logged);
}

static void recover(struct ledger *ledger) {
    while (ledger->logged > 0) {
        const struct saved *saved = &ledger->log[ledger->logged - 1];
        RECOVER
    }
}

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct ledger)))
        return 2;
    struct ledger *ledger = mmap(0, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ledger->magic != MAGIC) {
        for (int i = 0; i < 3; i++) {
            ledger->accounts[i].balance = 100;
            persist(&ledger->accounts[i]);
        }
        ledger->magic = MAGIC;
        persist(&ledger->magic);
    }
    recover(ledger);
    FILE *file = fopen(argv[2], "r");
    uint64_t from, to, amount;
    while (fscanf(file, "%" SCNu64 "%" SCNu64 "%" SCNu64, &from, &to, &amount) == 3) {
        CRASHCHECK_OP_BEGIN();
        move(ledger, from, to, amount);
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\\n", ledger->accounts[0].balance, ledger->accounts[1].balance,
               ledger->accounts[2].balance);
        CRASHCHECK_OP_END();
    }
    return argc != 3;
}
"""

PUT_BACK = "ledger->accounts[saved->account].balance = saved->balance; persist(&ledger->accounts[saved->account]);"
FORGET = "ledger->logged--; persist(&ledger->logged);"
RIGHT = PUT_BACK + FORGET
WRONG = FORGET + PUT_BACK
UNFLUSHED = "ledger->accounts[saved->account].balance = saved->balance;" + FORGET

CONFIG = """\
[build]
command = "crashcheck-cc -O1 -g -o driver driver.c"
[workload]
command = "./driver {pool}/ledger.pm {ops}"
operations_file = "ops.txt"
[pool]
files = ["ledger.pm"]
[check]
command = "./driver {pool}/ledger.pm {ops}"
oracle = "output-equivalence"
timeout_s = 5
"""

Reported = tuple[dict[str, Any], str]
Explore = Callable[..., Reported]


@pytest.fixture
def explore(tmp_path: Path, environment: dict[str, str]) -> Explore:
    """Runs the ledger with this recovery: `explore(recover, "--depth", "2")`; (report, standard error)."""

    def run(recover: str, *options: str) -> Reported:
        (tmp_path / "driver.c").write_text(LEDGER.replace("RECOVER", recover))
        (tmp_path / "ops.txt").write_text("0 1 30\n1 2 50\n")
        (tmp_path / "crashcheck.toml").write_text(CONFIG)
        words = ["run", "--no-fixes", "--format", "json=report.json", *options]
        done = run_crashcheck(*words, cwd=tmp_path, env=environment)
        assert done.returncode in (0, 1), done.stderr
        return json.loads((tmp_path / "report.json").read_text()), done.stderr

    return run


@pytest.mark.parametrize("recover", [WRONG, UNFLUSHED])
def test_one_crash_finds_nothing_in_a_wrong_one_if_recovery_ends(explore: Explore, recover: str) -> None:
    report, _ = explore(recover)
    assert [finding["message"] for finding in report["findings"]] == []


def test_a_recovery_that_can_be_crashed_is_explored_and_clean(explore: Explore) -> None:
    once, _ = explore(RIGHT)
    twice, _ = explore(RIGHT, "--depth", "2")
    assert (once["findings"], twice["findings"]) == ([], [])
    created, unseen = twice["run"]["warnings"]
    assert "does not show whether operations were lost" in unseen
    assert unseen in once["run"]["warnings"]
    assert created.startswith("the workload creates ledger.pm before its first operation: 4 of 22 updates")
    assert twice["run"]["states"]["executed"] > once["run"]["states"]["executed"]
    assert twice["run"]["stop_reason"] == "exhausted"


@pytest.mark.parametrize("recover", [WRONG, UNFLUSHED])
def test_a_recovery_that_drops_its_log_too_early_leaves_half_an_operation_at_the_second_crash(
    explore: Explore, recover: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The finding replays from its token."""
    report, _ = explore(recover, "--depth", "2")
    (finding,) = report["findings"]
    assert (finding["kind"], finding["depth"]) == ("recovery-failure", 2)
    assert finding["message"].startswith("crashing the check's own recovery: ")
    output = finding["verdict"]["output"]
    assert "and another in the recovery from it" in output
    assert "done" in output
    assert "not done" in output
    done = run_crashcheck("replay", finding["replay"], cwd=tmp_path, env=environment)
    assert done.returncode == 1, done.stderr
    assert "and another in the recovery from it" in done.stdout


WORD = """\
#include <fcntl.h>
#include <emmintrin.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "crashcheck.h"
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096))
        return 2;
    long *word = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), number;
    FILE *file = fopen(argv[2], "r");
    while (fscanf(file, "%ld", &number) == 1) {
        CRASHCHECK_OP_BEGIN();
        printf("%ld\\n", *word);
        *word = number;
        _mm_clflush(word);
        _mm_sfence();
        CRASHCHECK_OP_END();
    }
    return argc != 3;
}
"""


def test_a_driver_that_writes_nothing_when_it_opens_has_no_recovery_to_crash(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "driver.c").write_text(WORD)
    (tmp_path / "ops.txt").write_text("1\n2\n")
    (tmp_path / "none.txt").write_text("")
    setup = '[setup]\ncommand = "./driver {pool}/ledger.pm none.txt"\n'
    (tmp_path / "crashcheck.toml").write_text(CONFIG + setup)
    done = run_crashcheck("run", "--depth", "2", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "there was no recovery to crash" in done.stdout
