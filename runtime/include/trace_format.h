/* What a trace file holds: the contract between the recorders (C) and the reader (Python).
 *
 * Two recorders write it. One is linked into programs that crashcheck-cc built (recorder/): a file id represents a path.
 * The other traces the system calls of any program (syscalls/, CC_RECORDER_SYSCALLS): a file id represents an inode, of a
 * file or a directory, which keeps it when its name changes. It lets one update happen at a time, so that the order of
 * their numbers is the order of their effects; syncs are intervals and overlap with anything. Its chunks of events have the
 * thread 0 and hold records of all threads: a record's thread is in its `instance_delta`, and CC_THREAD_START names the process.
 * Both write one trace where the program of the other's command was built with crashcheck-cc: then the one that is linked
 * records stores, flushes and fences, in chunks of their threads, and has the ids of inodes and threads from the other.
 *
 * A trace is one mapped file shared by every thread and process of a recorded run. It is a header
 * page followed by chunks of CC_CHUNK_BYTES; each chunk belongs to one thread (so that recording
 * takes no lock) and is either an array of fixed-size event records or raw bytes ("blob") that
 * records point into. `seq` gives all events of all threads one order; gaps in it are legal (a
 * number is reserved before an atomic operation executes and its record is written after).
 * Within a chunk `seq` may step back where a signal handler recorded in between. Beside the trace are <trace>.files (the
 * path of each file id in order, ended by zero bytes: how processes agree on ids), <trace>.notes (reason, tab, path: why a
 * file in the pool did not count) and <trace>.digests (recorder/digests.h).
 * A chunk's `used_bytes` is advanced after a record is complete, so a trace cut by `kill -9` is
 * valid up to the last complete record.
 *
 * Bump CC_TRACE_VERSION when a struct, an enumerator's value or a field's meaning changes.
 * The Python mirror is runtime/trace_format.py; tests/ compares it with this header, compiled.
 */
#ifndef CRASHCHECK_TRACE_FORMAT_H
#define CRASHCHECK_TRACE_FORMAT_H

#include <stdint.h>

#define CC_TRACE_MAGIC "CRSHTRC\n"
#define CC_TRACE_VERSION 8u
#define CC_HEADER_BYTES 4096u
#define CC_CHUNK_BYTES (256u * 1024u)
#define CC_CHUNK_HEADER_BYTES 64u
#define CC_EVENT_BYTES 56u

/* File header, little-endian, at offset 0; the rest of its page is zero. */
struct cc_trace_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;       /* CC_HEADER_BYTES */
    uint32_t chunk_bytes;        /* CC_CHUNK_BYTES */
    uint32_t event_bytes;        /* CC_EVENT_BYTES */
    /* Counters shared by all processes of the run, advanced with atomic adds. */
    uint64_t next_seq;           /* first event has seq 1 */
    uint64_t next_chunk;         /* index of the next free chunk; chunk i starts at header_bytes + i * chunk_bytes */
    uint32_t next_site;          /* first free global site id; site 0 means unknown */
    uint32_t next_stack;         /* first free stack id; stack 0 is the empty stack */
    uint32_t next_thread;        /* first free thread id, from 1 */
    uint32_t next_file;          /* first free file id, from 1; file 0 means none */
    uint32_t status;             /* cc_trace_status bits, set by whoever notices */
    uint32_t main_pid;
    uint32_t next_operation;     /* ordinal of the next marked operation, from 1 */
    uint32_t program;            /* the first process that used a pool file; once it has ended well, the next that was
                                  * executed and uses one; 0: none yet */
    uint64_t output_bytes;       /* bytes of standard output that have been recorded */
    uint32_t sole;               /* the recorder's: the only thread that takes numbers, see recorder/sequence.h */
    uint32_t numbering;          /* the recorder's: that thread is taking one */
    /* The same for chunks of loads, which count apart, so that events have the same numbers with and without them. */
    uint32_t next_load_site;
    uint32_t next_load_stack;
    uint32_t next_load_thread;
    uint32_t checksum;           /* if CC_STATUS_SEALED: CRC-32 of the whole file, this field taken as zero */
    uint32_t recorder;           /* cc_recorder */
    uint32_t spare;
};

enum cc_recorder {
    CC_RECORDER_LINKED = 0,      /* in the program: file ids represent paths (CC_FILE_DEF) */
    CC_RECORDER_SYSCALLS = 1,    /* ptrace: file ids represent inodes (CC_INODE_DEF) */
};

