// Functions of many kinds that are operations by name; prints one line.
#include <fcntl.h>
#include <stdexcept>
#include <cstdio>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

static long *pool;

struct Big {
    long a[8];
};

namespace store {
struct Table {
    long insert(long key) {
        if (key == 3)
            throw std::runtime_error("three");
        return pool[key] = key;
    }
};
}

extern "C" Big make_big(long number) {
    Big big = {};
    big.a[7] = pool[8] = number;
    return big;
}

std::string join(const std::string &left, std::string right) {
    pool[16] = (long)right.size();
    return left + right;
}

long recursive(long number) {
    pool[24] = number;
    return number < 2 ? number : recursive(number - 1) + recursive(number - 2);
}

__attribute__((noinline)) static double half(double number, float by) noexcept { return number / by; }

int main(int argc, char **argv) {
    int fd = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0644) : -1;
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    pool = static_cast<long *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    long sum = store::Table().insert(1);
    try {
        store::Table().insert(3);
    } catch (std::exception &error) {
        std::printf("%s ", error.what());
    }
    Big big = make_big(5);
    std::string joined = join("a", "bc");
    std::printf("%ld %ld %s %ld %g\n", sum, big.a[7], joined.c_str(), recursive(6), half(3, 2));
    return 0;
}
