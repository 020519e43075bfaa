/* Writes the file of its first argument from a known chain of functions, in the way that its second one names. */
#include <alloca.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int file, room = 100;
static volatile char last;

NOINLINE void innermost(void)
{
    if (write(file, "x", 1) != 1)
        _exit(1);
    last = 1;
}

NOINLINE void middle(void)
{
    volatile char *grown = alloca((size_t)room); /* the frame's size is not known before */
    grown[0] = 1;
    innermost();
    last = grown[0];
}

NOINLINE void aligned(void)
{
    volatile char buffer[256] __attribute__((aligned(64))); /* the frame is realigned */
    buffer[0] = 1;
    middle();
    last = buffer[0];
}

NOINLINE int deep(int depth)
{
    volatile char pad[200];
    pad[0] = 1;
    if (depth)
        return deep(depth - 1) + pad[0];
    aligned();
    return pad[0];
}

NOINLINE void *outermost(void *unused)
{
    aligned();
    last = 1;
    return unused;
}

static void on_signal(int unused)
{
    (void)unused;
    innermost();
    last = 1;
}

/* A call with registers and a stack that mean nothing. */
NOINLINE void garbage(void)
{
    static uint64_t words[512];
    for (int i = 0; i < 512; i++)
        words[i] = (uint64_t)(uintptr_t)&innermost + (uint64_t)(i * 7) - 64;
    long result;
    register long one __asm__("rdi") = file;
    register const char *two __asm__("rsi") = "x";
    register long three __asm__("rdx") = 1;
    __asm__ volatile("mov %%rsp, %%r12\n\tmov %%rbp, %%r13\n\tlea 64(%4), %%rbp\n\tmov %4, %%rsp\n\tsyscall\n\t"
                     "mov %%r12, %%rsp\n\tmov %%r13, %%rbp"
                     : "=a"(result)
                     : "a"(SYS_write), "r"(one), "r"(two), "r"(words), "r"(three)
                     : "rcx", "r11", "r12", "r13", "memory");
    if (result != 1)
        _exit(1);
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count < 3 || (file = open(words[1], O_RDWR | O_CREAT, 0644)) < 0)
        return 1;
    if (strcmp(words[2], "plain") == 0)
        outermost(NULL);
    else if (strcmp(words[2], "deep") == 0)
        return deep(400) < 0;
    else if (strcmp(words[2], "garbage") == 0)
        garbage();
    else if (strcmp(words[2], "signal") == 0 && signal(SIGUSR1, on_signal) != SIG_ERR)
        return raise(SIGUSR1);
    else if (strcmp(words[2], "thread") == 0)
        return pthread_create(&thread, NULL, outermost, NULL) || pthread_join(thread, NULL);
    else if (strcmp(words[2], "removed") == 0 && unlink(words[0]) == 0)
        outermost(NULL);
    return 0;
}
