/* The trace file as the recorder writes it: its header, and chunks that each belong to one writer. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "recorder/notes.h"
#include "recorder/process.h"
#include "recorder/sequence.h"
#include "recorder/trace.h"
#include "recorder/traced.h"

char cc_trace_path[PATH_ROOM];

/* The file is opened for each chunk and closed at once: a descriptor kept open would change the numbers
 * that the program's own files get, and programs close descriptors that they do not know. */
static long open_trace(void)
{
    return raw4(SYS_open, (long)cc_trace_path, O_RDWR | O_CLOEXEC | (cc_traced ? 0 : O_CREAT), 0666, 0);
}

static void write_header(int fd)
{
    unsigned char page[CC_HEADER_BYTES] = {0};
    struct cc_trace_header *header = (struct cc_trace_header *)(void *)page;
    raw_move(header->magic, CC_TRACE_MAGIC, sizeof header->magic);
    header->version = CC_TRACE_VERSION;
    header->header_bytes = CC_HEADER_BYTES;
    header->chunk_bytes = CC_CHUNK_BYTES;
    header->event_bytes = CC_EVENT_BYTES;
    header->next_seq = 1;
    header->next_site = 1;
    header->next_stack = 1;
    header->next_thread = 1;
    header->next_file = 1;
    header->next_operation = 1;
    header->next_load_site = 1;
    header->next_load_stack = 1;
    header->next_load_thread = 1;
    raw4(SYS_pwrite64, fd, (long)page, sizeof page, 0);
}

bool cc_trace_open(const char *path)
{
    size_t length = raw_length(path);
    if (length >= sizeof cc_trace_path)
        return false;
    raw_move(cc_trace_path, path, length + 1);
    long fd = open_trace();
    if (raw_failed(fd))
        return false;
    raw3(SYS_flock, fd, LOCK_EX, 0);
    if (raw3(SYS_lseek, fd, 0, SEEK_END) < (long)CC_HEADER_BYTES)
        write_header((int)fd);
    raw3(SYS_flock, fd, LOCK_UN, 0);
    long mapped = -EIO;
    if (raw3(SYS_lseek, fd, 0, SEEK_END) >= (long)CC_HEADER_BYTES)
        mapped = raw6(SYS_mmap, 0, CC_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    raw3(SYS_close, fd, 0, 0);
    if (raw_failed(mapped))
        return false;
    struct cc_trace_header *header = (struct cc_trace_header *)mapped;
    if (!raw_same(header->magic, CC_TRACE_MAGIC, sizeof header->magic) || header->version != CC_TRACE_VERSION) {
        raw3(SYS_munmap, mapped, CC_HEADER_BYTES, 0);
        return false;
    }
    cc_header = header;
    return true;
}

/* Room is allocated before it is mapped, because a store to a mapped hole on a full disk is SIGBUS. The
 * limit on file size is tested first, because exceeding it is SIGXFSZ. */
static bool allocate(int fd, uint64_t offset, uint64_t size)
{
    struct rlimit limit;
    if (!raw_failed(raw4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit)) && limit.rlim_cur != RLIM_INFINITY &&
        offset + size > limit.rlim_cur)
        return false;
    long result;
    do
        result = raw4(SYS_fallocate, fd, 0, (long)offset, (long)size);
    while (result == -EINTR);
    if (result != -EOPNOTSUPP)
        return !raw_failed(result);
    static const unsigned char zeros[PAGE];
    for (uint64_t done = 0; done < size; done += PAGE)
        if (raw4(SYS_pwrite64, fd, (long)zeros, PAGE, (long)(offset + done)) != (long)PAGE)
            return false;
    return true;
}

/* Takes `chunks` consecutive chunks; NULL stops recording. */
static unsigned char *take_chunks(uint32_t kind, uint32_t thread, uint32_t chunks, uint64_t *at)
{
    if (__atomic_load_n(&cc_header->status, __ATOMIC_RELAXED) & (CC_STATUS_DISK_FULL | CC_STATUS_TOO_MANY)) {
        cc_stop(0);
        return NULL;
    }
    long fd = open_trace();
    if (raw_failed(fd)) {
        cc_stop(CC_STATUS_DISK_FULL);
        return NULL;
    }
    uint64_t index = __atomic_fetch_add(&cc_header->next_chunk, chunks, __ATOMIC_RELAXED);
    uint64_t offset = CC_HEADER_BYTES + index * CC_CHUNK_BYTES;
    uint64_t size = (uint64_t)chunks * CC_CHUNK_BYTES;
    long mapped = -ENOSPC;
    if (allocate((int)fd, offset, size))
        mapped = raw6(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (long)offset);
    raw3(SYS_close, fd, 0, 0);
    if (raw_failed(mapped)) {
        cc_stop(CC_STATUS_DISK_FULL);
        return NULL;
    }
    struct cc_chunk_header *header = (struct cc_chunk_header *)mapped;
    header->thread = thread;
    header->pid = cc_pid;
    header->chunks = chunks;
    header->used_bytes = 0;
    __atomic_store_n(&header->kind, kind, __ATOMIC_RELEASE);
    *at = offset;
    return (unsigned char *)mapped;
}

