/* R-R-W|R-R-W: is there room in a buffer, where does it end, and now it ends here: three accesses that two threads mix. */
#include "schedule.h"

enum { ROOM = 8, RECORD = 4 };
static int used;
static char buffer[ROOM];

static void append(const char *test, const char *find, const char *take, char content) {
    turn(test);
    BEGIN_ATOMIC();
    if (used + RECORD > ROOM) { /* turning point */
        END_ATOMIC();
        return;
    }
    turn(find);
    int at = used;
    for (int i = 0; i < RECORD; i++)
        buffer[at + i] = content;
    turn(take);
    used = at + RECORD;
    END_ATOMIC();
}

static void first(void) {
    append("test1", "find1", "take1", 'a');
}

static void second(void) {
    append("test2", "find2", "take2", 'b');
    turn("look");
    if (used != 2 * RECORD || buffer[0] == buffer[RECORD])
        failed("a record is overwritten");
}

int main(int argc, char **argv) {
    static const char *const good[] = {
        "test1 find1 take1 test2 find2 take2 look",
        "test2 find2 take2 test1 find1 take1 look",
        0,
    };
    static const char *const bad[] = {
        "test1 test2 find2 find1 take2 take1 look",
        "test1 find1 test2 find2 take1 take2 look",
        0,
    };
    choose(argc, argv, &(struct schedules){good, bad});
    return run_two(first, second);
}
