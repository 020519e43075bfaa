/* Runs a check on many crash images at once, which differ in the bytes of some granules (explore.h).
 *
 * The pages of those granules are closed. An instruction that touches one, whoever's it is, faults; where it reads bytes
 * that differ between the contents that the granule may still have, the process forks: a child for each content of
 * those bytes. What follows depends on nothing but the memory, the registers, what system calls did, and the bytes
 * that are not known yet. So a process that is about to read in a state in which another was before ends at once: it
 * would do the same. Bytes that are never read, or written first, decide nothing.
 *
 * Writes to shared mappings stay in the process (the mappings are made private), and so do its output, what it writes to
 * other files, and its places in files. A system call that would carry anything from one process to another ends it all.
 *
 * Everything here is in a section of its own: only system calls from there are let through at once. */
#ifdef CC_SHARED
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "explorer/exploration.h"
#include "explorer/handlers.h"
#include "explorer/section.h"
#include "explorer/written.h"

static uintptr_t alternate;

/* Where the kernel reports on which processor a thread runs; libc has it since 2.35. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));

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
    bool is_ours = false;
    uintptr_t low = UINTPTR_MAX, high = 0, local = 0;
    for (int i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &module->dlpi_phdr[i];
        uintptr_t start = module->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
        if (header->p_type == PT_TLS)
            local = header->p_memsz;
        if (header->p_type != PT_LOAD)
            continue;
        is_ours |= (uintptr_t)&cc_run.table >= start && (uintptr_t)&cc_run.table < end;
        if (header->p_flags & PF_W) {
            low = start < low ? start : low;
            high = end > high ? end : high;
        }
    }
    if (!is_ours)
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
            cc_explore_learn(i, NULL, 0);
        else
            cc_run.state_of[i].unknown = cc_run.granules[i].length;
    }
    cc_explore_note_outputs();
    cc_run.first_process = (uint32_t)raw3(SYS_getpid, 0, 0, 0);
    cc_run.first_parent = (uint32_t)raw3(SYS_getppid, 0, 0, 0);
    cc_run.maps_text = memory(TEXT_ROOM + 2 * STACK_BYTES, PROT_READ | PROT_WRITE);
    alternate = (uintptr_t)cc_run.maps_text + TEXT_ROOM;
    cc_run.ours[2].start = (uintptr_t)cc_run.maps_text;
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
        uint64_t ours = cc_run.table->bytes + WRITTEN * WRITTEN_ROOM + TEXT_ROOM + 2 * STACK_BYTES + PAGE;
        uint64_t limit[2] = {cc_run.table->memory_bytes + ours, 0};
        limit[1] = limit[0];
        raw4(SYS_prlimit64, 0, RLIMIT_DATA, (long)limit, 0);
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
#endif
