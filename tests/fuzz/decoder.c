/* The explorer's instruction decoder. As of what the processor has executed, at most 15 bytes belong to the instruction. */
#include <stdlib.h>
#include <string.h>
#include "explorer/instructions.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    enum { LONGEST = 15, NOP = 0x90 };
    unsigned char code[2 * LONGEST];
    memset(code, NOP, sizeof code);
    memcpy(code, data, size < LONGEST ? size : LONGEST);
    if (cc_explore_decode(code).bytes > 64)
        abort();
    return 0;
}
