/* Runs a program where seccomp filters are refused, as some containers do:  without_filters ERROR PROGRAM [ARGUMENT...] */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)

int main(int count, char **words)
{
    if (count < 3)
        return 2;
    struct sock_filter refusing[] = {
        LOAD(nr),
        UNLESS(SYS_seccomp, 1),
        ANSWER(SECCOMP_RET_ERRNO | (unsigned)atoi(words[1])),
        UNLESS(SYS_prctl, 3),
        LOAD(args[0]),
        UNLESS(PR_SET_SECCOMP, 1),
        ANSWER(SECCOMP_RET_ERRNO | (unsigned)atoi(words[1])),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog whole = {sizeof refusing / sizeof *refusing, refusing};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) != 0)
        return 3;
    execv(words[2], words + 2);
    return 4;
}
