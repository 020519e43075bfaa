/* Writes a record while many lines of statistics, which nobody writes back, are open: FILE. With -DCHECK=...: checks
 * the file after a crash: FILE ACKED. */
#include <fcntl.h>
#include <emmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crashcheck.h"

#define LINES 14

struct line {
    uint64_t value, rest[7];
};

int main(int count, char **arguments)
{
    int fd = open(arguments[1], count == 2 ? O_RDWR | O_CREAT : O_RDWR, 0644);
    if (fd < 0)
        return 0; /* it is not there yet */
    if (count == 2 && ftruncate(fd, 4096) != 0)
        return 2;
    struct line *lines = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct line *record = lines + LINES;
    if (lines == MAP_FAILED)
        return 2;
    if (count > 2) {
        uint64_t acked = strtoull(arguments[2], NULL, 10);
        (void)record;
        (void)acked;
#if CHECK == 1 /* reads nothing */
        return 0;
#elif CHECK == 2 /* fails in one of 16 states that lack the record */
        return acked && !record->value && lines[2].value && !lines[5].value && lines[7].value && !lines[11].value;
#else /* writes nothing, by a system call */
        return pwrite(fd, "", 0, 0) < 0;
#endif
    }
    crashcheck_op_begin();
    for (int at = 0; at < LINES; at++)
        lines[at].value = 1;
    record->value = 7;
    __builtin_ia32_clflushopt(record);
    _mm_sfence();
    crashcheck_op_end();
    return 0;
}
