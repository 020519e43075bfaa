/* Names what is not followed: then a run that finds nothing proves nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "syscalls/recorder.h"

/* Whether a text comes for the first time. */
static bool first_time(const char *text)
{
    static struct seen {
        struct seen *next;
        char text[];
    } *all;
    for (const struct seen *seen = all; seen; seen = seen->next)
        if (strcmp(seen->text, text) == 0)
            return false;
    struct seen *fresh = malloc(sizeof *fresh + strlen(text) + 1);
    if (!fresh)
        die("no memory");
    strcpy(fresh->text, text);
    fresh->next = all;
    all = fresh;
    return true;
}

void unfollowed(struct tracee *thread, const struct inode *inode, const char *name)
{
    char text[PATH_ROOM + 128];
    snprintf(text, sizeof text, "%s%s%s", name, inode ? " on " : "", inode ? inode_shown(inode) : "");
    if (!first_time(text))
        return;
    if (thread->in_call)
        stack_locate(thread);
    struct cc_event event = {.kind = CC_UNMODELLED, .file = inode ? inode->id : 0};
    trace_bytes(thread, event, NULL, 0, text, strlen(text));
}
