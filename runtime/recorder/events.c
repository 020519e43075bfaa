/* The calls that instrumented code makes: its stores, atomics, flushes and fences become records of the trace. */
#include "recorder/events.h"
#include "recorder/loads.h"
#include "recorder/locks.h"
#include "recorder/process.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"
#include "recorder/stacks.h"
#include "recorder/trace.h"
#include "recorder/traced.h"

#define NODE_NONE CC_NO_INSTANCE
#define STRIPES 256u

static uint32_t clamp_delta(uint64_t target, uint64_t instance)
{
    uint64_t delta = target - instance;
    return instance && delta < NODE_NONE ? (uint32_t)delta : NODE_NONE;
}

/* Site and stack of `at`, resolved before the event is numbered so that definitions are first. */
static inline void locate(struct writer *writer, where at, struct cc_event *event)
{
    event->site = cc_site(writer, at.unit, at.index);
    event->stack = cc_stack(writer, at.depth);
}

/* The event's number. */
uint64_t cc_event_at(where at, struct cc_event event)
{
    WITH_WRITER (writer) {
        locate(writer, at, &event);
        event.instance_delta = CC_NO_INSTANCE;
        if (!event.seq)
            event.seq = cc_number(1);
        cc_put(writer, &event);
    }
    return event.seq;
}

void cc_event_bytes(where at, struct cc_event event, const void *head, size_t head_size, const void *bytes, uint64_t size)
{
    WITH_WRITER (writer) {
        locate(writer, at, &event);
        event.instance_delta = CC_NO_INSTANCE;
        event.size = (uint32_t)(head_size + size);
        if (!event.seq)
            event.seq = cc_number(1);
        event.payload = 0;
        if (event.size <= sizeof event.payload) {
            raw_move(&event.payload, head, head_size);
            raw_move((char *)&event.payload + head_size, bytes, size);
        } else {
            event.payload = cc_blob(writer, head, head_size, bytes, size);
        }
        if (event.payload || event.size <= sizeof event.payload)
            cc_put(writer, &event);
    }
}

/* What an update of `size` bytes stores, in the event itself where they fit; false if there is no room for them. */
static bool set_payload(struct writer *writer, struct cc_event *event, const unsigned char *bytes, int fill, uint64_t size)
{
    event->payload = 0;
    if (size > sizeof event->payload) {
        event->payload = bytes ? cc_blob(writer, NULL, 0, bytes, size) : cc_blob_fill(writer, fill, size);
        return event->payload != 0;
    }
    if (bytes)
        raw_move(&event->payload, bytes, size);
    else
        raw_fill(&event->payload, fill, size);
    return true;
}

/* One update of one region: `bytes`, or `size` times the byte `fill` if NULL. Cut where events end. */
static void update_region(struct writer *writer, struct cc_event *event, const unsigned char *bytes, int fill, uint64_t size)
{
    while (size) {
        uint64_t part = size;
        if (part > LONGEST_UPDATE)
            part = LONGEST_UPDATE - event->offset % PAGE;
        event->size = (uint32_t)part;
        if (!set_payload(writer, event, bytes, fill, part))
            return;
        if (!event->seq)
            event->seq = cc_number(1);
        cc_put(writer, event);
        event->seq = 0;
        event->flags |= event->kind == CC_STORE ? CC_STORE_JOINED : CC_WRITE_JOINED;
        size -= part;
        if (bytes)
            bytes += part;
        event->offset += part;
        if (event->instance_delta != NODE_NONE)
            event->instance_delta += (uint32_t)part;
    }
}

/* How many of `size` bytes from `target`, in writer->last, are in one stretch of its file, whatever mappings hold them. */
static uint64_t stretch(struct writer *writer, uintptr_t target, uint64_t size)
{
    const struct region first = writer->last;
    uint64_t part = first.end - target;
    while (part < size && cc_region(writer, target + part, NULL) && writer->last.file == first.file &&
           target + part - writer->last.start + writer->last.offset == target + part - first.start + first.offset)
        part = writer->last.end - target;
    return part < size ? part : size;
}

