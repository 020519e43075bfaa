// Leaves of a B+-tree in persistent memory. Inner nodes are volatile and rebuilt when the pool is opened, as in
// FPTree (Oukid et al., SIGMOD 2016); leaves are unsorted with a bitmap, and chained.
#ifndef BTREE_HPP
#define BTREE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pmem {

constexpr std::size_t line_bytes = 64;

template <typename Key, typename Value>
struct entry {
    Key key;
    Value value;
};

template <typename Key, typename Value, unsigned Slots>
struct alignas(line_bytes) leaf {
    static_assert(Slots <= 64, "one bit a slot");
    std::atomic<std::uint64_t> bitmap;  // which slots hold an entry
    std::atomic<std::uint64_t> next;    // number of the right sibling; 0: none
    alignas(line_bytes) entry<Key, Value> slots[Slots];
};

// Leaf 0 is the leftmost one. A crash between linking a new leaf and shrinking its left sibling leaves the moved entries in
// both: readers tolerate that, the copies are equal.
template <typename Leaf, unsigned Leaves>
struct pool {
    alignas(line_bytes) std::atomic<std::uint64_t> used;  // leaves taken; a crash may lose some of them unused
    Leaf leaves[Leaves];
};

using tree_leaf = leaf<std::uint64_t, std::uint64_t, 4>;
using tree_pool = pool<tree_leaf, 16>;

inline std::uint64_t value_of(std::uint64_t key) { return key * key + 1; }

}  // namespace pmem

#endif
