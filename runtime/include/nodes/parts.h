/* What the parts of the controller of nodes share. It is a program of its own, with one thread: it runs the processes of nodes,
 * answers their system calls, and lets one of their threads run at a time.
 *
 * From the lowest part to the highest:
 *   wire          frames to and from the caller
 *   memory        of a process
 *   threads       nodes, their processes and threads, and which may run
 *   recordings    what nodes do to their folders, and where they send
 *   timers        what waits for the time
 *   holds         calls that wait
 *   addresses     of sockets
 *   descriptors   what a descriptor of a process is
 *   substitutes   files that show the machine
 *   files         what files show that differs from run to run
 *   locals        what goes past us: local sockets, ancillary data
 *   sockets       the two ends of each socket, one of which is ours
 *   interfaces    of the network that a node sees
 *   datagrams     datagrams
 *   streams       connections
 *   options       of sockets
 *   transfers     calls that read and write
 *   polls         calls that wait for descriptors
 *   compared      comparisons of times that programs make
 *   clocks        calls that read the time, or sleep
 *   alarms        timers that send signals, and those that are files
 *   requests      asynchronous ones to files
 *   futexes       locks of threads
 *   signals       calls that send signals or wait for them
 *   children      calls that make processes, and wait for them
 *   machine       what differs between machines and runs
 *   calls         the table of calls
 *   faults        calls that are made to fail
 *   filter        which calls stop
 *   turns         which of several threads continues, where the caller chooses
 *   start         starts a node
 *   lives         births and ends of threads
 *   spins         loops in which threads wait without a call
 *   run           the threads, from stop to stop
 *   control       main
 *
 * What a part needs of another is in one above it in this list.
 */
#ifndef CRASHCHECK_NODES_PARTS_H
#define CRASHCHECK_NODES_PARTS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>
#include <time.h>

#include "nodes/attached.h"
#include "nodes/wire.h"

#define NODES 64u
#define SECOND 1000000000ull
#define STACK_DEPTHS 64 /* that are told apart where a clock is read */
#define FOREVER UINT64_MAX
#define DEVICE 1u /* the minor number of the one that all files are on; its major number is 0 */
#define SETS 3u /* of a select */

/* wire.c */
void wire_open(int fd);
bool wire_read(struct cc_frame *order, unsigned char **bytes); /* false: the caller has gone; bytes until the next */
void wire_event(struct cc_frame event, const void *bytes, const void *more, size_t more_size); /* event.size: of bytes */
void wire_flush(void);
_Noreturn void fail(const char *what, const char *why);

