/* Faults: chosen calls fail with a chosen error and are not made. A call counts if it concerns the watched folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "glob.h"
#include "syscalls/recorder.h"

#define MOST 64
#define VARIANTS 5

/* What a user calls them: the variants of a call are one. */
static const struct family {
    const char *name;
    long calls[VARIANTS]; /* up to a zero, which is SYS_read: never made to fail */
} families[] = {
    {"fsync", {SYS_fsync}},
    {"fdatasync", {SYS_fdatasync}},
    {"msync", {SYS_msync}},
    {"syncfs", {SYS_syncfs}},
    {"sync_file_range", {SYS_sync_file_range}},
    {"write", {SYS_write, SYS_pwrite64, SYS_writev, SYS_pwritev, SYS_pwritev2}},
    {"copy_file_range", {SYS_copy_file_range}},
    {"sendfile", {SYS_sendfile}},
    {"splice", {SYS_splice}},
    {"truncate", {SYS_truncate, SYS_ftruncate}},
    {"fallocate", {SYS_fallocate}},
    {"open", {SYS_open, SYS_openat, SYS_openat2, SYS_creat}},
    {"mkdir", {SYS_mkdir, SYS_mkdirat}},
    {"rmdir", {SYS_rmdir}},
    {"link", {SYS_link, SYS_linkat}},
    {"symlink", {SYS_symlink, SYS_symlinkat}},
    {"unlink", {SYS_unlink, SYS_unlinkat}},
    {"rename", {SYS_rename, SYS_renameat, SYS_renameat2}},
};

static struct fault {
    const struct family *family;
    int error;
    uint64_t nth, times; /* times: 0: all from the nth on */
    const char *pattern; /* "": any file */
    uint64_t met;
} faults[MOST];
static size_t fault_count;

bool fault_add(char **words)
{
    struct fault *fault = &faults[fault_count];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, words[0]) == 0)
            fault->family = &families[i];
    fault->error = atoi(words[1]);
    fault->nth = strtoull(words[2], NULL, 10);
    fault->times = strtoull(words[3], NULL, 10);
    fault->pattern = words[4];
    if (!fault->family || fault->error <= 0 || fault->nth < 1 || fault_count + 1 == MOST)
        return false;
    fault_count++;
    return true;
}

static bool is_of(const struct family *family, long number)
{
    for (size_t i = 0; i < VARIANTS && family->calls[i]; i++)
        if (family->calls[i] == number)
            return true;
    return false;
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
        const char *path = is_of(fault->family, call->number) ? concerned(fault, call) : NULL;
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
