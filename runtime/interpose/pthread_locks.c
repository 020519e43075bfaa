/* Locks and semaphores of libc in pool files. They are updates like any other: a crash may leave a lock held.
 *
 * What a call changed is read back after it. One that may wait is recorded once it has returned; for others, nobody
 * else's call is recorded between the change and its record. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include "interpose/model.h"
#include "recorder/events.h"
#include "recorder/regions.h"

/* What locking and unlocking change of a mutex: its word, count, owner and users; of other kinds than the plain ones also
 * the list that it is in. */
#define PLAIN_KINDS 3
static uint32_t mutex_bytes(const pthread_mutex_t *mutex)
{
    return mutex->__data.__kind & ~PLAIN_KINDS ? sizeof *mutex : offsetof(pthread_mutex_t, __data.__kind);
}

static bool is_watched(const void *object, size_t size)
{
    return cc_on() && cc_range_in_window(object, size);
}

static void end(where at, const void *object, uint32_t size, bool changed)
{
    cc_atomic_end(object, size, 0, changed ? CC_ATOMIC_STORED : 0, 0, at.unit, at.index, at.depth);
}

/* A call that does not wait. `failed`: its result is an error, and nothing was changed. Another thread may free an object as
 * soon as the call has released it, so afterwards only one in a file is read. */
#define AT_ONCE(name, object, size, parameters, arguments, failed)                                                        \
    EXPORTED int cc_wrap_##name parameters;                                                                               \
    EXPORTED int cc_wrap_##name parameters                                                                                \
    {                                                                                                                     \
        where at = cc_from_wrapper();                                                                                     \
        bool watched = is_watched((const void *)object, sizeof *object);                                                  \
        uint32_t bytes = watched ? (size) : 0;                                                                            \
        if (watched)                                                                                                      \
            cc_atomic_begin((const void *)object);                                                                        \
        int got = name arguments;                                                                                         \
        if (watched)                                                                                                      \
            end(at, (const void *)object, bytes, !(failed));                                                              \
        return got;                                                                                                       \
    }

/* Of an object of `whole` bytes the first `size`. */
static void record(where at, const void *object, size_t whole, uint32_t size)
{
    if (!is_watched(object, whole))
        return;
    cc_atomic_begin(object);
    end(at, object, size, true);
}

/* A call that may wait, and holds the object, or has its turn, when it returns. */
#define WAITS(name, object, size, parameters, arguments, failed)                                                           \
    EXPORTED int cc_wrap_##name parameters;                                                                                \
    EXPORTED int cc_wrap_##name parameters                                                                                 \
    {                                                                                                                      \
        where at = cc_from_wrapper();                                                                                      \
        int got = name arguments;                                                                                          \
        if (!(failed))                                                                                                     \
            record(at, (const void *)object, sizeof *object, size);                                                        \
        return got;                                                                                                        \
    }

#define MUTEX(kind, name) kind(name, mutex, mutex_bytes(mutex), (pthread_mutex_t * mutex), (mutex), got && got != EOWNERDEAD)
MUTEX(WAITS, pthread_mutex_lock)
MUTEX(AT_ONCE, pthread_mutex_trylock)
MUTEX(AT_ONCE, pthread_mutex_unlock)
WAITS(pthread_mutex_timedlock, mutex, mutex_bytes(mutex),
      (pthread_mutex_t *restrict mutex, const struct timespec *restrict until), (mutex, until), got &&got != EOWNERDEAD)
AT_ONCE(pthread_mutex_init, mutex, sizeof *mutex, (pthread_mutex_t * mutex, const pthread_mutexattr_t *kind),
        (mutex, kind), got)
AT_ONCE(pthread_mutex_destroy, mutex, sizeof *mutex, (pthread_mutex_t * mutex), (mutex), got)
AT_ONCE(pthread_mutex_consistent, mutex, sizeof *mutex, (pthread_mutex_t * mutex), (mutex), got)