static void update(struct writer *writer, where at, uint64_t seq, uintptr_t target, const unsigned char *bytes, int fill,
                   uint64_t size, uint8_t flags, uint64_t instance)
{
    bool located = false;
    struct cc_event event = {.kind = CC_STORE, .flags = flags, .seq = seq};
    while (size) {
        uintptr_t next = 0;
        uint64_t skip = 0;
        if (!cc_region(writer, target, &next)) {
            if (!next || next - target >= size)
                return;
            skip = next - target;
        } else {
            event.file = writer->last.file;
            event.offset = writer->last.offset + (target - writer->last.start);
            uint64_t part = stretch(writer, target, size);
            if (!located) {
                locate(writer, at, &event);
                located = true;
                cc_thread.touched = 1;
                if (flags & CC_STORE_NT)
                    cc_fence_wanted = 1;
            }
            event.instance_delta = clamp_delta(target, instance);
            update_region(writer, &event, bytes, fill, part);
            event.flags |= CC_STORE_JOINED;
            skip = part;
        }
        target += skip;
        size -= skip;
        if (bytes)
            bytes += skip;
    }
}

void cc_update(where at, uint64_t seq, const void *target, const void *bytes, int fill, uint64_t size, uint8_t flags,
               uint64_t instance)
{
    WITH_WRITER (writer)
        update(writer, at, seq, (uintptr_t)target, bytes, fill, size, flags, instance);
}

void cc_store(const void *target, const void *value, uint64_t size, uint64_t instance, struct cc_unit *unit,
              uint32_t index, uint32_t depth, uint32_t flags)
{
    if (cc_recording) {
        where at = {unit, index, depth};
        cc_update(at, 0, target, value, 0, size, (uint8_t)flags, instance);
    }
}

void cc_store_word(const void *target, uint64_t value, uint32_t size, uint64_t instance, struct cc_unit *unit,
                   uint32_t index, uint32_t depth, uint32_t flags)
{
    if (UNLIKELY(!cc_recording))
        return;
    WITH_WRITER (writer) {
        uintptr_t address = (uintptr_t)target;
        if (LIKELY(cc_region(writer, address, NULL) && writer->last.end - address >= size)) {
            struct cc_event event = {.kind = CC_STORE,
                                     .flags = (uint8_t)flags,
                                     .file = writer->last.file,
                                     .offset = writer->last.offset + (address - writer->last.start),
                                     .size = size,
                                     .instance_delta = clamp_delta(address, instance),
                                     .payload = size < 8 ? value & ((1ull << size * 8) - 1) : value};
            locate(writer, (where){unit, index, depth}, &event);
            cc_thread.touched = 1;
            if (flags & CC_STORE_NT)
                cc_fence_wanted = 1;
            event.seq = cc_number(1);
            cc_put(writer, &event);
        } else {
            update(writer, (where){unit, index, depth}, 0, address, (unsigned char *)&value, 0, size, (uint8_t)flags, instance);
        }
    }
}

/* Some words of a masked store, next to each other; true if they are in a file. */
static bool words(where at, uintptr_t begin, uintptr_t end, const unsigned char *bytes, uint32_t flags, uint64_t instance)
{
    bool found = false;
    WITH_WRITER (writer) {
        found = cc_region(writer, begin, NULL) || cc_region(writer, end - 1, NULL);
        if (found)
            update(writer, at, 0, begin, bytes, 0, end - begin, (uint8_t)flags, instance);
    }
    return found;
}

/* Words that follow each other are one event, the others are joined to it. Bytes between the enabled ones of a word are recorded
 * as what they hold: all stores to one word persist in order, so this changes no crash state. */
void cc_store_masked(const void *target, const void *value, const unsigned char *enabled, uint32_t lanes, uint32_t lane_bytes,
                     uint64_t instance, struct cc_unit *unit, uint32_t index, uint32_t depth, uint32_t flags)
{
    where at = {unit, index, depth};
    const uintptr_t base = (uintptr_t)target;
    unsigned char bytes[CC_VECTOR_BYTES];
    uintptr_t begin = base, end = base; /* of the words found so far */
    if (!cc_recording)
        return;
    for (uint32_t lane = 0; lane <= lanes; lane++) {
        uintptr_t low = base + lane * lane_bytes;
        if (lane < lanes && !enabled[lane])
            continue;
        if (end > begin && (lane == lanes || low / 8 > (end - 1) / 8 + 1)) {
            if (words(at, begin, end, bytes + (begin - base), flags, instance))
                flags |= CC_STORE_JOINED;
            begin = end = low;
        }
        if (lane < lanes) {
            if (begin == end)
                begin = end = low;
            raw_move(bytes + (end - base), (void *)end, low - end);
            raw_move(bytes + (low - base), (const char *)value + (low - base), lane_bytes);
            end = low + lane_bytes;
        }
    }
}

