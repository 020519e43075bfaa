#include "hand.h"

struct entry {
    uint64_t key;
    uint64_t value;
};

int main(int argc, char **argv)
{
    (void)argc;
    int fd = open_file(argv[1], "a.db", 8192);
    struct entry *entry = map_file(fd, 8192);
    crashcheck_op_begin();
    STORE_AS(7, 0, 0, &entry[1].value, 0x1234u, &entry[1]);
    STORE(8, (char *)entry + 100, 'x');
    CLWB(9, &entry[1]);
    SFENCE(10);
    SFENCE(10);
    crashcheck_op_end();
    NEED(msync(entry, 8192, MS_SYNC) == 0);
    NEED(munmap(entry, 8192) == 0);
    puts("done");
    return 0;
}
