#include <sys/time.h>
#include <time.h>

#include "scenes.h"

__typeof__(time) cc_wrap_time;
__typeof__(clock_gettime) cc_wrap_clock_gettime;
__typeof__(gettimeofday) cc_wrap_gettimeofday;
__typeof__(gmtime_r) cc_wrap_gmtime_r;
__typeof__(localtime_r) cc_wrap_localtime_r;
__typeof__(strftime) cc_wrap_strftime;
__typeof__(rand_r) cc_wrap_rand_r;
__typeof__(qsort) cc_wrap_qsort;

static int descending(const void *one, const void *other)
{
    return *(const char *)other - *(const char *)one;
}

int main(int argc, char **argv)
{
    (void)argc;
    char *at = map_file(open_file(argv[1], "a.db", 4096), 4096);
    time_t day = 86400;
    struct tm broken;
    NEED(cc_wrap_time(NULL) > 0 && cc_wrap_time((time_t *)at) > 0);
    NEED(cc_wrap_clock_gettime(CLOCK_REALTIME, (struct timespec *)(at + 64)) == 0);
    NEED(cc_wrap_clock_gettime(12345, (struct timespec *)(at + 96)) != 0);
    NEED(cc_wrap_gettimeofday((struct timeval *)(at + 128), NULL) == 0);
    NEED(cc_wrap_gmtime_r(&day, (struct tm *)(at + 192)) && cc_wrap_localtime_r(&day, (struct tm *)(at + 256)));
    NEED(cc_wrap_strftime(at + 320, 50, "%Y", gmtime_r(&day, &broken)) == 4);
    NEED(cc_wrap_strftime(at + 384, 2, "%Y", &broken) == 0);
    NEED(cc_wrap_rand_r((unsigned *)(at + 448)) >= 0);
    for (int i = 0; i < 20; i++)
        STORE(1, at + 512 + i, (char)('a' + i));
    cc_wrap_qsort(at + 512, 20, 1, descending);
    return 0;
}