void cc_copy(const void *target, const void *source, uint64_t size, uint64_t instance, struct cc_unit *unit,
             uint32_t index, uint32_t depth)
{
    if (cc_recording && cc_range_in_window(target, size)) {
        cc_update((where){unit, index, depth}, 0, target, source, 0, size, CC_STORE_BULK, instance);
        cc_thread.covered = target;
        cc_thread.covered_bytes = size;
    }
}

void cc_fill(const void *target, uint32_t byte, uint64_t size, uint64_t instance, struct cc_unit *unit, uint32_t index,
             uint32_t depth)
{
    if (cc_recording && cc_range_in_window(target, size)) {
        cc_update((where){unit, index, depth}, 0, target, NULL, (int)(byte & 0xff), size, CC_STORE_BULK, instance);
        cc_thread.covered = target;
        cc_thread.covered_bytes = size;
    }
}

/* Atomics on persistent memory: one lock a stripe of lines, by place in the file so that two mappings of it
 * share a stripe. Asynchronous signals are blocked between begin and end: a handler that met the lock of its
 * own thread would wait for itself, and one that left by siglongjmp would leave the lock behind. The
 * signals of a faulting instruction stay open, since blocking them would kill a program that handles them. */
static struct quiet_lock stripes[STRIPES];

void cc_stripes_reset(void)
{
    for (uint32_t i = 0; i < STRIPES; i++)
        atomic_store(&stripes[i].held, 0);
    cc_thread.atomic_stripe = 0;
}

void cc_atomic_begin(const void *target)
{
    struct thread *thread = &cc_thread;
    if (!cc_recording) {
        thread->atomic_seq = 0;
        return;
    }
    if (UNLIKELY(thread->atomic_stripe)) { /* an earlier operation faulted and its handler jumped away */
        atomic_store(&stripes[thread->atomic_stripe - 1].held, 0);
        thread->atomic_stripe = 0;
    }
    uint64_t stripe = STRIPES, seq = 0;
    WITH_WRITER (writer) {
        if (cc_region(writer, (uintptr_t)target, NULL)) {
            uint64_t line = (writer->last.offset + ((uintptr_t)target - writer->last.start)) >> 6;
            stripe = (line ^ writer->last.file * 31u) % STRIPES;
            (void)cc_stack(writer, cc_shadow.depth); /* its definitions must have lower numbers */
        }
    }
    if (stripe < STRIPES) {
        uint64_t signals = cc_lock(&stripes[stripe]);
        thread->atomic_signals = signals;
        thread->atomic_stripe = (uint32_t)stripe + 1;
        seq = cc_number(3); /* a definition of the unit, a fence, a store */
    }
    thread->atomic_seq = seq;
}

/* The fence of a locked instruction, if there is anything that it could order. */
static void fence_in_bracket(struct writer *writer, where at, uint64_t seq)
{
    if (!cc_fence_wanted && !cc_thread.touched)
        return;
    struct cc_event event = {.kind = CC_FENCE, .aux = CC_LOCKED, .seq = seq, .instance_delta = NODE_NONE};
    locate(writer, at, &event);
    cc_put(writer, &event);
    cc_fence_wanted = 0;
    cc_thread.touched = 0;
}

/* What the bracket reserved, from `seq` on: a unit's definition, a fence, a store. */
static void record_atomic(where at, uint64_t seq, const void *target, uint32_t size, uint32_t locked, uint32_t done,
                          uint64_t instance)
{
    WITH_WRITER (writer) {
        if (at.unit && !__atomic_load_n(&at.unit->site_base, __ATOMIC_ACQUIRE))
            cc_unit_meet(writer, at.unit, seq);
        if (locked)
            fence_in_bracket(writer, at, seq + 1);
        if (done & CC_ATOMIC_STORED)
            update(writer, at, seq + 2, (uintptr_t)target, target, 0, size, CC_STORE_ATOMIC, instance);
    }
    if (cc_loads && cc_recording && (done & CC_ATOMIC_READ))
        cc_load_at(at, seq + 2, target, size, instance, CC_STORE_ATOMIC);
}

