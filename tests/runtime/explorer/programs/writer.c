/* Runs a script of calls on files: FILE COMMAND...; what a call returns is printed. FILE is mapped; beside it are FILE.old, which
 * has content, and names that the commands make. D is a descriptor by its place, N a file: x and y are made, z is FILE.old,
 * s is /dev/stdout, n is /dev/null.
 *   bAT        prints the byte at AT of the mapping             wD,pDAT    write, at AT; the data depends on the last byte
 *   oDNM       opens, with M: w a r + e p                       rD,RDAT    read, at AT
 *   lDAT,eDAT  seek, from the end                               tDAT       ftruncate
 *   fD,iN      size by descriptor, by name                      DDE        dup2 of D as E
 *   cD yD      close, fsync                                     uNM        opens N as standard output, with M */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path;
static int descriptors[10];
static char last = '-';

static void say(const char *command, long result)
{
    char line[80];
    int size = snprintf(line, sizeof line, "%s %ld %d\n", command, result, result < 0 ? errno : 0);
    if (write(1, line, (size_t)size) != size)
        _exit(3);
}

static const char *name_of(char file)
{
    static char name[4096];
    if (file == 's')
        return "/dev/stdout";
    if (file == 'n')
        return "/dev/null";
    snprintf(name, sizeof name, "%s.%s", path, file == 'z' ? "old" : (const char[]){file, 0});
    return name;
}

static int open_as(char file, char mode)
{
    int flags = mode == 'w' ? O_WRONLY | O_CREAT | O_TRUNC
              : mode == 'a' ? O_WRONLY | O_CREAT | O_APPEND
              : mode == 'r' ? O_RDONLY
              : mode == '+' ? O_RDWR | O_CREAT
              : mode == 'e' ? O_WRONLY | O_CREAT | O_EXCL
                            : O_RDWR;
    return open(name_of(file), flags | O_CLOEXEC, 0644);
}

static long run(const char *command, const volatile char *base)
{
    int *fd = &descriptors[command[1] & 7];
    long at = command[1] ? atol(command + 2) : 0;
    char data[16] = "data-", got[16];
    struct stat state;
    long result;
    data[5] = last;
    switch (*command) {
    case 'b':
        last = base[atol(command + 1)];
        return last;
    case 'o':
        *fd = open_as(command[2], command[3]);
        return *fd < 0 ? -1 : 0;
    case 'w':
        return write(*fd, data, 6);
    case 'p':
        return pwrite(*fd, data, 6, at);
    case 'r':
    case 'R':
        result = *command == 'r' ? read(*fd, got, 9) : pread(*fd, got, 9, at);
        for (long i = 0; i < result; i++)
            say("read", got[i]);
        return result;
    case 'l':
        return lseek(*fd, at, SEEK_SET);
    case 'e':
        return lseek(*fd, -at, SEEK_END);
    case 't':
        return ftruncate(*fd, at);
    case 'f':
        return fstat(*fd, &state) ? -1 : S_ISREG(state.st_mode) ? (long)state.st_size : -2;
    case 'i':
        result = access(name_of(command[1]), R_OK | W_OK);
        say("access", result);
        return stat(name_of(command[1]), &state) ? -1 : S_ISREG(state.st_mode) ? (long)state.st_size * 10000 + state.st_mode : -2;
    case 'D':
        result = dup2(*fd, descriptors[command[2] & 7]);
        return result < 0 ? -1 : 0;
    case 'c':
        result = close(*fd);
        *fd = 50;
        return result;
    case 'y':
        return fsync(*fd);
    case 'u':
        fflush(stdout);
        return freopen(name_of(command[1]), command[2] == 'a' ? "a" : "w", stdout) ? 0 : -1;
    default:
        return -3;
    }
}

int main(int count, char **arguments)
{
    path = arguments[1];
    const volatile char *base = mmap(NULL, 4096, PROT_READ, MAP_SHARED, open(path, O_RDWR), 0);
    for (int i = 0; i < 10; i++)
        descriptors[i] = 40 + i;
    for (int i = 2; i < count; i++)
        say(arguments[i], run(arguments[i], base));
    return 0;
}
