/* What an explored process prints and writes to files, and its end. The kernel's files are those of all processes, so what is written
 * stays in memory of this one: a file is copied there before it is changed, and one that is made is nowhere else. Its
 * descriptor then is one of /dev/null (explorer/explore.c). */
#ifdef CC_SHARED
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "explorer/exploration.h"
#include "explorer/section.h"
#include "explorer/written.h"

/* A path of a system call, in terms that the path of a file has that is not there. */
struct entry {
    uint64_t device, inode; /* of the folder */
    const char *name;       /* the last part of the path */
};

HERE static struct written *keep(long number)
{
    if (cc_run.writes == WRITTEN)
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    struct written *file = &cc_run.written[cc_run.writes++];
    raw_fill(file, 0, sizeof *file);
    return file;
}

HERE struct written *cc_explore_written_as(const struct stat *state)
{
    for (uint32_t i = 0; i < cc_run.writes; i++) {
        struct written *file = &cc_run.written[i];
        if (!*file->name && file->device == state->st_dev && file->inode == state->st_ino)
            return file;
    }
    return NULL;
}

HERE static struct written *note_stream(long fd)
{
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)))
        return NULL;
    struct written *known = cc_explore_written_as(&state);
    if (known)
        return known;
    struct written *stream = keep(SYS_write);
    stream->device = state.st_dev;
    stream->inode = state.st_ino;
    stream->is_stream = true;
    return stream;
}

HERE void cc_explore_note_outputs(void)
{
    for (uint32_t i = 0; i < PLACES; i++) {
        cc_run.description_of[i] = (uint8_t)i;
        cc_run.descriptions[i].place = NO_PLACE;
    }
    struct cc_explore_output *outputs = outputs_of(cc_run.table);
    for (uint32_t i = 0; i < cc_run.table->outputs; i++)
        if (outputs[i].descriptor >= 0) {
            const struct written *stream = note_stream(outputs[i].descriptor);
            outputs[i].stream = stream ? (uint32_t)(stream - cc_run.written) + 1 : 0;
        }
    uint32_t shown = cc_run.writes;
    const struct written *errors = note_stream(2);
    if (errors && errors - cc_run.written >= shown)
        cc_run.written[shown].is_dropped = true;
}

HERE struct written *cc_explore_written(long fd)
{
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)))
        return NULL;
    uint64_t made = fd < PLACES ? cc_run.descriptions[cc_run.description_of[fd]].made : 0;
    return made ? &cc_run.written[made - 1] : cc_explore_written_as(&state);
}

/* The folder of a path, and the last name in it. `parent`: PATH_ROOM for the folder's path. */
HERE static long find_folder(long folder, const char *path, struct entry *found, char *parent)
{
    struct stat state;
    size_t length = raw_length(path), start = length;
    if (length >= PATH_ROOM)
        return -ENAMETOOLONG;
    while (start && path[start - 1] != '/')
        start--;
    raw_move(parent, path, start);
    parent[start] = 0;
    long failed = raw4(SYS_newfstatat, folder, (long)parent, (long)&state, start ? 0 : AT_EMPTY_PATH);
    if (raw_failed(failed))
        return failed;
    *found = (struct entry){state.st_dev, state.st_ino, path + start};
    return 0;
}

HERE struct written *cc_explore_made(long folder, const char *path)
{
    struct entry at;
    char parent[PATH_ROOM];
    if (!cc_run.makes || raw_failed(find_folder(folder, path, &at, parent)))
        return NULL;
    for (uint32_t i = 0; i < cc_run.writes; i++) {
        struct written *file = &cc_run.written[i];
        size_t length = raw_length(file->name);
        if (length && length == raw_length(at.name) && raw_same(file->name, at.name, length) && file->device == at.device &&
            file->inode == at.inode)
            return file;
    }
    return NULL;
}

HERE bool cc_explore_makes_in(const struct stat *folder)
{
    for (uint32_t i = 0; i < cc_run.writes; i++)
        if (*cc_run.written[i].name && cc_run.written[i].device == folder->st_dev && cc_run.written[i].inode == folder->st_ino)
            return true;
    return false;
}

HERE long cc_explore_make(long number, long folder, const char *path, uint32_t mode, struct written **made)
{
    struct entry at;
    char parent[PATH_ROOM];
    long failed = find_folder(folder, path, &at, parent);
    if (!raw_failed(failed))
        failed = *parent ? raw4(SYS_faccessat, folder, (long)parent, W_OK | X_OK, 0) : 0;
    if (raw_failed(failed))
        return failed;
    size_t length = raw_length(at.name);
    if (!length || length >= NAME_ROOM || (at.name[0] == '.' && (length == 1 || (length == 2 && at.name[1] == '.'))))
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    struct written *file = *made = keep(number);
    file->device = at.device;
    file->inode = at.inode;
    raw_append(file->name, NAME_ROOM, at.name);
    long mask = raw3(SYS_umask, 0, 0, 0);
    raw3(SYS_umask, mask, 0, 0);
    file->mode = mode & 07777 & ~(uint32_t)mask;
    cc_run.makes++;
    return 0;
}

