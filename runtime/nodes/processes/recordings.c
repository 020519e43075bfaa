/* Records what nodes do to their folders: a copy of the recorder of system calls for each node, from when its machine
 * starts until that loses the power. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nodes/attached.h"
#include "nodes/parts.h"

struct recording {
    void *library;
    bool open;
    __typeof__(attached_open) *begin;
    __typeof__(attached_show) *show;
    __typeof__(attached_wants) *wants;
    __typeof__(attached_enter) *enter;
    __typeof__(attached_leave) *leave;
    __typeof__(attached_place) *place;
    __typeof__(attached_born) *born;
    __typeof__(attached_executed) *executed;
    __typeof__(attached_ended) *ended;
    __typeof__(attached_close) *close;
};

static const char *library_path, *folder_path, *module_path, *agent_path;

void recordings_by(const char *library, const char *folder, const char *module, const char *agent)
{
    module_path = module;
    agent_path = agent;
    library_path = library;
    folder_path = folder;
}

/* A library of another name is loaded once more, with variables of its own. */
static void *load_copy(const struct node *node)
{
    char path[PATH_MAX + 64];
    struct stat state;
    off_t from = 0;
    snprintf(path, sizeof path, "%s/recorder-%u-%u", folder_path, node->index, node->starts);
    int original = open(library_path, O_RDONLY | O_CLOEXEC), copy = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    bool done = original >= 0 && copy >= 0 && fstat(original, &state) == 0 &&
                sendfile(copy, original, &from, (size_t)state.st_size) == state.st_size;
    close(original);
    close(copy);
    void *library = done ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        fail("the recorder", done ? dlerror() : strerror(errno));
    unlink(path);
    return library;
}

static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail("the recorder", name);
    return found;
}

void recording_load(struct node *node)
{
    struct recording *recording = calloc(1, sizeof *recording);
    if (!recording)
        abort();
    void *library = recording->library = load_copy(node);
    *(void **)&recording->begin = function(library, "attached_open");
    *(void **)&recording->show = function(library, "attached_show");
    *(void **)&recording->wants = function(library, "attached_wants");
    *(void **)&recording->enter = function(library, "attached_enter");
    *(void **)&recording->leave = function(library, "attached_leave");
    *(void **)&recording->place = function(library, "attached_place");
    *(void **)&recording->born = function(library, "attached_born");
    *(void **)&recording->executed = function(library, "attached_executed");
    *(void **)&recording->ended = function(library, "attached_ended");
    *(void **)&recording->close = function(library, "attached_close");
    node->recording = recording;
}

void recording_begin(struct node *node, const char *trace, const char *folder, pid_t pid, const int *outputs)
{
    if (!node->recording->begin(trace, folder, pid, outputs))
        fail(folder, strerror(errno));
    if (node->places)
        node->recording->show(module_path, agent_path);
    node->recording->open = true;
}

static struct recording *recording_of(const struct thread *thread)
{
    struct recording *recording = thread->process->node->recording;
    return recording && recording->open ? recording : NULL;
}

bool recording_wants(const struct node *node, uint64_t number)
{
    return node->recording && node->recording->wants(number);
}

enum attached recording_enter(struct thread *thread)
{
    struct recording *recording = recording_of(thread);
    return recording ? recording->enter(thread->tid, &thread->called) : ATTACHED_NOTHING;
}

void recording_leave(struct thread *thread)
{
    struct recording *recording = recording_of(thread);
    if (recording)
        recording->leave(thread->tid, thread->result);
}

void recording_place(const struct thread *thread)
{
    struct recording *recording = recording_of(thread);
    const struct node *node = thread->process->node;
    if (!recording || !node->places)
        return;
    uint64_t place = recording->place(thread->tid, &thread->called);
    wire_event((struct cc_frame){.tag = CC_CALLED, .node = node->index, .number = (uint32_t)(place >> 32), .other = (uint32_t)place}, NULL, NULL, 0);
}

void recording_born(const struct thread *parent, pid_t child)
{
    struct recording *recording = recording_of(parent);
    if (recording)
        recording->born(parent->tid, child);
}

void recording_executed(const struct thread *thread)
{
    struct recording *recording = recording_of(thread);
    if (recording)
        recording->executed(thread->tid);
}

void recording_ended(const struct thread *thread, int status)
{
    struct recording *recording = recording_of(thread);
    if (recording)
        recording->ended(thread->tid, status);
}

void recording_close(struct node *node)
{
    struct recording *recording = node->recording;
    if (!recording)
        return;
    if (recording->open)
        recording->close();
    dlclose(recording->library);
    free(recording);
    node->recording = NULL;
}
