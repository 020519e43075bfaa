/* The parts of the program that lists what a command depends on: the list, the table of calls, the stops of a command. */
#ifndef CRASHCHECK_INPUTS_INPUTS_H
#define CRASHCHECK_INPUTS_INPUTS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define LIST_BYTES (1u << 18)
#define NO_FOLDER (-1)
#define CALLS 512
#define FOREIGN 1 /* of a stop: a call of another kind of program */
#define PATH_ROOM (PATH_MAX + NAME_MAX)

struct list {
    uint32_t used;    /* bytes of records */
    uint32_t follows; /* 1: all that the command does is listed */
    int32_t error;    /* why the program cannot be executed; 0: it was */
    char records[LIST_BYTES - 12];
};

enum does { REFUSED, HARMLESS, OPENS, LOOKS, LOOKS_AT_ITSELF, CHANGES, ASKS, READS_CLOCK, RANDOM, OTHERS };

struct call {
    enum does does;
    signed char folder, path; /* which arguments; NO_FOLDER: the current one */
    const char *name;
};

/* inputs.c: the list */
extern struct list *list;
void note(char letter, const char *text);
bool is_inside(const char *path); /* whether a path is in the folder of which nothing is listed */

/* calls.c */
extern const struct call calls[CALLS];
bool install_filter(void);

/* follow.c */
void follow(void);

#endif
