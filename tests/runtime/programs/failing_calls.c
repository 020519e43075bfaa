/* Makes each call that can be made to fail, and prints its name and the error. The argument is the folder. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define TRY(name, call) printf("%s %s\n", name, (call) < 0 ? strerrorname_np(errno) : "done")

int main(int count, char **words)
{
    if (count < 2 || chdir(words[1]) != 0)
        return 1;
    int a = open("a", O_RDWR | O_CREAT, 0644), b = open("b", O_RDWR | O_CREAT, 0644), folder = open(".", O_RDONLY), ends[2];
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, b, 0);
    if (a < 0 || b < 0 || folder < 0 || map == MAP_FAILED || pipe(ends) != 0 || write(ends[1], "bytes", 5) != 5)
        return 1;
    struct iovec part = {"bytes", 5};
    TRY("write", pwritev(a, &part, 1, 0));
    TRY("copy_file_range", copy_file_range(b, NULL, a, NULL, 1, 0));
    TRY("sendfile", sendfile(a, b, NULL, 1));
    TRY("splice", splice(ends[0], NULL, a, NULL, 5, 0));
    TRY("truncate", ftruncate(a, 10));
    TRY("fallocate", fallocate(a, 0, 0, 100));
    TRY("fsync", fsync(a));
    TRY("fdatasync", fdatasync(a));
    TRY("msync", msync(map, 4096, MS_SYNC));
    TRY("syncfs", syncfs(a));
    TRY("sync_file_range", sync_file_range(a, 0, 0, SYNC_FILE_RANGE_WRITE));
    TRY("open", open("c", O_WRONLY | O_CREAT, 0644));
    TRY("mkdir", mkdir("d", 0755));
    TRY("rmdir", rmdir("there"));
    TRY("link", link("a", "l"));
    TRY("symlink", symlink("a", "s"));
    TRY("unlink", unlink("a"));
    TRY("rename", rename("a", "r"));
    TRY("fsync", fsync(folder));
    return 3;
}
