/* What the parts of the recorder of system calls share. It is a program of its own, with one thread: it runs a command, stops
 * each thread of it at calls that concern files (filter.c), and writes what they did into a trace (trace_format.h).
 *
 * From the lowest part to the highest:
 *   trace_file    chunks and records
 *   inodes        ids of inodes, and the names of the watched folder
 *   outside       which files outside of it are written and not synced
 *   memory        of the program
 *   table         numbers for pairs of numbers
 *   unwind        how to leave a stack frame
 *   symbols       what modules of the program export
 *   codes         numbers for the functions of scripts
 *   python        the frames of Python functions
 *   shell         those of bash scripts
 *   perl          those of Perl
 *   php           those of PHP
 *   ruby          those of Ruby
 *   java          the frames of Java functions
 *   javascript    the frames of JavaScript functions
 *   preload       what Node and Java load before the program
 *   stacks        where a call was made
 *   unfollowed    names what is not followed
 *   places        descriptors and paths of the program
 *   tracees       its threads and processes
 *   stores        what instrumented code recorded itself of its stores
 *   shadows       what was stored to files through mappings
 *   outputs       what the outside world sees
 *   content, names, mappings, syncs, aio, unseen   functions for each group of calls, before it and after it
 *   faults        calls that are made to fail
 *   calls         the table of calls
 *   filter        which calls stop
 *   narrow        the calls of 32-bit programs
 *   follow        the command's threads, from stop to stop
 *   record        main
 *
 * What a part needs of another is in one above it in this list.
 */
#ifndef CRASHCHECK_SYSCALLS_RECORDER_H
#define CRASHCHECK_SYSCALLS_RECORDER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "trace_format.h"

#define OPERATIONS_NESTED 16u
#define PATH_ROOM (PATH_MAX + 64)

struct tracee;

/* trace_file.c */
void trace_open(const char *path);
void trace_close(void);
void trace_status(uint32_t bit);
struct cc_trace_header *trace_header(void);
uint64_t trace_event(struct tracee *thread, struct cc_event event); /* returns its number */
uint64_t trace_bytes(struct tracee *thread, struct cc_event event, const void *head, size_t head_size, const void *bytes, size_t size);
/* Gives an event of this thread another offset and payload, if nothing was recorded since; whether it did. */
bool trace_continue(struct tracee *thread, uint64_t number, uint64_t offset, const void *bytes, size_t size);
char *trace_room(uint64_t size, uint64_t *at); /* room for a payload; NULL: the disk is full */
void trace_note(const char *reason, const char *text);
void trace_note_path(const char *path); /* where notes go */
_Noreturn void die(const char *what);
uint32_t trace_number(uint32_t *counter);      /* of the header; the program's threads take numbers, too */
uint32_t trace_thread(struct tracee *thread);  /* its number */
bool trace_read(uint64_t at, void *to, size_t size);

/* inodes.c */
struct shadow;
struct inode {
    dev_t device;
    ino_t number;
    uint32_t id;
    mode_t mode;
    uint32_t links;     /* names inside the folder */
    const struct name *latest; /* the latest of them; a directory's only one */
    bool gone;          /* it had names, and lost the last: its number may be used again */
    uint32_t mappings;  /* that may store to it */
    struct shadow *shadow;
};
void inodes_scan(int folder);                                   /* ids for all that is in the watched folder */
struct inode *inode_of(const struct stat *state);               /* NULL: not watched */
struct inode *inode_at(uint32_t id);
struct inode *inode_new(struct tracee *thread, const struct stat *state, uint8_t flags, const char *path);
const char *inode_path(uint32_t folder, const char *name);      /* relative to the watched folder; in a static buffer */
const char *inode_shown(const struct inode *inode);             /* its latest path; "." is the folder, "" has no name */
uint32_t name_get(uint32_t folder, const char *name);           /* 0: none */
void name_set(uint32_t folder, const char *name, uint32_t inode);
void name_remove(uint32_t folder, const char *name);
dev_t inodes_device(void);                                      /* of the watched folder */
uint32_t inodes_count(void);

