/* argv: patterns, then paths; prints 1 or 0 for each. Linked with the archive, where internals can be reached. */
#include "recorder/pool_files.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    cc_pool_files_start("/", argv[1]);
    for (int i = 2; i < argc; i++)
        putchar(cc_matches(argv[i]) ? '1' : '0');
    return 0;
}
