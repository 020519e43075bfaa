"""Which edit a run proposes for programs with flush helpers of many forms; each compiles."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_crashcheck

PROGRAM = """#include <fcntl.h>
#include <emmintrin.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>
struct context { long calls; };
struct pool { long head; char apart[56]; long value; char further[56]; long valid; char rest[56]; };
static struct context *all;
static void wb(%(parameters)s) {
    for (long i = 0; i < (long)bytes; i++)
        _mm_clflush((const char *)at + i);
    (void)%(used)s;
}
static void start(struct context *context, struct pool *pool) {
    pool->head = 1;
    wb(%(before)s(char *)&pool->head, sizeof pool->head%(after)s);
    wb(%(before)s(char *)&pool->valid, sizeof pool->valid%(after)s);
    _mm_sfence();
    (void)context;
}
static void put(struct pool *pool) {
    pool->value = 7;
    pool->valid = 1;
    _mm_clflush(&pool->valid);
    _mm_sfence();
}
int main(int argc, char **argv) {
    (void)argc;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096) != 0)
        return 1;
    struct pool *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct context context = {0};
    all = &context;
    start(&context, pool);
    put(pool);
    return 0;
}
"""
CHECK = """import struct, sys
data = open(sys.argv[1], "rb").read() + bytes(4096)
value, valid = struct.unpack_from("q", data, 64)[0], struct.unpack_from("q", data, 128)[0]
sys.exit(valid and not value)
"""
CONFIG = """[build]
command = "crashcheck-cc -O1 -g -c prog.c && crashcheck-cc prog.o -o prog"
[workload]
command = "./prog {pool}/p"
[pool]
files = ["p"]
[check]
command = "python3 check.py {pool}/p"
[model]
name = "px86"
"""


def fixes_of(folder: Path, environment: dict[str, str], program: str, check: str, **files: str) -> list[dict[str, Any]]:
    """The fixes that a run proposes, after `crashcheck fix --apply` left a source that compiles without a warning."""
    (folder / "crashcheck.toml").write_text(CONFIG)
    (folder / "prog.c").write_text(program)
    (folder / "check.py").write_text(check)
    for name, text in files.items():
        (folder / f"{name}.h").write_text(text)
    words = ["run", "--format", "json=report.json"]
    done = run_crashcheck(*words, cwd=folder, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    findings = json.loads((folder / "report.json").read_text())["findings"]
    run_crashcheck("fix", "--apply", cwd=folder, env=environment)
    build = ["crashcheck-cc", "-Werror", "-Wall", "-Wno-unused-function", "-c", "prog.c"]
    subprocess.run(build, cwd=folder, env=environment, check=True)
    return [finding["fix"] for finding in findings]


def texts(fix: dict[str, Any]) -> list[str]:
    return [edit["text"].strip() for edit in fix["edits"]]


HANDLE = "struct context *handle, const void *at, unsigned long bytes"


@pytest.mark.parametrize(
    ("parameters", "used", "before", "after", "call"),
    [
        (HANDLE, "handle", "all, ", "", "wb(all, &pool->value, sizeof pool->value);"),
        (HANDLE, "handle", "context, ", "", "_mm_clflush(&pool->value);"),
        ("char *at, int bytes, bool f", "f", "", ", true", "wb((char *)&pool->value, sizeof pool->value, true);"),
    ],
    ids=["global", "parameter", "flag"],
)
def test_a_flush_is_called_as_it_compiles_where_it_is_put_in(
    parameters: str, used: str, before: str, after: str, call: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A handle that is in scope is passed, one that is not is not, and a flag is no handle."""
    program = PROGRAM % {"parameters": parameters, "used": used, "before": before, "after": after}
    (fix,) = fixes_of(tmp_path, environment, program, CHECK)
    assert call in texts(fix)
    assert fix["after_failing"] == 0


LEDGER = """#include <fcntl.h>
#include <emmintrin.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "crashcheck.h"
struct account { long id; long balance; char owner[24]; long used; };
struct ledger { struct account slots[16]; };
static void persist(const void *at, unsigned long bytes) {
    for (unsigned long i = 0; i < bytes + 63; i += 64)
        _mm_clflush((const char *)at + (i < bytes ? i : bytes - 1));
    _mm_sfence();
}
static void open_account(struct ledger *ledger, int number) {
    struct account *slot = &ledger->slots[number];
    slot->id = number;
    slot->balance = 100;
%(owner)s
    slot->used = 1;
    persist(%(all)s, sizeof *slot);
}
int main(int argc, char **argv) {
    (void)argc;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096) != 0)
        return 1;
    struct ledger *ledger = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    open_account(ledger, 2);
    return 0;
}
"""
OWNERS = """import struct, sys
data = open(sys.argv[1], "rb").read() + bytes(4096)
for at in range(0, 768, 48):
    if struct.unpack_from("q", data, at + 40)[0] and data[at + 16] == 0:
        sys.exit(1)
"""


