/* The threads and processes of the program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define SLOTS 1024u

static struct tracee *threads[SLOTS];
static struct process *processes;

/* A number that /proc/TID/status has behind `key`. */
static pid_t status_number(pid_t tid, const char *key)
{
    char path[64], line[256];
    pid_t number = 0;
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, key, strlen(key)) == 0)
            number = (pid_t)strtol(line + strlen(key), NULL, 10);
    if (status)
        fclose(status);
    return number;
}

static struct process *process_known(pid_t pid)
{
    struct process *process = processes;
    while (process && process->pid != pid)
        process = process->next;
    return process;
}

void mapping_add(struct process *process, struct mapping mapping)
{
    struct mapping *wider = realloc(process->mappings, (process->mapping_count + 1) * sizeof *wider);
    if (!wider)
        die("no memory");
    process->mappings = wider;
    wider[process->mapping_count++] = mapping;
    inode_at(mapping.inode)->mappings++;
}

static struct process *process_of(pid_t pid)
{
    struct process *process = process_known(pid);
    if (process)
        return process;
    process = calloc(1, sizeof *process);
    if (!process)
        die("no memory");
    process->pid = pid;
    process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    process->next = processes;
    processes = process;
    const struct process *parent = process_known(status_number(pid, "PPid:"));
    if (parent) {
        for (size_t i = 0; i < parent->mapping_count; i++)
            mapping_add(process, parent->mappings[i]);
        process->elsewhere = parent->elsewhere;
        process->launched = parent->launched;
        process->began_in = parent->began_in ? strdup(parent->began_in) : NULL;
    }
    return process;
}

static struct tracee **slot_of(pid_t tid)
{
    struct tracee **at = &threads[(uint32_t)tid % SLOTS];
    while (*at && (*at)->tid != tid)
        at = &(*at)->next;
    return at;
}

struct tracee *tracee_known(pid_t tid)
{
    return *slot_of(tid);
}

struct tracee *tracee_of(pid_t tid)
{
    struct tracee **at = slot_of(tid);
    if (*at)
        return *at;
    struct tracee *thread = calloc(1, sizeof *thread);
    if (!thread)
        die("no memory");
    pid_t pid = status_number(tid, "Tgid:");
    thread->tid = tid;
    thread->process = process_of(pid ? pid : tid);
    thread->process->threads++;
    thread->call.fd = thread->call.other = thread->call.from.base = thread->call.to.base = -1;
    *at = thread;
    return thread;
}

struct tracee *tracee_within(const struct process *process)
{
    for (size_t i = 0; i < SLOTS; i++)
        for (struct tracee *thread = threads[i]; thread; thread = thread->next)
            if (thread->process == process)
                return thread;
    return NULL;
}

bool process_alive(pid_t pid)
{
    return process_known(pid) != NULL;
}

struct tracee *tracee_next(const struct tracee *thread)
{
    if (thread && thread->next)
        return thread->next;
    for (size_t i = thread ? (uint32_t)thread->tid % SLOTS + 1 : 0; i < SLOTS; i++)
        if (threads[i])
            return threads[i];
    return NULL;
}

void tracee_forget(struct tracee *thread)
{
    struct process *process = thread->process;
    if (--process->threads == 0) {
        struct process **at = &processes;
        while (*at != process)
            at = &(*at)->next;
        *at = process->next;
        if (process->pidfd >= 0)
            close(process->pidfd);
        free(process->mappings);
        free(process->began_in);
        free(process);
    }
    *slot_of(thread->tid) = thread->next;
    free(thread);
}
