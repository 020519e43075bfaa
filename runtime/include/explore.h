/* The table that is handed to a check whose runs on many crash images are explored at once (explorer/explore.c),
 * and what the check's processes write into it. Little-endian, mapped shared by all of them; exploration.py mirrors it.
 * Bump CC_EXPLORE_VERSION when anything here changes. */
#ifndef CRASHCHECK_EXPLORE_H
#define CRASHCHECK_EXPLORE_H

#include <stdint.h>

#define CC_EXPLORE_MAGIC 0x45524f4c50584343ull
#define CC_EXPLORE_VERSION 4u
#define CC_EXPLORE_GRANULES 64u

enum cc_explore_refusal {
    CC_EXPLORE_NOT_REFUSED = 0,
    CC_EXPLORE_SETUP = 1,      /* the kernel did not let us; detail: what failed */
    CC_EXPLORE_CALL = 2,       /* a system call whose effect is not followed; detail: its number */
    CC_EXPLORE_FILE_READ = 3,  /* the file was read, or changed, by a system call, in a way that is not followed; detail: its number */
    CC_EXPLORE_MAPPED_AGAIN = 4,
    CC_EXPLORE_PASSED = 5,     /* memory of the file was passed to a system call; detail: its number */
    CC_EXPLORE_UNLISTED = 6,   /* a granule was read whose contents are too many to be listed */
    CC_EXPLORE_ROOM = 7,       /* too many process states, ends, mappings or too much output; detail: which */
    CC_EXPLORE_INSTRUCTION = 8, /* reads more than one stretch of 64 bytes */
    CC_EXPLORE_DIED = 9,       /* one of the processes, and not by its own doing; detail: its status */
    CC_EXPLORE_MAPPED_IN_PART = 10, /* a mapping begins or ends within a granule */
    CC_EXPLORE_LARGE = 11,     /* more memory of files than can be read for each state */
    CC_EXPLORE_WRITTEN = 12,   /* of a file that it wrote to no copy can be kept, or used like this; detail: the call's number */
};

struct cc_explore_granule {
    uint64_t device, inode;
    uint64_t offset;           /* in the file; granules ascend and do not overlap */
    uint32_t length;
    uint32_t choices;          /* 0: too many */
    uint64_t contents;         /* `choices` times `length` bytes, from the table's start */
};

struct cc_explore_output {     /* what is handed over when the check ends; the first is standard output */
    int32_t descriptor;        /* that the check found open; -1: a file */
    uint32_t stream;           /* the explorer's own: one more than the number of what is behind it */
    uint64_t path;             /* from the table's start, ended by a zero byte */
    uint64_t writers;          /* of a descriptor: a bit for each open file through which something was written there */
};

struct cc_explore_node {       /* a state in which a process was about to touch a granule */
    uint64_t hash[2];          /* 0, 0: free */
};

struct cc_explore_end {
    int32_t status;            /* as from wait(2) */
    uint32_t unused;
    uint64_t output;           /* from the table's start: of each output the number of bytes (64 bits) and the bytes */
    uint16_t choice[CC_EXPLORE_GRANULES]; /* of a content that it may have; UINT16_MAX: of any */
};

struct cc_explore_table {
    uint64_t magic;
    uint32_t version;
    uint32_t granules;
    uint32_t outputs;
    uint32_t done;             /* every process ended, and nothing was refused */
    uint32_t refusal, detail;
    uint32_t nodes, merged;    /* process states met for the first time, and again */
    uint32_t ends, node_room;
    uint32_t end_room;
    uint32_t unmerged;         /* runs that reach the same state are followed apart: they are being counted */
    uint64_t first_granule, first_output, first_node, first_end; /* from the table's start */
    uint64_t output_used, output_end;
    uint64_t bytes;
    uint64_t memory_bytes;     /* of data for each process; 0: any */
};

#endif
