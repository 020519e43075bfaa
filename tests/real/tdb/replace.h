/* What tdb takes from samba's lib/replace, on a Linux with glibc: the answers that its own configure finds there. */
#ifndef REPLACE_H
#define REPLACE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* lib/replace's own headers of system calls: the ones above replace them. */
#define _system_filesys_h
#define _system_time_h
#define _system_shmem_h
#define _system_select_h
#define _system_wait_h

#define HAVE_FDATASYNC 1
#define HAVE_GETPAGESIZE 1
#define HAVE_MMAP 1
#define HAVE_POSIX_FALLOCATE 1
#define HAVE_UTIME 1
#define HAVE___ATOMIC_ADD_FETCH 1
#define HAVE___ATOMIC_ADD_LOAD 1

#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define FALL_THROUGH __attribute__((fallthrough))
#define likely(x) (x)
#define unlikely(x) (x)
#define __location__ __FILE__
#define discard_const(pointer) ((void *)(uintptr_t)(pointer))
#define discard_const_p(type, pointer) ((type *)discard_const(pointer))
#define PRINTF_ATTRIBUTE(text, first) __attribute__((format(printf, text, first)))
#define ZERO_STRUCT(x) memset(&(x), 0, sizeof(x))
#define _DEPRECATED_ __attribute__((deprecated))
#define _PUBLIC_

#endif
