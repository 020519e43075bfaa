/* Writes the trace: records of all threads go into one sequence of chunks, payloads into others, both mapped. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define ROOM (CC_CHUNK_BYTES - CC_CHUNK_HEADER_BYTES)

struct chunk {
    char *at;
    size_t bytes, used; /* used: of what follows its header */
    uint64_t place;     /* in the file */
};

static int file = -1;
static struct cc_trace_header *header;
static struct chunk events, blob;
static const char *notes_path;

void die(const char *what)
{
    fprintf(stderr, "crashcheck: the recorder of system calls: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    trace_note("failed", what);
    exit(125);
}

void trace_note_path(const char *path)
{
    notes_path = path;
}

void trace_note(const char *reason, const char *text)
{
    FILE *notes = notes_path ? fopen(notes_path, "ae") : NULL;
    if (notes) {
        fprintf(notes, "%s\t%s\n", reason, text);
        fclose(notes);
    }
}

void trace_open(const char *path)
{
    file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0 || ftruncate(file, CC_HEADER_BYTES) != 0)
        die(path);
    header = mmap(NULL, CC_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (header == MAP_FAILED)
        die(path);
    memcpy(header->magic, CC_TRACE_MAGIC, sizeof header->magic);
    header->version = CC_TRACE_VERSION;
    header->header_bytes = CC_HEADER_BYTES;
    header->chunk_bytes = CC_CHUNK_BYTES;
    header->event_bytes = CC_EVENT_BYTES;
    header->next_seq = header->next_site = header->next_stack = header->next_thread = header->next_file = 1;
    header->next_operation = header->next_load_site = header->next_load_stack = header->next_load_thread = 1;
    header->recorder = CC_RECORDER_SYSCALLS;
    header->sole = UINT32_MAX; /* no thread of the program may take numbers without a locked instruction */
}

struct cc_trace_header *trace_header(void)
{
    return header;
}

void trace_status(uint32_t bit)
{
    __atomic_fetch_or(&header->status, bit, __ATOMIC_RELAXED);
}

uint32_t trace_number(uint32_t *counter)
{
    return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

bool trace_read(uint64_t at, void *to, size_t size)
{
    return pread(file, to, size, (off_t)at) == (ssize_t)size;
}

static void unmap(struct chunk *chunk)
{
    if (chunk->at)
        munmap(chunk->at, chunk->bytes);
    *chunk = (struct chunk){0};
}

void trace_close(void)
{
    unmap(&events);
    unmap(&blob);
    munmap(header, CC_HEADER_BYTES);
    close(file);
}

static bool next_chunk(struct chunk *chunk, uint32_t kind, uint64_t chunks)
{
    unmap(chunk);
    if (header->status & CC_STATUS_DISK_FULL)
        return false;
    uint64_t number = __atomic_fetch_add(&header->next_chunk, chunks, __ATOMIC_RELAXED);
    uint64_t place = CC_HEADER_BYTES + number * CC_CHUNK_BYTES, bytes = chunks * CC_CHUNK_BYTES, next = number + chunks;
    int error = posix_fallocate(file, (off_t)place, (off_t)bytes);
    char *at = error ? MAP_FAILED
                     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, (off_t)place);
    if (at == MAP_FAILED) {
        trace_status(CC_STATUS_DISK_FULL);
        /* so that there is room for messages; unless a thread of the program has the next chunk */
        if (__atomic_compare_exchange_n(&header->next_chunk, &next, number, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
            ftruncate(file, (off_t)place) != 0)
            return false;
        return false;
    }
    *chunk = (struct chunk){.at = at, .bytes = bytes, .place = place};
    struct cc_chunk_header *head = (struct cc_chunk_header *)(void *)at;
    head->chunks = (uint32_t)chunks;
    __atomic_store_n(&head->kind, kind, __ATOMIC_RELEASE);
    return true;
}

static void advance(struct chunk *chunk, size_t bytes)
{
    chunk->used += bytes;
    ((struct cc_chunk_header *)(void *)chunk->at)->used_bytes = chunk->used;
}

char *trace_room(uint64_t size, uint64_t *at)
{
    if (!blob.at || blob.used + size > blob.bytes - CC_CHUNK_HEADER_BYTES) {
        uint64_t chunks = (size + CC_CHUNK_HEADER_BYTES + CC_CHUNK_BYTES - 1) / CC_CHUNK_BYTES;
        if (!next_chunk(&blob, CC_CHUNK_BLOB, chunks))
            return NULL;
    }
    *at = blob.place + CC_CHUNK_HEADER_BYTES + blob.used;
    char *space = blob.at + CC_CHUNK_HEADER_BYTES + blob.used;
    advance(&blob, size);
    return space;
}

static uint64_t put(struct cc_event event, uint32_t thread)
{
    if ((!events.at || events.used + CC_EVENT_BYTES > ROOM) && !next_chunk(&events, CC_CHUNK_EVENTS, 1))
        return 0;
    event.seq = __atomic_fetch_add(&header->next_seq, 1, __ATOMIC_RELAXED);
    event.instance_delta = thread;
    memcpy(events.at + CC_CHUNK_HEADER_BYTES + events.used, &event, sizeof event);
    advance(&events, sizeof event);
    return event.seq;
}

uint32_t trace_thread(struct tracee *thread)
{
    if (!thread->thread) {
        thread->thread = header->next_thread++;
        put((struct cc_event){.kind = CC_THREAD_START, .aux = thread->thread, .payload = (uint64_t)thread->process->pid},
            thread->thread);
    }
    return thread->thread;
}

uint64_t trace_event(struct tracee *thread, struct cc_event event)
{
    uint32_t number = 1; /* what no thread did is of the first */
    if (thread) {
        number = trace_thread(thread);
        if (thread->located && !event.site) {
            event.site = thread->site;
            event.stack = thread->stack;
        }
        if (thread->in_call && !event.call)
            event.call = (uint16_t)(thread->call.number + 1);
    }
    return put(event, number);
}

/* Gives an event its payload; whether there was room. */
static bool fill(struct cc_event *event, const void *head, size_t head_size, const void *bytes, size_t size)
{
    char *space = (char *)&event->payload;
    uint64_t at = 0;
    event->size = (uint32_t)(head_size + size);
    event->payload = 0;
    if (event->size > sizeof event->payload) {
        space = trace_room(event->size, &at);
        if (!space)
            return false;
    }
    if (head_size)
        memcpy(space, head, head_size);
    if (size)
        memcpy(space + head_size, bytes, size);
    if (at)
        event->payload = at;
    return true;
}

uint64_t trace_bytes(struct tracee *thread, struct cc_event event, const void *head, size_t head_size, const void *bytes, size_t size)
{
    return fill(&event, head, head_size, bytes, size) ? trace_event(thread, event) : 0;
}

bool trace_continue(struct tracee *thread, uint64_t number, uint64_t offset, const void *bytes, size_t size)
{
    if (__atomic_load_n(&header->next_seq, __ATOMIC_RELAXED) != number + 1 || events.used < CC_EVENT_BYTES)
        return false;
    struct cc_event event;
    char *last = events.at + CC_CHUNK_HEADER_BYTES + events.used - CC_EVENT_BYTES;
    memcpy(&event, last, sizeof event);
    if (event.seq != number || event.instance_delta != trace_thread(thread) || !fill(&event, NULL, 0, bytes, size))
        return false;
    event.offset = offset;
    memcpy(last, &event, sizeof event);
    return true;
}
