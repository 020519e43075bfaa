/* W-R: the options should be made before they are used. A test whether they are there yet may happen at any time. */
#include "schedule.h"

#include <stddef.h>

struct options {
    int depth;
};
static struct options made;
static struct options *options;

static void start_server(void) {
    turn("reset");
    options = NULL;
    turn("look");
    int ready = options != NULL;
    AWAIT_FIRST();
    turn("use");
    struct options *mine = options; /* turning point */
    if (!mine)
        failed(ready ? "the options are gone" : "there are no options yet");
    turn("look-again");
    if (options && options->depth != 3)
        failed("wrong options");
}

static void make_options(void) {
    turn("make");
    made.depth = 3;
    options = &made;
    FIRST_HAPPENED();
}

int main(int argc, char **argv) {
    static const char *const good[] = {"reset make look use look-again", "reset look make use look-again", 0};
    static const char *const bad[] = {"reset look use make look-again", 0};
    choose(argc, argv, &(struct schedules){good, bad});
    return run_two(start_server, make_options);
}
