/* W-W|R: a log is closed and opened again; nobody should look in between. A writer does, and drops its record. */
#include "schedule.h"

static int log_is_open = 1;
static int records;

static void rotate(void) {
    turn("close");
    BEGIN_ATOMIC();
    log_is_open = 0;
    turn("open");
    log_is_open = 1;
    END_ATOMIC();
}

static void write_record(void) {
    turn("write");
    BEGIN_ATOMIC();
    if (log_is_open) /* turning point */
        records++;
    else
        failed("a record is lost");
    END_ATOMIC();
}

int main(int argc, char **argv) {
    static const char *const good[] = {"close open write", "write close open", 0};
    static const char *const bad[] = {"close write open", 0};
    choose(argc, argv, &(struct schedules){good, bad});
    return run_two(rotate, write_record);
}