/* outside.c: by device and number, as these files have no inode here */
void outside_written(const struct stat *state);
void outside_synced(const struct stat *state);
void outside_all_synced(void);
bool outside_unsynced(const struct stat *state);

/* The program's processes and threads, and the call that one makes */
struct mapping {
    uint64_t start, end, offset;
    uint32_t inode;
};
struct process {
    pid_t pid;
    int pidfd;
    uint32_t threads;
    size_t mapping_count;
    struct mapping *mappings;
    bool executed;      /* a program, itself */
    bool elsewhere;     /* its root, or what is mounted, may be another than ours */
    struct code *code;  /* stacks.c: what is executable in it */
    struct scripts *scripts; /* javascript.c */
    struct java *java;  /* java.c; NULL if it has no agent of ours */
    uint32_t launching, launched; /* stacks.c: stacks of the scripts that execute, or executed, its program; 0: none */
    char *began_in;     /* its working folder when it executed its program; NULL: not known */
    struct process *next;
};
struct place {          /* a path of the program */
    int base;           /* where it starts: AT_FDCWD, or a descriptor of ours */
    char path[PATH_ROOM];
    char name[NAME_MAX + 1]; /* its last part */
    uint32_t folder;    /* id of the directory of that, 0: not watched */
};
struct call {
    long number;
    uint64_t argument[6];
    long result;
    int fd;             /* ours: the file of the call, or -1 */
    int other;          /* ours: another one, or -1 */
    int flags;          /* of fd */
    uint32_t inode;
    uint64_t offset;    /* or a number that the call's functions keep */
    uint64_t size;
    struct place from, to;
    bool narrow;        /* of a 32-bit program: so are the structures in its memory */
    const char *unseen; /* its name, where it is not followed */
};
/* Registers that a function keeps for its caller; KEPT_RIP: where it continues. */
enum frame_register { KEPT_RBX, KEPT_RBP, KEPT_RSP, KEPT_R12, KEPT_R13, KEPT_R14, KEPT_R15, KEPT_RIP, KEPT_REGISTERS };
enum filter_data { FILTER_OURS, FILTER_NARROW, FILTER_X32 }; /* data of a stop: what kind of call it is */
struct tracee {
    pid_t tid;
    uint32_t thread;    /* in the trace; 0: it has recorded nothing */
    struct process *process;
    bool unborn;        /* it waits until its parent is seen to have made it: what it does follows that */
    bool in_call;       /* it will stop when the call returns */
    bool waiting;       /* for another thread's update to end */
    bool located;       /* site and stack are those of this call */
    bool scripted;      /* they have functions of a script that the process itself runs */
    bool apart;         /* its descriptors are not those of its process */
    enum filter_data kind;
    const struct handler *handler; /* of the call */
    int failing;        /* the error that this call returns instead of being made, or 0 */
    uint32_t operations[OPERATIONS_NESTED], operation_depth; /* marked, under way */
    uint32_t site, stack;
    /* javascript.c: what it reported last, by call; that of several calls, or NULL; what another thread asked it for last; who
     * asked for this call, or NULL */
    struct report *reported, *whole, *latest, *asked;
    uint64_t called;    /* address of its struct cc_called, if it holds our other recorder */
    bool answered;      /* the call is not made: it returns `answer` */
    bool changed;       /* its first argument is another one than the program gave */
    uint64_t answer;
    uint64_t registers[KEPT_REGISTERS], thread_pointer;
    struct call call;
    struct tracee *next, *next_waiting;
};
/* memory.c */
size_t memory_read(struct tracee *thread, uint64_t address, void *to, size_t size); /* how many bytes could be read */
/* Between the two, what is read is kept, and the pages of the thread's last stacks are read at once; a thread that waits changes nothing. */
void memory_ahead(struct tracee *thread);
void memory_ahead_end(void);
void memory_beside(uint64_t address, size_t size); /* these bytes are wanted after the next stack, until the call's end (size 0) */
bool memory_path(struct tracee *thread, uint64_t address, char *to);                /* to: PATH_ROOM bytes */

