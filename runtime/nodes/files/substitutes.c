/* Files that show the machine or its load: a program that opens one gets one of ours, with the node's time in it. */
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

static const char *const memory_text_of_8_gigabytes = "MemTotal:        8388608 kB\nMemFree:         4194304 kB\nMemAvailable:    4194304 kB\n"
                                                      "Buffers:               0 kB\nCached:                0 kB\nSwapTotal:             0 kB\n"
                                                      "SwapFree:              0 kB\n";

/* A path of /proc as if it were the process's own: its part behind the process, or NULL. */
static const char *of_process(const char *path)
{
    if (strncmp(path, "/proc/", 6) != 0)
        return NULL;
    path += 6;
    size_t length = strncmp(path, "self/", 5) == 0 ? 4 : strncmp(path, "thread-self/", 12) == 0 ? 11 : strspn(path, "0123456789");
    return length && path[length] == '/' ? path + length + 1 : NULL;
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

/* What is in a file instead of the machine's values; -1: it is no such file. */
static int text_of(struct thread *thread, const char *path, char *text)
{
    const struct node *node = thread->process->node;
    uint64_t up = time_of(node, CLOCK_BOOTTIME);
    const char *own = of_process(path);
    if (strcmp(path, "/sys/devices/system/cpu/online") == 0 || strcmp(path, "/sys/devices/system/cpu/possible") == 0 ||
        strcmp(path, "/sys/devices/system/cpu/present") == 0)
        return snprintf(text, TEXT_MOST, "0\n");
    if (strcmp(path, "/etc/hosts") == 0)
        return hosts_text(text);
    if (strcmp(path, "/etc/nsswitch.conf") == 0)
        return snprintf(text, TEXT_MOST, "passwd: files\ngroup: files\nhosts: files\n");
    if (strcmp(path, "/proc/cpuinfo") == 0)
        return snprintf(text, TEXT_MOST, "processor\t: 0\n\n");
    if (strcmp(path, "/proc/meminfo") == 0)
        return snprintf(text, TEXT_MOST, "%s", memory_text_of_8_gigabytes);
    if (strcmp(path, "/proc/uptime") == 0)
        return snprintf(text, TEXT_MOST, "%llu.%02llu 0.00\n", up / SECOND, up % SECOND / (SECOND / 100));
    if (strcmp(path, "/proc/net/if_inet6") == 0)
        return snprintf(text, TEXT_MOST, "00000000000000000000000000000001 01 80 10 80       lo\n");
    if (strcmp(path, "/proc/loadavg") == 0)
        return snprintf(text, TEXT_MOST, "0.00 0.00 0.00 1/1 2\n");
    if (strcmp(path, "/proc/stat") == 0)
        return snprintf(text, TEXT_MOST, "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nbtime %llu\nprocesses 2\n",
                        (time_base(CLOCK_REALTIME) - time_base(CLOCK_BOOTTIME)) / SECOND);
    if (own && strcmp(own, "stat") == 0)
        return stat_text(thread->process, text);
    if (own && strcmp(own, "statm") == 0)
        return snprintf(text, TEXT_MOST, "2048 1024 512 1 0 512 0\n");
    if (own && (strcmp(own, "smaps") == 0 || strcmp(own, "smaps_rollup") == 0))
        return 0;
    return -1;
}

/* What differs between runs, and is not replaced. */
static void name_varying(struct thread *thread, const char *path)
{
    static const char *const of_processes[] = {"status", "io", "sched", "schedstat", "pagemap"};
    static const char *const of_machines[] = {"/proc/vmstat", "/proc/diskstats", "/proc/interrupts", "/proc/net/"};
    const char *own = of_process(path);
    char text[128];
    bool varies = false;
    for (size_t i = 0; own && i < sizeof of_processes / sizeof *of_processes; i++)
        varies = varies || strcmp(own, of_processes[i]) == 0;
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
