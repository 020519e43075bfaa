/* What users call the calls that can be made to fail: the variants of a call are one. config/faults.py has the same names. */
#ifndef CRASHCHECK_FAULT_CALLS_H
#define CRASHCHECK_FAULT_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>

#define FAULT_VARIANTS 5

static const struct fault_family {
    const char *name;
    long calls[FAULT_VARIANTS]; /* up to a zero, which is SYS_read */
    bool of_socket;             /* only calls on TCP and UDP sockets, which nodes alone have; read and write are variants, too */
} fault_families[] = {
    {"fsync", {SYS_fsync}, false},
    {"fdatasync", {SYS_fdatasync}, false},
    {"msync", {SYS_msync}, false},
    {"syncfs", {SYS_syncfs}, false},
    {"sync_file_range", {SYS_sync_file_range}, false},
    {"write", {SYS_write, SYS_pwrite64, SYS_writev, SYS_pwritev, SYS_pwritev2}, false},
    {"copy_file_range", {SYS_copy_file_range}, false},
    {"sendfile", {SYS_sendfile}, false},
    {"splice", {SYS_splice}, false},
    {"truncate", {SYS_truncate, SYS_ftruncate}, false},
    {"fallocate", {SYS_fallocate}, false},
    {"open", {SYS_open, SYS_openat, SYS_openat2, SYS_creat}, false},
    {"mkdir", {SYS_mkdir, SYS_mkdirat}, false},
    {"rmdir", {SYS_rmdir}, false},
    {"link", {SYS_link, SYS_linkat}, false},
    {"symlink", {SYS_symlink, SYS_symlinkat}, false},
    {"unlink", {SYS_unlink, SYS_unlinkat}, false},
    {"rename", {SYS_rename, SYS_renameat, SYS_renameat2}, false},
    {"socket", {SYS_socket}, false},
    {"mmap", {SYS_mmap}, false},
    {"connect", {SYS_connect}, true},
    {"accept", {SYS_accept, SYS_accept4}, true},
    {"send", {SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_write, SYS_writev}, true},
    {"recv", {SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_readv}, true},
};

static inline const struct fault_family *fault_family_named(const char *name)
{
    for (size_t i = 0; i < sizeof fault_families / sizeof *fault_families; i++)
        if (strcmp(fault_families[i].name, name) == 0)
            return &fault_families[i];
    return NULL;
}

static inline bool fault_family_has(const struct fault_family *family, long number)
{
    if (number == SYS_read)
        return strcmp(family->name, "recv") == 0;
    for (size_t i = 0; i < FAULT_VARIANTS && family->calls[i]; i++)
        if (family->calls[i] == number)
            return true;
    return false;
}

#endif
