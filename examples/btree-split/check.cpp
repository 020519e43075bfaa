// Is the tree consistent? `check FILE ACKED`: the chain of leaves must end, each entry must hold its value (a leaf may hold
// copies of its right sibling's entries), and the keys of the first ACKED insertions must be there.
#include "btree.hpp"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>

int main(int argc, char **argv) {
    auto pool = std::make_unique<pmem::tree_pool>();
    std::ifstream file(argc == 3 ? argv[1] : "", std::ios::binary);
    if (!file.read(reinterpret_cast<char *>(pool.get()), sizeof *pool)) {
        std::cerr << "not a tree\n";
        return 1;
    }
    std::set<std::uint64_t> keys;
    std::uint64_t number = 0;
    for (unsigned visited = 0;; visited++) {
        if (number >= pool->used || visited == pool->used) {
            std::cerr << "the chain of leaves leads to leaf " << number << " of " << pool->used << "\n";
            return 1;
        }
        const pmem::tree_leaf &leaf = pool->leaves[number];
        for (unsigned i = 0; i < 4; i++) {
            if (!(leaf.bitmap >> i & 1))
                continue;
            std::uint64_t key = leaf.slots[i].key;
            if (leaf.slots[i].value != pmem::value_of(key)) {
                std::cerr << "leaf " << number << " holds key " << key << " with value " << leaf.slots[i].value << "\n";
                return 1;
            }
            keys.insert(key);
        }
        if (!leaf.next)
            break;
        number = leaf.next;
    }
    std::uint64_t acked = std::strtoull(argv[2], nullptr, 10);
    for (std::uint64_t key : {50, 20, 80, 10, 30, 20, 90, 60, 70, 40, 50, 15, 85, 95}) {
        if (!acked--)
            break;
        if (!keys.count(key)) {
            std::cerr << "key " << key << " was acknowledged and is lost\n";
            return 1;
        }
    }
    return 0;
}
