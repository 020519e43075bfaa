/* Calls that change names: what is created, linked, renamed and removed. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <dirent.h>

#include "syscalls/recorder.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

/* `second` is the new name, or the target of a symbolic link. */
static void name_event(struct tracee *thread, struct cc_event event, const char *name, struct cc_names names, const char *second)
{
    char head[sizeof names + NAME_MAX + 1];
    names.name_bytes = (uint32_t)strlen(name);
    memcpy(head, &names, sizeof names);
    memcpy(head + sizeof names, name, names.name_bytes);
    trace_bytes(thread, event, head, sizeof names + names.name_bytes, second, strlen(second));
}

static void named(struct tracee *thread, uint8_t kind, uint32_t inode, uint32_t folder, const char *name, const char *second)
{
    name_event(thread, (struct cc_event){.kind = kind, .file = inode, .folder = folder}, name, (struct cc_names){0}, second);
}

/* Something outside of the folder changed its name: the outside world sees it. */
static void outside(struct tracee *thread, const struct place *place)
{
    stack_locate(thread);
    output_record(thread, CC_OUTPUT_NAME, 0, place->path, strlen(place->path));
}

static uint8_t birth(mode_t mode)
{
    return S_ISDIR(mode) ? CC_NAME_MKDIR : S_ISLNK(mode) ? CC_NAME_SYMLINK : CC_NAME_CREATE;
}

static struct inode *arrive(struct tracee *thread, int base, const char *path, uint32_t folder, const char *name);

/* An entry of the folder `above`, which came from outside and is open as `inside`. */
static void arrive_entry(struct tracee *thread, int inside, struct inode *above, const char *entry, uint32_t folder, const char *name)
{
    struct stat state;
    struct inode *inode = fstatat(inside, entry, &state, AT_SYMLINK_NOFOLLOW) == 0 ? inode_of(&state) : NULL;
    if (!inode)
        inode = arrive(thread, inside, entry, folder, name);
    if (!inode)
        return;
    char target[PATH_MAX + 1] = "";
    ssize_t length = S_ISLNK(inode->mode) ? readlinkat(inside, entry, target, PATH_MAX) : 0;
    target[length > 0 ? length : 0] = '\0';
    named(thread, inode->links ? CC_NAME_LINK : birth(inode->mode), inode->id, above->id, entry, target);
    name_set(above->id, entry, inode->id);
}

static void arrive_entries(struct tracee *thread, int inside, struct inode *above, uint32_t folder, const char *name)
{
    struct dirent **entries = NULL;
    int count = scandirat(inside, ".", &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0)
            arrive_entry(thread, inside, above, entries[i]->d_name, folder, name);
        free(entries[i]);
    }
    free(entries);
}

/* The inode that `path` (relative to `base`) is now, with all that is in it, came from outside. It gets no name here. */
static struct inode *arrive(struct tracee *thread, int base, const char *path, uint32_t folder, const char *name)
{
    struct stat state;
    if (fstatat(base, path, &state, AT_SYMLINK_NOFOLLOW) != 0)
        return NULL;
    struct inode *inode = inode_new(thread, &state, 0, inode_path(folder, name));
    if (!S_ISREG(state.st_mode) && !S_ISDIR(state.st_mode))
        return inode;
    int fd = openat(base, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return inode;
    if (S_ISDIR(state.st_mode))
        arrive_entries(thread, fd, inode, folder, name);
    else
        content_arrive(thread, fd, inode, (uint64_t)state.st_size);
    close(fd);
    return inode;
}

/* The inode that has a name by the recorded calls, or is known by another one ("."); one that came unseen is defined now. */
static struct inode *inode_named(struct tracee *thread, const struct place *place)
{
    uint32_t id = name_get(place->folder, place->name);
    if (id)
        return inode_at(id);
    struct stat state;
    struct inode *known = place_stat(place, &state, false) ? inode_of(&state) : NULL;
    return known ? known : arrive(thread, place->base, place->path, place->folder, place->name);
}

/* open */

static uint64_t open_flags(struct tracee *thread)
{
    const struct call *call = &thread->call;
    uint64_t flags = 0;
    switch (call->number) {
    case SYS_open:
        return call->argument[1];
    case SYS_creat:
        return O_CREAT | O_TRUNC | O_WRONLY;
    case SYS_openat:
    case SYS_open_by_handle_at:
        return call->argument[2];
    default: /* openat2: the first field of struct open_how */
        return memory_read(thread, call->argument[2], &flags, sizeof flags) == sizeof flags ? flags : 0;
    }
}

static enum then open_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    bool at = call->number == SYS_openat || call->number == SYS_openat2;
    uint64_t flags = open_flags(thread);
    if (!(flags & (O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))))
        return SKIP;
    call->flags = (int)flags;
    if (call->number == SYS_open_by_handle_at)
        return flags & O_TRUNC ? UPDATE : SKIP;
    if (!place_of(thread, at ? (int)call->argument[0] : AT_FDCWD, call->argument[at ? 1 : 0], &call->from))
        return SKIP;
    if (place_stat(&call->from, &state, true)) {
        struct inode *inode = inode_of(&state);
        if (!inode || !(S_ISREG(state.st_mode) || S_ISDIR(state.st_mode)))
            return SKIP; /* outside; or a FIFO, which may wait for its other end */
        if (!(flags & O_TRUNC))
            return UPDATE;
    } else if (!call->from.folder && !place_stat(&call->from, &state, false)) {
        return SKIP; /* a new file outside; a dangling symbolic link may lead inside */
    }
    shadows_compare_before(thread);
    return UPDATE;
}

