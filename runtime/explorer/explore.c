/* Runs a check on many crash images at once, which differ in the bytes of some granules (explore.h).
 *
 * The pages of those granules are closed. An instruction that touches one, whoever's it is, faults; where it reads bytes
 * that differ between the contents that the granule may still have, the process forks: a child for each content of
 * those bytes. What follows depends on nothing but the memory, the registers, what system calls did, and the bytes
 * that are not known yet. So a process that is about to read in a state in which another was before ends at once: it
 * would do the same. Bytes that are never read, or written first, decide nothing.
 *
 * Writes to shared mappings stay in the process (the mappings are made private), and so do its output and its places in
 * files. A system call that would carry anything from one process to another, or read the granules, ends it all.
 *
 * Everything here is in a section of its own: only system calls from there are let through at once. */
#ifdef CC_SHARED
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "explorer/exploration.h"
#include "explorer/handlers.h"
#include "explorer/section.h"
#include "explorer/state.h"

struct exploration cc_run;
uintptr_t cc_explore_resume, cc_explore_kept, cc_explore_stack;
static uintptr_t alternate;

/* Where the kernel reports on which processor a thread runs; libc has it since 2.35. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));

INLINE void first_is_done(void)
{
    if ((uint32_t)raw3(SYS_getpid, 0, 0, 0) == cc_run.first_process && !__atomic_load_n(&cc_run.table->refusal, __ATOMIC_RELAXED))
        __atomic_store_n(&cc_run.table->done, 1, __ATOMIC_RELAXED);
}

HERE void cc_explore_leave(void)
{
    for (;;)
        raw3(SYS_exit_group, 0, 0, 0);
}

HERE void cc_explore_refuse(uint32_t why, uint32_t detail)
{
    uint32_t none = CC_EXPLORE_NOT_REFUSED;
    if (__atomic_compare_exchange_n(&cc_run.table->refusal, &none, why, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        __atomic_store_n(&cc_run.table->detail, detail, __ATOMIC_RELAXED);
    cc_explore_leave();
}

/* One process runs at a time, so that nothing here needs a lock. */
HERE void cc_explore_ends(int32_t status)
{
    if (cc_run.table->ends >= cc_run.table->end_room)
        cc_explore_refuse(CC_EXPLORE_ROOM, 1);
    if (cc_run.table->output_used + cc_run.output_bytes > cc_run.table->output_end)
        cc_explore_refuse(CC_EXPLORE_ROOM, 2);
    struct cc_explore_end *end = (struct cc_explore_end *)(void *)((char *)cc_run.table + cc_run.table->first_end) + cc_run.table->ends;
    end->status = status;
    end->output = cc_run.table->output_used;
    end->output_bytes = (uint32_t)cc_run.output_bytes;
    raw_move((char *)cc_run.table + cc_run.table->output_used, cc_run.output, cc_run.output_bytes);
    cc_run.table->output_used += cc_run.output_bytes;
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uint32_t first = 0, alive = 0;
        for (uint32_t which = cc_run.granules[i].choices; which-- > 0;)
            if (BIT(cc_run.state_of[i].alive, which)) {
                first = which;
                alive++;
            }
        end->choice[i] = alive == cc_run.granules[i].choices ? UINT16_MAX : (uint16_t)first;
    }
    cc_run.table->ends++;
    first_is_done();
    cc_explore_leave();
}

HERE void cc_explore_signalled(int32_t number)
{
    if (cc_run.actions[number - 1].handler)
        cc_explore_refuse(CC_EXPLORE_CALL, SYS_rt_sigaction);
    cc_explore_ends(number);
}

/* Closes the pages of a mapping that hold something untouched, and opens the others. */
HERE void cc_explore_close_pages(const struct mapping *in)
{
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), in->protection);
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uintptr_t at = address_of(in, &cc_run.granules[i]);
        if (!at || !cc_run.state_of[i].unknown)
            continue;
        uintptr_t first = at & ~(PAGE - 1), last = (at + cc_run.granules[i].length - 1) & ~(PAGE - 1);
        raw3(SYS_mprotect, (long)first, (long)(last - first + PAGE), PROT_NONE);
    }
}

