/* The only program of the virtual machine: runs a script of file calls on the disk under test.
 *
 * A line is a command and its words; paths have no spaces. A mark is written to the last block of the disk, past the
 * page cache, so that the log of the disk's writes shows when each call was made. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define WORDS 8
#define DISK "/disk"
#define ROOT "/mnt"
#define OTHER ROOT "/other" /* a file whose fsync commits the journal */

static unsigned long line_number;
static int disk = -1;
static off_t last_block;
static pid_t committer;

static void end(void) {
    sync();
    reboot(RB_AUTOBOOT);
    for (;;) pause();
}

static void fail(const char *what) {
    printf("guest: line %lu: %s: %s\n", line_number, what, strerror(errno));
    fflush(stdout);
    end();
}

static void check(long result, const char *what) {
    if (result < 0) fail(what);
}

static int open_file(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0) fail(path);
    return fd;
}

static void sync_file(const char *path, int data_only) {
    int fd = open_file(path, O_RDONLY);
    check(data_only ? fdatasync(fd) : fsync(fd), "sync");
    close(fd);
}

static void write_bytes(const char *path, off_t at, size_t size, int byte, int flags) {
    char *data = malloc(size);
    int fd = open_file(path, O_WRONLY | flags);
    memset(data, byte, size);
    if (pwrite(fd, data, size, at) != (ssize_t)size) fail("write");
    free(data);
    close(fd);
}

static void commit(void) {
    static unsigned char times;
    write_bytes(OTHER, 0, 1, ++times, O_CREAT);
    sync_file(OTHER, 0);
}

static void mark(const char *text) {
    static char block[BLOCK] __attribute__((aligned(BLOCK)));
    if (disk < 0) {
        disk = open_file(DISK, O_RDWR | O_DIRECT);
        last_block = lseek(disk, 0, SEEK_END) - BLOCK;
    }
    memset(block, 0, sizeof(block));
    snprintf(block, sizeof(block), "crashcheck %s", text);
    if (pwrite(disk, block, BLOCK, last_block) != BLOCK) fail("mark");
}

static void nap(long micros) {
    struct timespec span = {micros / 1000000, micros % 1000000 * 1000};
    nanosleep(&span, NULL);
}

/* A process that commits the journal again and again, or its end. */
static void churn(int on) {
    if (!on && committer > 0) {
        kill(committer, SIGKILL);
        waitpid(committer, NULL, 0);
        committer = 0;
    } else if (on && committer == 0) {
        committer = fork();
        check(committer, "fork");
        for (; committer == 0; nap(300)) commit();
    }
}

static void load_module(const char *path) {
    int fd = open_file(path, O_RDONLY);
    if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST) fail(path);
    close(fd);
}

static void wait_for_disk(void) {
    for (int tries = 0; tries < 500; tries++) {
        FILE *numbers = fopen("/sys/block/vda/dev", "r");
        unsigned major, minor;
        if (numbers && fscanf(numbers, "%u:%u", &major, &minor) == 2) {
            fclose(numbers);
            check(mknod(DISK, S_IFBLK | 0600, makedev(major, minor)), "mknod");
            return;
        }
        if (numbers) fclose(numbers);
        nap(10000);
    }
    fail("there is no disk");
}

static void push(const char *path, off_t at, off_t size) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return; /* it has another name by now */
    check(sync_file_range(fd, at, size, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER),
          "sync_file_range");
    close(fd);
}

static void run(int words, char **word) {
    const char *command = word[0];
    long number[WORDS] = {0};
    for (int i = 1; i < words; i++) number[i] = strtol(word[i], NULL, 0);
#define IS(text) (strcmp(command, text) == 0)
    if (IS("module")) load_module(word[1]);
    else if (IS("wait-for-disk")) wait_for_disk();
    else if (IS("mount")) check(mount(DISK, ROOT, word[1], 0, words > 2 ? word[2] : NULL), "mount");
    else if (IS("cd")) check(chdir(word[1]), word[1]);
    else if (IS("mark")) mark(word[1]);
    else if (IS("commit")) commit();
    else if (IS("churn")) churn((int)number[1]);
    else if (IS("nap")) nap(number[1]);
    else if (IS("push")) push(word[1], number[2], number[3]);
    else if (IS("create")) close(open_file(word[1], O_CREAT | O_WRONLY));
    else if (IS("write")) write_bytes(word[1], number[2], (size_t)number[3], (int)number[4], 0);
    else if (IS("write-dsync")) write_bytes(word[1], number[2], (size_t)number[3], (int)number[4], O_DSYNC);
    else if (IS("write-sync")) write_bytes(word[1], number[2], (size_t)number[3], (int)number[4], O_SYNC);
    else if (IS("truncate")) check(truncate(word[1], number[2]), "truncate");
    else if (IS("allocate")) {
        int fd = open_file(word[1], O_RDWR);
        check(fallocate(fd, (int)number[2], number[3], number[4]), "fallocate");
        close(fd);
    } else if (IS("mkdir")) check(mkdir(word[1], 0755), word[1]);
    else if (IS("rmdir")) check(rmdir(word[1]), word[1]);
    else if (IS("rename")) check(rename(word[1], word[2]), "rename");
    else if (IS("exchange")) check(syscall(SYS_renameat2, AT_FDCWD, word[1], AT_FDCWD, word[2], RENAME_EXCHANGE), "exchange");
    else if (IS("link")) check(link(word[1], word[2]), "link");
    else if (IS("unlink")) check(unlink(word[1]), "unlink");
    else if (IS("fsync")) sync_file(word[1], 0);
    else if (IS("fdatasync")) sync_file(word[1], 1);
    else if (IS("sync")) sync();
    else {
        errno = EINVAL;
        fail(command);
    }
}

int main(void) {
    char line[512];
    FILE *script;
    setvbuf(stdout, NULL, _IONBF, 0);
    mkdir("/sys", 0755);
    mkdir(ROOT, 0755);
    check(mount("sysfs", "/sys", "sysfs", 0, NULL), "sysfs");
    script = fopen("/script", "r");
    if (!script) fail("/script");
    while (fgets(line, sizeof(line), script)) {
        char *word[WORDS], *rest = line;
        int words = 0;
        line_number++;
        while (words < WORDS && (word[words] = strsep(&rest, " \n")) && *word[words]) words++;
        if (words) run(words, word);
    }
    churn(0);
    printf("guest: done\n");
    end();
}