enum cc_trace_status {
    CC_STATUS_CLEAN_EXIT = 1,    /* the program ended by exit or _exit, or the first process by exit */
    CC_STATUS_DISK_FULL = 2,     /* no room for a chunk: later events are missing */
    CC_STATUS_TOO_MANY = 4,      /* a 16- or 32-bit id space ran out: later events are missing */
    CC_STATUS_SEALED = 8,        /* the run is over, and `checksum` was computed (runtime/seal.py). The recorder never sets it */
};

enum cc_chunk_kind {
    CC_CHUNK_FREE = 0,           /* reserved but not yet initialised */
    CC_CHUNK_EVENTS = 1,
    CC_CHUNK_BLOB = 2,
    CC_CHUNK_LOADS = 3,          /* records of reads, and what they need: CC_LOAD*, CC_UNIT_DEF, CC_STACK_DEF, CC_THREAD_START. Their
                                  * threads (the chunk's own too), sites and stacks are numbered apart from those of events;
                                  * CC_THREAD_START shows which thread of events it is */
};

struct cc_chunk_header {         /* CC_CHUNK_HEADER_BYTES, padded with zeros */
    uint32_t kind;
    uint32_t thread;
    uint32_t pid;
    uint32_t chunks;             /* a blob chunk may span several; 1 otherwise */
    uint64_t used_bytes;         /* payload bytes in use after this header */
};

/* One event. `payload`: the bytes themselves (little-endian, zero padded) where `size` <= 8; else
 * the absolute file offset of `size` bytes in a blob chunk. Kinds that carry no bytes use
 * `payload` as described beside the kind. */
struct cc_event {
    uint64_t seq;
    uint64_t offset;             /* byte offset in the pool file; else as described */
    uint32_t size;               /* bytes */
    uint32_t site;               /* global site id: a unit's base + index in the unit's site table */
    uint32_t stack;              /* id of the call stack (CC_STACK_DEF), the site's own frame excluded */
    uint32_t instance_delta;     /* offset - offset of the outermost struct instance; CC_NO_INSTANCE if unknown */
    uint8_t kind;
    uint8_t flags;
    uint16_t call;               /* 1 + the number of the x86-64 system call that it belongs to; 0: none, or not recorded */
    uint32_t file;               /* file id (CC_FILE_DEF, CC_INODE_DEF) or 0 */
    uint32_t aux;                /* as described */
    uint32_t folder;             /* of an event about a name: the id of its directory, 0 if outside; else 0 */
    uint64_t payload;
};

/* What the payload of an event about a name (CC_NAME_*) begins with. Then come the bytes of two names, without zero bytes
 * between: the name in `folder`, and, up to the end of the payload, the second name or the target of a symbolic link. */
struct cc_names {
    uint32_t to_folder;          /* CC_NAME_RENAME, CC_NAME_EXCHANGE: directory of the second name, 0 if outside */
    uint32_t replaced;           /* CC_NAME_RENAME: the inode that loses the second name, or 0; CC_NAME_EXCHANGE: the other inode */
    uint32_t name_bytes;         /* length of the first name */
};

/* What the payload of CC_CODE_DEF begins with. Names are UTF-8, bytes that were no UTF-8 as they are. */
struct cc_code {
    uint32_t version;            /* of Python: 0x030b is 3.11. The table of lines has its format. 0: another language */
    uint32_t first_line;
    uint32_t file_bytes;
    uint32_t name_bytes;
};

#define CC_NO_INSTANCE 0xffffffffu