/* Bytes that all contents agree on are known. Those of `from`, a content, are put into memory where `at` is not NULL. */
HERE static void learn(uint32_t number, unsigned char *at, uint32_t from)
{
    const struct cc_explore_granule *granule = &cc_run.granules[number];
    struct granule_state *now = &cc_run.state_of[number];
    now->unknown = 0;
    for (uint32_t byte = 0; byte < granule->length; byte++) {
        if (BIT(now->known, byte))
            continue;
        unsigned char value = content_of(granule, from)[byte];
        bool same = true;
        for (uint32_t which = 0; which < granule->choices && same; which++)
            same = !BIT(now->alive, which) || content_of(granule, which)[byte] == value;
        if (!same) {
            now->unknown++;
            continue;
        }
        SET_BIT(now->known, byte);
        if (at)
            at[byte] = value;
    }
}

/* Whether two contents agree where bytes from `low` to `high` are not known. */
HERE static bool agree(uint32_t number, uint32_t one, uint32_t two, uint32_t low, uint32_t high)
{
    const unsigned char *left = content_of(&cc_run.granules[number], one), *right = content_of(&cc_run.granules[number], two);
    for (uint32_t byte = low; byte < high; byte++)
        if (!BIT(cc_run.state_of[number].known, byte) && left[byte] != right[byte])
            return false;
    return true;
}

/* Keeps the contents that agree with one of them. `in`: where the granule is mapped; NULL: nowhere. */
HERE static void settle(const struct mapping *in, uint32_t number, uint32_t with, uint32_t low, uint32_t high)
{
    struct granule_state *now = &cc_run.state_of[number];
    for (uint32_t which = 0; which < cc_run.granules[number].choices; which++)
        if (BIT(now->alive, which) && !agree(number, with, which, low, high))
            now->alive[which / 64] &= ~(1ull << which % 64);
    if (!in) {
        learn(number, NULL, with);
        return;
    }
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), PROT_READ | PROT_WRITE);
    learn(number, (unsigned char *)address_of(in, &cc_run.granules[number]), with);
    cc_explore_close_pages(in);
}

/* Waits for a process that goes one of the ways; ends the exploration if it did not end well. */
HERE static void wait_for(long child)
{
    int status = 0;
    long ended;
    do
        ended = raw4(SYS_wait4, child, (long)&status, 0, 0);
    while (ended == -EINTR);
    if (ended != child || status)
        cc_explore_refuse(CC_EXPLORE_DIED, (uint32_t)status);
}

/* Whether the contents of a granule still differ in some byte from `low` to before `high`. */
HERE static bool still_differs(uint32_t number, uint32_t low, uint32_t high)
{
    for (uint32_t byte = low; byte < high; byte++)
        if (!BIT(cc_run.state_of[number].known, byte))
            return true;
    return false;
}

/* Whether a process was in this state before, about to read the same bytes. */
HERE static bool came_again(const ucontext_t *context, uint32_t number, uint32_t low, uint32_t high)
{
    uint64_t hash[2];
    cc_explore_hash_state(hash, context, number);
    stir(hash, (uint64_t)low << 32 | high);
    return cc_explore_met(hash);
}

/* Before bytes of a granule are read: returns in children alone, in each with other bytes there. */
HERE static void decide(const ucontext_t *context, const struct mapping *in, uint32_t number, uint32_t low, uint32_t high)
{
    const struct cc_explore_granule *granule = &cc_run.granules[number];
    uint64_t seen[MOST_CONTENTS / 64];
    raw_fill(seen, 0, sizeof seen);
    if (!cc_run.table->unmerged && came_again(context, number, low, high)) {
        cc_run.table->merged++;
        first_is_done();
        cc_explore_leave();
    }
    for (uint32_t which = 0; which < granule->choices; which++) {
        if (!BIT(cc_run.state_of[number].alive, which) || BIT(seen, which))
            continue;
        for (uint32_t other = which; other < granule->choices; other++)
            if (BIT(cc_run.state_of[number].alive, other) && agree(number, which, other, low, high))
                SET_BIT(seen, other);
        long child = raw6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
        if (raw_failed(child))
            cc_explore_refuse(CC_EXPLORE_SETUP, 2);
        if (!child) {
            if (++cc_run.deep == MOST_DEEP)
                cc_explore_refuse(CC_EXPLORE_ROOM, 6);
            settle(in, number, which, low, high);
            return;
        }
        wait_for(child);
        if (__atomic_load_n(&cc_run.table->refusal, __ATOMIC_RELAXED))
            cc_explore_leave();
    }
    first_is_done();
    cc_explore_leave();
}

