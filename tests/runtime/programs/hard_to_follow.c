/* Ways to change files that are hard to see from outside; the first argument is the folder, the second one chooses. No part of
 * crashcheck in it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static long must(long result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}
#define MUST(call) must((long)(call), #call)

static int make(const char *name)
{
    return (int)MUST(open(name, O_RDWR | O_CREAT, 0644));
}

static void end_of(pid_t child)
{
    int status;
    MUST(waitpid(child, &status, __WALL));
    MUST(status == 0 ? 0 : -1);
}

static void refused_uring(void)
{
    char space[256] = {0};
    MUST(syscall(SYS_io_uring_setup, 4, space) == -1 && errno == ENOSYS ? 0 : -1);
    close(make("a"));
}

static void allowed_uring(void)
{
    char space[256] = {0};
    MUST(syscall(SYS_io_uring_setup, 4, space));
    close(make("a"));
}

static void untraced(void)
{
    pid_t child = (pid_t)MUST(syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
        MUST(write(make("a"), "clone", 5));
        _exit(0);
    }
    end_of(child);
    struct clone_args how = {.flags = CLONE_UNTRACED, .exit_signal = SIGCHLD};
    child = (pid_t)MUST(syscall(SYS_clone3, &how, sizeof how));
    if (child == 0) {
        MUST(write(make("b"), "clone3", 6));
        _exit(0);
    }
    end_of(child);
}

static void *writes_late(void *main_thread)
{
    pthread_join(*(pthread_t *)main_thread, NULL);
    MUST(write(make("a"), "alone", 5));
    exit(0);
}

static void first_thread_ends(void)
{
    static pthread_t self;
    pthread_t other;
    self = pthread_self();
    MUST(-pthread_create(&other, NULL, writes_late, &self));
    pthread_exit(NULL);
}

static void *has_own_descriptors(void *given)
{
    (void)given;
    MUST(unshare(CLONE_FILES));
    int other = make("b");
    MUST(dup2(other, 50));
    MUST(write(50, "mine", 4));
    return NULL;
}

static void own_descriptors(void)
{
    pthread_t other;
    MUST(dup2(make("a"), 50));
    MUST(-pthread_create(&other, NULL, has_own_descriptors, NULL));
    pthread_join(other, NULL);
    MUST(write(50, "theirs", 6));
}

static void another_root(void)
{
    char folder[4096];
    MUST(getcwd(folder, sizeof folder) ? 0 : -1);
    pid_t child = (pid_t)MUST(fork());
    if (child == 0) {
        MUST(chroot(folder));
        MUST(write(make("/a"), "inside", 6));
        MUST(rename("/a", "/b"));
        _exit(0);
    }
    end_of(child);
}

static void by_handle(void)
{
    struct {
        struct file_handle head;
        char room[MAX_HANDLE_SZ];
    } handle = {.head = {.handle_bytes = MAX_HANDLE_SZ}};
    int mount, fd = make("a");
    MUST(write(fd, "old", 3));
    MUST(name_to_handle_at(AT_FDCWD, "a", &handle.head, &mount, 0));
    int again = (int)MUST(open_by_handle_at(AT_FDCWD, &handle.head, O_RDWR | O_TRUNC));
    MUST(write(again, "n", 1));
}

static void other_descriptors(void)
{
    char path[64];
    int fd = make("a"), self = (int)MUST(syscall(SYS_pidfd_open, getpid(), 0));
    MUST(write((int)MUST(syscall(SYS_pidfd_getfd, self, fd, 0)), "taken", 5));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
    MUST(write((int)MUST(open(path, O_WRONLY | O_TRUNC)), "by proc", 7));
}

static void others_memory(void)
{
    int fd = make("a");
    MUST(ftruncate(fd, 4096));
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pid_t child = (pid_t)MUST(fork());
    if (child == 0) {
        struct iovec here = {(void *)"vector", 6}, there = {at, 6};
        char path[64];
        MUST(process_vm_writev(getppid(), &here, 1, &there, 1, 0));
        snprintf(path, sizeof path, "/proc/%d/mem", getppid());
        int memory = (int)MUST(open(path, O_RDWR));
        MUST(pwrite(memory, "memory", 6, (off_t)(uintptr_t)(at + 100)));
        _exit(0);
    }
    end_of(child);
    MUST(msync(at, 4096, MS_SYNC));
}

static void pass(int socket, int fd)
{
    char byte = 'x', room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    MUST(sendmsg(socket, &message, 0));
}

static int taken(int socket)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd;
    MUST(recvmsg(socket, &message, 0));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* To a child, which is recorded. */
