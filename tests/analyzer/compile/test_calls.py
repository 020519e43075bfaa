"""Bulk operations, library models and the shadow stack through every way that a function is left."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.compile.instrument import libc_effects
from crashcheck.runtime import build

Build = Callable[..., Path]
Run = Callable[..., list[str]]

BULK = """
struct node { char name[16]; int size; };
typedef char *(*copier)(char *, const char *);
__attribute__((noinline)) static void fail() { throw 1; }
struct holder { node *n; ~holder() {
    n->size = 0; } };
__attribute__((noinline)) static char *tail(char *to, const char *from) {
    __attribute__((musttail)) return strcpy(to, from);
}
int main() {
    node *n = (node *)pool; OPAQUE(n);
    watch(pool, sizeof pool);
    strcpy(n->name, "abc");
    copier f = strcpy; OPAQUE(f);
    f(n->name, "def");
    tail(n->name, "ghi");
    memcpy(n->name, "0123", 4);
    __builtin_memmove(n->name + 1, n->name, 4);
    memset(&n[1], 0xee, sizeof(node));
    n[1] = n[0];
    *n = node();
    try {
        holder h{n};
        strcpy(n->name, "xyz");
        fail();
    } catch (int) {
    }
    return 0;
}
"""


def test_bulk_operations_and_models_are_recorded(recorded: Run, clang: str) -> None:
    assert recorded(BULK, "-O2", cxx=True, clang=clang) == [
        "strcpy @0 abc | node.name[] at main:13",
        "strcpy @0 def no site",
        "strcpy @0 ghi | at tail:8 < main:16",
        "copy @0 30313233 instance=0 | node.name[] at main:17",
        "copy @1 30313233 | at main:18",
        "fill @20 eex20 instance=20 | node at main:19",
        "copy @20 3030313233000000000000000000000000000000 instance=20 | node at main:20",
        "copy @0 0000000000000000000000000000000000000000 instance=0 | node at main:21",
        "strcpy @0 xyz | node.name[] at main:24",
        "store @16 00000000 flags=0 instance=0 | node.size at holder::~holder:6 < main:26",
    ]


def test_a_library_call_is_named_by_what_it_writes_to() -> None:
    writers = ("strcpy", "__snprintf_chk", "__memcpy_chk", "fread", "pmem_memcpy_persist", "pmem_memset_nodrain")
    assert [libc_effects.destination(name) for name in writers] == [0] * len(writers)
    assert [libc_effects.destination(name) for name in ("read", "__pread64_chk", "recvfrom", "bcopy")] == [1] * 4
    assert [libc_effects.destination(name) for name in ("write", "msync", "pmem_persist", "readv", "fprintf")] == [
        None
    ] * 5


# Models of functions that write no memory of their caller, or several places of it; without "64" and "_chk".
NO_DESTINATION = {
    "_Exit", "_IO_putc", "_exit", "aio_write", "copy_file_range", "creat", "dlclose", "dlopen", "dprintf",
    "execv", "execve", "execvp", "fallocate", "fclose", "fdatasync", "fdopen", "fflush", "fflush_unlocked",
    "fopen", "fork", "fprintf", "fputc", "fputc_unlocked", "fputs", "fputs_unlocked", "freopen", "fseek",
    "fseeko", "fsetpos", "fsync", "ftruncate", "fwrite", "fwrite_unlocked", "link", "linkat", "mkdir",
    "mkdirat", "mmap", "mremap", "msync", "munmap", "open", "open_2", "openat", "openat_2", "overflow",
    "pmem2_get_drain_fn", "pmem2_get_flush_fn", "pmem2_get_memcpy_fn", "pmem2_get_memmove_fn", "pmem2_get_memset_fn",
    "pmem2_get_persist_fn", "pmem_deep_drain", "pmem_deep_flush", "pmem_deep_persist", "pmem_drain", "pmem_flush",
    "pmem_persist",
    "posix_fallocate", "preadv", "preadv2", "printf", "putc", "putc_unlocked", "putchar", "putchar_unlocked",
    "puts", "pwrite", "pwritev", "pwritev2", "readv", "recvmsg", "remove", "rename", "renameat", "renameat2",
    "rewind", "rmdir", "sendfile", "splice", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs",
    "truncate", "unlink", "unlinkat", "vdprintf", "vfprintf", "vprintf", "write", "writev",
}  # fmt: skip


def test_every_model_that_writes_to_an_argument_is_named_by_it() -> None:
    models = re.findall(r"^X\((\w+)\)", (build.INCLUDE / "models.def").read_text(encoding="utf-8"), re.M)
    unnamed = {name for name in models if libc_effects.destination(name) is None}
    plain = {re.sub(r"^__|_chk$|64(v2)?(?=$|_2$)", "", name) for name in unnamed}
    assert plain == NO_DESTINATION


def test_a_model_that_the_program_defines_itself_is_left_alone(recorded: Run) -> None:
    source = """
char *strcpy(char *to, const char *from) {
    to[0] = from[0];
    return to; }
