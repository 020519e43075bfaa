/* Calls that give a pool file another name or none. A file that takes a name is recorded with its content, and a crash
 * leaves both the name and the content or neither (docs/crash-model.md); links and exchanges are reported as not modelled. */
#define CC_MODELS_CALLS
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "interpose/model.h"
#include "recorder/events.h"
#include "recorder/file_ids.h"
#include "recorder/pool_files.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"
#include "recorder/trace.h"

#define BLOCK (1ul << 20) /* bytes of content in one event */

/* One of the names that a call is given. */
struct name {
    int folder;
    const char *path;
    bool watched;               /* it names a pool file, or would */
    bool in_pool;
    bool exists, regular, folder_itself; /* before the call */
    bool linked;                /* it has other names, too */
    uint64_t device, inode, size;
    char relative[PATH_ROOM];
};

static void look_up(struct name *name, int folder, const char *path)
{
    struct stat state;
    name->folder = folder;
    name->path = path;
    name->exists = false;
    name->regular = false;
    name->folder_itself = false;
    name->relative[0] = 0;
    name->linked = false;
    name->watched = path && cc_names_pool_file(folder, path, name->relative);
    name->in_pool = name->relative[0];
    if (!path || raw_failed(raw4(SYS_newfstatat, folder, (long)path, (long)&state, AT_SYMLINK_NOFOLLOW)))
        return;
    name->exists = true;
    name->regular = (state.st_mode & S_IFMT) == S_IFREG;
    name->folder_itself = (state.st_mode & S_IFMT) == S_IFDIR;
    name->linked = state.st_nlink > 1;
    name->device = state.st_dev;
    name->inode = state.st_ino;
    name->size = (uint64_t)state.st_size;
}

/* Reports the call, and identifies the inodes of both names again at their next use. */
static void not_modelled(where at, const char *call, const struct name *names, int count)
{
    uint16_t file = 0;
    bool watched = false;
    for (int i = 0; i < count; i++) {
        watched |= names[i].watched || (names[i].in_pool && names[i].folder_itself);
        if (names[i].exists) {
            uint16_t known = cc_known_inode(names[i].device, names[i].inode);
            file = known ? known : file;
            cc_forget_inode(names[i].device, names[i].inode);
        }
    }
    if (watched)
        cc_unmodelled(at, file, call);
}

/* The id of the file that had a name before the call. */
static uint16_t file_of(const struct name *name)
{
    return cc_file_of_path(name->relative, name->exists, name->exists ? name->size : 0);
}

static void unlinked(where at, const struct name *name, uint16_t file, uint64_t seq)
{
    cc_forget_inode(name->device, name->inode);
    cc_regions_rename(file, 0);
    cc_event_at(at, (struct cc_event){.kind = CC_UNLINK, .seq = seq, .file = file});
}

static int unlinks(where at, int folder, const char *path, int (*call)(int, const char *, int), int flags)
{
    struct name name;
    int saved = errno;
    look_up(&name, folder, path);
    bool follows = name.watched && name.regular && !name.linked;
    if (!follows && name.exists && !name.folder_itself)
        not_modelled(at, "unlink", &name, 1);
    uint16_t file = follows ? file_of(&name) : 0;
    uint64_t seq = file ? cc_number(1) : 0;
    errno = saved;
    int result = call(folder, path, flags);
    saved = errno;
    if (file && !result)
        unlinked(at, &name, file, seq);
    errno = saved;
    return result;
}

/* Records what a file holds, except its holes. */
static bool record_content(where at, uint16_t file, long fd, uint64_t size)
{
    unsigned char *block = cc_scratch(1, BLOCK);
    long data = 0;
    while (block && data < (long)size && (data = raw3(SYS_lseek, fd, data, SEEK_DATA)) >= 0) {
        long hole = raw3(SYS_lseek, fd, data, SEEK_HOLE);
        long end = hole < 0 || hole > (long)size ? (long)size : hole;
        while (data < end) {
            long part = end - data < (long)BLOCK ? end - data : (long)BLOCK;
            long got = raw4(SYS_pread64, fd, (long)block, part, data);
            if (got <= 0)
                break;
            cc_event_bytes(at, (struct cc_event){.kind = CC_CONTENT, .file = file, .offset = (uint64_t)data}, NULL, 0, block,
                           (uint64_t)got);
            data += got;
        }
        if (data < end)
            break;
    }
    bool done = block && (data >= (long)size || data == -ENXIO);
    if (block)
        cc_scratch_free(block, 1, BLOCK);
    return done;
}