/* threads.c */
struct node {
    uint8_t index;
    bool alive;             /* its first process runs */
    bool apart;             /* its process numbers and its segments of shared memory are those of namespaces of its own */
    bool read_clock;        /* in this step */
    bool places;            /* calls that send are placed */
    bool explores;          /* which of several threads continues is the caller's choice */
    bool chooses;           /* such a choice is due: no thread of it runs by itself */
    bool maps_files;        /* a process had shared files as memory */
    bool by_processor;      /* it waits for a timer by a processor's time, as watchdogs and profilers do */
    uint32_t clock_reads[STACK_DEPTHS]; /* in this step, by the stack's depth */
    uint32_t starts;
    pid_t init;             /* of its PID namespace, or 0 */
    int outputs[2];         /* its standard output and error */
    uint64_t now;           /* ns since the run began */
    uint64_t random;        /* state of its random numbers */
    uint64_t ticks;         /* how often the processor's time stamp was read */
    uint32_t timers, timers_made; /* how many were armed; how many there were */
    uint32_t requests;      /* to files: how many there were */
    uint16_t ports;         /* how many ephemeral ports were given */
    uint64_t turns;         /* how often something happened that may change memory: a thread ran, or something came */
    uint64_t activity;      /* grows whenever something may make another call ready */
    uint32_t threads;       /* how many there were */
    struct process *processes;
    struct named *named;    /* what is not controlled */
    struct recording *recording; /* of what it does to its folder, or NULL */
};
struct process {
    pid_t pid;
    pid_t known_as;         /* in its namespace */
    int pidfd;
    struct node *node;
    struct descriptors *descriptors;
    struct thread *threads; /* in order of birth */
    bool signalled;         /* a signal may wait for it */
    bool first;             /* the one that the node was started with */
    bool ending;            /* all its threads end */
    uint64_t computed;      /* ns of a processor, when this step began */
    uint32_t rings_left;    /* that it has destroyed, and the kernel has not (requests.c) */
    struct process *next;
};
enum thread_state { READY, RUNNING, HELD, IN_VFORK, VFORK_OVER, ENDING };
struct thread {
    pid_t tid;
    uint32_t number;        /* in its node, in order of birth */
    enum thread_state state;
    struct process *process;
    struct user_regs_struct called; /* registers when its call began */
    struct user_regs_struct now;    /* registers with which it continues */
    bool changed;           /* `now` is not what the kernel has */
    bool in_call;           /* it stops when the call returns */
    bool again;             /* the call that begins is one that waited */
    bool retried;           /* its call is made again after activity */
    int signal;             /* to be given to it when it continues */
    uint64_t seen;          /* the node's activity when it began to wait */
    const struct handler *handler;
    int64_t result;         /* of a call that is answered, or at its end the kernel's */
    struct timer *timer;    /* that ends its wait, or NULL */
    int64_t late;           /* result when that fires */
    int restart;            /* the kernel's error by which a signal interrupts it */
    uint64_t futex;         /* the address that it waits on, or 0 */
    uint32_t bits;          /* of that */
    bool futex_shared;
    void *waits_on;         /* the connecting socket, or NULL */
    void *saved;            /* SETS pieces of memory that the call overwrites, for when it is made again; where: in room */
    size_t saved_size;      /* of a piece */
    uint64_t remains_at;    /* where the time that is left of a sleep goes when a signal ends it, or 0 */
    bool yields;            /* it waits only for its turn */
    bool asked;             /* it is to stop, as it computes for long */
    bool suspect;           /* it computed for so long that others have their turn */
    uint32_t loop_length;   /* instructions of the loop that it waits in, or 0 */
    uint64_t loop_seen;     /* the node's turns when it began to wait there */
    struct user_regs_struct loop; /* registers at its begin */
    bool yielded;           /* no other thread of its node has run since it did */
    bool holding;           /* it waits as soon as its call returns */
    bool answered;          /* its call is over: it may stay stopped for any time */
    bool recorded;          /* the return of its call will be recorded */
    struct thread *vfork_parent; /* waits in the kernel until this one executes or ends, or NULL */
    pid_t known_as;         /* in its namespace */
    uint64_t room[4];       /* what a handler keeps from a call's begin to its end */
    struct thread *next, *next_ready;
};
extern struct node nodes[NODES];
extern uint64_t calls_answered;
extern bool files_changed; /* since the order began, other than through memory */
pid_t born_in(pid_t tid, pid_t *known_as); /* the process of a thread, and its number in the namespace */
struct process *process_new(struct node *node, pid_t pid, pid_t known_as);
struct thread *thread_new(struct process *process, pid_t tid, pid_t known_as);
struct thread *thread_of(pid_t tid);
struct process *process_of(pid_t pid);
void thread_forget(struct thread *thread);      /* the last one: its process as well */
void ready(struct thread *thread);              /* continues when those before it wait */
void unqueue(struct thread *thread);
struct thread *next_ready(void);                /* takes it from the queue; NULL: none, but of nodes whose caller chooses */
bool may_run(void);                             /* whether one is in the queue */
void name_uncontrolled(struct node *node, const char *what);
void clock_read(struct node *node, uint64_t stack);
uint64_t random_bits(struct node *node);
void random_fill(struct node *node, void *to, size_t size);
static inline uint64_t argument(const struct thread *thread, int number)
{
    const struct user_regs_struct *at = &thread->called;
    return (const uint64_t[]){at->rdi, at->rsi, at->rdx, at->r10, at->r8, at->r9}[number];
}

/* memory.c */
size_t memory_read(const struct thread *thread, uint64_t address, void *to, size_t size);
bool memory_write(const struct thread *thread, uint64_t address, const void *from, size_t size);
bool memory_text(const struct thread *thread, uint64_t address, char *to, size_t room);
uint64_t memory_scratch(const struct thread *thread, size_t size); /* below its stack */
size_t memory_gather(const struct thread *thread, uint64_t parts, uint64_t count, unsigned char **bytes); /* of iovecs; bytes: to be freed */