def test_a_field_is_persisted_with_what_its_function_stored_to_the_object_before(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """The check reads the owner alone; with the owner persisted, the id and the balance would stay to be lost."""
    owner = '    memcpy(slot->owner, "somebody", 9);'
    (fix,) = fixes_of(tmp_path, environment, LEDGER % {"owner": owner, "all": "slot"}, OWNERS)
    assert texts(fix) == ["persist(slot, sizeof *slot);"]
    assert fix["words"].startswith(
        "one flush of `ledger.slots[].id` at prog.c:16 and `ledger.slots[].balance` at prog.c:17 and "
    )
    assert fix["words"].endswith(", in one object, before `ledger.slots[].used` at prog.c:19, with a fence")
    assert "can still be lost" not in fix["verified"]


def test_where_the_object_has_no_one_name_each_field_is_persisted(tmp_path: Path, environment: dict[str, str]) -> None:
    owner = '    struct account *same = slot;\n    memcpy(same->owner, "somebody", 9);'
    (fix,) = fixes_of(tmp_path, environment, LEDGER % {"owner": owner, "all": "same"}, OWNERS)
    assert texts(fix) == [
        "persist(&slot->id, sizeof slot->id);",
        "persist(&slot->balance, sizeof slot->balance);",
        "persist(same->owner, 9);",
    ]


JOURNAL = """#include <fcntl.h>
#include <emmintrin.h>
#include <sys/mman.h>
#include <unistd.h>
struct entry { long slot; long old; long sum; };
struct journal { long count; long unused[2]; struct entry entries[16]; };
static void persist(const void *at, unsigned long bytes) {
    for (unsigned long i = 0; i < bytes + 63; i += 64)
        _mm_clflush((const char *)at + (i < bytes ? i : bytes - 1));
    _mm_sfence();
}
static void put(struct journal *journal, long slot) {
    struct entry *entry = &journal->entries[journal->count];
    entry->slot = slot;
    entry->old = 3;
    entry->sum = slot ^ 3;
    journal->count++;
    persist(&journal->count, sizeof journal->count);
}
int main(int argc, char **argv) {
    (void)argc;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096) != 0)
        return 1;
    struct journal *journal = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    put(journal, 8);
    put(journal, 9);
    return 0;
}
"""
SUMS = """import struct, sys
data = open(sys.argv[1], "rb").read() + bytes(4096)
for number in range(struct.unpack_from("q", data)[0]):
    slot, old, total = struct.unpack_from("qqq", data, 24 + 24 * number)
    if slot ^ old != total:
        sys.exit(1)
"""


def test_an_element_of_an_array_is_persisted_whole_although_its_first_part_shared_a_line_with_what_counts_them(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Of the two entries recorded, slot and old value are in the count's cache line; of the third they are not."""
    (fix,) = fixes_of(tmp_path, environment, JOURNAL, SUMS)
    assert texts(fix) == ["persist(entry, sizeof *entry);"]


def test_a_fix_names_what_other_functions_stored_to_the_object_and_can_still_be_lost(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """With setters, each field has a function of its own."""
    setters = """static void set_slot(struct entry *entry, long slot) {
    entry->slot = slot;
}
static void set_sum(struct entry *entry, long sum) {
    entry->sum = sum;
}
static void put("""
    program = JOURNAL.replace("static void put(", setters)
    program = program.replace("entry->slot = slot;\n    entry->old", "set_slot(entry, slot);\n    entry->old")
    program = program.replace("entry->sum = slot ^ 3;\n    journal", "set_sum(entry, slot ^ 3);\n    journal")
    (fix,) = fixes_of(tmp_path, environment, program, SUMS)
    assert texts(fix) == ["persist(&entry->sum, sizeof entry->sum);"]
    left = "`entry.slot` at prog.c:13 and `journal.entries[].old` at prog.c:21"
    assert fix["verified"].endswith(f"; {left}, stored to the same object, can still be lost before that")


BANK = """#include <fcntl.h>
#include <emmintrin.h>
#include <sys/mman.h>
#include <unistd.h>
struct account { long balance; char rest[56]; };
struct pool { long used; long old; char rest[48]; struct account from; struct account to; long ready; };
static void persist(const void *at) {
    _mm_clflush(at);
    _mm_sfence();
}
static void transfer(struct pool *pool, long amount) {
    pool->old = pool->from.balance;
    persist(&pool->old);
    pool->used = 1;
    persist(&pool->used);
    pool->from.balance -= amount;
    persist(&pool->from);
    pool->to.balance += amount;
    %(flush)s
    pool->used = 0;
    persist(&pool->used);
}
int main(int argc, char **argv) {
    (void)argc;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(fd, 4096) != 0)
        return 1;
    struct pool *pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pool->from.balance = 99223;
    persist(&pool->from);
    pool->to.balance = 777;
    persist(&pool->to);
    pool->ready = 1;
    persist(&pool->ready);
    transfer(pool, 1111);
    transfer(pool, 2222);
    return 0;
}
"""
BALANCES = """import struct, sys
data = open(sys.argv[1], "rb").read() + bytes(4096)
used, old = struct.unpack_from("qq", data, 0)
start, to, ready = (struct.unpack_from("q", data, at)[0] for at in (64, 128, 192))
sys.exit(ready and (old if used else start) + to != 100000)
"""


@pytest.mark.parametrize("flush", ["", "persist(&pool->to);"], ids=["not flushed", "flushed"])
def test_for_an_update_that_is_not_logged_no_flush_is_proposed(
    flush: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A crash in the transfer takes `from` back by the log, and not `to`: to flush that would help nobody."""
    fixes = fixes_of(tmp_path, environment, BANK % {"flush": flush}, BALANCES)
    assert fixes
    for fix in fixes:
        assert (fix["kind"], fix["edits"]) == ("atomic", [])
        assert fix["words"] == (
            "no flush can help: `pool.to.balance` at prog.c:18 is not logged; the old bytes of `pool.from.balance` at "
            "prog.c:16 are copied at prog.c:12 before it is stored: copy those of this range, too"
        )
