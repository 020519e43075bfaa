/* The clock of lease.c. */
#include <stdint.h>
#include <time.h>

int64_t now_ms(void);

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
