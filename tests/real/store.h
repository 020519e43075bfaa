/* What the workload and the check ask of a store. One file per store implements it.
 *
 * A function that fails prints the reason on standard output and returns -1.
 */
#ifndef STORE_H
#define STORE_H

#include <stddef.h>
#include <stdio.h>

int store_open(const char *folder, const char *mode); /* for reading and writing; makes it if it is not there */
int store_begin(void);
int store_put(const char *key, const void *value, size_t size);
int store_delete(const char *key);
int store_commit(void); /* from its return on, the transaction is promised */
long store_get(const char *key, void *value, size_t room); /* its size; -1: there is none */
long store_count(void);                                    /* keys, found by walking over all of them */
int store_verify(void);                                    /* the store's own check of its files, if it has one */
int store_close(void);

static inline int store_wrong(const char *call, const char *reason)
{
    printf("inconsistent: %s: %s\n", call, reason);
    return -1;
}

#endif
