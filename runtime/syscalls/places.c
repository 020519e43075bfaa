/* The files that the program means: its descriptors and the paths that it uses. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "syscalls/recorder.h"

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

bool call_opens(struct tracee *thread, int number, struct stat *state)
{
    struct call *call = &thread->call;
    call->fd = descriptor_of(thread, number);
    return call->fd >= 0 && fstat(call->fd, state) == 0;
}

struct inode *call_inode(struct tracee *thread, int number)
{
    struct stat state;
    return call_opens(thread, number, &state) ? inode_of(&state) : NULL;
}

int readable(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
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
    memory_beside(0, 0);
}
