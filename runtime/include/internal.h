/* What the parts of the recorder tell each other. Nothing here is seen by instrumented code. */
#ifndef CRASHCHECK_INTERNAL_H
#define CRASHCHECK_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Compiled with -fvisibility=hidden: only what instrumented code needs is seen outside. */
#pragma GCC visibility push(default)
#include "hooks.h"
#pragma GCC visibility pop
#include "raw.h"
#include "trace_format.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORTED __attribute__((visibility("default")))
#define TLS_MODEL __attribute__((tls_model("initial-exec")))
#define CHUNK_ROOM (CC_CHUNK_BYTES - CC_CHUNK_HEADER_BYTES)
#define PAGE 4096ul
/* An update longer than this becomes several events, cut at page boundaries of the file: its pieces are
 * unordered across lines and pages anyway, and `size` has 32 bits. */
#define LONGEST_UPDATE (64ul << 20)
/* The recorder may be interrupted by a signal handler that records as well; each level of interruption has a
 * writer of its own, so that a half-written record is never disturbed. */
#define LEVELS 4u
#define NO_SNAPSHOT UINT64_MAX
#define PATH_ROOM 4096u

struct region {
    uintptr_t start, end;
    uint64_t offset;        /* of `start` in the file */
    uint16_t file;
    uint8_t flags;          /* cc_map_flags */
};

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

#define OPERATIONS_NESTED 16u

struct thread {
    uint32_t id;
    uint32_t level;         /* writers in use */
    uint32_t inside;        /* > 0: a modelled library function runs, interposed calls are its own */
    uint32_t sole;          /* its kernel thread id if it may take numbers without a locked instruction */
    uint32_t regions_held;  /* by this thread, possibly several times: fork runs handlers while it holds it */
    uint32_t touched;       /* an update or flush since this thread's last recorded fence */
    struct writer *writers[LEVELS];
    struct load_writer *loads[LEVELS];
    uint32_t load_id;       /* its number in chunks of loads */
    uint32_t load_known;    /* the `id` that chunks of loads say it has */
    uint32_t load_disturbed; /* a load was recorded while another was being recorded */
    uint32_t load_count;    /* reads since recording them began, or began again */
    uint32_t load_gaps;     /* how often they were left out for a while */
    uint32_t load_gap;      /* they are, and CC_LOAD_GAP says so */
    const void *load_covered; /* like `covered`, for what a copy read */
    uint64_t load_covered_bytes;
    const void *covered;    /* cc_copy or cc_fill just recorded this target and size: the call of memcpy that the */
    uint64_t covered_bytes; /* compiler may have made of the intrinsic is the same update */
    uint32_t operations[OPERATIONS_NESTED];
    uint32_t operation_depth;
    uint32_t named_depth;   /* functions under way that are operations by name */
    uint32_t atomic_stripe; /* stripe + 1 that this thread's open atomic bracket holds */
    uint64_t atomic_seq;    /* first of the numbers it reserved; 0: target not persistent */
    uint64_t atomic_signals;
    uint32_t atomic_elsewhere; /* the bracket is around other memory than a file's */
};

/* Where a modelled call came from: `unit` NULL if unknown, then `depth` includes the call itself. */
typedef struct cc_call_site where;

extern HIDDEN __thread struct thread cc_thread TLS_MODEL;
extern HIDDEN struct cc_trace_header *cc_header;
extern HIDDEN uint64_t cc_snapshot_seq;
extern HIDDEN _Atomic uint64_t cc_region_version;
extern HIDDEN volatile uint64_t *cc_alive; /* wiped to 0 by the kernel in a forked child */
extern HIDDEN bool cc_places_files;        /* watched files are mapped where the address table says */
extern HIDDEN bool cc_learns_places;       /* and get a place there if they have none */

/* For assembly that is met anywhere in the program. The recorder is compiled without AVX, and x87 is not used. */
#define SAVE_SSE(n) "movups %xmm" #n ", " #n "*16(%rsp)\n"
#define RESTORE_SSE(n) "movups " #n "*16(%rsp), %xmm" #n "\n"
#define ALL_SSE(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15)

#define KEEPING_REGISTERS(code)                                                                                          \
    "push %rbp\n mov %rsp, %rbp\n"                                                                                     \
    "push %rax\n push %rcx\n push %rdx\n push %rsi\n push %rdi\n push %r8\n push %r9\n push %r10\n push %r11\n"          \
    "sub $264, %rsp\n and $-16, %rsp\n cld\n" ALL_SSE(SAVE_SSE) code ALL_SSE(RESTORE_SSE)                               \
    "lea -72(%rbp), %rsp\n"                                                                                            \
    "pop %r11\n pop %r10\n pop %r9\n pop %r8\n pop %rdi\n pop %rsi\n pop %rdx\n pop %rcx\n pop %rax\n pop %rbp\n"

