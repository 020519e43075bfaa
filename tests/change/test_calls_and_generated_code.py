"""`--base` of programs of which a finding has no line in the diff: recorded system calls, and generated code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import generated_store, settings_store
from support.ledger import CONFIG, PERSISTED, SOURCE
from support.versions import Project, compared


def write(project: Project, more: dict[str, str]) -> None:
    project.write("", more=more)


def test_the_only_fsync_before_a_rename_deleted_in_a_script_is_introduced(project: Project) -> None:
    write(project, settings_store.files())
    write(project, settings_store.files(sync=""))
    code, report = project.run()
    assert (code, set(compared(report))) == (1, {"introduced"})


def test_a_script_that_never_synced_has_the_bug_in_its_base_whatever_file_is_added(project: Project) -> None:
    write(project, settings_store.files(sync=""))
    write(project, {**settings_store.files(sync=""), "notes.py": "unused = 1\n"})
    code, report = project.run()
    assert (code, set(compared(report))) == (0, {"existing"})


LOG_AND_MORE = """import os, sys
def write_all(path, data):
    with open(path, "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
def append(folder):
    write_all(folder + "/log", b"x" * 8)
def describe(folder):
    write_all(folder + "/meta", b"y" * 8)
append(sys.argv[1])
DESCRIBE
"""


def test_another_file_that_a_helper_tears_is_introduced_though_the_base_has_a_finding_of_the_helper(
    project: Project,
) -> None:
    whole = "for file in $1/*; do test $(tr -d '\\0' < $file | wc -c) = $(wc -c < $file) || exit 1; done\n"
    for describe in ("", "describe(sys.argv[1])"):
        script = LOG_AND_MORE.replace("DESCRIBE", describe)
        write(project, {**settings_store.files(), "store.py": script, "check.sh": whole})
    code, report = project.run()
    shown = {finding["message"].split("`")[1]: finding["compared"] for finding in report["findings"]}
    assert (code, shown) == (1, {"log": "existing", "meta": "introduced"})


HELPER = """
#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
struct pool { uint64_t value, apart[7], valid, apart2[7], count, apart3[7], counted; };
static void flush(void *line) { _mm_clflush(line); _mm_sfence(); }
static void set(uint64_t *to, uint64_t value) { *to = value; }
static void put(struct pool *pool)
{
    set(&pool->value, 1);
    set(&pool->valid, 1);
    flush(&pool->valid);
}
static void count(struct pool *pool)
{
    set(&pool->count, 1);
    FLUSH
    set(&pool->counted, 1);
    flush(&pool->counted);
}
int main(int words, char **word)
{
    int file = open(word[2], O_RDWR | O_CREAT, 0600);
    struct pool *pool = MAP_FAILED;
    if (!ftruncate(file, 4096))
        pool = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (strcmp(word[1], "work"))
        return pool->valid > pool->value || pool->counted > pool->count;
    put(pool);
    count(pool);
    return 0;
}
"""
HELPER_CONFIG = """
[build]
command = "crashcheck-cc -O1 -g -o store store.c"
[workload]
command = "./store work {pool}/p"
[pool]
files = ["p"]
[check]
command = "./store check {pool}/p"
"""


def test_a_flush_deleted_behind_a_helper_is_introduced_though_the_base_lacks_one_behind_another_call_of_it(
    project: Project,
) -> None:
    for flush in ("flush(&pool->count);", ""):
        source = HELPER.replace("FLUSH", flush)
        write(project, {"store.c": source, "crashcheck.toml": HELPER_CONFIG, ".gitignore": "/store\n/out.json\n"})
    code, report = project.run()
    assert (code, compared(report)[0]) == (1, "introduced")


def forget(project: Project, stop: str) -> None:
    """The kept result of the base, as a search leaves it that found nothing and ended for this reason."""
    (kept,) = (project.cache / "results").glob("*.json")
    missed = json.loads(kept.read_text(encoding="utf-8"))
    missed["findings"], missed["run"]["stop_reason"] = [], stop
    kept.write_text(json.dumps(missed), encoding="utf-8")


def test_a_base_whose_search_was_cut_has_what_fails_on_its_recording(project: Project) -> None:
    write(project, settings_store.files(sync=""))
    write(project, {**settings_store.files(sync=""), "notes.py": "unused = 1\n"})
    project.run()
    forget(project, "budget-seconds")
    code, report = project.run()
    assert (code, set(compared(report))) == (0, {"existing"})


def test_a_base_whose_search_was_cut_shows_by_its_recording_that_a_deleted_fsync_is_the_cause(project: Project) -> None:
    write(project, settings_store.files())
    write(project, settings_store.files(sync=""))
    project.run()
    forget(project, "budget-seconds")
    code, report = project.run()
    assert (code, set(compared(report))) == (1, {"introduced"})


def test_a_flush_deleted_in_generated_code_is_introduced_whatever_the_line_directive_names(project: Project) -> None:
    project.write(PERSISTED, more=generated_store.files(PERSISTED))
    project.write("", more=generated_store.files(""))
    code, report = project.run()
    assert (code, compared(report)) == (1, ["introduced"])
    assert report["findings"][0]["location"]["file"] == "grammar.y"


def test_what_only_moved_to_another_file_and_function_is_compared_by_its_text(project: Project) -> None:
    """The search of the base missed it, so its recording decides."""
    project.write("")
    renamed = SOURCE.replace("    FIRST\n", "").replace("put(", "open_account(")
    config = CONFIG.replace("ledger.c", "accounts.c")
    project.write("", more={"accounts.c": renamed, "crashcheck.toml": config})
    project.run()
    forget(project, "budget-seconds")
    code, report = project.run()
    assert (code, compared(report)) == (0, ["existing"])


SUMS = """import json, sys
def write_sums(store):
    with open(store.folder + "/sums.json", "w") as file:
        json.dump([1], file)
class Store:
    folder = sys.argv[1]
    def sums(self):
        CALL
Store().sums()
"""


@pytest.mark.parametrize(("file", "then"), [("sums.json", "existing"), ("more.json", "introduced")])
def test_a_write_that_moved_is_in_the_base_if_that_changes_the_same_file(
    project: Project, file: str, then: str
) -> None:
    whole = "for file in $1/*.json; do test -s $file || exit 1; done\n"
    inline = f"open(self.folder + '/{file}', 'w').write('[1]')"
    for call in (inline, "write_sums(self)"):
        write(project, {**settings_store.files(), "store.py": SUMS.replace("CALL", call), "check.sh": whole})
    code, report = project.run()
    assert (code, compared(report)) == (int(then == "introduced"), [then])


def test_an_operation_that_the_workload_has_only_now_counts_though_its_code_did_not_change(project: Project) -> None:
    """The base has never done it: nobody knows what it would have shown."""
    bug = SOURCE.replace("    FIRST\n", "").replace("i < 3", "i < COUNT").replace("(strcmp", "(COUNT && strcmp")
    config = CONFIG.replace("-O1", "-DCOUNT=0 -O1")
    project.write("", more={"ledger.c": bug, "crashcheck.toml": config})
    project.write("", more={"ledger.c": bug, "crashcheck.toml": config.replace("COUNT=0", "COUNT=3")})
    code, report = project.run()
    assert (code, compared(report), report["findings"][0]["in_diff"]) == (1, ["not-compared"], False)


def test_a_base_that_cannot_be_built_hides_nothing(project: Project) -> None:
    project.write("", more={"crashcheck.toml": CONFIG.replace("crashcheck-cc ", "false ")})
    project.write("")
    code, report = project.run()
    (finding,) = report["findings"]
    assert (code, finding["compared"]) == (1, "not-compared")
    assert finding["note"].endswith("it counts because it could not be compared with the base")
    assert report["run"]["base"]["note"].startswith("the base was not searched: build-failed")


RECORDS = """import os, sys

def put(file, number):
    os.pwrite(file, b"%d" % number, 4096 * number)
    os.pwrite(file, b"%d" % number, 0)
    os.fsync(file)

file = os.open(sys.argv[1] + "/records", os.O_RDWR)
for number in (1, 2):
    put(file, number)
    print("put", number, flush=True)
"""
COUNTED = """import sys
data = open(sys.argv[1] + "/records", "rb").read()
count = int(data[:1])
assert count >= len(open(sys.argv[2]).read().splitlines()), "a record that was reported is lost"
assert all(data[4096 * number] for number in range(1, count + 1)), "a record is counted and not there"
"""
RECORDS_CONFIG = """
[setup]
command = "head -c 12288 /dev/zero > {pool}/records && printf 0 | dd of={pool}/records conv=notrunc status=none"
[workload]
command = "python3 records.py {pool}"
recorder = "syscalls"
[pool]
files = ["*"]
[check]
command = "python3 counted.py {pool} {stdout}"
[model]
name = "ext4"
"""


def records(program: str = RECORDS) -> dict[str, str]:
    """A version. Each has a bug: a record and its number are synced at once."""
    return {
        "records.py": program,
        "counted.py": COUNTED,
        "crashcheck.toml": RECORDS_CONFIG,
        ".gitignore": "/out.json\n",
    }


def introduced(report: dict[str, Any]) -> tuple[str, str]:
    """The message and the fix of what the change brought."""
    (one,) = [finding for finding in report["findings"] if finding["compared"] == "introduced"]
    return one["message"], one["fix"]["words"]


@pytest.mark.parametrize("instead", ["", "    os.fstat(file)\n"])
def test_a_sync_deleted_before_output_is_named_as_the_cause_beside_a_bug_of_the_base(
    project: Project, instead: str
) -> None:
    write(project, records())
    write(project, records(RECORDS.replace("    os.fsync(file)\n", instead)))
    code, report = project.run()
    message, fix = introduced(report)
    assert code == 1
    assert message.endswith("this change removes `os.fsync(file)` from put (records.py:6)")
    assert fix == "put back `os.fsync(file)` in put at records.py:6"


def test_what_the_fix_of_a_bug_of_the_base_leaves_has_a_fix_of_its_own(project: Project) -> None:
    early = RECORDS.replace('    print("put", number, flush=True)\n', "").replace(
        "    os.fsync(file)\n", '    print("put", number, flush=True)\n    os.fsync(file)\n'
    )
    write(project, records())
    write(project, records(early))
    code, report = project.run(fixes=True)
    message, fix = introduced(report)
    number = message.partition("`put ")[2][:1]
    assert (code, fix) == (1, f"add fsync of records before `put {number}` is printed")