static void passed_inside(void)
{
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pid_t child = (pid_t)MUST(fork());
    if (child == 0) {
        MUST(write(taken(ends[1]), "child", 5));
        _exit(0);
    }
    pass(ends[0], make("a"));
    end_of(child);
}

/* To the server whose socket the environment names. */
static void passed_outside(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, getenv("OUTSIDE"));
    int server = (int)MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    char byte;
    MUST(connect(server, (struct sockaddr *)&address, sizeof address));
    pass(server, (int)MUST(open(".", O_RDONLY)));
    MUST(read(server, &byte, 1));
    pass(server, make("a"));
    MUST(read(server, &byte, 1)); /* it has written */
}

static void unknown_call(void)
{
    MUST(syscall(999) == -1 && errno == ENOSYS ? 0 : -1);
    close(make("a"));
}

static void moved_mapping(void)
{
    int fd = make("a");
    MUST(ftruncate(fd, 4 * 4096));
    char *at = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *moved = mremap(at + 4096, 4096, 2 * 4096, MREMAP_MAYMOVE);
    MUST(moved == MAP_FAILED ? -1 : 0);
    strcpy(moved, "moved");
    MUST(munmap(at, 4096));
    MUST(munmap(at + 2 * 4096, 2 * 4096));
    strcpy(moved + 4096, "more");
    MUST(msync(moved, 2 * 4096, MS_SYNC));
}

static void mounts(void)
{
    MUST(mkdir("m", 0755));
    MUST(mount("none", "m", "tmpfs", 0, NULL));
    MUST(umount("m"));
}

static void harmless_controls(void)
{
    int fd = make("a"), flags;
    MUST(ioctl(fd, FS_IOC_GETFLAGS, &flags));
    flags |= FS_NODUMP_FL;
    MUST(ioctl(fd, FS_IOC_SETFLAGS, &flags));
    MUST(tee(0, 1, 1, 0) == -1 ? 0 : -1);
    MUST(close_range(100, 200, CLOSE_RANGE_UNSHARE));
}

/* The old way to allocate blocks. */
static void allocates_by_ioctl(void)
{
    struct { /* space_resv of linux/falloc.h */
        int16_t type, whence;
        int64_t start, length;
        int32_t unused[6];
    } range = {.length = 4096};
    MUST(ioctl(make("a"), _IOW('X', 40, range), &range)); /* FS_IOC_RESVSP */
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"refused-uring", refused_uring},     {"allowed-uring", allowed_uring},         {"untraced", untraced},
                 {"first-thread-ends", first_thread_ends}, {"own-descriptors", own_descriptors}, {"another-root", another_root},
                 {"by-handle", by_handle},             {"other-descriptors", other_descriptors}, {"others-memory", others_memory},
                 {"passed-inside", passed_inside},     {"passed-outside", passed_outside},       {"unknown-call", unknown_call},
                 {"moved-mapping", moved_mapping},     {"mounts", mounts},                       {"harmless", harmless_controls},
                 {"ioctl", allocates_by_ioctl}};
    MUST(count == 3 ? 0 : -1);
    MUST(chdir(words[1]));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, words[2]) == 0) {
            parts[i].run();
            return 0;
        }
    }
    return 3;
}
