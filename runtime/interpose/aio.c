/* POSIX asynchronous writes: reported as not modelled, because nothing here shows when they happen. */
#define CC_MODELS_CALLS
#include <aio.h>
#include <errno.h>

#include "interpose/model.h"
#include "recorder/events.h"
#include "recorder/file_ids.h"
#include "recorder/pool_files.h"

static void starts(where at, int fd)
{
    int saved = errno;
    uint16_t file = cc_pool_file(fd);
    if (file)
        cc_unmodelled(at, file, "aio_write");
    errno = saved;
}

MODEL_BEFORE(int, aio_write, (struct aiocb * request), starts(at, request->aio_fildes), (request))
MODEL_BEFORE(int, aio_write64, (struct aiocb64 * request), starts(at, request->aio_fildes), (request))
