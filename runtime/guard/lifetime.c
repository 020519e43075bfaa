/* Memory that ends: what is there afterwards is another variable. Instrumented code calls these instead of libc's functions;
 * which they are, models.def lists. */
#include <dlfcn.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "guard/base.h"

#define MODEL __attribute__((visibility("default")))

void cc_guard_forget(const void *address, uint64_t size)
{
    if (cc_log)
        cc_forget((uintptr_t)address, size);
}

int dladdr(const void *address, Dl_info *info) __attribute__((weak)); /* older C libraries have it elsewhere */

/* Whether a block's size can be asked for: an allocator that replaces libc's, preloaded or linked, may have no such function,
 * and libc's would read what is no header of its own. */
static bool sizes_are_known(void)
{
    static _Atomic int known; /* 0: not asked yet */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (UNLIKELY(!answer)) {
        Dl_info allocator, sizes;
        bool found = dladdr && dladdr((void *)malloc, &allocator) && dladdr((void *)malloc_usable_size, &sizes);
        answer = found && allocator.dli_fbase != sizes.dli_fbase ? -1 : 1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer > 0;
}

static void ends(void *block)
{
    if (!block || !cc_log)
        return;
    if (LIKELY(sizes_are_known()))
        cc_forget((uintptr_t)block, malloc_usable_size(block));
    else
        __atomic_fetch_add(&cc_log->unforgotten, 1, __ATOMIC_RELAXED);
}

/* What a library freed, it freed unseen: a block that begins is a new variable, whatever was known of its memory. */
static void *begins(void *block, size_t size)
{
    if (block)
        cc_guard_forget(block, size);
    return block;
}

#define ALLOCATE(name, parameters, arguments, size)                                                                    \
    MODEL void *cc_wrap_##name parameters;                                                                             \
    void *cc_wrap_##name parameters                                                                                    \
    {                                                                                                                  \
        return begins(name arguments, size);                                                                           \
    }
ALLOCATE(malloc, (size_t bytes), (bytes), bytes)
ALLOCATE(calloc, (size_t count, size_t bytes), (count, bytes), count * bytes)
ALLOCATE(aligned_alloc, (size_t align, size_t bytes), (align, bytes), bytes)

MODEL int cc_wrap_posix_memalign(void **block, size_t align, size_t bytes);
int cc_wrap_posix_memalign(void **block, size_t align, size_t bytes)
{
    int failed = posix_memalign(block, align, bytes);
    if (!failed)
        begins(*block, bytes);
    return failed;
}

/* Of C++'s operators, which a program in C lacks: it never calls these. */
#define NEW(name, parameters, arguments)                                                                               \
    void *name parameters __attribute__((weak));                                                                       \
    ALLOCATE(name, parameters, arguments, bytes)
NEW(_Znwm, (size_t bytes), (bytes))
NEW(_Znam, (size_t bytes), (bytes))
NEW(_ZnwmSt11align_val_t, (size_t bytes, size_t align), (bytes, align))
NEW(_ZnamSt11align_val_t, (size_t bytes, size_t align), (bytes, align))

#define DELETE(name, parameters, arguments)                                                                            \
    void name parameters __attribute__((weak));                                                                        \
    MODEL void cc_wrap_##name parameters;                                                                              \
    void cc_wrap_##name parameters                                                                                     \
    {                                                                                                                  \
        ends(block);                                                                                                   \
        if (name)                                                                                                      \
            name arguments;                                                                                            \
        else                                                                                                           \
            free(block);                                                                                               \
    }
DELETE(_ZdlPv, (void *block), (block))
DELETE(_ZdaPv, (void *block), (block))
DELETE(_ZdlPvm, (void *block, size_t size), (block, size))
DELETE(_ZdaPvm, (void *block, size_t size), (block, size))
DELETE(_ZdlPvSt11align_val_t, (void *block, size_t align), (block, align))
DELETE(_ZdaPvSt11align_val_t, (void *block, size_t align), (block, align))
DELETE(_ZdlPvmSt11align_val_t, (void *block, size_t size, size_t align), (block, size, align))
DELETE(_ZdaPvmSt11align_val_t, (void *block, size_t size, size_t align), (block, size, align))

MODEL void cc_wrap_free(void *block);
void cc_wrap_free(void *block)
{
    ends(block);
    free(block);
}

/* A block that stays where it is becomes another variable, too: which it will do is not known before. */
MODEL void *cc_wrap_realloc(void *block, size_t size);
void *cc_wrap_realloc(void *block, size_t size)
{
    ends(block);
    return begins(realloc(block, size), size);
}

MODEL void *cc_wrap_reallocarray(void *block, size_t count, size_t size);
void *cc_wrap_reallocarray(void *block, size_t count, size_t size)
{
    ends(block);
    return begins(reallocarray(block, count, size), count * size);
}

MODEL int cc_wrap_munmap(void *address, size_t size);
int cc_wrap_munmap(void *address, size_t size)
{
    cc_guard_forget(address, size);
    return munmap(address, size);
}

static void may_replace(const void *address, size_t size, int flags)
{
    if (flags & MAP_FIXED)
        cc_guard_forget(address, size);
}

MODEL void *cc_wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
void *cc_wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    may_replace(address, size, flags);
    return mmap(address, size, protection, flags, file, offset);
}

MODEL void *cc_wrap_mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset);
void *cc_wrap_mmap64(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    may_replace(address, size, flags);
    return mmap(address, size, protection, flags, file, offset);
}

MODEL void *cc_wrap_mremap(void *address, size_t size, size_t new_size, int flags, ...);
void *cc_wrap_mremap(void *address, size_t size, size_t new_size, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *target = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    cc_guard_forget(address, size);
    if (target)
        cc_guard_forget(target, new_size);
    return mremap(address, size, new_size, flags, target);
}