#define RWLOCK(kind, name) kind(name, lock, sizeof *lock, (pthread_rwlock_t * lock), (lock), got)
RWLOCK(WAITS, pthread_rwlock_rdlock)
RWLOCK(WAITS, pthread_rwlock_wrlock)
RWLOCK(AT_ONCE, pthread_rwlock_tryrdlock)
RWLOCK(AT_ONCE, pthread_rwlock_trywrlock)
RWLOCK(AT_ONCE, pthread_rwlock_unlock)
AT_ONCE(pthread_rwlock_init, lock, sizeof *lock, (pthread_rwlock_t * lock, const pthread_rwlockattr_t *kind),
        (lock, kind), got)
WAITS(pthread_rwlock_timedrdlock, lock, sizeof *lock,
      (pthread_rwlock_t *restrict lock, const struct timespec *restrict until), (lock, until), got)
WAITS(pthread_rwlock_timedwrlock, lock, sizeof *lock,
      (pthread_rwlock_t *restrict lock, const struct timespec *restrict until), (lock, until), got)

#define SPINLOCK(kind, name) kind(name, lock, sizeof *lock, (pthread_spinlock_t * lock), ((int *)lock), got)
SPINLOCK(WAITS, pthread_spin_lock)
SPINLOCK(AT_ONCE, pthread_spin_trylock)
SPINLOCK(AT_ONCE, pthread_spin_unlock)
AT_ONCE(pthread_spin_init, lock, sizeof *lock, (pthread_spinlock_t * lock, int shared), (lock, shared), got)

#define SEMAPHORE(kind, name) kind(name, semaphore, sizeof *semaphore, (sem_t * semaphore), (semaphore), got)
SEMAPHORE(WAITS, sem_wait)
SEMAPHORE(AT_ONCE, sem_trywait)
SEMAPHORE(AT_ONCE, sem_post)
AT_ONCE(sem_init, semaphore, sizeof *semaphore, (sem_t * semaphore, int shared, unsigned value),
        (semaphore, shared, value), got)
WAITS(sem_timedwait, semaphore, sizeof *semaphore, (sem_t *restrict semaphore, const struct timespec *restrict until),
      (semaphore, until), got)

#define CONDITION(name) AT_ONCE(name, condition, sizeof *condition, (pthread_cond_t * condition), (condition), got)
CONDITION(pthread_cond_signal)
CONDITION(pthread_cond_broadcast)
AT_ONCE(pthread_cond_init, condition, sizeof *condition, (pthread_cond_t * condition, const pthread_condattr_t *kind),
        (condition, kind), got)

/* A waiting thread has released its mutex: recorded before it does, since nobody can take it earlier. */
static void release(where at, const pthread_mutex_t *mutex)
{
    if (!is_watched(mutex, sizeof *mutex))
        return;
    pthread_mutex_t free = *mutex;
    free.__data.__lock = free.__data.__owner = 0;
    free.__data.__count = free.__data.__nusers = 0;
    cc_update(at, 0, mutex, &free, 0, mutex_bytes(mutex), CC_STORE_ATOMIC, 0);
}

static int waited(where at, const pthread_cond_t *condition, const pthread_mutex_t *mutex, int got)
{
    record(at, condition, sizeof *condition, sizeof *condition);
    record(at, mutex, sizeof *mutex, mutex_bytes(mutex));
    return got;
}

#define WAITS_FOR(name, parameters, arguments)                                                                             \
    EXPORTED int cc_wrap_##name parameters;                                                                                \
    EXPORTED int cc_wrap_##name parameters                                                                                 \
    {                                                                                                                      \
        where at = cc_from_wrapper();                                                                                      \
        release(at, mutex);                                                                                                \
        return waited(at, condition, mutex, name arguments);                                                               \
    }
WAITS_FOR(pthread_cond_wait, (pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex), (condition, mutex))
WAITS_FOR(pthread_cond_timedwait,
          (pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until),
          (condition, mutex, until))