/* unwind.c */
enum frame_saved { FRAME_SAME, FRAME_STORED, FRAME_STORED_AT, FRAME_LOST }; /* at the frame's end + offset; at a register + offset */
struct frame_place {
    unsigned char how, base;
    int32_t offset;
};
struct frame_rule {         /* the frame's end is a register + offset or, if `loaded`, what is stored there */
    uint64_t start;         /* of the function's code */
    unsigned char base;
    bool loaded, is_signal; /* is_signal: it interrupted its caller, which is not behind a call */
    int32_t offset;
    struct frame_place kept[KEPT_REGISTERS];
};
struct frame_entry {
    uint64_t code, entry;   /* addresses of a function and of its description */
};
struct frame_entries {      /* of a module: a table in the program's memory, or, where it has none, one of ours */
    uint64_t table;
    struct frame_entry *built;
    size_t count;
};
void unwind_prepare(struct tracee *thread, uint64_t base, struct frame_entries *entries); /* base: where the module's file begins */
bool unwind_rule(struct tracee *thread, const struct frame_entries *entries, uint64_t address, struct frame_rule *rule);

/* table.c */
struct pair {               /* of numbers, and what it is called; id 0: not yet */
    uint64_t first, second;
    uint32_t id;
};
struct table {
    struct pair *slots;
    size_t capacity, used;
};
struct pair *pair_in(struct table *table, uint64_t first, uint64_t second); /* where it is new, it is added */

/* symbols.c */
struct symbols {            /* of a module */
    uint64_t bias, names, table, hashes;
};
uint64_t word_of(struct tracee *thread, uint64_t address); /* 0 if it cannot be read */
bool module_begins(const char *path, const char *beginning); /* of its file's name */
bool symbols_of(struct tracee *thread, uint64_t base, struct symbols *symbols); /* base: where the module's file begins */
uint64_t symbol(struct tracee *thread, const struct symbols *symbols, const char *name); /* its address, 0 if it is not exported */

/* codes.c */
struct script_frame {
    uint32_t code;          /* number of its CC_CODE_DEF */
    uint64_t offset;        /* of a site in it: CC_SITE_IN_CODE */
};
#define HASH_START 0xcbf29ce484222325u
uint64_t bytes_hash(uint64_t hash, const void *bytes, size_t size); /* continues a hash with some bytes */
/* The number of a code by what it is: processes that run one program have the same ones. Defined where it is new. */
uint32_t code_defined_as(struct tracee *thread, struct cc_code head, const char *bytes, size_t size);
struct script_frame frame_at(struct tracee *thread, struct cc_code head, const char *file_and_name, uint32_t line, uint32_t column);
/* A file's name that counts from the working folder, as `python save.py` has it, made absolute if the file is there, or was when
 * the program began; its size. */
size_t path_absolute(struct tracee *thread, char *path, size_t size);
const char *text_called(const char *file); /* code that is in no file, of a name that perl and ruby give it: "-e", "-" or one of eval */

/* python.c, shell.c, perl.c, php.c, ruby.c: interpreters, by a module of the program and where its file begins; NULL: it has none that is known */
#define STACK_DEEPEST 256u  /* frames; of deeper stacks the outermost are missing */
struct interpreter;
typedef size_t frames_of_interpreter(struct tracee *thread, struct interpreter *interpreter, struct script_frame *frames, size_t most); /* innermost first */
struct interpreter {
    frames_of_interpreter *frames;
};
void *interpreter_made(size_t size, frames_of_interpreter *frames); /* codes.c: of a struct that begins with the interpreter */
struct interpreter *python_of(struct tracee *thread, uint64_t base, const char *path);
bool python_preloads(struct tracee *thread, const char *path); /* python.c: whether what was executed loads a module first */
struct interpreter *shell_of(struct tracee *thread, uint64_t base, const char *path);
struct interpreter *perl_of(struct tracee *thread, uint64_t base, const char *path);
struct interpreter *php_of(struct tracee *thread, uint64_t base, const char *path);
struct interpreter *ruby_of(struct tracee *thread, uint64_t base, const char *path);

