/* Files outside of the watched folder that the program has written and not synced: one of them may be moved into it. */
#include <search.h>
#include <stdlib.h>

#include "syscalls/recorder.h"

struct outside {
    dev_t device;
    ino_t number;
};

static void *unsynced; /* a tree of struct outside */

static int compare(const void *left, const void *right)
{
    const struct outside *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static struct outside outside_of(const struct stat *state)
{
    return (struct outside){.device = state->st_dev, .number = state->st_ino};
}

void outside_written(const struct stat *state)
{
    struct outside *file = malloc(sizeof *file);
    if (!file)
        die("no memory");
    *file = outside_of(state);
    struct outside **found = tsearch(file, &unsynced, compare);
    if (!found)
        die("no memory");
    if (*found != file)
        free(file);
}

void outside_synced(const struct stat *state)
{
    struct outside file = outside_of(state), **found = tfind(&file, &unsynced, compare);
    if (!found)
        return;
    struct outside *known = *found;
    tdelete(&file, &unsynced, compare);
    free(known);
}

void outside_all_synced(void)
{
    tdestroy(unsynced, free);
    unsynced = NULL;
}

bool outside_unsynced(const struct stat *state)
{
    struct outside file = outside_of(state);
    return tfind(&file, &unsynced, compare) != NULL;
}
