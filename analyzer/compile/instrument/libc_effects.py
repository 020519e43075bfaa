"""Library functions: which argument shows where they write or read memory, and which call nothing that matters.

rewriter.py asks for each call: `destination` names what a model's store is of, `READS` adds loads that no model
records, and `QUIET` leaves out the shadow stack. A name that is missing costs, in this order, the variable in a
finding, a likely invariant, and time.
"""

from __future__ import annotations

_FIRST = frozenset(
    [
        "bzero",
        "explicit_bzero",
        "fgets",
        "fgets_unlocked",
        "fread",
        "fread_unlocked",
        "getcwd",
        "getentropy",
        "gethostname",
        "getrandom",
        "gettimeofday",
        "memccpy",
        "memcpy",
        "memmove",
        "mempcpy",
        "memset",
        "qsort",
        "rand_r",
        "snprintf",
        "sprintf",
        "stpcpy",
        "stpncpy",
        "strcat",
        "strcpy",
        "strftime",
        "strlcat",
        "strlcpy",
        "strncat",
        "strncpy",
        "time",
        "vsnprintf",
        "vsprintf",
        "wcpcpy",
        "wcpncpy",
        "wcscat",
        "wcscpy",
        "wcsncat",
        "wcsncpy",
        "wmemcpy",
        "wmemmove",
        "wmempcpy",
        "wmemset",
        "pmem_memcpy",
        "pmem_memmove",
        "pmem_memset",
    ]
)
_SECOND = frozenset(
    [
        "bcopy",
        "clock_gettime",
        "gmtime_r",
        "localtime_r",
        "pread",
        "pread64",
        "read",
        "readlink",
        "realpath",
        "recv",
        "recvfrom",
    ]
)
_THIRD = frozenset(["readlinkat"])
_LOCKS = ("pthread_mutex_", "pthread_rwlock_", "pthread_spin_", "pthread_cond_", "sem_")

# name → (arguments that point to what is read, the one that bounds it, whether it ends at a zero byte). Read
# to the end: where a comparison stopped is not asked.
READS: dict[str, tuple[tuple[int, ...], int | None, bool]] = {
    "bcmp": ((0, 1), 2, False),
    "memcmp": ((0, 1), 2, False),
    "memchr": ((0,), 2, False),
    "strcmp": ((0, 1), None, True),
    "strncmp": ((0, 1), 2, True),
    "strlen": ((0,), None, True),
    "strnlen": ((0,), 1, True),
}

# External functions that never call back into the program and that no model records.
QUIET = frozenset(
    [
        "strlen",
        "strnlen",
        "strcmp",
        "strncmp",
        "strcasecmp",
        "strncasecmp",
        "strchr",
        "strrchr",
        "strstr",
        "strspn",
        "strcspn",
        "strpbrk",
        "memcmp",
        "memchr",
        "memrchr",
        "malloc",
        "calloc",
        "free",
        "aligned_alloc",
        "posix_memalign",
        "abort",
        "__assert_fail",
        "__errno_location",
        "__stack_chk_fail",
        "isatty",
        "getpid",
        "getppid",
        "gettid",
        "sched_yield",
        "usleep",
        "nanosleep",
        "pthread_self",
        "pthread_getspecific",
        "printf",
        "puts",
        "putchar",
        "fprintf",
        "fputs",
        "fputc",
        "fwrite",
        "fflush",
        "perror",
        "strerror",
        "rand",
        "srand",
        "random",
        "srandom",
        "atoi",
        "atol",
        "strtol",
        "strtoul",
        "strtoll",
        "strtoull",
        "strtod",
        "getenv",
        "abs",
        "labs",
        "sqrt",
        "pow",
        "floor",
        "ceil",
        "log",
        "exp",
        "_Znwm",
        "_Znam",
        "_ZdlPv",
        "_ZdlPvm",
        "_ZdaPv",
        "_ZdaPvm",
        "__cxa_allocate_exception",
        "__cxa_free_exception",
        "__cxa_begin_catch",
        "__cxa_throw",
        "__cxa_rethrow",
        "__cxa_guard_acquire",
        "__cxa_guard_release",
        "__cxa_guard_abort",
        "__clang_call_terminate",
        "_ZSt9terminatev",
        "_ZSt17__throw_bad_allocv",
        "_ZSt20__throw_length_errorPKc",
        "__cxa_pure_virtual",
    ]
)


# Of libstdc++, by the beginnings of their symbols.
_ALGORITHMS = {"_ZSt4copyI": 2, "_ZSt4moveI": 2, "_ZSt6copy_nI": 2, "_ZSt4fillI": 0, "_ZSt6fill_nI": 0, "_ZSt4iotaI": 0}
_MEMBER = "_ZN"


def destination(callee: str) -> int | None:
    """Index of the argument that points to what `callee` writes, of a C++ member function the object; None if it
    writes no memory, or several places."""
    if callee.startswith("_Z"):
        found = (index for name, index in _ALGORITHMS.items() if callee.startswith(name))
        return 0 if callee.startswith(_MEMBER) else next(found, None)
    if callee.startswith(_LOCKS):
        return 0
    name = callee.removeprefix("__").removesuffix("_chk").removesuffix("_nodrain").removesuffix("_persist")
    return next((index for index, names in enumerate((_FIRST, _SECOND, _THIRD)) if name in names), None)
