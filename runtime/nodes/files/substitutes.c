/* Files that show the machine or its load: a program that opens one gets one of ours, with the node's time in it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nodes/parts.h"

#define TEXT_MOST 4096u

static char folder[PATH_MAX];

void substitutes_in(const char *path)
{
    snprintf(folder, sizeof folder, "%s", path);
}

struct fixed {
    const char *path, *text;
};

/* All files are on one device: see st_dev in files.c. */
#define MOUNTS "/dev/root / ext4 rw,relatime 0 0\nproc /proc proc rw,relatime 0 0\n"

static const struct fixed of_machine[] = {
    {"/sys/devices/system/cpu/online", "0\n"},
    {"/sys/devices/system/cpu/possible", "0\n"},
    {"/sys/devices/system/cpu/present", "0\n"},
    {"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
    {"/etc/mtab", MOUNTS},
    {"/proc/mounts", MOUNTS},
    {"/proc/cpuinfo", "processor\t: 0\n\n"},
    {"/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:         4194304 kB\nMemAvailable:    4194304 kB\n"
                      "Buffers:               0 kB\nCached:                0 kB\nSwapTotal:             0 kB\n"
                      "SwapFree:              0 kB\n"},
    {"/proc/net/if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n"},
    {"/proc/loadavg", "0.00 0.00 0.00 1/1 2\n"},
    {"/proc/sys/kernel/random/boot_id", "5851f42d-4c95-4f2d-8000-000000000000\n"},
};

/* Below the folder of a process in /proc. Paths of mounts would show where the run's folder is, whose name differs from run to run. */
static const struct fixed of_a_process[] = {
    {"statm", "2048 1024 512 1 0 512 0\n"}, {"smaps", ""}, {"smaps_rollup", ""}, {"cgroup", "0::/\n"}, {"mounts", MOUNTS},
};

static const char *fixed_text(const struct fixed *files, size_t count, const char *path)
{
    for (size_t i = 0; path && i < count; i++)
        if (strcmp(path, files[i].path) == 0)
            return files[i].text;
    return NULL;
}

/* The part behind the process of a path in /proc, or NULL. `process`: which one it is; a first or ended one is shown as the thread's own. */
static const char *of_process(const struct thread *thread, const char *path, const struct process **process)
{
    char seen[PATH_MAX];
    *process = thread->process;
    if (strncmp(path, "/proc/", 6) != 0)
        return NULL;
    snprintf(seen, sizeof seen, "/proc/%d/root%s", thread->process->pid, path);
    path += 6;
    size_t digits = strspn(path, "0123456789");
    if (digits && access(seen, F_OK) != 0)
        return NULL; /* there is no such process */
    for (const struct process *one = thread->process->node->processes; digits && one; one = one->next)
        if (one->known_as == atoi(path))
            *process = one;
    size_t length = strncmp(path, "self/", 5) == 0 ? 4 : strncmp(path, "thread-self/", 12) == 0 ? 11 : digits;
    return length && path[length] == '/' ? path + length + 1 : NULL;
}

/* The kernel's text, without what the process uses, its numbers, who traces it and the machine's processors. */
static int status_text(const struct process *process, char *text)
{
    static const struct fixed shown[] = {
        {"State", "R (running)"}, {"PPid", "1"}, {"TracerPid", "0"}, {"Ngid", "0"}, {"FDSize", "64"},
        {"SigQ", "0/4096"}, {"SigPnd", "0000000000000000"}, {"ShdPnd", "0000000000000000"}, {"Cpus_allowed", "1"},
        {"Cpus_allowed_list", "0"}, {"voluntary_ctxt_switches", "0"}, {"nonvoluntary_ctxt_switches", "0"},
    };
    char path[64], line[1024];
    int size = 0;
    snprintf(path, sizeof path, "/proc/%d/status", process->pid);
    FILE *status = fopen(path, "re");
    while (status && size < (int)(TEXT_MOST - sizeof line) && fgets(line, sizeof line, status)) {
        char *value = strchr(line, ':');
        if (!value || strncmp(line, "NS", 2) == 0)
            continue;
        *value = 0;
        const char *fixed = fixed_text(shown, sizeof shown / sizeof *shown, line);
        if (strcmp(line, "Tgid") == 0 || strcmp(line, "Pid") == 0)
            size += sprintf(text + size, "%s:\t%d\n", line, process->known_as);
        else if (fixed || strncmp(line, "Vm", 2) == 0 || strncmp(line, "Rss", 3) == 0)
            size += sprintf(text + size, "%s:\t%s\n", line, fixed ? fixed : "4096 kB");
        else
            size += sprintf(text + size, "%s:%s", line, value + 1);
    }
    if (status)
        fclose(status);
    return size;
}

static int stat_text(const struct process *process, char *text)
{
    int size = snprintf(text, TEXT_MOST, "%d (program) S 1 %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 8388608 1024 18446744073709551615",
                        process->known_as, process->known_as, process->known_as);
    for (int field = 26; field <= 52; field++)
        size += snprintf(text + size, TEXT_MOST - (size_t)size, " 0");
    return size + snprintf(text + size, TEXT_MOST - (size_t)size, "\n");
}

/* Names of nodes: no other machine is asked for names. */
static int hosts_text(char *text)
{
    int size = snprintf(text, TEXT_MOST, "127.0.0.1 localhost\n::1 localhost\n");
    for (unsigned node = 0; node < NODES; node++)
        size += snprintf(text + size, TEXT_MOST - (size_t)size, "10.0.0.%u n%u\n", node + 1, node);
    return size;
}

/* A random one (version 4), as each reading has another. */
static int uuid_text(struct node *node, char *text)
{
    unsigned char bytes[16];
    int size = 0;
    random_fill(node, bytes, sizeof bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    for (size_t i = 0; i < sizeof bytes; i++)
        size += snprintf(text + size, TEXT_MOST - (size_t)size, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
    return size + snprintf(text + size, TEXT_MOST - (size_t)size, "\n");
}

/* What is in a file instead of the machine's values; -1: it is no such file. */
static int text_of(struct thread *thread, const char *path, char *text)
{
    struct node *node = thread->process->node;
    uint64_t up = time_of(node, CLOCK_BOOTTIME);
    const struct process *process;
    const char *own = of_process(thread, path, &process);
    const char *fixed = fixed_text(of_machine, sizeof of_machine / sizeof *of_machine, path);
    if (!fixed)
        fixed = fixed_text(of_a_process, sizeof of_a_process / sizeof *of_a_process, own);
    if (fixed)
        return snprintf(text, TEXT_MOST, "%s", fixed);
    if (strcmp(path, "/etc/hosts") == 0)
        return hosts_text(text);
    if (strcmp(path, "/proc/uptime") == 0)
        return snprintf(text, TEXT_MOST, "%llu.%02llu 0.00\n", up / SECOND, up % SECOND / (SECOND / 100));
    if (strcmp(path, "/proc/stat") == 0)
        return snprintf(text, TEXT_MOST, "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nbtime %llu\nprocesses 2\n",
                        (time_base(CLOCK_REALTIME) - time_base(CLOCK_BOOTTIME)) / SECOND);
    if (strcmp(path, "/proc/sys/kernel/random/uuid") == 0)
        return uuid_text(node, text);
    if (own && strcmp(own, "stat") == 0)
        return stat_text(process, text);
    if (own && strcmp(own, "status") == 0)
        return status_text(process, text);
    if (own && strcmp(own, "mountinfo") == 0)
        return snprintf(text, TEXT_MOST, "1 0 0:%u / / rw,relatime - ext4 /dev/root rw\n2 1 0:%u / /proc rw,relatime - proc proc rw\n", DEVICE, DEVICE);
    return -1;
}

/* What differs between runs, and is not replaced. */
static void name_varying(struct thread *thread, const char *path)
{
    static const char *const of_processes[] = {"io", "sched", "pagemap", "mountstats", "fdinfo/"};
    static const char *const of_machines[] = {"/proc/vmstat", "/proc/diskstats", "/proc/interrupts", "/proc/net/"};
    const struct process *process;
    const char *own = of_process(thread, path, &process);
    char text[128];
    bool varies = false;
    for (size_t i = 0; own && i < sizeof of_processes / sizeof *of_processes; i++)
        varies = varies || strncmp(own, of_processes[i], strlen(of_processes[i])) == 0;
    for (size_t i = 0; i < sizeof of_machines / sizeof *of_machines; i++)
        varies = varies || strncmp(path, of_machines[i], strlen(of_machines[i])) == 0;
    if (!varies)
        return;
    if (own)
        snprintf(text, sizeof text, "/proc/self/%.64s", own);
    else
        snprintf(text, sizeof text, "%.100s", path);
    name_uncontrolled(thread->process->node, text);
}

static bool substitute(struct thread *thread, bool beside, const char *text, int size)
{
    char path[PATH_MAX + 16];
    int length = snprintf(path, sizeof path, "%s/file", folder) + 1;
    uint64_t at = memory_scratch(thread, (size_t)length);
    unlink(path); /* who has opened an earlier one keeps it */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    bool done = fd >= 0 && write(fd, text, (size_t)size) == size && memory_write(thread, at, path, (size_t)length);
    if (fd >= 0)
        close(fd);
    *(beside ? &thread->now.rsi : &thread->now.rdi) = at;
    thread->changed = done;
    return done;
}

/* open, openat, openat2 */
static enum then open_enter(struct thread *thread)
{
    char path[128], text[TEXT_MOST];
    bool beside = thread->called.orig_rax != SYS_open;
    thread->room[0] = false;
    if (!memory_text(thread, argument(thread, beside), path, sizeof path) || path[0] != '/')
        return NATIVE;
    thread->room[0] = strcmp(path, "/dev/urandom") == 0 || strcmp(path, "/dev/random") == 0;
    if (thread->room[0])
        return AFTER;
    if (strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0 && strncmp(path, "/etc/", 5) != 0)
        return NATIVE;
    if (strncmp(path, "/sys/fs/cgroup/", 15) == 0)
        return answer(thread, -ENOENT); /* no such file system is mounted; its files show the machine's load */
    int size = text_of(thread, path, text);
    if (size < 0)
        name_varying(thread, path);
    else if (!substitute(thread, beside, text, size))
        name_uncontrolled(thread->process->node, path);
    return NATIVE;
}

static enum then open_leave(struct thread *thread)
{
    if (thread->room[0] && thread->result >= 0)
        descriptor_set(thread->process, (int)thread->result, object_new(thread->process->node, RANDOM));
    return ANSWER;
}

const struct handler call_open = {open_enter, open_leave, false};
