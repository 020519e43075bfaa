/* Faults: chosen calls fail with a chosen error and are not made. A call counts if it concerns the watched folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "fault_calls.h"
#include "glob.h"
#include "syscalls/recorder.h"

#define MOST 64

static struct fault {
    const struct fault_family *family;
    int error;
    uint64_t nth, times; /* times: 0: all from the nth on */
    const char *pattern; /* "": any file */
    uint64_t met;
} faults[MOST];
static size_t fault_count;

bool fault_add(char **words)
{
    struct fault *fault = &faults[fault_count];
    fault->family = fault_family_named(words[0]);
    fault->error = atoi(words[1]);
    fault->nth = strtoull(words[2], NULL, 10);
    fault->times = strtoull(words[3], NULL, 10);
    fault->pattern = words[4];
    if (!fault->family || fault->error <= 0 || fault->nth < 1 || fault_count + 1 == MOST)
        return false;
    fault_count++;
    return true;
}

static bool matches(const struct fault *fault, const char *path)
{
    return !*fault->pattern || glob(fault->pattern, fault->pattern + strlen(fault->pattern), path);
}

/* The path of what the call concerns, of two names the one that matches; NULL: the fault does not. */
static const char *concerned(const struct fault *fault, struct call *call)
{
    const struct place *places[] = {&call->from, &call->to};
    if (call->inode || call->number == SYS_syncfs) {
        const char *path = call->inode ? inode_shown(inode_at(call->inode)) : "";
        return matches(fault, path) ? path : NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        const char *path = places[i]->folder ? inode_path(places[i]->folder, places[i]->name) : NULL;
        if (path && matches(fault, path)) {
            call->inode = name_get(places[i]->folder, places[i]->name);
            return path;
        }
    }
    return NULL;
}

int fault_of(struct tracee *thread)
{
    struct call *call = &thread->call;
    int error = 0;
    for (size_t i = 0; i < fault_count; i++) {
        struct fault *fault = &faults[i];
        const char *path = fault_family_has(fault->family, call->number) ? concerned(fault, call) : NULL;
        bool now = path && ++fault->met >= fault->nth && (!fault->times || fault->met - fault->nth < fault->times);
        if (!now || error)
            continue;
        error = fault->error;
        stack_locate(thread);
        struct cc_event event = {.kind = CC_FAULT, .aux = (uint32_t)error, .file = call->inode, .offset = i + 1};
        const char *name = fault->family->name;
        trace_bytes(thread, event, name, strlen(name) + 1, path, strlen(path));
    }
    return error;
}

void faults_end(void)
{
    for (size_t i = 0; i < fault_count; i++) {
        char text[64];
        snprintf(text, sizeof text, "%zu %lu", i + 1, faults[i].met);
        trace_note("fault", text);
    }
}
