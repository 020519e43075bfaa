/* Declarations of the modelled functions that the system's headers keep to themselves. */
#ifndef CRASHCHECK_MODELS_H
#define CRASHCHECK_MODELS_H

#ifndef _GNU_SOURCE
#error "compile the runtime with -D_GNU_SOURCE"
#endif

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wchar.h>

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);
ssize_t __read_chk(int fd, void *target, size_t size, size_t capacity);
ssize_t __pread_chk(int fd, void *target, size_t size, off_t offset, size_t capacity);
ssize_t __pread64_chk(int fd, void *target, size_t size, off64_t offset, size_t capacity);
ssize_t __recv_chk(int fd, void *target, size_t size, size_t capacity, int flags);
char *__fgets_chk(char *target, size_t capacity, int size, FILE *stream);
size_t __fread_chk(void *target, size_t capacity, size_t size, size_t count, FILE *stream);

void *__memcpy_chk(void *target, const void *source, size_t size, size_t capacity);
void *__memmove_chk(void *target, const void *source, size_t size, size_t capacity);
void *__mempcpy_chk(void *target, const void *source, size_t size, size_t capacity);
void *__memset_chk(void *target, int byte, size_t size, size_t capacity);
char *__strcpy_chk(char *target, const char *source, size_t capacity);
char *__stpcpy_chk(char *target, const char *source, size_t capacity);
char *__strcat_chk(char *target, const char *source, size_t capacity);
char *__strncpy_chk(char *target, const char *source, size_t size, size_t capacity);
char *__stpncpy_chk(char *target, const char *source, size_t size, size_t capacity);
char *__strncat_chk(char *target, const char *source, size_t size, size_t capacity);
void __explicit_bzero_chk(void *target, size_t size, size_t capacity);
char *__fgets_unlocked_chk(char *target, size_t capacity, int size, FILE *stream);
size_t __fread_unlocked_chk(void *target, size_t capacity, size_t size, size_t count, FILE *stream);
ssize_t __recvfrom_chk(int fd, void *target, size_t size, size_t capacity, int flags, struct sockaddr *from, socklen_t *length);
ssize_t __readlink_chk(const char *path, char *target, size_t size, size_t capacity);
ssize_t __readlinkat_chk(int folder, const char *path, char *target, size_t size, size_t capacity);
char *__getcwd_chk(char *target, size_t size, size_t capacity);
char *__realpath_chk(const char *path, char *target, size_t capacity);
int __gethostname_chk(char *target, size_t size, size_t capacity);
wchar_t *__wmemcpy_chk(wchar_t *target, const wchar_t *source, size_t count, size_t capacity);
wchar_t *__wmemmove_chk(wchar_t *target, const wchar_t *source, size_t count, size_t capacity);
wchar_t *__wmempcpy_chk(wchar_t *target, const wchar_t *source, size_t count, size_t capacity);
wchar_t *__wcsncpy_chk(wchar_t *target, const wchar_t *source, size_t count, size_t capacity);
wchar_t *__wcpncpy_chk(wchar_t *target, const wchar_t *source, size_t count, size_t capacity);
wchar_t *__wcsncat_chk(wchar_t *target, const wchar_t *source, size_t count, size_t capacity);
wchar_t *__wcscpy_chk(wchar_t *target, const wchar_t *source, size_t capacity);
wchar_t *__wcpcpy_chk(wchar_t *target, const wchar_t *source, size_t capacity);
wchar_t *__wcscat_chk(wchar_t *target, const wchar_t *source, size_t capacity);
wchar_t *__wmemset_chk(wchar_t *target, wchar_t value, size_t count, size_t capacity);
int __sprintf_chk(char *target, int flag, size_t size, const char *format, ...);
int __snprintf_chk(char *target, size_t capacity, int flag, size_t size, const char *format, ...);
int __vsprintf_chk(char *target, int flag, size_t size, const char *format, va_list rest);
int __vsnprintf_chk(char *target, size_t capacity, int flag, size_t size, const char *format, va_list rest);

int _IO_putc(int byte, FILE *stream);
int __overflow(FILE *stream, int byte);
int __printf_chk(int flag, const char *format, ...);
int __fprintf_chk(FILE *stream, int flag, const char *format, ...);
int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vprintf_chk(int flag, const char *format, va_list rest);
int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list rest);
int __vdprintf_chk(int fd, int flag, const char *format, va_list rest);

/* libpmem's and libpmem2's, so that their headers are not needed to build the recorder; weak, for few programs have
 * them. */
#pragma weak pmem_persist
#pragma weak pmem_flush
#pragma weak pmem_drain
#pragma weak pmem_deep_persist
#pragma weak pmem_deep_flush
#pragma weak pmem_deep_drain
#pragma weak pmem_msync
#pragma weak pmem_memmove
#pragma weak pmem_memcpy
#pragma weak pmem_memset
#pragma weak pmem_memmove_persist
#pragma weak pmem_memcpy_persist
#pragma weak pmem_memset_persist
#pragma weak pmem_memmove_nodrain
#pragma weak pmem_memcpy_nodrain
#pragma weak pmem_memset_nodrain
#pragma weak pmem2_map_get_store_granularity
#pragma weak pmem2_get_flush_fn
#pragma weak pmem2_get_drain_fn
#pragma weak pmem2_get_memmove_fn
#pragma weak pmem2_get_memset_fn
void pmem_persist(const void *address, size_t size);
void pmem_flush(const void *address, size_t size);
void pmem_drain(void);
void pmem_deep_persist(const void *address, size_t size);
void pmem_deep_flush(const void *address, size_t size);
int pmem_deep_drain(const void *address, size_t size);
int pmem_msync(const void *address, size_t size);
void *pmem_memmove(void *target, const void *source, size_t size, unsigned flags);
void *pmem_memcpy(void *target, const void *source, size_t size, unsigned flags);
void *pmem_memset(void *target, int byte, size_t size, unsigned flags);
void *pmem_memmove_persist(void *target, const void *source, size_t size);
void *pmem_memcpy_persist(void *target, const void *source, size_t size);
void *pmem_memset_persist(void *target, int byte, size_t size);
void *pmem_memmove_nodrain(void *target, const void *source, size_t size);
void *pmem_memcpy_nodrain(void *target, const void *source, size_t size);
void *pmem_memset_nodrain(void *target, int byte, size_t size);

typedef void cc_pmem2_flush(const void *address, size_t size);
typedef void cc_pmem2_drain(void);
typedef void *cc_pmem2_memmove(void *target, const void *source, size_t size, unsigned flags);
typedef void *cc_pmem2_memset(void *target, int byte, size_t size, unsigned flags);
int pmem2_map_get_store_granularity(void *mapping);
cc_pmem2_flush *pmem2_get_flush_fn(void *mapping);
cc_pmem2_drain *pmem2_get_drain_fn(void *mapping);
cc_pmem2_memmove *pmem2_get_memmove_fn(void *mapping);
cc_pmem2_memset *pmem2_get_memset_fn(void *mapping);

#endif