enum cc_event_kind {
    /* Updates of pool files. */
    CC_STORE = 1,        /* a store through a mapping; payload: the bytes stored; flags: cc_store_flags */
    CC_WRITE = 2,        /* write/pwrite/writev...; payload: the bytes; flags: cc_write_flags. Its sync, if any, is CC_SYNC_* */
    CC_TRUNCATE = 3,     /* ftruncate/truncate/O_TRUNC/fallocate; offset: the new size in bytes. CC_WRITE beyond the end needs none */
    CC_CREATE = 4,       /* the file came into being (open with O_CREAT on a missing name) */
    /* Order. */
    CC_FLUSH = 5,        /* offset,size: the range as given; aux: cc_flush_kind. Each line touched by the range is flushed */
    CC_FENCE = 6,        /* aux: cc_fence_kind. Of this thread */
    CC_SYNC_BEGIN = 7,   /* aux: cc_sync_kind; file 0 and size 0 for sync(2); size 0 = whole file */
    CC_SYNC_END = 8,     /* the same; payload: seq of its CC_SYNC_BEGIN; flags: 1 if it returned failure */
    /* What the outside world has seen. */
    CC_MARK_BEGIN = 9,   /* crashcheck_op_begin; aux: ordinal of the operation, from 1 */
    CC_MARK_END = 10,    /* crashcheck_op_end; aux: the same ordinal */
    CC_OUTPUT = 11,      /* offset: bytes of standard output written so far; aux: cc_output_kind; payload: the first bytes that were
                          * written, at most CC_OUTPUT_BYTES (of CC_OUTPUT_STDOUT only with CC_RECORDER_SYSCALLS) */
    /* Reads of pool files; only in chunks of loads. No payload; flags: cc_store_flags. */
    CC_LOAD = 12,            /* a read through a mapping, before it executes. It takes no number: `seq` is that of the next event of
                              * the run, and several may share one; within a thread their place in the chunks orders them */
    CC_LOAD_GAP = 15,        /* aux 1: from here on this thread's reads are left out; aux 0: up to here. `seq` as of a read */
    /* Definitions; they precede their first use in seq order. */
    CC_FILE_DEF = 16,    /* file: id; payload: its path relative to the pool folder, UTF-8 as given by the system (size bytes); offset: size when first seen; flags: 1 if it existed when first seen */
    CC_UNIT_DEF = 17,    /* aux: first global site id; offset: number of sites; payload: 8-byte unit key then the module's path */
    CC_STACK_DEF = 18,   /* stack: id; aux: parent id; site: the call site */
    CC_THREAD_START = 19,/* aux: thread id; payload: pid */
    CC_MAP = 20,         /* file, offset,  aux: cc_map_flags; payload (16 bytes): address, length in bytes */
    CC_UNMAP = 21,       /* the same */
    CC_FORK = 22,        /* payload: the child's pid */
    CC_EXEC = 23,        /* payload: path */
    CC_DLOPEN = 24,      /* payload: path */
    CC_EXIT = 25,        /* aux: 1 if it sets CC_STATUS_CLEAN_EXIT */
    CC_UNLINK = 27,      /* an update: the file's name is removed, and the file with it */
    CC_RENAME = 28,      /* an update: the file of id `aux`, or an unwatched one if 0, takes the name of `file` and loses its own; offset: its
                          * size; its content are this thread's CC_CONTENT of `file` since its last CC_RENAME; all else is zeros */
    CC_CONTENT = 29,     /* offset; payload: the bytes */
    CC_UNMODELLED = 26,  /* a call on a pool file that the models do not know; payload: its name */
    /* Only with CC_RECORDER_SYSCALLS. Ids are inodes; the watched folder itself is the first one. */
    CC_INODE_DEF = 30,   /* file: id; aux: its mode (type and permissions); offset: size when first seen; flags: cc_inode_flags;
                          * payload: its path relative to the watched folder, "" for the folder itself. What was there at first is
                          * defined once for each of its names, before any other event; what came later has the path that it came with, or
                          * "" if it has no name (O_TMPFILE) */
    /* Updates of names. file: the inode that has the name; folder: the directory; payload: struct cc_names and the names. */
    CC_NAME_CREATE = 31,     /* a file (or FIFO, socket, device) came into being with this name; flags: cc_create_flags */
    CC_NAME_LINK = 32,       /* an inode that exists gets another name, or, of O_TMPFILE, its first */
    CC_NAME_UNLINK = 33,
    CC_NAME_MKDIR = 34,
    CC_NAME_RMDIR = 35,
    CC_NAME_SYMLINK = 36,    /* the second name is the target */
    CC_NAME_RENAME = 37,     /* folder 0: from outside, after CC_INODE_DEF, names and CC_CONTENT of what it brings; to_folder 0: to outside */
    CC_NAME_EXCHANGE = 38,   /* the two names exchange their inodes: `file` gets the second one */
    CC_ALLOCATE = 39,        /* fallocate, an update; aux: its mode (FALLOC_FL_*); offset; payload: length in bytes. Zeros appear where it
                              * punches or zeroes; a size that it changes is a CC_TRUNCATE of the same call, the next event */
    CC_MODULE_DEF = 40,      /* aux: a number; payload: path of an executable file or library */
    CC_SITE_DEF = 41,        /* site: id; aux: its module, 0: code that no file holds; offset: in the module's file, of the instruction
                              * after the call; payload: in the file, where its function begins, 0 if unknown. flags: cc_site_flags */
    CC_FAULT = 42,           /* the call was made to fail, and did nothing; aux: errno; file: what it concerns, or 0; offset: number of the
                              * fault; payload: the call's name, a zero byte, the file's path. Of a sync: between its begin and its end */
    CC_WRITE_END = 43,       /* a write that had been submitted (CC_WRITE_PENDING) has ended: only syncs that begin later cover it; file;
                              * payload: its number */
    CC_CODE_DEF = 44,        /* aux: a number; payload: struct cc_code, its file, its name, its table of lines: a function of Python, or of
                          * another language, which has no table */
};