/* java.c */
#define JAVA_AGENT "java.so"
void java_runs(struct process *process, const char *source); /* java Save.java: where its source is, or "" */
void java_end(struct process *process);
bool is_java_agent(const char *path); /* of a module: it is ours, java_agent.c */
size_t java_frames(struct tracee *thread, uint64_t frame, struct script_frame *frames, size_t most); /* innermost first. frame: the
                            * frame pointer of a function of the agent */

/* javascript.c */
#define SCRIPT_DEEPEST 32u  /* frames of a report */
struct report;
struct scripts;             /* reports of a process */
void script_enter(struct tracee *thread);  /* a call begins: who asked for it? */
void script_leave(struct tracee *thread);
void scripts_want_sends(void);             /* those of messages, too: a module learns it when it is loaded */
void script_sends(struct tracee *thread);  /* likewise, of a call that sends a message */
bool scripts_report(const struct process *process); /* whether the process's module has reported anything */
size_t script_frames(const struct tracee *thread, uint64_t function, struct script_frame *frames, size_t most); /* innermost
                                            * first. function: where the program's innermost one, in machine code, begins */
size_t script_starts(const struct tracee *thread, struct script_frame *frames); /* innermost first: who starts programs, SCRIPT_DEEPEST at most */
void script_forget(struct tracee *thread);
void scripts_end(struct process *process);

/* preload.c */
void preload_module(const char *file); /* that Node loads */
void preload_folder(const char *path); /* of Python's module */
void preload_agent(const char *file);  /* that Java loads */
void preload_begin(struct tracee *thread, const char *path); /* its process has become the program of that path */

/* stacks.c */
void stack_locate(struct tracee *thread);
void stack_launched(struct process *process); /* it has executed a program */
void stack_born(struct tracee *parent, struct process *child); /* forked, perhaps to execute a program */
void stack_forget(struct process *process); /* its mappings have changed */

/* unfollowed.c */
void unfollowed(struct tracee *thread, const struct inode *inode, const char *name); /* once for each name */

/* places.c */
int descriptor_of(struct tracee *thread, int number);                               /* a duplicate of the program's, or -1 */
bool call_opens(struct tracee *thread, int number, struct stat *state);             /* call.fd becomes a duplicate of it */
struct inode *call_inode(struct tracee *thread, int number);                        /* likewise; of a watched file or folder, or NULL */
int readable(int fd);                                                               /* opens its file once more, to read it */
bool place_of(struct tracee *thread, int folder, uint64_t address, struct place *place);
bool place_stat(const struct place *place, struct stat *state, bool follow);
void place_end(struct place *place);
void call_end(struct tracee *thread);                                               /* closes what the call keeps open */

/* tracees.c */
struct tracee *tracee_of(pid_t tid); /* made where it is not known */
struct tracee *tracee_known(pid_t tid);
void tracee_forget(struct tracee *thread);
struct tracee *tracee_next(const struct tracee *thread); /* after NULL the first one; NULL after the last */
struct tracee *tracee_within(const struct process *process);                        /* any of its threads, or NULL */
bool process_alive(pid_t pid);                                                      /* it is one that is traced */
void mapping_add(struct process *process, struct mapping mapping);

/* stores.c */
typedef void stored_bytes(uint32_t inode, uint64_t offset, const void *bytes, uint64_t size);
void stores_take(stored_bytes *stored); /* what instrumented code has recorded */

/* shadows.c */
void shadow_begin(struct tracee *thread, struct inode *inode, int fd);
void shadow_end(struct tracee *thread, struct inode *inode);
void shadow_compare(struct tracee *thread, struct inode *inode);
void shadows_compare_all(struct tracee *thread);
void shadows_compare_before(struct tracee *thread); /* a call that orders updates of several files: a sync, a change of a name, a cut */
void shadow_refresh(struct inode *inode, uint64_t offset, uint64_t size); /* a call wrote there */

