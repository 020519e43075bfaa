"""`--base` of bugs that one fix would fix: the base has one of them, the change brings another."""

from __future__ import annotations

from support.versions import Project, compared

RING = """#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "crashcheck.h"

struct ring {
    uint64_t head __attribute__((aligned(64)));
    uint64_t tail __attribute__((aligned(64)));
    uint64_t entries[8] __attribute__((aligned(64)));
};

static void persist(const void *at) {
    _mm_clflush(at);
    _mm_sfence();
}

static void push(struct ring *ring, uint64_t value) {
    ring->entries[ring->head % 8] = value;
    ring->head++;
    PERSIST_HEAD
}

static void pop(struct ring *ring) {
    ring->tail++;
    persist(&ring->tail);
}

int main(int argc, char **argv) {
    int fd = open(argv[2], O_RDWR | O_CREAT, 0644);
    if (argc != 3 || fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    struct ring *ring = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 3 && strcmp(argv[1], "run") == 0; i++) {
        CRASHCHECK_OP_BEGIN();
        i < 2 ? push(ring, 7 + i) : pop(ring);
        CRASHCHECK_OP_END();
    }
    if (ring->tail > ring->head)
        return printf("the tail is before the head\\n"), 1;
    for (uint64_t at = ring->tail; at < ring->head; at++)
        if (!ring->entries[at % 8])
            return printf("entry %d is damaged\\n", (int)at), 1;
    return 0;
}
"""


def ring(persist_head: str, more: str = "") -> dict[str, str]:
    """A version; no version persists its entries."""
    return {"ledger.c": more + RING.replace("PERSIST_HEAD", persist_head)}


def test_a_bug_that_is_one_with_a_bug_of_the_base_is_introduced_where_the_base_lacks_it(project: Project) -> None:
    project.write("", more=ring("persist(&ring->head);"))
    project.write("", more=ring(""))
    code, report = project.run()
    assert (code, sorted(compared(report))) == (1, ["existing", "introduced"])
    (brought,) = [one["message"] for one in report["findings"] if one["compared"] == "introduced"]
    assert brought.startswith("`ring.tail` (ledger.c:")


def test_both_are_existing_where_the_base_has_both(project: Project) -> None:
    project.write("", more=ring(""))
    project.write("", more=ring("", "/* moved */\n"))
    code, report = project.run()
    assert (code, set(compared(report))) == (0, {"existing"})