bool cc_new_chunk(struct writer *writer)
{
    uint64_t at;
    unsigned char *chunk = take_chunks(writer->kind, writer->thread, 1, &at);
    if (writer->chunk)
        raw3(SYS_munmap, (long)writer->chunk, CC_CHUNK_BYTES, 0);
    writer->chunk = chunk;
    writer->used = 0;
    return chunk != NULL;
}

void cc_writer_start(struct writer *writer, enum cc_chunk_kind kind, uint32_t thread)
{
    writer->kind = kind;
    writer->thread = thread;
}

void cc_writer_forget(struct writer *writer, bool unmap)
{
    if (unmap && writer->chunk)
        raw3(SYS_munmap, (long)writer->chunk, CC_CHUNK_BYTES, 0);
    if (unmap && writer->blob)
        raw3(SYS_munmap, (long)writer->blob, CC_CHUNK_BYTES, 0);
    writer->chunk = NULL;
    writer->blob = NULL;
}

/* The writer of this thread at its level, made or given its first chunk; NULL when recording is over. */
struct writer *cc_writer_slow(void)
{
    struct thread *thread = &cc_thread;
    if (!cc_recording)
        return NULL;
    uint32_t level = thread->level - 1;
    if (level >= LEVELS) {
        cc_note("levels", "signal handlers interrupted one another too deeply to be recorded");
        cc_stop(CC_STATUS_TOO_MANY);
        return NULL;
    }
    bool starts = thread->id == 0;
    if (starts) {
        thread->id = cc_traced ? cc_traced_thread() : __atomic_fetch_add(&cc_header->next_thread, 1, __ATOMIC_RELAXED);
        if (!thread->id) { /* the other recorder has ended */
            cc_stop(0);
            return NULL;
        }
        cc_thread_begins();
    }
    if (!thread->writers[level]) {
        long mapped = raw6(SYS_mmap, 0, sizeof(struct writer), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (raw_failed(mapped)) {
            cc_stop(CC_STATUS_DISK_FULL);
            return NULL;
        }
        thread->writers[level] = (struct writer *)mapped;
    }
    struct writer *writer = thread->writers[level];
    cc_writer_start(writer, CC_CHUNK_EVENTS, thread->id);
    if (!writer->chunk && !cc_new_chunk(writer))
        return NULL;
    if (starts && !cc_traced) {
        struct cc_event event = {
            .seq = cc_number(1), .kind = CC_THREAD_START, .aux = thread->id, .payload = cc_pid, .instance_delta = CC_NO_INSTANCE};
        cc_put(writer, &event);
    }
    return writer;
}

/* Room for `size` bytes in the writer's blob chunk, or in one of their own if they are many. The bytes count
 * as used before they are written: what refers to them is recorded only after. */
static unsigned char *blob_room(struct writer *writer, uint64_t size, uint64_t *at, uint64_t *unmap)
{
    *unmap = 0;
    if (size > CHUNK_ROOM / 4) {
        uint64_t chunks = (size + CC_CHUNK_HEADER_BYTES + CC_CHUNK_BYTES - 1) / CC_CHUNK_BYTES;
        unsigned char *chunk = take_chunks(CC_CHUNK_BLOB, writer->thread, (uint32_t)chunks, at);
        if (!chunk)
            return NULL;
        ((struct cc_chunk_header *)(void *)chunk)->used_bytes = size;
        *at += CC_CHUNK_HEADER_BYTES;
        *unmap = chunks * CC_CHUNK_BYTES;
        return chunk + CC_CHUNK_HEADER_BYTES;
    }
    if (!writer->blob || writer->blob_used + size > CHUNK_ROOM) {
        if (writer->blob)
            raw3(SYS_munmap, (long)writer->blob, CC_CHUNK_BYTES, 0);
        writer->blob_used = 0;
        writer->blob = take_chunks(CC_CHUNK_BLOB, writer->thread, 1, &writer->blob_at);
        if (!writer->blob)
            return NULL;
    }
    unsigned char *space = writer->blob + CC_CHUNK_HEADER_BYTES + writer->blob_used;
    *at = writer->blob_at + CC_CHUNK_HEADER_BYTES + writer->blob_used;
    writer->blob_used += (size + 7) & ~7ul;
    if (writer->blob_used > CHUNK_ROOM)
        writer->blob_used = CHUNK_ROOM;
    struct cc_chunk_header *header = (struct cc_chunk_header *)(void *)writer->blob;
    __atomic_store_n(&header->used_bytes, writer->blob_used, __ATOMIC_RELEASE);
    return space;
}

static void blob_done(unsigned char *space, uint64_t unmap)
{
    if (unmap)
        raw3(SYS_munmap, (long)(space - CC_CHUNK_HEADER_BYTES), (long)unmap, 0);
}

/* File offset of head then bytes, or 0 when recording is over. */
uint64_t cc_blob(struct writer *writer, const void *head, size_t head_size, const void *bytes, uint64_t size)
{
    uint64_t at, unmap;
    unsigned char *space = blob_room(writer, head_size + size, &at, &unmap);
    if (!space)
        return 0;
    raw_move(space, head, head_size);
    raw_move(space + head_size, bytes, size);
    blob_done(space, unmap);
    return at;
}

uint64_t cc_blob_fill(struct writer *writer, int byte, uint64_t size)
{
    uint64_t at, unmap;
    unsigned char *space = blob_room(writer, size, &at, &unmap);
    if (!space)
        return 0;
    raw_fill(space, byte, size);
    blob_done(space, unmap);
    return at;
}
