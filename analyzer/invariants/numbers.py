"""The numbers that decide which likely invariants and queries a run gives, each with what chose it.

"½ to ×2" means: with half of the number and with twice of it, six planted bugs (B-tree 2, B+ tree 1 and 14, crit-bit
tree 2, extendible hash 4, level hash 4; 200 operations) are found after as many states, 247 in all. That is a small
sample, in which most of these limits are not reached. Of the others only the reason beside them is known.
Sizes of batches, which decide memory and nothing else, are where they are used.
"""

# -- reads: which accesses are followed
FOLLOWED = 1024  # accesses of one site and call stack, evenly spaced: they resemble each other
UNTYPED_WORDS = 64  # of an access without a type, whose types are searched
OUTER_TYPES = 4  # structs around a struct that are looked for

# -- rules: which pairs are joined
JOINED = 4096  # pairs of instances of two fields. ½ to ×2
COPY_PAIRS = 64  # pairs of fields that two copies may have in common; beyond, their innermost ones. ½ to ×2
SITE_PAIRS = 256  # pairs of two fields with equal static sites. ½ to ×2
EVIDENCE = 16  # places of the source that are kept of an invariant: a report shows the first ones

# -- queries
NEAR = 8  # updates of a guardian before and after one that it is compared with. With 4 and 16: 237 states
QUERIES = 50_000  # that count for a group's score: they come in the order of their weight. ½ to ×2
QUERY_PIECES = 2_000_000  # of all these queries: a second's work. A structure's queries have some 10 each
LARGE = 4096  # pieces of a query's two updates: beyond, as of a file that is cleared at once, it is behind all others