/* A file has taken the name `to`, whose id is `file`; `from`: its id before, or 0. */
static void renamed(where at, const struct name *to, uint16_t from, uint16_t file)
{
    struct file_state state;
    bool known = false;
    cc_regions_rename(file, 0); /* those of the file that had the name */
    if (from)
        cc_regions_rename(from, file);
    long fd = raw4(SYS_openat, to->folder, (long)to->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (!raw_failed(fd)) {
        char path[PATH_ROOM];
        if (!from && cc_real_path((int)fd, path))
            cc_regions_adopt(file, path);
        known = cc_state_of_fd((int)fd, &state) && record_content(at, file, fd, state.size);
        raw3(SYS_close, fd, 0, 0);
    }
    if (known)
        cc_event_at(at, (struct cc_event){.kind = CC_RENAME, .file = file, .aux = from, .offset = state.size});
    else
        cc_unmodelled(at, file, "rename");
}

static int renames(where at, int from_folder, const char *from, int to_folder, const char *to, unsigned flags,
                   int (*call)(int, const char *, int, const char *, unsigned))
{
    struct name names[2];
    int saved = errno;
    look_up(&names[0], from_folder, from);
    look_up(&names[1], to_folder, to);
    bool same = names[0].exists && names[1].exists && names[0].inode == names[1].inode && names[0].device == names[1].device;
    bool follows = (names[0].watched || names[1].watched) && !same && names[0].regular && !names[0].linked &&
                   (!names[1].exists || (names[1].regular && !names[1].linked)) && !(flags & ~1u /* RENAME_NOREPLACE */);
    if (!follows && names[0].exists && !same)
        not_modelled(at, "rename", names, 2);
    uint16_t before = follows && names[0].watched ? file_of(&names[0]) : 0;
    uint16_t after = follows && names[1].watched ? file_of(&names[1]) : 0;
    uint64_t seq = before && !after ? cc_number(1) : 0;
    errno = saved;
    int result = call(from_folder, from, to_folder, to, flags);
    saved = errno;
    if (follows && !result) {
        cc_forget_inode(names[0].device, names[0].inode);
        if (names[1].exists)
            cc_forget_inode(names[1].device, names[1].inode);
        if (after)
            renamed(at, &names[1], before, after);
        else if (before)
            unlinked(at, &names[0], before, seq);
    }
    errno = saved;
    return result;
}

/* As the functions with folders and flags, whichever of them the program called. */
static int unlink_at(int folder, const char *path, int flags)
{
    return REAL(unlinkat)(folder, path, flags);
}
static int unlink_plainly(int folder, const char *path, int flags)
{
    (void)folder;
    (void)flags;
    return REAL(unlink)(path);
}
static int remove_plainly(int folder, const char *path, int flags)
{
    (void)folder;
    (void)flags;
    return REAL(remove)(path);
}
static int rename_plainly(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    (void)from_folder;
    (void)to_folder;
    (void)flags;
    return REAL(rename)(from, to);
}
static int rename_at(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    (void)flags;
    return REAL(renameat)(from_folder, from, to_folder, to);
}
static int rename_at_with(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return REAL(renameat2)(from_folder, from, to_folder, to, flags);
}

MODEL(int, rename, (const char *from, const char *to), REAL(rename)(from, to),
      renames(at, AT_FDCWD, from, AT_FDCWD, to, 0, rename_plainly))
MODEL(int, renameat, (int from_folder, const char *from, int to_folder, const char *to),
      REAL(renameat)(from_folder, from, to_folder, to), renames(at, from_folder, from, to_folder, to, 0, rename_at))
MODEL(int, renameat2, (int from_folder, const char *from, int to_folder, const char *to, unsigned flags),
      REAL(renameat2)(from_folder, from, to_folder, to, flags),
      renames(at, from_folder, from, to_folder, to, flags, rename_at_with))
MODEL(int, unlink, (const char *path), REAL(unlink)(path), unlinks(at, AT_FDCWD, path, unlink_plainly, 0))
MODEL(int, unlinkat, (int folder, const char *path, int flags), REAL(unlinkat)(folder, path, flags),
      unlinks(at, folder, path, unlink_at, flags))
MODEL(int, remove, (const char *path), REAL(remove)(path), unlinks(at, AT_FDCWD, path, remove_plainly, 0))

static void links(where at, int from_folder, const char *from, int to_folder, const char *to)
{
    struct name names[2];
    int saved = errno;
    look_up(&names[0], from_folder, from);
    look_up(&names[1], to_folder, to);
    not_modelled(at, "link", names, 2);
    errno = saved;
}
MODEL_BEFORE(int, link, (const char *from, const char *to), links(at, AT_FDCWD, from, AT_FDCWD, to), (from, to))
MODEL_BEFORE(int, linkat, (int from_folder, const char *from, int to_folder, const char *to, int flags),
             links(at, from_folder, from, to_folder, to), (from_folder, from, to_folder, to, flags))

/* Names that no recorded file has: of directories, and of symbolic links. Only where they are called is of interest. */
MODEL(int, mkdir, (const char *path, mode_t mode), REAL(mkdir)(path, mode), REAL(mkdir)(path, mode))
MODEL(int, mkdirat, (int folder, const char *path, mode_t mode), REAL(mkdirat)(folder, path, mode), REAL(mkdirat)(folder, path, mode))
MODEL(int, rmdir, (const char *path), REAL(rmdir)(path), REAL(rmdir)(path))
MODEL(int, symlink, (const char *target, const char *path), REAL(symlink)(target, path), REAL(symlink)(target, path))
MODEL(int, symlinkat, (const char *target, int folder, const char *path), REAL(symlinkat)(target, folder, path),
      REAL(symlinkat)(target, folder, path))