/* What a call's handler decides. */
enum then {
    NATIVE,  /* the kernel makes the call */
    AFTER,   /* likewise, and `leave` sees what came of it */
    ANSWER,  /* `result` is its result; the kernel makes no call */
    HOLD,    /* it waits */
};
struct handler {
    enum then (*enter)(struct thread *thread);
    enum then (*leave)(struct thread *thread); /* ANSWER: `result` is its result, or HOLD */
    bool acts;              /* it may make calls of other threads ready */
};
static inline enum then answer(struct thread *thread, int64_t result)
{
    thread->result = result;
    return ANSWER;
}

/* timers.c */
enum timer_kind { ENDS_WAIT, FIRES_FILE, SENDS_SIGNAL };
struct timer {
    struct node *node;
    uint32_t number, owner;
    uint64_t due, period;
    enum timer_kind kind;
    struct thread *thread;      /* of ENDS_WAIT */
    struct object *object;      /* of FIRES_FILE */
    struct process *process;    /* of SENDS_SIGNAL */
    int signal, id;             /* id: of timer_create, or -1 */
    uint64_t value;             /* that the signal carries */
    pid_t receiver;             /* the thread that gets it, or 0 */
    bool armed;
    bool by_processor;          /* by its time, which does not pass: it is never armed */
    struct timer *next;
};
struct timer *timer_new(struct node *node, enum timer_kind kind);
void timer_arm(struct timer *timer, uint64_t due, bool from_now);
void timer_disarm(struct timer *timer);
void timer_free(struct timer *timer);
struct timer *timer_known(const struct node *node, uint32_t number);
struct timer *timer_next(struct timer *timer);  /* after NULL the first */
uint64_t time_base(int clock);                  /* what a clock shows at the run's begin; FOREVER: no such clock */
uint64_t time_of(const struct node *node, int clock);
uint64_t due_after(const struct node *node, uint64_t ns);
bool time_read(const struct thread *thread, uint64_t address, uint64_t *ns); /* a timespec; false: it is none */
bool time_write(const struct thread *thread, uint64_t address, uint64_t ns);

/* holds.c */
enum { RESTARTED = 512, NOT_RESTARTED = 514, LOOKS_AGAIN = 0 }; /* a handler's SA_RESTART decides; a handler ends it; the call itself does */
enum then hold(struct thread *thread, bool retried, int restart);
enum then hold_until(struct thread *thread, bool retried, int restart, uint64_t due, bool from_now, int64_t late); /* FOREVER: never */
void hold_ends(struct thread *thread, int64_t result);
void hold_retry(struct thread *thread);
void hold_interrupt(struct thread *thread);
void hold_over(struct thread *thread);          /* forgets what it waited for */

/* addresses.c */
struct address {
    unsigned char ip[CC_ADDRESS];
    uint16_t port;
};
bool address_any(const struct address *address);
bool address_loop(const struct address *address);
bool address_same(const struct address *one, const struct address *other);
struct address address_of_node(const struct node *node, bool loop);
int address_read(const struct thread *thread, uint64_t at, uint64_t size, int family, struct address *address); /* 0 or an error */
bool address_write(const struct thread *thread, uint64_t at, uint64_t size_at, uint32_t room, int family, const struct address *address);

/* descriptors.c */
enum object_kind { OUTPUT, RANDOM, TIMER_FILE, STREAM, DATAGRAM };
enum socket_state { FRESH, LISTENS, CONNECTS, CONNECTED, FAILED_TO };
struct source {
    struct address from;
    struct source *next;
};
struct option {
    int level, name;
    uint32_t size;
    unsigned char value[16];
    struct option *next;
};
struct object {
    enum object_kind kind;
    uint32_t references;
    uint32_t number;        /* of an output 1 or 2; of a socket: its number in the world */
    struct node *node;
    int ours;               /* our end, or -1 */
    struct timer *timer;    /* of TIMER_FILE */
    int clock;
    enum socket_state state;
    int family;
    bool bound, has_peer, shut, finished, reset, only_v6, shares_port;
    int error;              /* that SO_ERROR reports */
    struct address local, peer;
    unsigned char *left;    /* bytes, or datagrams, that did not yet fit */
    size_t left_size;
    uint32_t junk;          /* bytes in our end that keep the program's from being writable */
    struct object *pending, *next_pending; /* connections that wait for accept */
    struct source *sources; /* of datagrams that can be read */
    struct option *options;
    uint64_t receive_limit; /* ns, SO_RCVTIMEO; 0: none */
    struct object *next;
};
void objects_closed(void (*closed)(struct object *)); /* who hears that the last descriptor of one was closed */
struct object *object_new(struct node *node, enum object_kind kind);
struct object *object_numbered(uint32_t number);    /* a socket, or NULL */
struct object *object_next(struct object *object);  /* after NULL the first */
void object_free(struct object *object);
struct object *object_at(const struct thread *thread, int fd);
void descriptor_set(struct process *process, int fd, struct object *object); /* NULL: it is closed */
bool descriptor_plain(const struct thread *thread, int fd);     /* a file or folder: it never waits */
void descriptors_copy(struct process *from, struct process *to, bool shared);
void descriptors_end(struct process *process);
void descriptors_executed(struct process *process);
int descriptor_ours(const struct thread *thread, int fd);       /* a duplicate of the program's, or -1 */
bool waits_not(const struct thread *thread, int fd);            /* O_NONBLOCK */
extern const struct handler call_close, call_close_range, call_dup, call_dup2, call_fcntl;

