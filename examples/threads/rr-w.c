/* R-R|W: a thread tests a pointer and then uses it; both reads should be atomic. Another clears it in between. */
#include "schedule.h"

#include <stddef.h>

static const char *info = "sorting";
static char shown;

static void monitor(void) {
    turn("test");
    BEGIN_ATOMIC();
    if (info) {
        turn("use");
        const char *text = info;
        if (text)
            shown = text[0];
        else
            failed("the text that was there is gone");
    }
    END_ATOMIC();
}

static void worker(void) {
    turn("clear");
    BEGIN_ATOMIC();
    info = NULL; /* turning point */
    END_ATOMIC();
}

int main(int argc, char **argv) {
    static const char *const good[] = {"test use clear", "clear test", NULL};
    static const char *const bad[] = {"test clear use", NULL};
    choose(argc, argv, &(struct schedules){good, bad});
    return run_two(monitor, worker);
}
