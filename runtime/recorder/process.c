/* A recorded process: what all parts know of it and of its threads, and how it notices that it was forked. */
#include <pthread.h>
#include <sys/mman.h>

#include "recorder/process.h"

__thread struct thread cc_thread TLS_MODEL;
uint32_t cc_pid;
static uint64_t always_alive = 1;
volatile uint64_t *cc_alive = &always_alive;
void (*cc_child)(void);
bool cc_loads, cc_executed;
static pthread_key_t thread_key;

/* Recording ends for this process, and for others when they need their next chunk; the program continues. */
void cc_stop(uint32_t status)
{
    __atomic_fetch_or(&cc_header->status, status, __ATOMIC_RELAXED);
    cc_recording = 0;
    cc_window_bytes = 0;
    cc_mapped_bytes = 0;
    cc_load_on = 0;
    cc_load_window_bytes = 0;
}

/* So that its mappings go when it ends; a destructor that records later makes new ones, which is only a leak. */
void cc_thread_begins(void)
{
    pthread_setspecific(thread_key, &cc_thread);
}

static void watch_for_forks(void)
{
    long page = raw6(SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw_failed(page))
        return;
    *(uint64_t *)page = 1;
    if (!raw_failed(raw3(SYS_madvise, page, PAGE, MADV_WIPEONFORK)))
        cc_alive = (volatile uint64_t *)page;
}

bool cc_notices_forks(void)
{
    return cc_alive != &always_alive;
}

bool cc_process_start(void (*child)(void), void (*thread_ends)(void *))
{
    if (pthread_key_create(&thread_key, thread_ends))
        return false;
    uint32_t none = 0;
    __atomic_compare_exchange_n(&cc_header->main_pid, &none, cc_pid, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    cc_child = child;
    cc_executed = true;
    watch_for_forks();
    return true;
}

/* This process uses a pool file: it is the program, unless another is. A shell before it is not. */
void cc_uses_pool_file(void)
{
    uint32_t program = __atomic_load_n(&cc_header->program, __ATOMIC_RELAXED);
    bool over = __atomic_load_n(&cc_header->status, __ATOMIC_RELAXED) & CC_STATUS_CLEAN_EXIT;
    if (program && !(over && cc_executed && program != cc_pid))
        return;
    if (__atomic_compare_exchange_n(&cc_header->program, &program, cc_pid, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        __atomic_fetch_and(&cc_header->status, ~(uint32_t)CC_STATUS_CLEAN_EXIT, __ATOMIC_RELAXED);
}
