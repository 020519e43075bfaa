/* The nodes, their processes and threads, and the queue of threads that may run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nodes/parts.h"

#define READS_IN_A_STEP 1000u
#define MICROSECOND 1000u

struct node nodes[NODES];
uint64_t calls_answered;
bool files_changed;

static struct thread *first_ready, **last_ready = &first_ready;

struct named {
    struct named *next;
    char what[];
};

struct process *process_of(pid_t pid)
{
    for (size_t i = 0; i < NODES; i++)
        for (struct process *process = nodes[i].processes; process; process = process->next)
            if (process->pid == pid)
                return process;
    return NULL;
}

struct thread *thread_of(pid_t tid)
{
    for (size_t i = 0; i < NODES; i++)
        for (struct process *process = nodes[i].processes; process; process = process->next)
            for (struct thread *thread = process->threads; thread; thread = thread->next)
                if (thread->tid == tid)
                    return thread;
    return NULL;
}

pid_t born_in(pid_t tid, pid_t *known_as)
{
    char path[64], line[256];
    pid_t process = tid;
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status)) {
        const char *last = strrchr(line, '\t');
        if (strncmp(line, "Tgid:", 5) == 0)
            process = (pid_t)strtol(line + 5, NULL, 10);
        else if (strncmp(line, "NSpid:", 6) == 0 && last)
            *known_as = (pid_t)strtol(last, NULL, 10);
    }
    if (status)
        fclose(status);
    return process;
}

struct process *process_new(struct node *node, pid_t pid, pid_t known_as)
{
    struct process *process = calloc(1, sizeof *process), **at = &node->processes;
    if (!process)
        abort();
    process->pid = pid;
    process->known_as = known_as;
    process->node = node;
    process->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    while (*at)
        at = &(*at)->next;
    *at = process;
    return process;
}

struct thread *thread_new(struct process *process, pid_t tid, pid_t known_as)
{
    struct thread *thread = calloc(1, sizeof *thread), **at = &process->threads;
    if (!thread)
        abort();
    thread->tid = tid;
    thread->known_as = known_as;
    thread->process = process;
    thread->number = process->node->threads++;
    while (*at)
        at = &(*at)->next;
    *at = thread;
    return thread;
}

void unqueue(struct thread *thread)
{
    for (struct thread **at = &first_ready; *at; at = &(*at)->next_ready) {
        if (*at != thread)
            continue;
        *at = thread->next_ready;
        break;
    }
    for (last_ready = &first_ready; *last_ready;)
        last_ready = &(*last_ready)->next_ready;
}

void thread_forget(struct thread *thread)
{
    struct process *process = thread->process;
    struct thread **at = &process->threads;
    unqueue(thread);
    while (*at != thread)
        at = &(*at)->next;
    *at = thread->next;
    free(thread->saved);
    free(thread);
    if (process->threads)
        return;
    struct process **from = &process->node->processes;
    while (*from != process)
        from = &(*from)->next;
    *from = process->next;
    close(process->pidfd);
    free(process);
}

void ready(struct thread *thread)
{
    thread->state = READY;
    thread->next_ready = NULL;
    *last_ready = thread;
    last_ready = &thread->next_ready;
}

bool may_run(void)
{
    return first_ready;
}

struct thread *next_ready(void)
{
    struct thread *thread = first_ready;
    while (thread && thread->process->node->chooses)
        thread = thread->next_ready;
    if (thread)
        unqueue(thread);
    return thread;
}

void name_uncontrolled(struct node *node, const char *what)
{
    for (const struct named *named = node->named; named; named = named->next)
        if (strcmp(named->what, what) == 0)
            return;
    struct named *fresh = malloc(sizeof *fresh + strlen(what) + 1);
    if (!fresh)
        abort();
    strcpy(fresh->what, what);
    fresh->next = node->named;
    node->named = fresh;
    wire_event((struct cc_frame){.tag = CC_UNCONTROLLED, .node = node->index, .size = (uint32_t)strlen(what)}, what, NULL, 0);
}

/* Who reads a clock often in one step, from one depth of its stack, waits for it: so it moves, by more and more. A
 * virtual machine that begins reads it 5,000 times in a step, to measure itself, but from one depth a hundred times. */
void clock_read(struct node *node, uint64_t stack)
{
    uint32_t *reads = &node->clock_reads[stack / 16 % STACK_DEPTHS];
    if (++*reads > READS_IN_A_STEP)
        node->now += (*reads - READS_IN_A_STEP) * MICROSECOND;
    if (!node->read_clock)
        wire_event((struct cc_frame){.tag = CC_CLOCK_READ, .node = node->index}, NULL, NULL, 0);
    node->read_clock = true;
}

/* SplitMix64, by Steele, Lea and Flood. */
uint64_t random_bits(struct node *node)
{
    uint64_t bits = node->random += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
}

void random_fill(struct node *node, void *to, size_t size)
{
    for (size_t done = 0; done < size; done += sizeof(uint64_t)) {
        uint64_t bits = random_bits(node);
        memcpy((char *)to + done, &bits, size - done < sizeof bits ? size - done : sizeof bits);
    }
}