#define CC_OUTPUT_BYTES 256u

/* What a program that holds our recorder reports to CC_RECORDER_SYSCALLS, or asks it: prctl(CC_MARK_CALL, enum cc_mark_call,
 * argument). The kernel knows no such option. */
#define CC_MARK_CALL 0x63636d6bu

enum cc_mark_call {
    CC_MARK_ENDS = 0,    /* a marked operation */
    CC_MARK_BEGINS = 1,
    CC_ASK_THREAD = 2,   /* argument: address of this thread's struct cc_called. Returns the thread's number */
    CC_ASK_FILE = 3,     /* argument: a descriptor. Returns the id of its inode, 0: not watched */
};

/* Where a thread makes the calls that it makes now, for their events; both 0: not known. */
struct cc_called {
    uint32_t site, stack;
};

enum cc_output_kind {
    CC_OUTPUT_STDOUT = 0,
    CC_OUTPUT_STDERR = 1,
    CC_OUTPUT_TERMINAL = 2,
    CC_OUTPUT_PIPE = 3,      /* that leads out of the recorded processes */
    CC_OUTPUT_SOCKET = 4,
    CC_OUTPUT_NAME = 5,      /* a name outside of the folder was removed or renamed; payload: its path */
};

enum cc_store_flags {
    CC_STORE_NT = 1,         /* non-temporal */
    CC_STORE_ATOMIC = 2,
    CC_STORE_BULK = 4,       /* memcpy, memset, string and library functions: pieces unordered */
    CC_STORE_LIBRARY = 8,    /* through a library model (strcpy, read, pmem_memcpy...) */
    CC_STORE_VOLATILE = 16,
    CC_STORE_JOINED = 32,    /* continues with the update that this thread's last store event began: other mappings, too long, or a
                              * mask left words out */
    CC_STORE_COMPARED = 64,  /* found by comparing a mapping with its earlier content: in no order with other stores since the last
                              * comparison of the file */
};

enum cc_write_flags {
    CC_WRITE_APPEND = 1,
    CC_WRITE_DIRECT = 2,
    CC_WRITE_JOINED = 4,     /* continues with the write that this thread's last write event began */
    CC_WRITE_PENDING = 8,    /* it ends at its CC_WRITE_END, or after the trace */
};

enum cc_inode_flags {
    CC_INODE_EXISTED = 1,    /* it was there at first */
    CC_INODE_DENSE = 2,      /* then it was a file without a hole (SEEK_HOLE): each of its blocks is allocated and written */
};

enum cc_site_flags {
    CC_SITE_IN_CODE = 1,     /* aux: a CC_CODE_DEF; offset: bytes of its instructions before the one that makes the call;
                              * outside of Python line << 32 | column of the call */
};

enum cc_create_flags {
    CC_CREATE_EXCLUSIVE = 1, /* O_EXCL: the name may be random */
};

enum cc_flush_kind { CC_CLFLUSH = 1, CC_CLFLUSHOPT = 2, CC_CLWB = 3 };

enum cc_fence_kind {
    CC_SFENCE = 1,
    CC_MFENCE = 2,
    CC_LOCKED = 3,           /* a locked instruction; if it also stores, its CC_STORE follows with the next seq */
    CC_DRAIN = 4,            /* pmem_drain and friends */
};

enum cc_sync_kind {
    CC_MSYNC = 1,            /* MS_SYNC on a shared mapping; offset,size: the range */
    CC_MSYNC_ASYNC = 2,      /* orders nothing; recorded for the report */
    CC_FSYNC = 3,            /* with CC_RECORDER_SYSCALLS `file` may be a directory */
    CC_FDATASYNC = 4,
    CC_SYNC = 5,             /* sync, syncfs: every file and name */
    CC_OSYNC = 6,            /* the sync an O_SYNC write carries: its range, and metadata as fsync */
    CC_ODSYNC = 7,           /* likewise O_DSYNC: metadata as fdatasync */
    CC_SYNC_RANGE = 8,       /* sync_file_range: orders nothing */
    CC_DIRSYNC = 9,          /* fsync of a directory that holds pool files; file 0; offset: 64-bit FNV-1a hash of its
                              * path relative to the pool folder ("" is the pool folder itself), 0 if unknown */
};

enum cc_map_flags { CC_MAP_SHARED = 1, CC_MAP_WRITE = 2 };

#endif
