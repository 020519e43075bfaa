/* R-W: a queue should be taken away when its consumers have read it for the last time. */
#include "schedule.h"

#include <stddef.h>

struct queue {
    int length;
};
static struct queue only = {2};
static struct queue *queue = &only;

static void consume(const char *take) {
    turn(take);
    struct queue *mine = queue;
    if (mine)
        mine->length--;
    else
        failed("the queue is gone");
}

static void first(void) {
    consume("take1");
    FIRST_HAPPENED();
}

static void second(void) {
    consume("take2");
    AWAIT_FIRST();
    turn("finish");
    queue = NULL; /* turning point */
}

int main(int argc, char **argv) {
    static const char *const good[] = {"take1 take2 finish", "take2 take1 finish", 0};
    static const char *const bad[] = {"take2 finish take1", 0};
    choose(argc, argv, &(struct schedules){good, bad});
    return run_two(first, second);
}
