/* How a library function is modelled: its interposed name and its recorded body.
 *
 * In the shared library a model is reached as cc_wrap_<name> (from instrumented code, with a call site) and as <name>
 * (from all other code); in the archive only as cc_wrap_<name>, because libc's own name must remain libc's there.
 *
 * A file whose models are of system calls defines CC_MODELS_CALLS: where the recorder of system calls follows the process they
 * leave the call to it, and show it from where. */
#ifndef CRASHCHECK_INTERPOSE_MODEL_H
#define CRASHCHECK_INTERPOSE_MODEL_H

#include "interpose/declarations.h"
#include "recorder/process.h"
#include "recorder/real.h"
#include "recorder/recording.h"

#ifdef CC_SHARED
#define OUTSIDE(result, name, parameters, body) EXPORTED result name parameters body
#else
#define OUTSIDE(result, name, parameters, body)
#endif

#ifdef CC_MODELS_CALLS
#define MODELLED() cc_records_calls()
#define CALLED_AT(at) struct cc_called before_ __attribute__((cleanup(cc_call_ends), unused)) = cc_call_begins(at)
#else
#define MODELLED() cc_on()
#define CALLED_AT(at)
#endif

/* A model of what instrumented code calls: `call` is the bare call, `modelled` the recorded one, which sees `at`. */
#define WRAP(result, name, parameters, call, modelled)                                                                 \
    EXPORTED result cc_wrap_##name parameters;                                                                         \
    EXPORTED result cc_wrap_##name parameters                                                                          \
    {                                                                                                                  \
        where at = cc_from_wrapper();                                                                                  \
        (void)at;                                                                                                      \
        if (!MODELLED()) {                                                                                             \
            CALLED_AT(at);                                                                                             \
            return call;                                                                                               \
        }                                                                                                              \
        return modelled;                                                                                               \
    }

/* The same, of what any code calls. The interposed name leaves calls alone that a modelled library function makes. */
#define MODEL(result, name, parameters, call, modelled)                                                                \
    WRAP(result, name, parameters, call, modelled)                                                                     \
    OUTSIDE(result, name, parameters, {                                                                                \
        where at = cc_from_outside();                                                                                  \
        (void)at;                                                                                                      \
        if (!MODELLED() || cc_thread.inside) {                                                                         \
            CALLED_AT(at);                                                                                             \
            return call;                                                                                               \
        }                                                                                                              \
        return modelled;                                                                                               \
    })

/* A model that records before the call. `arguments` are in parentheses. */
#define MODEL_BEFORE(result, name, parameters, records, arguments)                                                     \
    MODEL(result, name, parameters, REAL(name) arguments, (records, REAL(name) arguments))

#endif
