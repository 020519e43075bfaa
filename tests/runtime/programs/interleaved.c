/* Calls the guard's runtime for accesses that it reads, each made by the thread that the line names: one thread takes the
 * names of all, so that the order is the one of the lines. Linked with the runtime's own objects.
 *
 *   unit KEY                         what follows is of another unit, and of other memory
 *   site NUMBER ID PREDECESSOR...    a site of a guarded unit with its set; without any the unit is a training build's
 *   THREAD SITE OFFSET SIZE          an access
 *   forget OFFSET SIZE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard/base.h"

enum { SITES = 16, SET = 16, MEMORY = 4096 };

static struct guarded {
    struct cc_guard_unit unit;
    uint64_t sites[SITES * (2 + SET) + 1], words, places[SITES];
} *guarded;
static char *memory;

static void begin_unit(uint64_t key)
{
    guarded = calloc(1, sizeof *guarded);
    guarded->unit.key = key;
    guarded->unit.version = CC_GUARD_VERSION;
    memory = aligned_alloc(MEMORY, MEMORY);
}

static void define_site(char *words)
{
    unsigned number = (unsigned)strtoul(words, &words, 10);
    uint64_t place = guarded->places[number] = guarded->words;
    guarded->sites[guarded->words++] = strtoull(words, &words, 10);
    guarded->words++;
    while (strspn(words, " ") && words[1] != '\n') {
        guarded->sites[guarded->words++] = strtoull(words, &words, 10);
        guarded->sites[place + 1]++;
    }
    guarded->unit.sites = guarded->sites;
    guarded->unit.met = 0; /* the runtime does not know of this one */
}

int main(void)
{
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long key, thread, site, offset, size;
        if (sscanf(line, "unit %lu", &key) == 1) {
            begin_unit(key);
        } else if (!strncmp(line, "site ", 5)) {
            define_site(line + 5);
        } else if (sscanf(line, "forget %lu %lu", &offset, &size) == 2) {
            cc_guard_forget(memory + offset, size);
        } else if (sscanf(line, "%lu %lu %lu %lu", &thread, &site, &offset, &size) == 4) {
            cc_self.tid = 1;
            cc_self.id = (uint32_t)thread;
            uint64_t place = guarded->unit.sites ? guarded->places[site] : site;
            uint32_t group = guarded->unit.sites ? (uint32_t)((guarded->sites[place] & CC_GUARD_SETTLED) >> 32) : 0;
            if (group)
                cc_guard_begin_settled(memory + offset, size, &guarded->unit, (uint32_t)place, group);
            else
                cc_guard_begin(memory + offset, size, &guarded->unit, (uint32_t)place);
            cc_guard_end();
        }
    }
    return 0; /* memory stays: what is known of it must not become another unit's */
}
