#include "hand.h"

int main(int argc, char **argv)
{
    (void)argc;
    size_t size = 3ul << 35;
    char *at = map_file(open_file(argv[1], "a.db", 0), size);
    STORE(1, at + size - 1, 'x');
    char *other = map_file(open_file(argv[1], "b.db", 4096), 4096);
    STORE(2, other, 'y');
    return 0;
}
