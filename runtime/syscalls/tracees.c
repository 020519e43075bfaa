/* The threads and processes of the program: their memory, their descriptors and the paths that they use. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define PAGE 4096u
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
        mappings_inherit(process, parent);
        process->elsewhere = parent->elsewhere;
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
    call_end(thread);
    if (--process->threads == 0) {
        aio_end(process);
        mappings_end(thread, process);
        stack_forget(process);
        struct process **at = &processes;
        while (*at != process)
            at = &(*at)->next;
        *at = process->next;
        if (process->pidfd >= 0)
            close(process->pidfd);
        free(process->mappings);
        free(process);
    }
    *slot_of(thread->tid) = thread->next;
    free(thread);
}

size_t memory_read(struct tracee *thread, uint64_t address, void *to, size_t size)
{
    size_t done = 0;
    while (done < size) {
        struct iovec here = {(char *)to + done, size - done}, there = {(void *)(uintptr_t)(address + done), size - done};
        ssize_t got = process_vm_readv(thread->tid, &here, 1, &there, 1, 0);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

bool memory_path(struct tracee *thread, uint64_t address, char *to)
{
    size_t done = 0;
    while (done < PATH_MAX) {
        size_t part = PAGE - (address + done) % PAGE;
        if (part > PATH_MAX - done)
            part = PATH_MAX - done;
        size_t got = memory_read(thread, address + done, to + done, part);
        if (memchr(to + done, '\0', got))
            return true;
        if (got < part)
            return false;
        done += got;
    }
    return false;
}

/* A descriptor that the first thread of its process lacks: that has ended, or they share none. */
static int descriptor_of_thread(struct tracee *thread, int number)
{
    char link[64], path[8];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", thread->tid, number);
    if (readlink(link, path, sizeof path) < 0)
        return -1; /* nor does this one have it */
    int pidfd = (int)syscall(SYS_pidfd_open, thread->tid, O_EXCL); /* PIDFD_THREAD, since Linux 6.9 */
    int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    if (pidfd >= 0)
        close(pidfd);
    if (fd < 0)
        unfollowed(thread, NULL, "a thread whose descriptors cannot be seen");
    return fd;
}

int descriptor_of(struct tracee *thread, int number)
{
    int fd = -1;
    if (number >= 0 && !thread->apart)
        fd = (int)syscall(SYS_pidfd_getfd, thread->process->pidfd, number, 0);
    return fd < 0 && number >= 0 ? descriptor_of_thread(thread, number) : fd;
}

/* /proc/self is ours: the program means its own. */
static bool own_proc(struct tracee *thread, char *path)
{
    static const struct {
        const char *prefix, *instead;
    } known[] = {{"/proc/self/", ""}, {"/proc/thread-self/", ""}, {"/dev/fd/", "fd/"}};
    char whole[PATH_ROOM + 64];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i].prefix);
        if (strncmp(path, known[i].prefix, length) == 0) {
            snprintf(whole, sizeof whole, "/proc/%d/%s%s", thread->tid, known[i].instead, path + length);
            if (strlen(whole) < PATH_ROOM)
                strcpy(path, whole);
            return true;
        }
    }
    return false;
}

/* A path of a process whose root, or what is mounted there, may be another than ours. */
static void from_root(struct tracee *thread, struct place *place)
{
    char root[64];
    size_t slashes = strspn(place->path, "/");
    snprintf(root, sizeof root, "/proc/%d/root", thread->tid);
    place->base = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    memmove(place->path, place->path + slashes, strlen(place->path) - slashes + 1);
    if (!*place->path)
        strcpy(place->path, ".");
}

bool place_of(struct tracee *thread, int folder, uint64_t address, struct place *place)
{
    place->base = AT_FDCWD;
    place->folder = 0;
    place->name[0] = '\0';
    if (!memory_path(thread, address, place->path))
        return false;
    if (place->path[0] == '/' && !own_proc(thread, place->path) && thread->process->elsewhere) {
        from_root(thread, place);
    } else if (place->path[0] != '/' && folder == AT_FDCWD) {
        char cwd[64];
        snprintf(cwd, sizeof cwd, "/proc/%d/cwd", thread->tid);
        place->base = open(cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
    } else if (place->path[0] != '/') {
        place->base = descriptor_of(thread, folder);
    }
    if (place->base == -1)
        return false;
    size_t length = strlen(place->path);
    while (length > 1 && place->path[length - 1] == '/')
        place->path[--length] = '\0';
    char *slash = strrchr(place->path, '/');
    const char *last = slash ? slash + 1 : place->path;
    if (!*last || strlen(last) > NAME_MAX)
        return length == 0; /* an empty path is the descriptor itself; / has no name */
    strcpy(place->name, last);
    char kept = slash ? slash[1] : '\0';
    struct stat state;
    if (slash)
        slash[1] = '\0';
    if (fstatat(place->base, slash ? place->path : ".", &state, 0) == 0) {
        const struct inode *inode = inode_of(&state);
        place->folder = inode ? inode->id : 0;
    }
    if (slash)
        slash[1] = kept;
    return true;
}

bool place_stat(const struct place *place, struct stat *state, bool follow)
{
    int flags = (follow ? 0 : AT_SYMLINK_NOFOLLOW) | (place->path[0] ? 0 : AT_EMPTY_PATH);
    return fstatat(place->base, place->path, state, flags) == 0;
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void place_end(struct place *place)
{
    if (place->base != AT_FDCWD)
        shut(&place->base);
}

void call_end(struct tracee *thread)
{
    shut(&thread->call.fd);
    shut(&thread->call.other);
    place_end(&thread->call.from);
    place_end(&thread->call.to);
}
