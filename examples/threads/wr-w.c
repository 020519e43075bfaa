/* W-R|W: a thread sets a status, does its work, and reads the status back. Another sets it in between. */
#include "schedule.h"

enum { OK = 0, WOULD_BLOCK = 1 };
static int status;

static void process(void) {
    turn("set");
    BEGIN_ATOMIC();
    status = OK;
    turn("get");
    if (status == WOULD_BLOCK)
        failed("blocked, though nothing did");
    END_ATOMIC();
}

static void handle_event(void) {
    turn("event");
    BEGIN_ATOMIC();
    status = WOULD_BLOCK; /* turning point */
    END_ATOMIC();
}

int main(int argc, char **argv) {
    static const char *const good[] = {"set get event", "event set get", 0};
    static const char *const bad[] = {"set event get", 0};
    choose(argc, argv, &(struct schedules){good, bad});
    return run_two(process, handle_event);
}
