/* The trace file as the recorder writes it: its header, and writers that own one chunk each. */
#ifndef CRASHCHECK_RECORDER_TRACE_H
#define CRASHCHECK_RECORDER_TRACE_H

#include "recorder/process.h"
#include "recorder/regions.h"
#include "recorder/snapshot.h"

/* An update longer than this becomes several events, cut at page boundaries of the file: its pieces are
 * unordered across lines and pages anyway, and `size` has 32 bits. */
#define LONGEST_UPDATE (64ul << 20)
#define CHUNK_ROOM (CC_CHUNK_BYTES - CC_CHUNK_HEADER_BYTES)

/* One thread's place in the trace, at one level of interruption. */
struct writer {
    unsigned char *chunk;   /* mapped event chunk or NULL */
    uint64_t used;
    unsigned char *blob;    /* mapped blob chunk or NULL */
    uint64_t blob_used;
    uint64_t blob_at;       /* file offset of the blob chunk */
    uint32_t kind;          /* cc_chunk_kind of its chunks; loads are numbered apart */
    uint32_t thread;        /* number that its chunks carry */
    struct region last;     /* region of the last update, valid at `region_version` */
    uint64_t region_version;
    uint32_t memo_depth;    /* frames[0..memo_depth) resolved to nodes[0..memo_depth) */
    uint32_t memo_generation;
    struct cc_frame memo_frames[CC_STACK_MAX] __attribute__((aligned(16)));
    uint32_t memo_nodes[CC_STACK_MAX];
};

extern HIDDEN char cc_trace_path[PATH_ROOM];

HIDDEN bool cc_trace_open(const char *path);
HIDDEN struct writer *cc_writer_slow(void);
HIDDEN void cc_writer_start(struct writer *writer, enum cc_chunk_kind kind, uint32_t thread);
HIDDEN void cc_writer_forget(struct writer *writer, bool unmap);
HIDDEN bool cc_new_chunk(struct writer *writer);
/* The file offset of `head` and then `bytes`, or of `size` bytes of one value; 0 when recording is over. */
HIDDEN uint64_t cc_blob(struct writer *writer, const void *head, size_t head_size, const void *bytes, uint64_t size);
HIDDEN uint64_t cc_blob_fill(struct writer *writer, int byte, uint64_t size);

static inline struct writer *cc_enter(void)
{
    struct thread *thread = &cc_thread;
    if (UNLIKELY(*cc_alive == 0))
        cc_child();
    thread->covered = NULL;
    uint32_t level = thread->level++;
    atomic_signal_fence(memory_order_seq_cst);
    if (LIKELY(level < LEVELS)) {
        struct writer *writer = thread->writers[level];
        if (LIKELY(writer && writer->chunk))
            return writer;
    }
    return cc_writer_slow();
}

static inline void cc_leave(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    cc_thread.level--;
}

static inline void cc_leave_block(struct writer *const *writer)
{
    (void)writer;
    cc_leave();
}

/* A block with this thread's writer, skipped when recording is over. However the block is left, by its end, break,
 * return, goto or an exception, the compiler calls cc_leave_block: no way out of it can keep a level of interruption. */
#define WITH_WRITER(writer)                                                                                            \
    for (struct writer *writer __attribute__((cleanup(cc_leave_block))) = cc_enter(), *once = (struct writer *)1; once;  \
         once = NULL)                                                                                                  \
        if (writer)

/* Makes writer->last the region of `address`; else sets `next` to where the next region above starts (0: nowhere). */
static inline bool cc_region(struct writer *writer, uintptr_t address, uintptr_t *next)
{
    uint64_t version = atomic_load_explicit(&cc_region_version, memory_order_acquire);
    if (LIKELY(writer->region_version == version && address - writer->last.start < writer->last.end - writer->last.start))
        return true;
    return cc_region_find(address, &writer->last, &writer->region_version, next);
}

static inline __attribute__((always_inline)) void cc_put(struct writer *writer, const struct cc_event *event)
{
    if (UNLIKELY(writer->used + CC_EVENT_BYTES > CHUNK_ROOM) && !cc_new_chunk(writer))
        return;
    struct cc_chunk_header *header = (struct cc_chunk_header *)(void *)writer->chunk;
    /* Whole words: fields stored one by one and copied by vectors would stall on store forwarding. */
    uint64_t *slot = (uint64_t *)(void *)(writer->chunk + CC_CHUNK_HEADER_BYTES + writer->used);
    slot[0] = event->seq;
    slot[1] = event->offset;
    slot[2] = (uint64_t)event->site << 32 | event->size;
    slot[3] = (uint64_t)event->instance_delta << 32 | event->stack;
    slot[4] = (uint64_t)event->file << 32 | (uint64_t)event->flags << 8 | event->kind; /* call: not of this recorder */
    slot[5] = event->aux;                                                            /* folder: likewise */
    slot[6] = event->payload;
    writer->used += CC_EVENT_BYTES;
    __atomic_store_n(&header->used_bytes, writer->used, __ATOMIC_RELEASE);
    if (UNLIKELY(event->site == cc_snapshot_site) && writer->kind == CC_CHUNK_EVENTS)
        cc_snapshot_count(event->seq);
}

#endif