/* substitutes.c */
void substitutes_in(const char *folder); /* where they are written */
extern const struct handler call_open;

/* files.c */
void files_since(const char *folder);
extern const struct handler call_stat, call_statx, call_statfs, call_list, call_sync;

/* locals.c */
void name_ancillary(const struct thread *thread, const struct object *object, uint64_t message); /* of a struct msghdr that is sent */
void name_local_peer(const struct thread *thread, int fd);      /* that a local socket was connected to, if it is none of the node */
void name_local_name(const struct thread *thread, int fd, uint64_t size); /* that a local socket gets, if others may send to it */
void name_local_target(const struct thread *thread, int fd);    /* that a datagram goes to, if it is a local one */

/* sockets.c */
void sockets_open(void);
bool stream_connect_ends(struct thread *thread, int fd, struct object *object);
void socket_junk(const struct thread *thread, int fd, uint32_t count);
struct object *socket_bound_at(const struct node *node, enum object_kind kind, const struct address *address, const struct object *but);
void socket_bind_free(struct object *object, bool loop);        /* to an ephemeral port */
void socket_say_bound(struct object *object);
extern const struct handler call_socket, call_bind;

/* streams.c */
void stream_request(struct object *listener, const struct object *from);
void stream_connected(struct object *object, int error);
void stream_arrive(struct object *object, const void *bytes, size_t size);
void stream_finish(struct object *object);
void stream_reset(struct object *object);
bool stream_refill(struct object *object);                      /* whether anything of what is left could be written */
bool stream_readable(const struct object *object);
enum then stream_send(struct thread *thread, struct object *object, const void *bytes, size_t size, bool quiet);
void socket_closed(struct object *object);
extern const struct handler call_listen, call_connect, call_accept, call_shutdown;

/* datagrams.c */
int datagram_connect(struct thread *thread, struct object *object);
void datagram_arrive(struct object *object, const struct address *from, const void *bytes, size_t size);
enum then datagram_send(struct thread *thread, struct object *object, uint64_t name, uint32_t name_size, const void *bytes, size_t size);
void datagram_taken(struct object *object, struct address *from); /* the first was read */

/* interfaces.c */
#define INTERFACES_MOST 2048u
size_t interfaces_reply(const struct object *object, const void *bytes, size_t size, void *to); /* to what was sent to a netlink socket */
enum then interfaces_ioctl(struct thread *thread);              /* one of sockets and network devices */

/* options.c */
extern const struct handler call_setsockopt, call_getsockopt, call_getsockname, call_getpeername;

/* transfers.c */
extern const struct handler call_read, call_write, call_receive, call_receive_message, call_receive_messages, call_send, call_send_message,
    call_send_messages, call_copies;

/* polls.c */
extern const struct handler call_poll, call_ppoll, call_select, call_epoll;

/* compared.c */
enum then compared(struct thread *thread);                  /* what cc_compared (hooks.h) has called */

/* clocks.c */
extern const struct handler call_clock_gettime, call_gettimeofday, call_time, call_times, call_clock_getres, call_nanosleep, call_clock_nanosleep;

