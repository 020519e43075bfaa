/* Two writes by io_submit. "each": takes one end at a time. "counted": a file counts the ends. "late": waits for both, for a second. */
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TWO 2

static aio_context_t context;

static long take(long least, long most, struct io_event *ended, struct timespec *limit)
{
    return syscall(SYS_io_getevents, context, least, most, ended, limit);
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "";
    int file = open("data", O_CREAT | O_WRONLY | O_DSYNC, 0600), counter = eventfd(0, 0);
    struct iocb request[TWO] = {{.aio_data = 0}}, *all[TWO];
    struct io_event ended[TWO];
    struct timespec second = {1, 0};
    uint64_t times;
    syscall(SYS_io_setup, 8, &context);
    for (int i = 0; i < TWO; i++) {
        request[i] = (struct iocb){.aio_data = (uint64_t)(i + 1), .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (uint32_t)file};
        request[i].aio_buf = (uintptr_t) "ab" + (uint64_t)i;
        request[i].aio_nbytes = 1;
        request[i].aio_offset = i;
        if (strcmp(how, "counted") == 0) {
            request[i].aio_flags = IOCB_FLAG_RESFD;
            request[i].aio_resfd = (uint32_t)counter;
        }
        request[i].aio_rw_flags = 8; /* RWF_NOWAIT: the kernel may refuse what would have to wait */
        all[i] = &request[i];
    }
    printf("submitted %ld\n", syscall(SYS_io_submit, context, TWO, all));
    fflush(stdout);
    if (strcmp(how, "late") == 0) {
        long got = take(TWO, TWO, ended, &second);
        printf("in time %ld\n", got);
        return 0;
    }
    for (int i = 0; i < TWO; i++) {
        struct pollfd one = {.fd = counter, .events = POLLIN};
        if (strcmp(how, "counted") == 0 && (poll(&one, 1, -1) != 1 || read(counter, &times, sizeof times) != sizeof times || times != 1))
            return 1;
        if (take(1, TWO, ended, NULL) != 1)
            return 1;
        printf("%d ended with %d\n", (int)ended[0].data, (int)ended[0].res);
        fflush(stdout);
    }
    return (int)syscall(SYS_io_destroy, context);
}
