/* The ways of opening the environment, by the name given on the command line. */
#ifndef MODES_H
#define MODES_H

#include <lmdb.h>
#include <string.h>

struct mode {
    const char *name;
    unsigned flags;
};

static const struct mode modes[] = {
    {"default", 0},
    {"nometasync", MDB_NOMETASYNC},
    {"nosync", MDB_NOSYNC},
    {"writemap", MDB_WRITEMAP},
    {"writemap-nometasync", MDB_WRITEMAP | MDB_NOMETASYNC},
    {"writemap-mapasync", MDB_WRITEMAP | MDB_MAPASYNC},
    {"writemap-nosync", MDB_WRITEMAP | MDB_NOSYNC},
};

enum { MAP_BYTES = 1 << 20 };

static inline int mode_flags(const char *name, unsigned *flags)
{
    size_t i;
    for (i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(modes[i].name, name) == 0) {
            *flags = modes[i].flags;
            return 1;
        }
    return 0;
}

#endif
