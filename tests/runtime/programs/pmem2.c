#include <fcntl.h>
#include <libpmem2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 2 || chdir(argv[1]))
        return 1;
    int fd = open("a.db", O_RDWR | O_CREAT, 0600);
    struct pmem2_config *config;
    struct pmem2_source *source;
    struct pmem2_map *map;
    if (fd < 0 || ftruncate(fd, 1 << 14) || pmem2_config_new(&config) || pmem2_source_from_fd(&source, fd) ||
        pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_PAGE) ||
        pmem2_map_new(&map, config, source))
        return 2;
    char *at = pmem2_map_get_address(map);
    char bytes[512];
    memset(bytes, 's', sizeof bytes);
    at[0] = 'a';
    pmem2_get_persist_fn(map)(at, 1);
    at[4096] = 'b';
    pmem2_get_flush_fn(map)(at + 4096, 8);
    pmem2_get_drain_fn(map)();
    pmem2_get_memcpy_fn(map)(at + 8192, bytes, 16, 0);
    pmem2_get_memmove_fn(map)(at + 8448, bytes, 512, PMEM2_F_MEM_NODRAIN);
    pmem2_get_drain_fn(map)();
    pmem2_get_memset_fn(map)(at + 12288, 7, 64, PMEM2_F_MEM_NOFLUSH);
    if (at[8447 + 512] != 's' || at[12288 + 63] != 7)
        return 3;
    return pmem2_map_delete(&map) || pmem2_source_delete(&source) || pmem2_config_delete(&config) || close(fd);
}
