/* The explorer's section: the kernel lets only system calls from there through at once (explorer/explore.c). */
#ifndef CRASHCHECK_EXPLORER_SECTION_H
#define CRASHCHECK_EXPLORER_SECTION_H

#define HERE __attribute__((section("cc_explore"), noinline))
#define INLINE static inline __attribute__((always_inline))

#endif
