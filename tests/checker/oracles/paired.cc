// Operations that one function begins and another ends: nested, given up, committed, and one whose beginning throws.
#include <cstdio>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

static long *pool;

namespace store {
struct Log {
    __attribute__((noinline)) int begin(long kind) {
        if (kind == 3)
            throw std::runtime_error("three");
        return (int)(pool[kind] = kind);
    }
    __attribute__((noinline)) void commit() noexcept { pool[8]++; }
};
}

extern "C" __attribute__((noinline)) long give_up(long value) {
    pool[16] = value;
    return value + 1;
}

int main(int argc, char **argv) {
    int fd = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0644) : -1;
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    pool = static_cast<long *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    store::Log log;
    log.begin(1);
    log.begin(2);
    log.commit();
    log.commit();
    try {
        log.begin(3);
    } catch (std::exception &error) {
        std::printf("%s ", error.what());
    }
    give_up(1); // nothing is open: it ends nothing
    log.begin(4);
    std::printf("%ld\n", give_up(7));
    return 0;
}
