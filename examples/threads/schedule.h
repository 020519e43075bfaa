/* Which thread goes when: the programs here run each step of their threads in an order that is chosen on the command line.
 *
 * Compiled without crashcheck: what keeps the order must not be taken for the program's own accesses. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

/* Steps by name, separated by spaces; NULL ends each list. */
struct schedules {
    const char *const *good; /* `program N` takes the N-th, beginning again after the last */
    const char *const *bad;  /* `program bad`, `program bad2`, … */
};

/* Exits with status 2 if the arguments choose none. `program random SEED`: no order is kept, and each step begins after a
 * random time of up to a millisecond. */
void choose(int argc, char **argv, const struct schedules *schedules);

/* Runs `first` and `second` in two threads; the program's exit status: 1 if one of them called `failed`. */
int run_two(void (*first)(void), void (*second)(void));

/* Ends the calling thread's step, and begins `step` when all before it in the schedule have ended. */
void turn(const char *step);

/* The fix of each program, with -DFIXED: a lock, or a wait for what must happen first. A thread that waits here lets the other
 * one continue, whatever the schedule. */
void lock(void);
void unlock(void);
void await_first(void);
void first_happened(void);
#ifdef FIXED
#define BEGIN_ATOMIC() lock()
#define END_ATOMIC() unlock()
#define AWAIT_FIRST() await_first()
#define FIRST_HAPPENED() first_happened()
#else
#define BEGIN_ATOMIC() ((void)0)
#define END_ATOMIC() ((void)0)
#define AWAIT_FIRST() ((void)0)
#define FIRST_HAPPENED() ((void)0)
#endif

/* What went wrong. */
void failed(const char *what);

#endif