/* A folder by the path of an open file in it: ours or, where other things are mounted, the process's. */
static struct inode *folder_at(const struct tracee *thread, const char *path)
{
    char theirs[PATH_ROOM + 64];
    struct stat state;
    struct inode *folder = stat(*path ? path : "/", &state) == 0 ? inode_of(&state) : NULL;
    if (folder || !thread->process->elsewhere)
        return folder;
    snprintf(theirs, sizeof theirs, "/proc/%d/root%s", thread->tid, path);
    return stat(theirs, &state) == 0 ? inode_of(&state) : NULL;
}

static void created(struct tracee *thread, const struct stat *state)
{
    char link[64], path[PATH_ROOM];
    snprintf(link, sizeof link, "/proc/self/fd/%d", thread->call.fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    char *slash = length > 0 ? memrchr(path, '/', (size_t)length) : NULL;
    if (!slash)
        return;
    path[length] = '\0';
    const char *name = slash + 1;
    *slash = '\0';
    struct inode *folder = folder_at(thread, path);
    if (!folder || strlen(name) > NAME_MAX)
        return;
    if ((thread->call.flags & O_TMPFILE) == O_TMPFILE) {
        inode_new(thread, state, 0, "");
        return;
    }
    struct inode *inode = inode_new(thread, state, 0, inode_path(folder->id, name));
    struct cc_event event = {.kind = CC_NAME_CREATE, .file = inode->id, .folder = folder->id};
    event.flags = thread->call.flags & O_EXCL ? CC_CREATE_EXCLUSIVE : 0;
    name_event(thread, event, name, (struct cc_names){0}, "");
    name_set(folder->id, name, inode->id);
}

static void open_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    if (call->result < 0)
        return;
    if (!call_opens(thread, (int)call->result, &state) || !S_ISREG(state.st_mode))
        return;
    stack_locate(thread);
    bool unnamed = (call->flags & O_TMPFILE) == O_TMPFILE;
    struct inode *inode = unnamed ? NULL : inode_of(&state);
    if (!inode) {
        created(thread, &state);
    } else if (call->flags & O_TRUNC) {
        trace_event(thread, (struct cc_event){.kind = CC_TRUNCATE, .file = inode->id});
        shadow_refresh(inode, 0, 0);
    }
}

/* mkdir, mknod, bind: something new with the name call->to */

static enum then make_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    bool at = call->number == SYS_mkdirat || call->number == SYS_mknodat;
    if (!place_of(thread, at ? (int)call->argument[0] : AT_FDCWD, call->argument[at ? 1 : 0], &call->to))
        return SKIP;
    return call->to.folder ? UPDATE : SKIP;
}

static enum then bind_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct sockaddr_un address;
    if (memory_read(thread, call->argument[1], &address, sizeof address.sun_family + 1) != sizeof address.sun_family + 1 ||
        address.sun_family != AF_UNIX || !address.sun_path[0])
        return SKIP;
    if (!place_of(thread, AT_FDCWD, call->argument[1] + offsetof(struct sockaddr_un, sun_path), &call->to))
        return SKIP;
    return call->to.folder ? UPDATE : SKIP;
}

static void make_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    if (call->result != 0 || !place_stat(&call->to, &state, false))
        return;
    stack_locate(thread);
    char target[PATH_MAX + 1] = "";
    if (S_ISLNK(state.st_mode)) {
        ssize_t length = readlinkat(call->to.base, call->to.path, target, PATH_MAX);
        target[length > 0 ? length : 0] = '\0';
    }
    const char *name = call->to.name;
    struct inode *inode = inode_new(thread, &state, 0, inode_path(call->to.folder, name));
    named(thread, birth(state.st_mode), inode->id, call->to.folder, name, target);
    name_set(call->to.folder, name, inode->id);
}

static enum then symlink_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    bool at = call->number == SYS_symlinkat;
    if (!place_of(thread, at ? (int)call->argument[1] : AT_FDCWD, call->argument[at ? 2 : 1], &call->to))
        return SKIP;
    return call->to.folder ? UPDATE : SKIP;
}

