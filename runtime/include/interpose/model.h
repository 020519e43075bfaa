/* How a library function is modelled: its interposed name and its recorded body.
 *
 * In the shared library a model is reached as cc_wrap_<name> (from instrumented code, with a call site) and as <name>
 * (from all other code); in the archive only as cc_wrap_<name>, because libc's own name must remain libc's there. */
#ifndef CRASHCHECK_INTERPOSE_MODEL_H
#define CRASHCHECK_INTERPOSE_MODEL_H

#include "interpose/declarations.h"
#include "recorder/process.h"

#ifdef CC_SHARED
HIDDEN void *cc_real(void **slot, const char *name);
#define REAL(name)                                                                                                     \
    (__extension__({                                                                                                   \
        static void *slot_;                                                                                            \
        (__typeof__(&name))cc_real(&slot_, #name);                                                                     \
    }))
#define OUTSIDE(result, name, parameters, body) EXPORTED result name parameters body
#else
#define REAL(name) (&name)
#define OUTSIDE(result, name, parameters, body)
#endif

/* A model: `call` is the bare call, `modelled` the recorded one, which sees `at`. The interposed name leaves
 * calls alone that a modelled library function makes. */
#define MODEL(result, name, parameters, call, modelled)                                                                \
    EXPORTED result cc_wrap_##name parameters;                                                                         \
    EXPORTED result cc_wrap_##name parameters                                                                          \
    {                                                                                                                  \
        where at = cc_from_wrapper();                                                                                  \
        (void)at;                                                                                                      \
        if (!cc_on())                                                                                                  \
            return call;                                                                                               \
        return modelled;                                                                                               \
    }                                                                                                                  \
    OUTSIDE(result, name, parameters, {                                                                                \
        if (!cc_on() || cc_thread.inside)                                                                              \
            return call;                                                                                               \
        where at = cc_from_outside();                                                                                  \
        (void)at;                                                                                                      \
        return modelled;                                                                                               \
    })

/* A model that records before the call. `arguments` are in parentheses. */
#define MODEL_BEFORE(result, name, parameters, records, arguments)                                                     \
    MODEL(result, name, parameters, REAL(name) arguments, (records, REAL(name) arguments))

#endif
