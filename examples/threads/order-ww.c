/* W-W: "pending" should be set before the callback clears it. Cleared first, it is never cleared again. */
#include "schedule.h"

static int pending;

static void read_and_wait(void) {
    turn("start");
    pending = 1;
    FIRST_HAPPENED();
    turn("poll");
    int polled = pending;
    turn("wait");
    if (polled && pending)
        failed("waits for ever");
}

static void callback(void) {
    AWAIT_FIRST();
    turn("done");
    pending = 0; /* turning point */
}

int main(int argc, char **argv) {
    static const char *const good[] = {"start done poll wait", "start poll done wait", 0};
    static const char *const bad[] = {"done start poll wait", 0};
    choose(argc, argv, &(struct schedules){good, bad});
    return run_two(read_and_wait, callback);
}
