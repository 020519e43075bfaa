/* One exploration: the process runs a check for many crash images at once (explorer/explore.c).
 *
 * The headers include only those before them: section, instructions (decoding), exploration (this), written (files), state
 * (its hash), decisions, mapping_calls, file_calls, handlers. So do the C files; explore.c, which starts it all, is above
 * them. */
#ifndef CRASHCHECK_EXPLORER_EXPLORATION_H
#define CRASHCHECK_EXPLORER_EXPLORATION_H

#include <signal.h>
#include <ucontext.h>

#include "explore.h"
#include "explorer/section.h"
#include "recorder/base.h"

#define WIDEST 64ul            /* bytes that one access touches at most */
#define MAPPINGS 16u
#define OPENED 8u
#define BIT(bits, at) ((bits)[(at) / 64] >> ((at) % 64) & 1)
#define SET_BIT(bits, at) ((bits)[(at) / 64] |= 1ull << ((at) % 64))
#define PLACES 64u             /* descriptors that are followed */
#define WRITTEN 32u
#define WRITTEN_ROOM (4ul << 20)
#define NAME_ROOM 256u
#define STACK_BYTES (256ul << 10)
#define TEXT_ROOM (64ul << 10) /* of /proc/self/maps */
#define RED_ZONE 128ul
#define TRAP_FLAG 0x100l
#define RESUME_FLAG 0x10000l
#define MOST_CONTENTS 1024u
#define MOST_MAPPED (512ul << 20)
#define MOST_DEEP 1024u        /* processes at once: each waits for the one that it forked */
#define NO_PLACE UINT64_MAX
#define SIGNALS 64

struct mapping {
    uintptr_t start, end;      /* of what the file has bytes for */
    uint64_t offset, device, inode;
    int protection;
    bool gone;
    bool mirrors;              /* another mapping, which has the file's bytes */
};

struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

struct excluded {
    uintptr_t start, end;
};

/* Of a granule: which of its contents it may still have, which of its bytes are known (in memory: read, written, or the
 * same in all of those), and how many are not. */
struct granule_state {
    uint64_t alive[MOST_CONTENTS / 64], known[PAGE / 64];
    uint32_t unknown;
};

/* A file that the process has written to, or where it prints. The bytes are in its own memory, as any that its state is
 * made of; the file of the kernel stays as it was. */
struct written {
    uint64_t device, inode;    /* of a file that the process made: those of its folder */
    char name[NAME_ROOM];      /* of a file that the process made, in that folder; else empty */
    uint32_t mode;             /* of such a file */
    bool is_stream;            /* a pipe, to which all is appended */
    bool is_dropped;           /* nobody reads it */
    uint64_t writers;          /* to a stream: a bit for each description */
    uint64_t size;
    unsigned char *bytes;      /* WRITTEN_ROOM of them; NULL: none was written */
};

/* An open file, which duplicates of a descriptor share. */
struct description {
    uint64_t place;
    uint64_t made;             /* one more than the number of the file that the process made; 0: the kernel has it */
};

/* None of this counts as the process's state, except `history` and `descriptions`. */
struct exploration {
    struct cc_explore_table *table;
    struct cc_explore_granule *granules;
    struct granule_state state_of[CC_EXPLORE_GRANULES];
    struct mapping mappings[MAPPINGS];
    uint32_t mapped, copies;
    uint64_t copy_of[PLACES][2]; /* device and inode of files that are mapped privately */
    uintptr_t opened[OPENED];  /* pages, for one instruction */
    const struct mapping *opened_in[OPENED];
    uint32_t opens;
    uint8_t description_of[PLACES]; /* by descriptor */
    struct description descriptions[PLACES];
    struct written written[WRITTEN];
    uint32_t writes, makes;    /* how many of them there are, and how many the process made */
    uint64_t history[2];       /* of system calls */
    struct kernel_action actions[SIGNALS]; /* that the program asked for; part of `history` */
    char *maps_text;
    struct excluded ours[6];   /* memory that is not the program's */
    uint32_t vector_at[8], vector_bytes[8];
    uint32_t first_process, first_parent, deep;
    unsigned char *apart;      /* where an instruction is executed while its page is open */
    uintptr_t displaced;       /* and the address of that instruction */
};
extern HIDDEN struct exploration cc_run;
extern HIDDEN uintptr_t cc_explore_resume, cc_explore_kept, cc_explore_stack; /* what cc_explore_after needs */

extern HIDDEN const char __start_cc_explore[], __stop_cc_explore[];

HIDDEN void cc_explore_start(const char *path);                           /* `path`: of the table */
HIDDEN __attribute__((noreturn)) void cc_explore_leave(void);             /* ends this process, without a result */
HIDDEN __attribute__((noreturn)) void cc_explore_done(void);              /* likewise, and the exploration if it is the first */
HIDDEN __attribute__((noreturn)) void cc_explore_refuse(uint32_t why, uint32_t detail); /* ends the exploration */
HIDDEN void cc_explore_close_pages(const struct mapping *in);
HIDDEN const struct mapping *cc_explore_first_mapping(const struct mapping *mirror); /* of its file; NULL: it is gone */
HIDDEN void cc_explore_learn(uint32_t number, unsigned char *at, uint32_t from);
HIDDEN void cc_explore_show_known(const struct mapping *in); /* puts what is known of its granules into a new mapping */

INLINE const unsigned char *content_of(const struct cc_explore_granule *granule, uint32_t which)
{
    return (const unsigned char *)cc_run.table + granule->contents + (uint64_t)which * granule->length;
}

INLINE struct cc_explore_output *outputs_of(struct cc_explore_table *table)
{
    return (struct cc_explore_output *)(void *)((char *)table + table->first_output);
}

INLINE uint32_t first_alive(uint32_t number)
{
    uint32_t which = 0;
    while (!BIT(cc_run.state_of[number].alive, which))
        which++;
    return which;
}

INLINE uintptr_t address_of(const struct mapping *in, const struct cc_explore_granule *granule)
{
    if (in->gone || in->mirrors || in->device != granule->device || in->inode != granule->inode)
        return 0;
    if (granule->offset < in->offset || granule->offset - in->offset >= in->end - in->start)
        return 0;
    return in->start + (granule->offset - in->offset);
}

INLINE bool is_open(const struct mapping *in, uintptr_t page)
{
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uintptr_t at = cc_run.state_of[i].unknown ? address_of(in, &cc_run.granules[i]) : 0;
        if (at && at < page + PAGE && at + cc_run.granules[i].length > page)
            return false;
    }
    return true;
}

INLINE bool lies_in_file(uintptr_t start, size_t size)
{
    for (uint32_t i = 0; i < cc_run.mapped; i++)
        if (!cc_run.mappings[i].gone && start + size > cc_run.mappings[i].start && start < cc_run.mappings[i].end)
            return true;
    return false;
}

INLINE bool is_mapped(uintptr_t address)
{
    return lies_in_file(address, 1);
}

#endif
