/* What the controller of nodes calls of the recorder of system calls, of which it loads one copy for each machine. */
#ifndef CRASHCHECK_NODES_ATTACHED_H
#define CRASHCHECK_NODES_ATTACHED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

enum attached {
    ATTACHED_NOTHING,
    ATTACHED_RETURN,        /* the call's return is wanted */
    ATTACHED_REPORT,        /* it is a report of ours from within the program: it succeeds, and the kernel does not see it */
};

bool attached_open(const char *trace, const char *folder, pid_t pid, const int *outputs); /* false: the folder cannot be read */
void attached_show(const char *module, const char *agent);                  /* who sends: Node loads the one, Java the other */
bool attached_wants(uint64_t number);                                       /* of a call: it may concern files */
enum attached attached_enter(pid_t tid, const struct user_regs_struct *now);
uint64_t attached_place(pid_t tid, const struct user_regs_struct *now);     /* where a call is made: its site in the upper half, and its stack */
void attached_leave(pid_t tid, int64_t result);
void attached_born(pid_t parent, pid_t child);
void attached_executed(pid_t tid);
void attached_ended(pid_t tid, int status);
void attached_close(void);

#endif
