/* Loops in which a thread waits without a call: while (!flag). One that changes nothing until another thread does is a wait, and where
 * in the loop the thread stays does not depend on how long it has run. */
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nodes/parts.h"

#define STEPS_MOST 2048u            /* instructions of a loop */
#define PAGE 4096u
#define PAGES_MOST (64u << 8)       /* of 64 MiB: what more memory holds is not compared */
#define AREA_MOST (16u << 10)       /* bytes of registers beside the usual */
#define PRESENT (3ull << 62)        /* in memory or swapped out */
#define MIX 0x9e3779b97f4a7c15u

static uint64_t mixed(uint64_t digest, const void *bytes, size_t size)
{
    for (size_t i = 0; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const char *)bytes + i, sizeof word);
        digest = (digest ^ word) * MIX;
        digest ^= digest >> 29;
    }
    return digest;
}

/* Of the pages between two addresses that are in memory. */
static bool mix_pages(const struct thread *thread, int pages, uint64_t from, uint64_t to, uint64_t *digest, uint32_t *left)
{
    unsigned char page[PAGE];
    uint64_t about;
    for (; from < to; from += PAGE) {
        if (pread(pages, &about, sizeof about, (off_t)(from / PAGE * sizeof about)) != sizeof about || !(about & PRESENT))
            continue;
        if (!(*left)--)
            return false;
        if (memory_read(thread, from, page, sizeof page) == sizeof page)
            *digest = mixed(*digest, page, sizeof page);
    }
    return true;
}

/* Of all that a thread can change: the memory of its process, and registers beside the usual. False: it is too much. */
static bool digest_of(const struct thread *thread, uint64_t *digest)
{
    char path[64], line[512], rights[8];
    static unsigned char area[AREA_MOST];
    struct iovec registers = {area, sizeof area};
    uint64_t from, to;
    uint32_t left = PAGES_MOST;
    bool whole = ptrace(PTRACE_GETREGSET, thread->tid, (void *)(uintptr_t)NT_X86_XSTATE, &registers) == 0;
    *digest = mixed(0, area, registers.iov_len);
    snprintf(path, sizeof path, "/proc/%d/pagemap", thread->process->pid);
    int pages = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/maps", thread->process->pid);
    FILE *maps = fopen(path, "re");
    whole = whole && pages >= 0 && maps;
    while (whole && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && rights[1] == 'w')
            whole = mix_pages(thread, pages, from, to, digest, &left);
    if (maps)
        fclose(maps);
    if (pages >= 0)
        close(pages);
    return whole;
}

/* Executes one instruction. False: something else happened, which `status` is. */
static bool step(struct thread *thread, int *status, struct user_regs_struct *after)
{
    ptrace(PTRACE_SINGLESTEP, thread->tid, NULL, NULL);
    if (!thread_await(thread, status)) {
        *status = 0;
        return false;
    }
    if (*status >> 8 != SIGTRAP)
        return false;
    ptrace(PTRACE_GETREGS, thread->tid, NULL, after);
    return true;
}

static bool same(const struct user_regs_struct *one, const struct user_regs_struct *other)
{
    struct user_regs_struct copy = *other;
    copy.orig_rax = one->orig_rax;
    return memcmp(one, &copy, sizeof copy) == 0;
}

static enum loop steps(struct thread *thread, uint32_t count, int *status, struct user_regs_struct *at)
{
    for (uint32_t i = 0; i < count; i++)
        if (!step(thread, status, at))
            return LEAVES;
    return TURNS;
}

/* Continues to the place of the loop that is the first in memory, and once around from there. */
static enum loop settle_in(struct thread *thread, const struct user_regs_struct *round, uint32_t length, int *status)
{
    struct user_regs_struct at;
    uint32_t first = 0;
    uint64_t before, after;
    for (uint32_t i = 1; i < length; i++)
        if (round[i].rip < round[first].rip || (round[i].rip == round[first].rip && memcmp(&round[i], &round[first], sizeof *round) < 0))
            first = i;
    if (first && steps(thread, first, status, &at) == LEAVES)
        return LEAVES;
    if (!digest_of(thread, &before))
        return COMPUTES;
    if (steps(thread, length, status, &at) == LEAVES)
        return LEAVES;
    if (!same(&at, &round[first]) || !digest_of(thread, &after) || before != after)
        return COMPUTES;
    thread->loop = at;
    thread->loop_length = length;
    return TURNS;
}

enum loop loop_of(struct thread *thread, int *status)
{
    struct user_regs_struct *round = calloc(STEPS_MOST + 1u, sizeof *round);
    enum loop found = COMPUTES;
    if (!round)
        abort();
    ptrace(PTRACE_GETREGS, thread->tid, NULL, &round[0]);
    for (uint32_t length = 1; length <= STEPS_MOST; length++) {
        if (!step(thread, status, &round[length])) {
            found = LEAVES;
            break;
        }
        if (same(&round[0], &round[length])) {
            found = settle_in(thread, round, length, status);
            break;
        }
    }
    free(round);
    return found;
}

enum loop loop_again(struct thread *thread, int *status)
{
    struct user_regs_struct at;
    if (steps(thread, thread->loop_length, status, &at) == LEAVES)
        return LEAVES;
    return same(&at, &thread->loop) ? TURNS : COMPUTES;
}