HERE void cc_explore_show_known(const struct mapping *in)
{
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        unsigned char *at = (unsigned char *)address_of(in, &cc_run.granules[i]);
        if (!at || !cc_run.granules[i].choices)
            continue;
        raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), PROT_READ | PROT_WRITE);
        const unsigned char *from = content_of(&cc_run.granules[i], first_alive(i));
        for (uint32_t byte = 0; byte < cc_run.granules[i].length; byte++)
            if (BIT(cc_run.state_of[i].known, byte))
                at[byte] = from[byte];
    }
}

/* The mapping that has a file's bytes now: NULL if none has. */
HERE static const struct mapping *mapping_of(const struct file_range *range)
{
    const struct mapping *found = NULL;
    for (uint32_t i = 0; i < cc_run.mapped; i++) {
        const struct mapping *in = &cc_run.mappings[i];
        if (in->mirrors || in->device != range->device || in->inode != range->inode)
            continue;
        if (in->gone && in->protection & PROT_WRITE) /* what it wrote is in no file */
            cc_explore_refuse(CC_EXPLORE_FILE_READ, SYS_munmap);
        found = in->gone ? found : in;
    }
    return found;
}

HERE const struct mapping *cc_explore_first_mapping(const struct mapping *mirror)
{
    for (uint32_t i = 0; i < cc_run.mapped; i++) {
        const struct mapping *in = &cc_run.mappings[i];
        if (!in->gone && !in->mirrors && in->device == mirror->device && in->inode == mirror->inode)
            return in;
    }
    return NULL;
}

/* Bytes of a file, of which `into` has those of the image, were read by a system call: they become those of this process. */
HERE void cc_explore_reads_file(const ucontext_t *context, const struct file_range *range, char *into)
{
    const struct mapping *in = mapping_of(range);
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        const struct cc_explore_granule *granule = &cc_run.granules[i];
        uint64_t start = granule->offset > range->start ? granule->offset : range->start;
        uint64_t end = granule->offset + granule->length < range->end ? granule->offset + granule->length : range->end;
        if (granule->device != range->device || granule->inode != range->inode || start >= end)
            continue;
        if (!granule->choices)
            cc_explore_refuse(CC_EXPLORE_UNLISTED, i);
        const struct mapping *here = in && address_of(in, granule) ? in : NULL;
        uint32_t low = (uint32_t)(start - granule->offset), high = (uint32_t)(end - granule->offset);
        if (still_differs(i, low, high))
            decide(context, here, i, low, high);
        raw_move(into + (start - range->start), content_of(granule, first_alive(i)) + low, high - low);
    }
    if (!in)
        return;
    uint64_t size = in->end - in->start, start = in->offset > range->start ? in->offset : range->start;
    uint64_t end = in->offset + size < range->end ? in->offset + size : range->end;
    if (start >= end)
        return;
    raw3(SYS_mprotect, (long)in->start, (long)size, PROT_READ | PROT_WRITE);
    raw_move(into + (start - range->start), (const char *)in->start + (start - in->offset), end - start);
    cc_explore_close_pages(in);
}