/* alarms.c */
void alarm_fire(struct timer *timer);
void alarms_end(struct process *process);
extern const struct handler call_timerfd_create, call_timerfd_settime, call_timerfd_gettime;
extern const struct handler call_alarm, call_setitimer, call_getitimer;
extern const struct handler call_timer_create, call_timer_settime, call_timer_gettime, call_timer_getoverrun, call_timer_delete;

/* requests.c */
void request_completes(struct node *node, uint32_t number); /* the program hears that it has ended */
void requests_end(const struct process *process);           /* with its memory */
extern const struct handler call_submit, call_get_events, call_destroy_ring;

/* futexes.c */
void futexes_look(struct process *process);     /* a thread ended: the kernel changed what others may wait for */
extern const struct handler call_futex;

/* signals.c */
bool signal_waits(const struct thread *thread);             /* one that the call that it waits in does not block */
bool signal_caught(const struct thread *thread, int signal); /* by a handler */
extern const struct handler call_kill, call_suspend, call_signal_wait;

/* children.c */
extern const struct handler call_clone, call_wait, call_waitid, call_exit, call_exit_group, call_flock;

/* machine.c */
extern const struct handler call_getrandom, call_uname, call_sysinfo, call_getcpu, call_affinity, call_usage, call_refused, call_nothing,
    call_segments, call_ioctl, call_yield, call_unknown;

/* calls.c */
#define LAST_CALL 469
const struct handler *handler_of(uint64_t number); /* NULL: the kernel makes the call, and nobody is asked */
bool call_may_change_files(uint64_t number);
bool call_changes_files(const struct thread *thread);           /* one that the kernel makes */

/* recordings.c */
/* folder: for copies of the library; module, agent: what Node and Java load where calls that send are placed */
void recordings_by(const char *library, const char *folder, const char *module, const char *agent);
void recording_load(struct node *node);
void recording_begin(struct node *node, const char *trace, const char *folder, pid_t pid, const int *outputs);
void recording_close(struct node *node);
bool recording_wants(const struct node *node, uint64_t number); /* of a call: it may concern files */
enum attached recording_enter(struct thread *thread);
void recording_leave(struct thread *thread);                    /* by `result` */
void recording_place(const struct thread *thread);              /* names the call that sends what the next event is about, if that is wanted */
void recording_born(const struct thread *parent, pid_t child);
void recording_executed(const struct thread *thread);
void recording_ended(const struct thread *thread, int status);

/* faults.c */
void fault_add(const struct node *node, const char *call, const struct cc_frame *order); /* as CC_FAULT has it */
int64_t fault_of(const struct thread *thread);                  /* the result of the call that begins; 0: it does not fail */
bool fault_wants(const struct node *node, uint64_t number);     /* of a call: it may fail */

/* filter.c */
enum filter_data { FILTER_OURS, FILTER_NARROW };
bool filter_install(const struct node *node);

/* start.c */
struct thread *start(struct node *node, char *bytes, size_t size); /* stopped where its program begins */
void start_executed(struct thread *thread);

/* lives.c */
#define LONG_LOOP "a thread that computes while another one waits"
void unrest_after(unsigned seconds);                        /* of computing */
void unrest_watch(bool watches);                            /* ends this program if the threads do not rest in time */
void thread_born(struct thread *parent, int event);
bool thread_await(struct thread *thread, int *status);      /* its next stop; false: it has ended */
void first_thread_ended(const struct thread *thread);       /* waits until it has, though others of its process live */
void vfork_done(struct thread *child);                      /* it executes or ends: its parent continues */
void end_of_other(pid_t tid, int status);
void settle_all(struct node *node);                         /* waits until all processes that are ending have ended */

/* turns.c */
void turns_offer(void);                     /* finds out which nodes have a choice */
void turns_announce(void);                  /* names their threads */
struct thread *turn_of(const struct node *node, uint32_t number); /* one that was offered, or NULL */

/* spins.c */
enum loop { COMPUTES, TURNS, LEAVES }; /* TURNS: nothing changes until another thread changes it; LEAVES: it stopped otherwise */
enum loop loop_of(struct thread *thread, int *status);      /* status: of LEAVES; 0: it has ended */
enum loop loop_again(struct thread *thread, int *status);   /* once around the loop that it waited in */

/* run.c */
void run(struct thread *chosen); /* this one, or NULL, and all others until they wait or there is a choice */
void run_end(struct node *node); /* ends all processes of it */

#endif
