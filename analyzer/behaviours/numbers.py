"""The numbers that decide which updates form one behaviour, and which behaviours one group, each with what chose it.

"½ to ×2" means: with half of the number and with twice of it, six planted bugs (B-tree 2, B+ tree 1 and 14, crit-bit
tree 2, extendible hash 4, level hash 4; 200 operations) are found after as many states, 247 in all. That is a small
sample, in which most of these limits are not reached. Of the others only the reason beside them is known.
"""

# -- sites: how many callers distinguish two uses of an instruction
HEADER_CALLERS = 3  # of a function in a header, at most: up to the first in a source. 1 to ×2
UNTYPED_CALLERS = (
    2  # of one that writes through an untyped pointer, maybe in a wrapper of memcpy. With 1 and 4: 246, 245
)
TYPED_CALLERS = 1  # of any other: a `commit` that two operations share is not one site. With 0 and 2: 240, 284
CALLERS = 5  # of a system call, in the program itself: more distinguish hardly any more

# -- tasks of system calls (DBSCAN, as Pathfinder has it)
APART = 32  # operations (its eps): those of a function that are further from each other are two tasks
NEIGHBOURS = 2  # its minPts, with the operation itself
TARGETS = 3  # functions that one place calls: with as many, data decides which, as in an interpreter

# -- types and instances
LEAST_BLOCK, MOST_BLOCK = 16, 4096  # bytes that one copy or fill writes as one object. The larger: ½ to ×2
LARGEST_EVIDENCE = 64  # bytes: a wider typed update is no evidence of the types of its words. ½ to ×2
DEEPEST_FIELD, MOST_FIELDS = 6, 1024  # levels of fields of fields, and fields of one type
BULK_SHAPES = 256  # ranges of one bulk site whose fields are named one by one

# -- groups
MATCHED = 2048  # updates: of a larger match the pairs are not compared one by one. ½ to ×2
WIDE = 16  # granules: a representative is chosen among the widest behaviours, and so many are wide enough. ½ to ×2
