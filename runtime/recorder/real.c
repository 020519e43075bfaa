/* Finds a function that the program would have called without this library. */
#ifdef CC_SHARED
#include <dlfcn.h>
#include <stdlib.h>

#include "recorder/real.h"

void *cc_real(void **slot, const char *name)
{
    void *found = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (LIKELY(found != NULL))
        return found;
    found = dlsym(RTLD_NEXT, name);
    if (!found) {
        /* A library that was loaded later, or that precedes this one in the search order. */
        void *anywhere = dlsym(RTLD_DEFAULT, name);
        Dl_info theirs, ours;
        if (anywhere && dladdr(anywhere, &theirs) && dladdr((void *)&cc_recording, &ours) &&
            theirs.dli_fbase != ours.dli_fbase)
            found = anywhere;
    }
    if (!found) {
        static const char text[] = "crashcheck: the program calls a function that no loaded library has: ";
        raw3(SYS_write, 2, (long)text, sizeof text - 1);
        raw3(SYS_write, 2, (long)name, (long)raw_length(name));
        raw3(SYS_write, 2, (long)"\n", 1);
        abort();
    }
    __atomic_store_n(slot, found, __ATOMIC_RELAXED);
    return found;
}
#endif
