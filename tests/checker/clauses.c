/* A check for tests: each argument is a claim about the 8-byte words of one file, and must hold. MAPPED: it maps the file.
 *
 *   clauses FILE ACKED CLAIM...
 *   a>b     if the word at byte offset a is not 0, the word at b is not 0
 *   a=b     the words at a and b are equal
 *   n:a     if at least n operations were acknowledged, the word at a is not 0
 *   !CLAIM  die of SIGABRT, instead of reporting, where it does not hold
 *   ~CLAIM  never end, instead of reporting
 *   @CLAIM  take 0.3 s longer, instead of reporting
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t word(int fd, long offset) {
    uint64_t value = 0;
#ifdef MAPPED
    static char *mapped;
    if (!mapped && (mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
        exit(94);
    memcpy(&value, mapped + offset, sizeof value);
    return value;
#endif
    if (pread(fd, &value, sizeof value, offset) < 0)
        exit(90);
    return value;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 91;
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0) {
        printf("no file\n");
        return 92;
    }
    for (int i = 3; i < argc; i++) {
        const char *claim = argv[i];
        char how = strchr("!~@", *claim) ? *claim++ : 0, op = 0;
        long a = 0, b = 0;
        if (sscanf(claim, "%ld%c%ld", &a, &op, &b) != 3)
            return 93;
        int holds = op == '>'   ? !word(fd, a) || word(fd, b)
                    : op == '=' ? word(fd, a) == word(fd, b)
                                : atol(argv[2]) < a || word(fd, b);
        if (holds)
            continue;
        if (how == '!')
            abort();
        while (how == '~')
            pause();
        if (how == '@') {
            usleep(300000);
            continue;
        }
        printf("%s does not hold\n", claim);
        return 1;
    }
    return 0;
}