/* Memory from `start` to `end` is about to be read, or written whatever it was. */
HERE void cc_explore_accesses(const ucontext_t *context, const struct mapping *in, uintptr_t start, uintptr_t end, bool writes)
{
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uintptr_t at = cc_run.state_of[i].unknown ? address_of(in, &cc_run.granules[i]) : 0;
        if (!at || at >= end || at + cc_run.granules[i].length <= start)
            continue;
        if (!cc_run.granules[i].choices)
            cc_explore_refuse(CC_EXPLORE_UNLISTED, i);
        uint32_t low = start > at ? (uint32_t)(start - at) : 0;
        uint32_t high = end - at < cc_run.granules[i].length ? (uint32_t)(end - at) : cc_run.granules[i].length;
        if (!still_differs(i, low, high))
            continue;
        if (!writes) {
            decide(context, in, i, low, high);
            continue;
        }
        for (uint32_t byte = low; byte < high; byte++)
            if (!BIT(cc_run.state_of[i].known, byte)) {
                SET_BIT(cc_run.state_of[i].known, byte);
                cc_run.state_of[i].unknown--;
            }
        if (!cc_run.state_of[i].unknown)
            cc_explore_close_pages(in); /* its own may be open now, and may not be the one that is touched */
    }
}

__asm__(".pushsection cc_explore,\"ax\",@progbits\n"
        ".type cc_explore_return,@function\n"
        "cc_explore_return: mov $15, %eax\n syscall\n"
        ".size cc_explore_return, .-cc_explore_return\n"
        ".popsection\n");
HIDDEN void cc_explore_return(void);

HERE static void handle(int number, void (*handler)(int, siginfo_t *, void *))
{
    struct kernel_action action = {handler, SA_SIGINFO | SA_ONSTACK | SA_NODEFER | 0x04000000 /* SA_RESTORER */,
                                   cc_explore_return, 0};
    if (raw_failed(raw4(SYS_rt_sigaction, number, (long)&action, 0, sizeof action.mask)))
        cc_explore_refuse(CC_EXPLORE_SETUP, 4);
}

HERE static void *memory(size_t size, int protection)
{
    long result = raw6(SYS_mmap, 0, (long)size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw_failed(result))
        cc_explore_refuse(CC_EXPLORE_SETUP, 5);
    return (void *)result;
}

/* This library's own data, and its part of the thread's. */
static int find_ours(struct dl_phdr_info *module, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    bool mine = false;
    uintptr_t low = UINTPTR_MAX, high = 0, local = 0;
    for (int i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &module->dlpi_phdr[i];
        uintptr_t start = module->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
        if (header->p_type == PT_TLS)
            local = header->p_memsz;
        if (header->p_type != PT_LOAD)
            continue;
        mine |= (uintptr_t)&cc_run.table >= start && (uintptr_t)&cc_run.table < end;
        if (header->p_flags & PF_W) {
            low = start < low ? start : low;
            high = end > high ? end : high;
        }
    }
    if (!mine)
        return 0;
    cc_run.ours[0].start = low;
    cc_run.ours[0].end = high;
    cc_run.ours[1].start = (uintptr_t)module->dlpi_tls_data;
    cc_run.ours[1].end = cc_run.ours[1].start + (module->dlpi_tls_data ? local : 0);
    return 1;
}

static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 6),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 4),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0, 0, 2),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 0, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
};

/* From now on a system call from other code is handled by cc_explore_asked. */
HERE static void filter_calls(void)
{
    uint64_t first = (uintptr_t)__start_cc_explore, last = (uintptr_t)__stop_cc_explore;
    filter[3].k = (uint32_t)(first >> 32);
    filter[5].k = (uint32_t)first;
    filter[6].k = (uint32_t)last;
    if (filter[3].k != (uint32_t)(last >> 32))
        cc_explore_refuse(CC_EXPLORE_SETUP, 6);
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (raw_failed(raw6(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)) ||
        raw_failed(raw6(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0, 0)))
        cc_explore_refuse(CC_EXPLORE_SETUP, 7);
}

