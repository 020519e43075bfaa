/* Transaction `number`, by the rule of content.h. */
#ifndef TRANSACTION_H
#define TRANSACTION_H

#include "content.h"
#include "store.h"

static inline int transaction(uint64_t number, uint64_t *sum)
{
    unsigned char value[VALUE_MAX];
    char name[KEY_MAX];

    if (store_begin() || store_put("count", &number, sizeof number))
        return -1;
    snprintf(name, sizeof name, "slot/%02u", (unsigned)(number % SLOTS));
    if (store_put(name, value, content_slot(value, number)))
        return -1;
    snprintf(name, sizeof name, "log/%06u", (unsigned)number);
    if (store_put(name, value, content_log(value, number)))
        return -1;
    *sum += content_term(number);
    if (store_put("sum", sum, sizeof *sum))
        return -1;
    if (number % LARGE_EVERY == 0 && store_put("large", value, content_large(value, number)))
        return -1;
    if (number > KEEP) {
        snprintf(name, sizeof name, "log/%06u", (unsigned)(number - KEEP));
        if (store_delete(name))
            return -1;
    }
    return store_commit();
}

#endif