void cc_atomic_end(const void *target, uint32_t size, uint32_t locked, uint32_t done, uint64_t instance,
                   struct cc_unit *unit, uint32_t index, uint32_t depth)
{
    struct thread *thread = &cc_thread;
    where at = {unit, index, depth};
    if (!thread->atomic_seq) {
        if (locked && cc_fence_wanted)
            cc_fence_at(at, CC_LOCKED);
        return;
    }
    if (cc_recording)
        record_atomic(at, thread->atomic_seq, target, size, locked, done, instance);
    thread->atomic_seq = 0;
    uint32_t stripe = thread->atomic_stripe - 1;
    thread->atomic_stripe = 0;
    cc_unlock(&stripes[stripe], thread->atomic_signals);
}

/* A flush of the part of writer->last that begins at `target`; how many bytes it covers. */
static uint64_t flush_region(struct writer *writer, where at, uintptr_t target, uint64_t size, uint32_t kind)
{
    uint64_t part = writer->last.end - target < size ? writer->last.end - target : size;
    if (part > LONGEST_UPDATE)
        part = LONGEST_UPDATE;
    struct cc_event event = {.kind = CC_FLUSH,
                             .aux = kind,
                             .file = writer->last.file,
                             .offset = writer->last.offset + (target - writer->last.start),
                             .size = (uint32_t)part,
                             .instance_delta = NODE_NONE};
    locate(writer, at, &event);
    event.seq = cc_number(1);
    cc_put(writer, &event);
    cc_thread.touched = 1;
    if (kind != CC_CLFLUSH)
        cc_fence_wanted = 1;
    return part;
}

void cc_flush_at(where at, const void *address, uint64_t size, uint32_t kind)
{
    if (!cc_range_in_window(address, size))
        return;
    WITH_WRITER (writer) {
        uintptr_t target = (uintptr_t)address;
        while (size) {
            uintptr_t next = 0;
            uint64_t part;
            if (cc_region(writer, target, &next))
                part = flush_region(writer, at, target, size, kind);
            else if (next && next - target < size)
                part = next - target;
            else
                break;
            target += part;
            size -= part;
        }
    }
}

/* A fence with nothing before it that it could order is not recorded: programs use many on ordinary memory. */
void cc_fence_at(where at, uint32_t kind)
{
    if (!cc_fence_wanted && !cc_thread.touched)
        return;
    cc_fence_wanted = 0;
    cc_thread.touched = 0;
    cc_event_at(at, (struct cc_event){.kind = CC_FENCE, .aux = kind});
}

void cc_flush(const void *address, uint64_t size, uint32_t flush_kind, struct cc_unit *unit, uint32_t index, uint32_t depth)
{
    if (cc_recording)
        cc_flush_at((where){unit, index, depth}, address, size, flush_kind);
}

void cc_fence(uint32_t fence_kind, struct cc_unit *unit, uint32_t index, uint32_t depth)
{
    if (cc_recording)
        cc_fence_at((where){unit, index, depth}, fence_kind);
}

/* Bytes given to a pool file by a system call; its number was reserved before the call (0: number it now). */
void cc_write_event(where at, uint64_t seq, uint16_t file, uint64_t offset, const void *bytes, uint64_t size, uint8_t flags)
{
    WITH_WRITER (writer) {
        struct cc_event event = {
            .kind = CC_WRITE, .flags = flags, .seq = seq, .file = file, .offset = offset, .instance_delta = NODE_NONE};
        locate(writer, at, &event);
        update_region(writer, &event, bytes, 0, size);
    }
}

void cc_unmodelled(where at, uint16_t file, const char *name)
{
    cc_event_bytes(at, (struct cc_event){.kind = CC_UNMODELLED, .file = file}, NULL, 0, name, raw_length(name));
}

uint64_t cc_sync_begin(where at, uint32_t kind, uint16_t file, uint64_t offset, uint32_t size)
{
    return cc_event_at(at, (struct cc_event){
                               .kind = CC_SYNC_BEGIN, .aux = kind, .file = file, .offset = offset, .size = size});
}

void cc_sync_end(where at, uint64_t begin, uint32_t kind, uint16_t file, uint64_t offset, uint32_t size, bool failed)
{
    cc_event_at(at, (struct cc_event){.kind = CC_SYNC_END,
                                      .flags = failed,
                                      .aux = kind,
                                      .file = file,
                                      .offset = offset,
                                      .size = size,
                                      .payload = begin});
}

struct cc_called cc_call_begins(where at)
{
    struct cc_called before = cc_thread.called, now = {0, 0};
    if (!cc_traced || !cc_recording)
        return before;
    WITH_WRITER (writer) {
        now.site = cc_site(writer, at.unit, at.index);
        now.stack = cc_stack(writer, at.depth);
        cc_thread.called = now;
    }
    return before;
}