/* process.c */
HIDDEN void cc_start(void);
HIDDEN void cc_child(void);
HIDDEN void cc_thread_begins(void);
HIDDEN bool cc_notices_forks(void);
extern HIDDEN uint32_t cc_pid;
extern HIDDEN _Atomic uint32_t cc_started; /* 2: ready */
static inline bool cc_on(void)
{
    if (UNLIKELY(atomic_load_explicit(&cc_started, memory_order_acquire) != 2u))
        cc_start();
    return cc_recording != 0;
}
HIDDEN uint64_t cc_block_signals(void);
HIDDEN void cc_restore_signals(uint64_t mask);

/* A lock that a signal handler of its holder can never meet: signals are blocked while it is held. */
struct quiet_lock {
    _Atomic uint32_t held;
};
HIDDEN uint64_t cc_lock(struct quiet_lock *lock);
HIDDEN void cc_unlock(struct quiet_lock *lock, uint64_t signals);

/* trace.c */
HIDDEN bool cc_trace_open(const char *path);
HIDDEN struct writer *cc_writer_slow(void);
HIDDEN void cc_writer_start(struct writer *writer, enum cc_chunk_kind kind, uint32_t thread);
HIDDEN void cc_writer_forget(struct writer *writer, bool unmap);
HIDDEN bool cc_new_chunk(struct writer *writer);
HIDDEN void cc_stop(uint32_t status);
HIDDEN uint64_t cc_blob(struct writer *writer, const void *head, size_t head_size, const void *bytes, uint64_t size);
HIDDEN uint64_t cc_blob_fill(struct writer *writer, int byte, uint64_t size);
HIDDEN void cc_snapshot(uint64_t seq);
extern HIDDEN char cc_trace_path[PATH_ROOM];

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

/* order.c */
HIDDEN void cc_order_start(void);
HIDDEN void cc_order_settle(void);
HIDDEN uint64_t cc_number_slow(uint32_t count);
#define SEVERAL UINT32_MAX /* value of cc_header->sole once more than one thread takes numbers */

/* The next `count` numbers of the one order of all events. A locked addition waits for all earlier stores of its
 * core, which costs more than the rest of a record; the only thread there is does without. */
static inline uint64_t cc_number(uint32_t count)
{
    struct cc_trace_header *header = cc_header;
    struct thread *thread = &cc_thread;
    uint64_t seq = count;
    if (UNLIKELY(*cc_alive == 0))
        cc_child();
    if (LIKELY(thread->sole)) {
        __asm__ volatile("incl %0" : "+m"(header->numbering) : : "memory", "cc");
        bool sole = __atomic_load_n(&header->sole, __ATOMIC_RELAXED) == thread->sole;
        if (LIKELY(sole))
            __asm__ volatile("xaddq %0, %1" : "+r"(seq), "+m"(header->next_seq) : : "memory", "cc");
        __asm__ volatile("decl %0" : "+m"(header->numbering) : : "memory", "cc");
        if (LIKELY(sole)) {
            if (UNLIKELY(seq + count > cc_snapshot_seq))
                cc_snapshot(seq);
            return seq;
        }
    }
    if (UNLIKELY(__atomic_load_n(&header->sole, __ATOMIC_ACQUIRE) != SEVERAL)) {
        cc_order_settle();
        return cc_number_slow(count);
    }
    seq = __atomic_fetch_add(&header->next_seq, count, __ATOMIC_RELAXED);
    if (UNLIKELY(seq + count > cc_snapshot_seq))
        cc_snapshot(seq);
    return seq;
}

/* The number that the next event of the run will have; a load does not take it. */
static inline uint64_t cc_load_seq(void)
{
    return __atomic_load_n(&cc_header->next_seq, __ATOMIC_RELAXED);
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
    slot[4] = (uint64_t)event->aux << 32 | (uint64_t)event->file << 16 | (uint64_t)event->flags << 8 | event->kind;
    slot[5] = event->payload;
    writer->used += CC_EVENT_BYTES;
    __atomic_store_n(&header->used_bytes, writer->used, __ATOMIC_RELEASE);
}

/* loads.c */
extern HIDDEN bool cc_loads;               /* loads of watched files are recorded */
extern HIDDEN bool cc_all_memory;          /* and accesses to other memory */
extern HIDDEN uintptr_t cc_load_window_start, cc_load_window_bytes; /* holds the loads that may be recorded */
HIDDEN void cc_loads_start(const char *loads, const char *memory);
HIDDEN void cc_loads_forget(bool unmap);
HIDDEN void cc_load_at(where at, uint64_t seq, const void *source, uint64_t size, uint64_t instance, uint32_t flags);
HIDDEN void cc_wrote_elsewhere(where at, const void *target, uint64_t size, uint32_t flags);
HIDDEN void cc_turn_take(void);
HIDDEN void cc_turn_keep(void);
HIDDEN void cc_turn_reset(void);
HIDDEN void cc_copied_from(where at, const void *source, uint64_t size);

