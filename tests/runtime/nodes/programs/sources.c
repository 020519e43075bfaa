/* Prints what differs from run to run where nothing controls a program. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static void *thread(void *number)
{
    *(pid_t *)number = gettid();
    return NULL;
}

int main(void)
{
    unsigned char bytes[8];
    struct timespec now;
    struct timeval day;
    struct utsname machine;
    struct sysinfo memory;
    struct rusage used;
    struct tms times_used;
    unsigned processor;
    pthread_t started;
    pid_t tid;
    int random = open("/dev/urandom", O_RDONLY);
    const unsigned char *from_kernel = (const unsigned char *)getauxval(AT_RANDOM);
    printf("pid %d parent %d\n", getpid(), getppid());
    pthread_create(&started, NULL, thread, &tid);
    pthread_join(started, NULL);
    printf("tid %d\n", tid);
    for (int i = 0; i < 2; i++) {
        if ((i ? read(random, bytes, 8) : getrandom(bytes, 8, 0)) != 8)
            return 1;
        printf("random %02x%02x%02x%02x %02x\n", bytes[0], bytes[1], bytes[2], bytes[3], from_kernel[i]);
    }
    printf("places %p %p %p\n", (void *)&bytes, malloc(1), (void *)main);
    for (int clock = 0; clock < 12; clock++)
        if (clock_gettime(clock, &now) == 0)
            printf("clock %d %ld.%09ld\n", clock, now.tv_sec, now.tv_nsec);
    gettimeofday(&day, NULL);
    printf("day %ld %ld, time %ld, ticks %ld\n", day.tv_sec, day.tv_usec, time(NULL), times(&times_used));
    printf("stamp %llu %llu\n", __rdtsc(), __rdtscp(&processor));
    uname(&machine);
    sysinfo(&memory);
    getrusage(RUSAGE_SELF, &used);
    printf("%s processors %ld at %d, up %ld, memory %lu, used %ld\n", machine.nodename, sysconf(_SC_NPROCESSORS_ONLN), sched_getcpu(),
           memory.uptime, memory.freeram, used.ru_utime.tv_usec + used.ru_maxrss);
    for (int i = 0; i < 3; i++)
        close(open(i == 0 ? "c" : i == 1 ? "a" : "b", O_CREAT | O_WRONLY, 0600));
    DIR *folder = opendir(".");
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat state;
        stat(entry->d_name, &state);
        if (entry->d_name[0] != '.')
            printf("%s %d %lu %ld\n", entry->d_name, state.st_ino == entry->d_ino, state.st_ino, state.st_mtim.tv_sec);
    }
    return 0;
}
