"""Library functions that write or read memory: which of their arguments says where."""

from __future__ import annotations

_FIRST = frozenset(
    [
        "bzero",
        "explicit_bzero",
        "fgets",
        "fread",
        "getrandom",
        "memcpy",
        "memmove",
        "mempcpy",
        "memset",
        "snprintf",
        "sprintf",
        "stpcpy",
        "stpncpy",
        "strcat",
        "strcpy",
        "strlcat",
        "strlcpy",
        "strncat",
        "strncpy",
        "vsnprintf",
        "vsprintf",
        "pmem_memcpy",
        "pmem_memmove",
        "pmem_memset",
    ]
)
_SECOND = frozenset(["bcopy", "pread", "pread64", "read", "recv", "recvfrom"])

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


def destination(callee: str) -> int | None:
    """Index of the argument that points to what `callee` writes; None if it writes no memory, or several places."""
    name = callee.removeprefix("__").removesuffix("_chk").removesuffix("_nodrain").removesuffix("_persist")
    if name in _FIRST:
        return 0
    return 1 if name in _SECOND else None
