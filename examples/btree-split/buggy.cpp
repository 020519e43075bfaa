// The B+-tree's program: `create FILE` makes an empty tree, `run FILE` inserts keys and splits leaves.
#include "btree.hpp"

#include <fcntl.h>
#include <emmintrin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>
#if __has_include("crashcheck.h")
#include "crashcheck.h"
#endif
#ifndef CRASHCHECK_OP_BEGIN
#define CRASHCHECK_OP_BEGIN() ((void)0)
#define CRASHCHECK_OP_END() ((void)0)
#endif

namespace pmem {

template <typename T>
void persist(const T &object) {
    auto line = reinterpret_cast<std::uintptr_t>(&object) & ~(line_bytes - 1);
    for (; line < reinterpret_cast<std::uintptr_t>(&object + 1); line += line_bytes)
        _mm_clflush(reinterpret_cast<const void *>(line));
    _mm_sfence();
}

struct duplicate_key : std::runtime_error {
    explicit duplicate_key(const std::string &key) : std::runtime_error("there is a key " + key + " already") {}
};

template <typename Key, typename Value, unsigned Slots, unsigned Leaves>
class btree {
    using leaf_type = leaf<Key, Value, Slots>;
    using pool_type = pool<leaf_type, Leaves>;
    static constexpr std::uint64_t full = (std::uint64_t{1} << Slots) - 1;

    pool_type &pool_;
    std::map<Key, std::uint64_t> index_;  // the inner nodes: least key -> leaf

    std::uint64_t allocate() {
        std::uint64_t number = pool_.used.load();
        if (number == Leaves)
            throw std::length_error("the pool has no leaf left");
        pool_.used.store(number + 1, std::memory_order_release);
        persist(pool_.used);
        return number;
    }

    std::uint64_t leaf_for(const Key &key) const { return std::prev(index_.upper_bound(key))->second; }

    std::uint64_t split(std::uint64_t left_number) {
        leaf_type &left = pool_.leaves[left_number];
        std::vector<unsigned> order(Slots);
        for (unsigned i = 0; i < Slots; i++)
            order[i] = i;
        std::sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return left.slots[a].key < left.slots[b].key; });

        std::uint64_t right_number = allocate();
        leaf_type &right = pool_.leaves[right_number];
        std::uint64_t stay = full;
        for (unsigned i = Slots / 2; i < Slots; i++) {
            right.slots[i - Slots / 2] = left.slots[order[i]];
            stay &= ~(std::uint64_t{1} << order[i]);
        }
        right.bitmap.store((std::uint64_t{1} << (Slots - Slots / 2)) - 1, std::memory_order_release);
        right.next.store(left.next.load(), std::memory_order_release);
        persist(right);

        left.bitmap.store(stay, std::memory_order_release);
        left.next.store(right_number, std::memory_order_release);
        persist(left);
        index_[right.slots[0].key] = right_number;
        return right_number;
    }

public:
    explicit btree(pool_type &pool) : pool_(pool) {
        index_[Key{}] = 0;
        for (std::uint64_t number = pool_.leaves[0].next.load(); number; number = pool_.leaves[number].next.load()) {
            const leaf_type &node = pool_.leaves[number];
            Key least = node.slots[0].key;
            for (unsigned i = 0; i < Slots; i++) {
                if (node.bitmap.load() >> i & 1)
                    least = std::min(least, node.slots[i].key);
            }
            index_[least] = number;
        }
    }

    // Throws duplicate_key, and std::length_error when the pool is full.
    void insert(const Key &key, const Value &value) {
        std::uint64_t number = leaf_for(key);
        if (pool_.leaves[number].bitmap.load() == full) {
            split(number);
            number = leaf_for(key);
        }
        leaf_type &node = pool_.leaves[number];
        std::uint64_t bitmap = node.bitmap.load();
        unsigned free = Slots;
        for (unsigned i = 0; i < Slots; i++) {
            if (!(bitmap >> i & 1))
                free = std::min(free, i);
            else if (node.slots[i].key == key)
                throw duplicate_key(std::to_string(key));
        }
        node.slots[free].key = key;
        node.slots[free].value = value;
        persist(node.slots[free]);
        node.bitmap.store(bitmap | std::uint64_t{1} << free, std::memory_order_release);
        persist(node.bitmap);
    }
};

tree_pool &open_pool(const char *path, int flags) {
    int fd = open(path, O_RDWR | flags, 0644);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(tree_pool)) != 0))
        throw std::system_error(errno, std::generic_category(), path);
    void *memory = mmap(nullptr, sizeof(tree_pool), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        throw std::system_error(errno, std::generic_category(), "mmap");
    close(fd);
    return *static_cast<tree_pool *>(memory);
}

}  // namespace pmem

int main(int argc, char **argv) try {
    if (argc != 3) {
        std::cerr << "usage: " << argv[0] << " create|run FILE\n";
        return 2;
    }
    if (std::strcmp(argv[1], "create") == 0) {
        pmem::tree_pool &pool = pmem::open_pool(argv[2], O_CREAT);
        pool.used.store(1);
        return msync(&pool, sizeof pool, MS_SYNC) == 0 ? 0 : 2;
    }
    pmem::btree<std::uint64_t, std::uint64_t, 4, 16> tree(pmem::open_pool(argv[2], 0));
    unsigned duplicates = 0;
    for (std::uint64_t key : {50, 20, 80, 10, 30, 20, 90, 60, 70, 40, 50, 15, 85, 95}) {
        try {
            CRASHCHECK_OP_BEGIN();
            tree.insert(key, pmem::value_of(key));
        } catch (const pmem::duplicate_key &) {
            duplicates++;
        }
        CRASHCHECK_OP_END();
    }
    std::cout << duplicates << " duplicates\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 2;
}
