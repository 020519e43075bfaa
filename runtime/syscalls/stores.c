/* What instrumented code recorded of its stores to mapped files. The threads of the program write chunks of their own into the
 * trace; what these hold is taken over before a mapping is compared, so that comparing finds only what other code stored. */
#include <stdlib.h>

#include "syscalls/recorder.h"

struct stream {             /* a chunk of a thread of the program */
    uint64_t place, taken;  /* taken: bytes of it that were */
    struct stream *next;
};

static struct stream *streams;
static uint64_t next_chunk; /* what is before it is known */

/* Chunks that were begun since the last time. */
static void find_chunks(void)
{
    struct cc_chunk_header head;
    uint64_t chunks = __atomic_load_n(&trace_header()->next_chunk, __ATOMIC_ACQUIRE);
    while (next_chunk < chunks) {
        uint64_t place = CC_HEADER_BYTES + next_chunk * CC_CHUNK_BYTES;
        if (!trace_read(place, &head, sizeof head) || head.kind == CC_CHUNK_FREE)
            return; /* a thread is about to begin it; how long it is cannot be known */
        next_chunk += head.chunks;
        if (head.kind != CC_CHUNK_EVENTS || !head.thread)
            continue;
        struct stream *stream = malloc(sizeof *stream);
        if (!stream)
            die("no memory");
        *stream = (struct stream){.place = place, .next = streams};
        streams = stream;
    }
}

static void take(const struct cc_event *event, stored_bytes *stored)
{
    static char *bytes;
    static size_t capacity;
    if (event->kind != CC_STORE)
        return;
    if (event->size <= sizeof event->payload) {
        stored(event->file, event->offset, &event->payload, event->size);
        return;
    }
    if (event->size > capacity) {
        free(bytes);
        capacity = event->size;
        bytes = malloc(capacity);
        if (!bytes)
            die("no memory");
    }
    if (trace_read(event->payload, bytes, event->size))
        stored(event->file, event->offset, bytes, event->size);
}

/* Takes what is new in a chunk; whether it is full. */
static bool take_chunk(struct stream *stream, stored_bytes *stored)
{
    static struct cc_event events[CC_CHUNK_BYTES / CC_EVENT_BYTES];
    struct cc_chunk_header head;
    if (!trace_read(stream->place, &head, sizeof head))
        return true;
    size_t fresh = head.used_bytes - stream->taken;
    if (fresh && trace_read(stream->place + CC_CHUNK_HEADER_BYTES + stream->taken, events, fresh))
        for (size_t i = 0; i < fresh / CC_EVENT_BYTES; i++)
            take(&events[i], stored);
    stream->taken = head.used_bytes;
    return stream->taken + CC_EVENT_BYTES > CC_CHUNK_BYTES - CC_CHUNK_HEADER_BYTES;
}

void stores_take(stored_bytes *stored)
{
    find_chunks();
    for (struct stream **at = &streams; *at;) {
        struct stream *stream = *at;
        if (!take_chunk(stream, stored)) {
            at = &stream->next;
            continue;
        }
        *at = stream->next;
        free(stream);
    }
}
