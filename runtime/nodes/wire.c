/* Frames to and from the caller: orders are read one by one, what they led to is collected and sent at once. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nodes/parts.h"

static int wire = -1;
static unsigned char *collected;
static size_t collected_size, collected_room;

void wire_open(int fd)
{
    wire = fd;
}

static bool all_of(void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = recv(wire, (char *)to + done, size - done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

bool wire_read(struct cc_frame *order, unsigned char **bytes)
{
    static unsigned char *held;
    free(held);
    held = NULL;
    if (!all_of(order, sizeof *order))
        return false;
    held = malloc(order->size + 1u);
    if (!held || !all_of(held, order->size))
        return false;
    held[order->size] = 0;
    *bytes = held;
    return true;
}

static void collect(const void *bytes, size_t size)
{
    if (size > collected_room - collected_size) {
        size_t room = 2 * (collected_size + size) + 4096;
        unsigned char *wider = realloc(collected, room);
        if (!wider)
            abort();
        collected = wider;
        collected_room = room;
    }
    if (size)
        memcpy(collected + collected_size, bytes, size);
    collected_size += size;
}

void wire_event(struct cc_frame event, const void *bytes, const void *more, size_t more_size)
{
    size_t size = event.size;
    event.size += (uint32_t)more_size;
    collect(&event, sizeof event);
    collect(bytes, size);
    collect(more, more_size);
}

void wire_flush(void)
{
    for (size_t done = 0; done < collected_size;) {
        ssize_t put = send(wire, collected + done, collected_size - done, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            exit(0); /* the caller has gone, and with us goes what we run */
        done += (size_t)put;
    }
    collected_size = 0;
}

void fail(const char *what, const char *why)
{
    char text[512];
    int size = snprintf(text, sizeof text, "%s: %s", what, why);
    wire_event((struct cc_frame){.tag = CC_FAILED, .size = (uint32_t)size}, text, NULL, 0);
    wire_event((struct cc_frame){.tag = CC_REST}, NULL, NULL, 0);
    wire_flush();
    exit(1);
}