/* outputs.c */
void outputs_start(void);
void outputs_copy(const char *path); /* a file that gets what is written to standard output from now on */
int output_kind(int fd, int number, const struct stat *state); /* fd is ours, number the program's; enum cc_output_kind, or -1 */
bool output_own(const struct place *place); /* something outside of the folder that was made while recording */
void *output_room(int kind, size_t *size); /* for the bytes of an output; as many as are used of them */
void output_record(struct tracee *thread, int kind, uint64_t size, const void *bytes, size_t known);

/* A call stops the program before it and, if that function asks for it, after it. */
enum then {
    SKIP,   /* it concerns nothing that is watched */
    LEAVE,  /* stop after it */
    UPDATE, /* stop after it; no other update until then */
};
struct handler {
    enum then (*enter)(struct tracee *thread);
    void (*leave)(struct tracee *thread);
    bool anytime;       /* it need not wait for an update of another thread */
};
extern const struct handler content_write, content_range, content_clone, content_truncate, content_ftruncate, content_allocate;
extern const struct handler name_open, name_make, name_link, name_symlink, name_unlink, name_rename, name_bind;
extern const struct handler map_map, map_unmap, map_move, map_sync;
extern const struct handler sync_file, sync_all;
extern const struct handler aio_submit, aio_destroy;
extern const struct handler output_send, output_pair, output_mark, script_report, program_runs;
extern const struct handler call_unseen, call_uring, call_mounts, call_clones, call_controls;
size_t content_gather(struct tracee *thread, bool vectored, uint64_t address, uint64_t parts, char *to, size_t size);
void content_arrive(struct tracee *thread, int fd, struct inode *inode, uint64_t size); /* of a file from outside: CC_CONTENT, or CC_WRITE if it is unsynced */
void content_read(struct tracee *thread, int fd, struct inode *inode, uint64_t offset, uint64_t size); /* CC_WRITE of what is there now */
void write_synced(struct tracee *thread, uint32_t inode, uint64_t offset, uint64_t size, int flags); /* O_SYNC, O_DSYNC */

/* aio.c */
void aio_take(struct tracee *thread);       /* records which requests have ended by now */
void aio_end(const struct process *process); /* its requests have ended, with nobody to know how */

/* mappings.c */
void mappings_end(struct tracee *thread); /* its process has none any more */

/* unseen.c */
void unseen_allow_uring(void);

/* calls.c */
#define LAST_CALL 469 /* of Linux 6.17: what calls with higher numbers do is not known. From 424 on, 32-bit ones are the same */
const struct handler *handler_of(long number);

/* narrow.c */
const struct handler *narrow_call(struct call *call, bool x32); /* sets its number and arguments */

/* faults.c */
#define FAULT_WORDS 5
bool fault_add(char **words);           /* CALL ERROR NTH TIMES PATTERN; whether they are a fault */
int fault_of(struct tracee *thread);    /* the error with which the call that begins has to fail, or 0 */
void faults_end(void);                  /* notes how many calls each fault met */

/* filter.c */
extern const uint16_t filter_controls[]; /* types and numbers of ioctls that stop; 0 ends them */
bool filter_install(void); /* in the process that becomes the command; whether it is permitted */
bool filter_send(int socket); /* to a process that installs it itself */
bool filter_stops(uint32_t arch, uint64_t number, const uint64_t *arguments, enum filter_data *kind); /* whether a call would stop */

/* follow.c */
void follow_start(pid_t caller);     /* before the command's process is there; caller: of a command in place, or 0 */
void follow_every_call(void);        /* in that process: it has no filter */
bool follow_seize(pid_t command);
void follow_interrupt(pid_t command); /* so that it stops, and continues from call to call */
int follow(pid_t command);           /* until it ends; its status */
void follow_note_left(void);         /* which processes it leaves running */
void follow_let_run(void);           /* until these end, too: without us their calls would fail, as the filter stays */

#endif
