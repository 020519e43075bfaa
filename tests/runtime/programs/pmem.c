#include <libpmem.h>

#include "scenes.h"

static void library(const char *pool, char **arguments)
{
    (void)arguments;
    size_t size = 0;
    int is_pmem = 0;
    char *at = pmem_map_file(in_pool(pool, "a.db"), 1 << 20, PMEM_FILE_CREATE, 0600, &size, &is_pmem);
    NEED(at && size == 1 << 20);
    char source[512];
    memset(source, 's', sizeof source);
    STORE(1, at, 'a');
    pmem_persist(at, 1);
    STORE(2, at + 64, 'b');
    pmem_flush(at + 64, 8);
    pmem_drain();
    pmem_memcpy_persist(at + 128, source, 16);
    pmem_memcpy_nodrain(at + 1024, source, 512);
    pmem_drain();
    pmem_memset(at + 2048, 7, 64, PMEM_F_MEM_NOFLUSH);
    pmem_memmove(at + 4096, source, 64, PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_NODRAIN);
    pmem_memmove(at + 8192, source, 512, PMEM_F_MEM_TEMPORAL);
    NEED(pmem_msync(at + 100, 10) == 0);
    NEED(pmem_unmap(at, size) == 0);
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"libpmem", library}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