HERE void cc_explore_start(const char *path)
{
    struct stat state;
    long fd = raw3(SYS_open, (long)path, O_RDWR | O_CLOEXEC, 0);
    if (raw_failed(fd) || raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)))
        cc_explore_leave();
    long at = raw6(SYS_mmap, 0, state.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    raw3(SYS_close, fd, 0, 0);
    if (raw_failed(at))
        cc_explore_leave();
    cc_run.table = (struct cc_explore_table *)at;
    if (cc_run.table->magic != CC_EXPLORE_MAGIC || cc_run.table->version != CC_EXPLORE_VERSION ||
        cc_run.table->granules > CC_EXPLORE_GRANULES || cc_run.table->bytes != (uint64_t)state.st_size)
        cc_explore_leave();
    cc_run.granules = (struct cc_explore_granule *)(void *)((char *)cc_run.table + cc_run.table->first_granule);
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        if (cc_run.granules[i].choices > MOST_CONTENTS || cc_run.granules[i].length > PAGE)
            cc_explore_leave();
        for (uint32_t which = 0; which < cc_run.granules[i].choices; which++)
            SET_BIT(cc_run.state_of[i].alive, which);
        if (cc_run.granules[i].choices)
            learn(i, NULL, 0);
        else
            cc_run.state_of[i].unknown = cc_run.granules[i].length;
    }
    raw_fill(cc_run.places, 0xff, sizeof cc_run.places);
    cc_run.first_process = (uint32_t)raw3(SYS_getpid, 0, 0, 0);
    cc_run.first_parent = (uint32_t)raw3(SYS_getppid, 0, 0, 0);
    cc_run.output = memory(OUTPUT_ROOM + TEXT_ROOM + 2 * STACK_BYTES, PROT_READ | PROT_WRITE);
    cc_run.maps_text = cc_run.output + OUTPUT_ROOM;
    alternate = (uintptr_t)cc_run.maps_text + TEXT_ROOM;
    cc_run.ours[2].start = (uintptr_t)cc_run.output;
    cc_run.ours[2].end = alternate + 2 * STACK_BYTES;
    cc_explore_stack = cc_run.ours[2].end;
    cc_run.apart = memory(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    cc_run.ours[5].start = (uintptr_t)cc_run.apart;
    cc_run.ours[5].end = cc_run.ours[5].start + PAGE;
    dl_iterate_phdr(find_ours, NULL);
    if (!cc_run.ours[0].end)
        cc_explore_refuse(CC_EXPLORE_SETUP, 8);
    if (&__rseq_offset) {
        cc_run.ours[3].start = (uintptr_t)__builtin_thread_pointer() + (uintptr_t)__rseq_offset;
        cc_run.ours[3].end = cc_run.ours[3].start + 32;
    }
    cc_run.ours[4].start = (uintptr_t)cc_run.table;
    cc_run.ours[4].end = cc_run.ours[4].start + cc_run.table->bytes;
    for (uint32_t feature = 2; feature < 8; feature++) {
        uint32_t unused, more;
        __asm__ volatile("cpuid"
                         : "=a"(cc_run.vector_bytes[feature]), "=b"(cc_run.vector_at[feature]), "=c"(unused), "=d"(more)
                         : "a"(0xd), "c"(feature));
    }
    if (cc_run.table->memory_bytes) {
        uint64_t limit[2] = {cc_run.table->memory_bytes + cc_run.table->bytes + OUTPUT_ROOM + TEXT_ROOM + 2 * STACK_BYTES + PAGE, 0};
        limit[1] = limit[0];
        raw4(SYS_prlimit64, 0, RLIMIT_AS, (long)limit, 0);
    }
    stack_t stack = {.ss_sp = (void *)alternate, .ss_flags = 0, .ss_size = STACK_BYTES};
    if (raw_failed(raw3(SYS_sigaltstack, (long)&stack, 0, 0)))
        cc_explore_refuse(CC_EXPLORE_SETUP, 9);
    handle(SIGSEGV, cc_explore_touched);
    handle(SIGBUS, cc_explore_touched);
    handle(SIGFPE, cc_explore_touched);
    handle(SIGILL, cc_explore_touched);
    handle(SIGTRAP, cc_explore_stepped);
    handle(SIGSYS, cc_explore_asked);
    filter_calls();
}
#else
typedef int cc_for_the_shared_library;
#endif