/* link */

static enum then link_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    bool at = call->number == SYS_linkat;
    int from = at ? (int)call->argument[0] : AT_FDCWD, to = at ? (int)call->argument[2] : AT_FDCWD;
    call->flags = at ? (int)call->argument[4] : 0;
    if (!place_of(thread, from, call->argument[at ? 1 : 0], &call->from) ||
        !place_of(thread, to, call->argument[at ? 3 : 1], &call->to))
        return SKIP;
    if (!call->to.folder)
        return SKIP;
    shadows_compare_before(thread);
    return UPDATE;
}

static void link_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    if (call->result != 0 || !place_stat(&call->to, &state, false))
        return;
    stack_locate(thread);
    struct inode *inode = inode_of(&state);
    if (!inode)
        inode = arrive(thread, call->to.base, call->to.path, call->to.folder, call->to.name);
    if (!inode)
        return;
    named(thread, CC_NAME_LINK, inode->id, call->to.folder, call->to.name, "");
    name_set(call->to.folder, call->to.name, inode->id);
}

/* unlink, rmdir */

static enum then unlink_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    bool at = call->number == SYS_unlinkat;
    if (!place_of(thread, at ? (int)call->argument[0] : AT_FDCWD, call->argument[at ? 1 : 0], &call->from))
        return SKIP;
    if (!call->from.folder)
        return output_own(&call->from) ? SKIP : LEAVE;
    inode_named(thread, &call->from);
    shadows_compare_before(thread);
    return UPDATE;
}

static void unlink_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    if (call->result != 0)
        return;
    if (!call->from.folder) {
        outside(thread, &call->from);
        return;
    }
    stack_locate(thread);
    uint32_t id = name_get(call->from.folder, call->from.name);
    bool folder = call->number == SYS_rmdir || (call->number == SYS_unlinkat && call->argument[2] & AT_REMOVEDIR);
    if (!id)
        return;
    named(thread, folder ? CC_NAME_RMDIR : CC_NAME_UNLINK, id, call->from.folder, call->from.name, "");
    name_remove(call->from.folder, call->from.name);
}

/* rename */

static enum then rename_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    bool at = call->number != SYS_rename;
    int from = at ? (int)call->argument[0] : AT_FDCWD, to = at ? (int)call->argument[2] : AT_FDCWD;
    call->flags = call->number == SYS_renameat2 ? (int)call->argument[4] : 0;
    if (!place_of(thread, from, call->argument[at ? 1 : 0], &call->from) ||
        !place_of(thread, to, call->argument[at ? 3 : 1], &call->to))
        return SKIP;
    if (!call->from.folder && !call->to.folder)
        return output_own(&call->from) ? SKIP : LEAVE;
    if (call->from.folder)
        inode_named(thread, &call->from);
    shadows_compare_before(thread);
    return UPDATE;
}

static void rename_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    const struct place *from = &call->from, *to = &call->to;
    if (call->result != 0)
        return;
    stack_locate(thread);
    if (!from->folder && !to->folder) {
        outside(thread, from);
        return;
    }
    uint32_t moved = from->folder ? name_get(from->folder, from->name) : 0;
    uint32_t replaced = to->folder ? name_get(to->folder, to->name) : 0;
    bool exchange = call->flags & RENAME_EXCHANGE;
    if (exchange && (!moved || !replaced)) {
        unfollowed(thread, NULL, "an exchange with a name outside of the folder");
        return;
    }
    if (!from->folder) {
        struct inode *inode = arrive(thread, to->base, to->path, to->folder, to->name);
        moved = inode ? inode->id : 0;
    }
    if (!moved || (moved == replaced && from->folder))
        return; /* two names of one file: rename does nothing */
    struct cc_names names = {.to_folder = to->folder, .replaced = replaced};
    const char *name = from->folder ? from->name : "", *second = to->folder ? to->name : "";
    struct cc_event event = {.file = moved, .folder = from->folder};
    event.kind = exchange ? CC_NAME_EXCHANGE : CC_NAME_RENAME;
    name_event(thread, event, name, names, second);
    if (to->folder)
        name_set(to->folder, to->name, moved);
    if (exchange)
        name_set(from->folder, from->name, replaced);
    else if (from->folder)
        name_remove(from->folder, from->name);
}

const struct handler name_open = {open_enter, open_leave, false};
const struct handler name_make = {make_enter, make_leave, false};
const struct handler name_bind = {bind_enter, make_leave, false};
const struct handler name_symlink = {symlink_enter, make_leave, false};
const struct handler name_link = {link_enter, link_leave, false};
const struct handler name_unlink = {unlink_enter, unlink_leave, false};
const struct handler name_rename = {rename_enter, rename_leave, false};