/* stacks.c */
HIDDEN bool cc_stacks_start(void);
HIDDEN void cc_stacks_forget(void); /* a module was unloaded: unit addresses may come back as others */
HIDDEN uint32_t cc_unit_meet(struct writer *writer, struct cc_unit *unit, uint64_t seq);
HIDDEN uint32_t cc_stack_slow(struct writer *writer, const struct cc_frame *frames, uint32_t depth, uint32_t same);
extern HIDDEN _Atomic uint32_t cc_stack_generation;

static inline uint32_t cc_site(struct writer *writer, struct cc_unit *unit, uint32_t index)
{
    if (!unit)
        return 0;
    uint32_t base = __atomic_load_n(&unit->site_base, __ATOMIC_ACQUIRE);
    if (UNLIKELY(base == 0))
        base = cc_unit_meet(writer, unit, 0);
    return base ? base + index : 0;
}

/* In chunks of loads. */
static inline uint32_t cc_load_site(struct writer *writer, struct cc_unit *unit, uint32_t index)
{
    if (!unit)
        return 0;
    uint32_t base = __atomic_load_n(&unit->load_base, __ATOMIC_ACQUIRE);
    if (UNLIKELY(base == 0))
        base = cc_unit_meet(writer, unit, 0);
    return base ? base + index : 0;
}

static inline uint32_t cc_stack(struct writer *writer, uint32_t depth)
{
    if (depth > CC_STACK_MAX)
        depth = CC_STACK_MAX;
    if (depth == 0)
        return 0;
    const struct cc_frame *frames = cc_shadow.frames;
    uint32_t known = writer->memo_depth < depth ? writer->memo_depth : depth;
    if (UNLIKELY(writer->memo_generation != atomic_load_explicit(&cc_stack_generation, memory_order_relaxed)))
        known = 0;
    uint32_t same = 0;
    while (same < known && frames[same].unit == writer->memo_frames[same].unit &&
           frames[same].index == writer->memo_frames[same].index)
        same++;
    if (LIKELY(same == depth))
        return writer->memo_nodes[depth - 1];
    return cc_stack_slow(writer, frames, depth, same);
}

/* regions.c */
extern HIDDEN uintptr_t cc_mapped_start, cc_mapped_bytes; /* the smallest window, whatever instrumented code reports */
HIDDEN bool cc_region_slow(struct writer *writer, uintptr_t address, uintptr_t *next);
HIDDEN uint64_t cc_regions_lock(void);
HIDDEN void cc_regions_unlock(uint64_t signals);
HIDDEN void cc_regions_reset_lock(void);
HIDDEN void cc_region_add(const struct region *region);                     /* lock held */
HIDDEN size_t cc_region_cut(uintptr_t start, uintptr_t end, struct region *gone, size_t room); /* lock held */
HIDDEN bool cc_region_overlaps(uintptr_t start, uintptr_t end);

static inline bool cc_range_in_window(const void *address, uint64_t size)
{
    return size && (uintptr_t)address < cc_mapped_start + cc_mapped_bytes &&
           (uintptr_t)address + size > cc_mapped_start && cc_mapped_bytes;
}

/* Makes writer->last the region of `address`; else tells where the next region above starts (0: nowhere). */
static inline bool cc_region(struct writer *writer, uintptr_t address, uintptr_t *next)
{
    uint64_t version = atomic_load_explicit(&cc_region_version, memory_order_acquire);
    if (LIKELY(writer->region_version == version && address - writer->last.start < writer->last.end - writer->last.start))
        return true;
    return cc_region_slow(writer, address, next);
}

/* watched.c */
struct watched {
    uint64_t device, inode;
    uint16_t file;          /* 0: known not to be watched */
};
struct file_state {         /* what fstat says, as far as the recorder needs it */
    uint64_t device, inode, size;
    uint32_t mode;
};
HIDDEN void cc_watch_start(const char *pool, const char *patterns);
HIDDEN bool cc_state_of_fd(int fd, struct file_state *state);
HIDDEN bool cc_state_of_path(int folder, const char *path, int flags, struct file_state *state);
HIDDEN uint16_t cc_watched_fd(int fd);                     /* id, 0 if not watched */
HIDDEN uint16_t cc_watched_state(int fd, const struct file_state *state, bool existed, uint64_t first_size);
HIDDEN bool cc_relative_path(int fd, char *path, bool *matches);       /* inside the pool? */
HIDDEN bool cc_watched_name(int folder, const char *path, char *relative);      /* would this name be watched? */
HIDDEN void cc_forget_inode(uint64_t device, uint64_t inode);
HIDDEN uint16_t cc_known_inode(uint64_t device, uint64_t inode);
HIDDEN bool cc_in_pool(int fd, char *relative);
HIDDEN void cc_note(const char *reason, const char *path);
HIDDEN bool cc_matches(const char *path);
#define CC_HASH_START 14695981039346656037ull
HIDDEN uint64_t cc_hash(uint64_t hash, const char *text);
HIDDEN const char *cc_pool(size_t *length);
HIDDEN size_t cc_real_path(int fd, char *path);
HIDDEN void cc_file_locks_reset(void);