/* The number as a path below /proc/self/fd: what is open for writing alone is read by that. */
HERE static long open_again(long fd)
{
    char path[40] = "/proc/self/fd/", digits[20];
    size_t at = raw_length(path), count = 0;
    for (long rest = fd; rest || !count; rest /= 10)
        digits[count++] = (char)('0' + rest % 10);
    while (count)
        path[at++] = digits[--count];
    path[at] = 0;
    return raw3(SYS_open, (long)path, O_RDONLY | O_CLOEXEC, 0);
}

HERE struct written *cc_explore_copy(long number, long fd)
{
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)))
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    struct written *file = keep(number);
    file->device = state.st_dev;
    file->inode = state.st_ino;
    if (!state.st_size)
        return file;
    long again = open_again(fd);
    if (raw_failed(again) || (uint64_t)state.st_size > WRITTEN_ROOM)
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    cc_explore_cut(file, (uint64_t)state.st_size);
    for (uint64_t at = 0; at < file->size;) {
        long got = raw4(SYS_pread64, again, (long)(file->bytes + at), (long)(file->size - at), (long)at);
        if (got <= 0)
            cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
        at += (uint64_t)got;
    }
    raw3(SYS_close, again, 0, 0);
    return file;
}

/* Makes room for `size` bytes; those that were never written are zero. */
HERE static void reach(struct written *file, uint64_t size)
{
    if (size > WRITTEN_ROOM)
        cc_explore_refuse(CC_EXPLORE_ROOM, 2);
    if (file->bytes || !size)
        return;
    long at = raw6(SYS_mmap, 0, WRITTEN_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw_failed(at))
        cc_explore_refuse(CC_EXPLORE_SETUP, 5);
    file->bytes = (unsigned char *)at;
}

HERE void cc_explore_put(struct written *into, uint64_t offset, const void *from, size_t size)
{
    if (into->is_dropped)
        return;
    if (offset > WRITTEN_ROOM || size > WRITTEN_ROOM)
        cc_explore_refuse(CC_EXPLORE_ROOM, 2);
    reach(into, offset + size);
    raw_move(into->bytes + offset, from, size);
    if (into->size < offset + size)
        into->size = offset + size;
}

HERE void cc_explore_cut(struct written *file, uint64_t size)
{
    reach(file, size);
    if (size < file->size)
        raw_fill(file->bytes + size, 0, file->size - size);
    file->size = size;
}

HERE void cc_explore_show(const struct written *file, struct stat *state)
{
    state->st_size = (off_t)file->size;
    if (!*file->name)
        return;
    raw_fill(state, 0, sizeof *state);
    state->st_dev = file->device;
    state->st_ino = file->inode + 1 + (uint64_t)(file - cc_run.written);
    state->st_nlink = 1;
    state->st_mode = S_IFREG | file->mode;
    state->st_uid = (uint32_t)raw3(SYS_geteuid, 0, 0, 0);
    state->st_gid = (uint32_t)raw3(SYS_getegid, 0, 0, 0);
    state->st_size = (off_t)file->size;
    state->st_blksize = PAGE;
    state->st_blocks = (blkcnt_t)((file->size + 511) / 512);
}

/* What an output got; NULL: nothing. */
HERE static const struct written *written_to(const struct cc_explore_output *output)
{
    struct stat state;
    if (output->descriptor >= 0)
        return output->stream ? &cc_run.written[output->stream - 1] : NULL;
    const char *path = (const char *)cc_run.table + output->path;
    const struct written *made = cc_explore_made(AT_FDCWD, path);
    if (made || raw_failed(raw4(SYS_newfstatat, AT_FDCWD, (long)path, (long)&state, 0)))
        return made;
    return cc_explore_written_as(&state);
}

/* Adds to what the processes hand over. */
HERE static void hand_over(const void *from, uint64_t size)
{
    if (cc_run.table->output_used + size > cc_run.table->output_end)
        cc_explore_refuse(CC_EXPLORE_ROOM, 2);
    raw_move((char *)cc_run.table + cc_run.table->output_used, from, size);
    cc_run.table->output_used += size;
}

/* One process runs at a time, so that nothing here needs a lock. */
HERE void cc_explore_ends(int32_t status)
{
    if (cc_run.table->ends >= cc_run.table->end_room)
        cc_explore_refuse(CC_EXPLORE_ROOM, 1);
    struct cc_explore_end *end = (struct cc_explore_end *)(void *)((char *)cc_run.table + cc_run.table->first_end) + cc_run.table->ends;
    end->status = status;
    end->output = cc_run.table->output_used;
    for (uint32_t i = 0; i < cc_run.table->outputs; i++) {
        const struct written *from = written_to(&outputs_of(cc_run.table)[i]);
        uint64_t size = from ? from->size : 0;
        outputs_of(cc_run.table)[i].writers |= from ? from->writers : 0;
        hand_over(&size, sizeof size);
        hand_over(from ? from->bytes : NULL, size);
    }
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uint32_t first = 0, alive = 0;
        for (uint32_t which = cc_run.granules[i].choices; which-- > 0;)
            if (BIT(cc_run.state_of[i].alive, which)) {
                first = which;
                alive++;
            }
        end->choice[i] = alive == cc_run.granules[i].choices ? UINT16_MAX : (uint16_t)first;
    }
    cc_run.table->ends++;
    cc_explore_done();
}

HERE void cc_explore_signalled(int32_t number)
{
    if (cc_run.actions[number - 1].handler)
        cc_explore_refuse(CC_EXPLORE_CALL, SYS_rt_sigaction);
    cc_explore_ends(number);
}
#endif