int main(void) {
    char *p = (char *)pool; OPAQUE(p);
    watch(pool, sizeof pool);
    strcpy(p, "q");
    return 0;
}
"""
    (event,) = recorded(source, "-O1", "-fno-builtin")
    assert event == "store @0 71 flags=0 | at strcpy:3 < main:8"


STACK = """
#include <stdexcept>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
struct node { long key; node *next; };
static node *n;
static jmp_buf jump;
static int pure(int x) { return x * 2 + 1; }
__attribute__((noinline)) static int quiet(int x) { return x > 3 ? pure(x) : 1; }
__attribute__((noinline)) static void leaf(long key) {
    n->key = key;
}
__attribute__((noinline)) static void thrower(int deep) {
    if (deep == 0) throw std::runtime_error("x");
    thrower(deep - 1);
}
struct guard { ~guard() {
    leaf(3); } };
__attribute__((noinline)) static void middle(int deep) {
    guard g;
    thrower(deep);
}
static void handler(int) {
    n->key = 9;
}
__attribute__((noinline)) static void jumper(int deep) {
    if (deep) jumper(deep - 1);
    else longjmp(jump, 1);
}
static int compare(const void *a, const void *b) {
    leaf(*(const int *)a);
    return *(const int *)a - *(const int *)b;
}
int main() {
    n = (node *)pool; OPAQUE(n);
    watch(pool, sizeof pool);
    leaf(quiet(4));
    try {
        middle(3);
    } catch (std::exception &) {
        leaf(4);
    }
    if (setjmp(jump) == 0)
        jumper(3);
    else
        leaf(5);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    int two[2] = {2, 1};
    qsort(two, 2, sizeof *two, compare);
    void (*f)(long) = leaf; OPAQUE(f);
    f(6);
    return 0;
}
"""


def test_the_shadow_stack_survives_every_way_out(recorded: Run, clang: str) -> None:
    for level in ("-O0", "-O2"):
        assert [line.split(" | ")[1] for line in recorded(STACK, level, cxx=True, clang=clang)] == [
            "node.key at leaf:12 < main:38",
            "node.key at leaf:12 < guard::~guard:19 < middle:23 < main:40",
            "node.key at leaf:12 < main:42",
            "node.key at leaf:12 < main:47",
            "node.key at handler:25 < main:49",
            "node.key at leaf:12 < compare:32 < main:51",
            "node.key at leaf:12 < main:53",
        ]


def test_calls_that_cannot_reach_a_hook_push_no_frame(build: Build) -> None:
    (unit,) = ProgramFacts.load([build(STACK, "-O1", cxx=True)]).units.values()
    called = {site.callee for site in unit.sites if site.kind == "call"}
    assert any("leaf" in name for name in called)
    assert not any("quiet" in name or "pure" in name for name in called)


def test_recursion_beyond_the_shadow_stack_is_clamped(recorded: Run) -> None:
    source = """
static long *p;
__attribute__((noinline)) static void down(int n) {
    if (n) down(n - 1);
    else *p = 1;
    __asm__ volatile("" ::: "memory");
}
int main(void) {
    p = (long *)pool;
    watch(pool, sizeof pool);
    down(2000);
    down(0);
    return 0;
}
"""
    deep, shallow = recorded(source, "-O1")
    assert deep.count("<") == 511
    assert deep.endswith("< main:11")
    assert shallow == "store @0 0100000000000000 flags=0 | at down:5 < main:12"


def test_a_callback_from_uninstrumented_code_sees_its_callers(recorded: Run) -> None:
    source = """
#include <stdlib.h>
static int *p;
static int compare(const void *a, const void *b) {
    *p = 1;
    return *(const int *)a - *(const int *)b;
}
__attribute__((noinline)) static void sort(int *two) {
    qsort(two, 2, sizeof *two, compare);
    *p = 2;
}
int main(void) {
    int two[2] = {2, 1};
    p = (int *)pool;
    watch(pool, sizeof pool);
    sort(two);
    return 0;
}
"""
    assert recorded(source, "-O2") == [
        "store @0 01000000 flags=0 | at compare:5 < sort:9 < main:16",
        "store @0 02000000 flags=0 | at sort:10 < main:16",
    ]


WRAPPED = """
#include <algorithm>
template <class T> struct p { T v; __attribute__((noinline)) p &operator=(T x) { v = x; return *this; } };
struct node { p<long> first; p<long> more[2]; long values[4]; };
int main(int argc, char **) {
    node *n = (node *)pool; OPAQUE(n);
    long from[2] = {1, 2};
    p<long> own;
    n->first = 1;
    n->more[argc] = 2;
    own = 3;
    std::copy_n(from, 2, n->values);
}
"""


def test_a_call_is_named_by_the_object_that_a_member_function_or_an_algorithm_writes_to(build: Build) -> None:
    (unit,) = ProgramFacts.load([build(WRAPPED, "-O0", cxx=True)]).units.values()
    main = {site.line: (site.kind, site.variable) for site in unit.sites if site.function == "main"}
    assert [main[line] for line in (9, 10, 11, 12)] == [
        ("call", "node.first"),
        ("call", "node.more[]"),
        ("call", ""),
        ("call", "node.values[]"),
    ]
