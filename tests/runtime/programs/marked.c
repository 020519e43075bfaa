/* Marked operations that write to a file by calls. The argument is the folder. */
#include <fcntl.h>
#include <unistd.h>

#include "crashcheck.h"

int main(int count, char **words)
{
    int file = count > 1 && chdir(words[1]) == 0 ? open("f", O_WRONLY | O_CREAT, 0644) : -1;
    for (int i = 0; i < 2 && file >= 0; i++) {
        crashcheck_op_begin();
        if (write(file, "x", 1) != 1)
            return 1;
        if (i)
            crashcheck_op_begin();
        fsync(file);
        if (i)
            crashcheck_op_end();
        crashcheck_op_end();
    }
    crashcheck_op_end();
    return 0;
}
