#include "scenes.h"

static void counts(const char *pool, char **arguments)
{
    (void)arguments;
    uint64_t *at = map_file(open_file(pool, "deep.db", 1 << 30), 1 << 30);
    int fd = open_file(pool, "written.db", 0), other = open_file(pool, "unwatched", 0);
    for (uint64_t i = 1; i <= 10; i++) {
        STORE(1, at, i);
        uint64_t half = i;
        NEED(pwrite(fd, &half, 8, 0) == 8);
    }
    NEED(write(other, "x", 1) == 1);
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"counts", counts}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
