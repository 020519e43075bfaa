/* R-W|R-W: two threads count references without a lock. Both read before either writes: one reference is lost. */
#include "schedule.h"

static int references;

static void refer(const char *read, const char *write) {
    turn(read);
    BEGIN_ATOMIC();
    int now = references; /* turning point */
    turn(write);
    references = now + 1;
    END_ATOMIC();
}

static void first(void) {
    refer("read1", "write1");
}

static void second(void) {
    refer("read2", "write2");
    turn("count");
    if (references != 2)
        failed("a reference is lost");
}

int main(int argc, char **argv) {
    static const char *const good[] = {"read1 write1 read2 write2 count", "read2 write2 read1 write1 count", 0};
    static const char *const bad[] = {"read1 read2 write2 write1 count", "read2 read1 write2 write1 count", 0};
    choose(argc, argv, &(struct schedules){good, bad});
    return run_two(first, second);
}
