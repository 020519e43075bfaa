"""`--base` of a bug that the base has in one place: the change brings it to another one, or only renames it."""

from __future__ import annotations

import pytest

from support.versions import Project, compared

SOURCE = """#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "crashcheck.h"

struct book {
    uint64_t used __attribute__((aligned(64)));
    struct {
        uint64_t value __attribute__((aligned(64)));
    } lines[8];
};

static void persist(const void *at) {
    _mm_clflush(at);
    _mm_sfence();
}

static void fill(struct book *book, uint64_t value) {
    book->lines[book->used].value = value;
}

static void commit(struct book *book) {
    book->used++;
    persist(&book->used);
}

static void put(struct book *book, uint64_t value) {
    fill(book, value);
    commit(book);
}

static void add(struct book *book, uint64_t value) {
    ADD
}

int main(int argc, char **argv) {
    int fd = open(argv[2], O_RDWR | O_CREAT, 0644);
    if (argc != 3 || fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    struct book *book = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 4 && strcmp(argv[1], "run") == 0; i++) {
        CRASHCHECK_OP_BEGIN();
        i % 2 ? put(book, 7 + i) : add(book, 7 + i);
        CRASHCHECK_OP_END();
    }
    for (uint64_t at = 0; at < book->used; at++)
        if (!book->lines[at].value)
            return printf("line %d is empty\\n", (int)at), 1;
    return 0;
}
"""
STORES = "book->lines[book->used].value = value; persist(&book->lines[book->used]); commit(book);"
CALLS_PUT = "put(book, value);"
CALLS_FILL = "fill(book, value); commit(book);"
PERSISTS = "fill(book, value); persist(&book->lines[book->used]); commit(book);"
COPIED = "book->lines[book->used].value = value; book->used++; persist(&book->used);"


def brought(project: Project, before: str, after: str) -> tuple[int, list[str]]:
    """The exit status of a run of `after` against `before`, and the messages of what is introduced."""
    for source in (before, after):
        project.write("", more={"ledger.c": source})
    code, report = project.run()
    assert "existing" in compared(report)
    return code, [one["message"] for one in report["findings"] if one["compared"] == "introduced"]


def version(add: str) -> str:
    return SOURCE.replace("ADD", add)


def test_another_caller_of_a_helper_that_forgets_its_flush_is_introduced(project: Project) -> None:
    code, messages = brought(project, version(STORES), version(CALLS_FILL))
    assert (code, len(messages)) == (1, 1)
    assert messages[0].endswith(", called from add (ledger.c:37)")


def test_a_flush_deleted_in_one_caller_of_a_helper_is_introduced_though_another_one_lacked_it(project: Project) -> None:
    code, messages = brought(project, version(PERSISTS), version(CALLS_FILL))
    assert (code, len(messages)) == (1, 1)


@pytest.mark.parametrize("add", [CALLS_PUT, CALLS_FILL])
def test_callers_with_other_names_bring_nothing(project: Project, add: str) -> None:
    renamed = version(add).replace("put(", "append(").replace("add(", "insert(")
    assert brought(project, version(add), renamed) == (0, [])


def test_other_operations_of_the_workload_bring_nothing(project: Project) -> None:
    changed = version(PERSISTS).replace("i % 2 ?", "i % 2 == 0 ?")
    assert brought(project, version(PERSISTS), changed) == (0, [])


def test_another_caller_that_persists_brings_nothing(project: Project) -> None:
    assert brought(project, version(CALLS_PUT), version(PERSISTS)) == (0, [])


def test_a_copy_of_code_that_has_a_bug_is_introduced(project: Project) -> None:
    code, messages = brought(project, version(CALLS_PUT), version(COPIED))
    assert (code, len(messages)) == (1, 1)
    assert "(ledger.c:37)" in messages[0]


def test_a_bug_is_known_by_what_it_writes_where_all_its_names_are_others(project: Project) -> None:
    renamed = version(CALLS_PUT)
    for name, other in (("value", "cell"), ("used", "count"), ("lines", "rows"), ("fill", "set"), ("commit", "end")):
        renamed = renamed.replace(name, other)
    assert brought(project, version(CALLS_PUT), renamed) == (0, [])