/* addresses.c */
HIDDEN void cc_addresses_start(const char *path);
HIDDEN long cc_place(size_t length, int protection, int flags, int fd, uint64_t offset, const char *relative);
HIDDEN void cc_placed(uintptr_t address, size_t length, uint64_t offset, const char *relative);

/* events.c: everything below enters a writer itself. */
#define WITH_WRITER(writer) for (struct writer *writer = cc_enter(), *once = (struct writer *)1; once; once = NULL, cc_leave()) if (writer)
HIDDEN uint64_t cc_event_at(where at, struct cc_event event);                   /* numbers it if seq is 0 */
HIDDEN void cc_event_bytes(where at, struct cc_event event, const void *head, size_t head_size, const void *bytes, uint64_t size);
HIDDEN void cc_update(where at, uint64_t seq, const void *target, const void *bytes, int fill, uint64_t size, uint8_t flags,
                      uint64_t instance);
HIDDEN void cc_write_event(where at, uint64_t seq, uint16_t file, uint64_t offset, const void *bytes, uint64_t size, uint8_t flags);
HIDDEN void cc_unmodelled(where at, uint16_t file, const char *name);
HIDDEN uint64_t cc_sync_begin(where at, uint32_t kind, uint16_t file, uint64_t offset, uint32_t size);
HIDDEN void cc_sync_end(where at, uint64_t begin, uint32_t kind, uint16_t file, uint64_t offset, uint32_t size, bool failed);
HIDDEN void cc_flush_at(where at, const void *address, uint64_t size, uint32_t kind);
HIDDEN void cc_fence_at(where at, uint32_t kind);
HIDDEN void cc_stripes_reset(void);

/* marks.c */
HIDDEN void cc_output_start(const char *setting);
HIDDEN void cc_output(where at);
HIDDEN bool cc_is_output(const struct file_state *state);

/* explore.c */
HIDDEN void cc_explore_start(const char *path);

/* snapshot.c */
HIDDEN void cc_snapshot_start(const char *seq, const char *folder);

/* Interposition. In the shared library a model is reached as cc_wrap_<name> (from instrumented code, with a
 * call site) and as <name> (from everybody else); in the archive only as cc_wrap_<name>, because libc's own
 * name must stay libc's there. */
static inline where cc_from_wrapper(void)
{
    where at = cc_call_site;
    cc_call_site.unit = NULL;
    if (!at.unit)
        at.depth = cc_shadow.depth;
    return at;
}

static inline where cc_from_outside(void)
{
    return (where){.unit = NULL, .index = 0, .depth = cc_shadow.depth};
}

#ifdef CC_SHARED
HIDDEN void *cc_real(void **slot, const char *name);
#define REAL(name)                                                                                                     \
    (__extension__({                                                                                                   \
        static void *slot_;                                                                                            \
        (__typeof__(&name))cc_real(&slot_, #name);                                                                     \
    }))
#define OUTSIDE(result, name, parameters, body) EXPORTED result name parameters body
#else
#define REAL(name) (&name)
#define OUTSIDE(result, name, parameters, body)
#endif

/* A model: `call` is the bare call, `modelled` the recorded one, which sees `at`. The interposed name leaves
 * calls alone that a modelled library function makes. */
#define MODEL(result, name, parameters, call, modelled)                                                                \
    EXPORTED result cc_wrap_##name parameters;                                                                         \
    EXPORTED result cc_wrap_##name parameters                                                                          \
    {                                                                                                                  \
        where at = cc_from_wrapper();                                                                                  \
        (void)at;                                                                                                      \
        if (!cc_on())                                                                                                  \
            return call;                                                                                               \
        return modelled;                                                                                               \
    }                                                                                                                  \
    OUTSIDE(result, name, parameters, {                                                                                \
        if (!cc_on() || cc_thread.inside)                                                                              \
            return call;                                                                                               \
        where at = cc_from_outside();                                                                                  \
        (void)at;                                                                                                      \
        return modelled;                                                                                               \
    })

#endif
