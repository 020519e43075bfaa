"""Flushes, fences and stores in intrinsics and inline assembly, in the encodings that real programs use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.compile.instrument.inline_asm import AsmPlan, read_call, understand

Build = Callable[..., Path]
Run = Callable[..., list[str]]

ENCODINGS = """
#include <immintrin.h>
__attribute__((target("clwb,clflushopt"))) static void intrinsics(void *p) {
    _mm_clwb(p);
    _mm_clflushopt(p);
}
int main(int argc, char **argv) {
    (void)argv;
    char *l = (char *)pool; OPAQUE(l);
    char *byte = l + 64; OPAQUE(byte);
    long word = 5, old = 0; char small;
    watch(pool, sizeof pool);
    _mm_clflush(l);
    _mm_sfence();
    _mm_mfence();
    __asm__ volatile("clflush %0" : "+m"(*(volatile char *)byte));
    __asm__ volatile(".byte 0x66; clflush %0" : "+m"(*(volatile char *)byte));
    __asm__ volatile(".byte 0x66; xsaveopt %0" : "+m"(*(volatile char *)byte));
    __asm__ volatile("clflushopt %0" : "+m"(*(volatile char *)byte));
    __asm__ volatile("clwb %0" : "+m"(*(volatile char *)byte));
    __asm__ volatile("clwb (%0)" :: "r"(byte) : "memory");
    __asm__ volatile("mfence" ::: "memory");
    __asm__ volatile("sfence\\n\\tmfence" ::: "memory");
    __asm__ volatile(".byte 0x0f, 0xae, 0xf8" ::: "memory");
    __asm__ volatile("xchgb %0,%1" : "=q"(small), "+m"(byte[1]) : "0"((char)3) : "memory");
    __asm__ volatile("xchgq %0,%1" : "=r"(old), "+m"(*(long *)l) : "0"(word) : "memory");
    __asm__ volatile("lock; addq %1,%0" : "+m"(*(long *)l) : "r"(word) : "memory", "cc");
    __asm__ volatile("lock xaddl %0,%1" : "+r"(*(int *)&word), "+m"(*(int *)l) :: "memory", "cc");
    __asm__ volatile("lock cmpxchgq %2,%1" : "=a"(old), "+m"(*(long *)l) : "r"(77L), "0"(12345L) : "memory", "cc");
    __asm__ volatile("lock cmpxchgq %2,%1" : "=a"(old), "+m"(*(long *)l) : "r"(77L), "0"(old) : "memory", "cc");
    __asm__ volatile("movnti %1,%0" : "=m"(*(long *)l) : "r"(word) : "memory");
    __asm__ volatile("movq %1,%0" : "=m"(*(long *)l) : "r"(word) : "memory");
    __asm__ volatile("movb $1,%0" : "=m"(*(char *)l) :: "memory");
    __asm__ volatile("movntdq %1,%0" : "=m"(*(__m128i *)l) : "x"(_mm_set1_epi8(2)) : "memory");
    void *to = l + 128, *from = l; unsigned long count = 16;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) :: "memory");
    to = l + 128; count = 2;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(0L) : "memory");
    __asm__ volatile("pause" ::: "memory");
    __asm__ volatile("" ::: "memory");
    unwatch();
    if (argc > 5) intrinsics(byte);
    return 0;
}
"""


def test_every_encoding_is_recorded(recorded: Run, clang: str) -> None:
    events = recorded(ENCODINGS, "-O2", clang=clang)
    assert [line.split(" |")[0] for line in events] == [
        "flush @0 1 clflush",
        "fence sfence",
        "fence mfence",
        "flush @64 1 clflush",
        "flush @64 1 clflushopt",
        "flush @64 1 clwb",
        "flush @64 1 clflushopt",
        "flush @64 1 clwb",
        "flush @64 1 clwb",
        "fence mfence",
        "fence sfence",
        "fence mfence",
        "fence sfence",
        "begin @65",
        "end @65 03 locked=1 stored=1",
        "begin @0",
        "end @0 0500000000000000 locked=1 stored=1",
        "begin @0",
        "end @0 0a00000000000000 locked=1 stored=1",
        "begin @0",
        "end @0 0f000000 locked=1 stored=1",
        "begin @0",
        "end @0 0f00000000000000 locked=1 stored=0",
        "begin @0",
        "end @0 4d00000000000000 locked=1 stored=1",
        "store @0 0a00000000000000 flags=1",
        "store @0 0a00000000000000 flags=0",
        "store @0 01 flags=0",
        "store @0 02020202020202020202020202020202 flags=1",
        "copy @128 02020202020202020202020202020202",
        "fill @128 00x16",
    ]


REPEATED = """
#include <string.h>
static void repeat(char *to, unsigned long count, unsigned long value) {
    void *at = to; unsigned long left = count;
    __asm__ volatile("rep stosw" : "+D"(at), "+c"(left) : "a"((short)value) : "memory");
    at = to; left = count;
    __asm__ volatile("rep stosl" : "+D"(at), "+c"(left) : "a"((int)value) : "memory");
    at = to; left = count;
    __asm__ volatile("rep; stosq" : "+D"(at), "+c"(left) : "a"(value) : "memory");
    at = to; left = count;
    __asm__ volatile("rep stosq %%rax, (%%rdi)" : "+D"(at), "+c"(left) : "a"(~value) : "memory");
    at = to; left = count;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(left) : "a"((char)value) : "memory");
}
int main(int argc, char **argv) {
    (void)argv;
    char *l = (char *)pool; OPAQUE(l);
    watch(pool, sizeof pool);
    repeat(l + 8, 2, 0x1122334455667788ul + argc - 1);
    repeat(l + 64, 0, 7);
    unwatch();
    return 0;
}
"""


def test_a_repeated_store_of_any_width_and_value_is_recorded(recorded: Run, clang: str) -> None:
    events = recorded(REPEATED, "-O2", clang=clang)
    assert [line.split(" |")[0] for line in events][:5] == [
        "store @8 88778877 flags=4",
        "store @8 8877665588776655 flags=4",
        "store @8 88776655443322118877665544332211 flags=4",
        "store @8 778899aabbccddee778899aabbccddee flags=4",
        "fill @8 88x2",
    ]


def test_newer_flush_intrinsics_have_sites(build: Build, clang: str) -> None:
    (unit,) = ProgramFacts.load([build(ENCODINGS, "-O1", clang=clang)]).units.values()
    lines = [site.positions[-1].line for site in unit.sites if site.kind == "flush"]
    assert [line for line in lines if line in (4, 5)] == [4, 5]


def test_assembly_that_writes_and_is_not_known_is_named(build: Build) -> None:
    source = """
int main(void) {
    char area[512] __attribute__((aligned(16)));
    char *p = (char *)pool; OPAQUE(p);
    __asm__ volatile("fxsave %0" : "=m"(*(char(*)[512])p));
    __asm__ volatile("fxsave %0" : "=m"(area));
    long old;
    __asm__ volatile("syscall" : "=a"(old) : "a"(39L) : "rcx", "r11", "memory");
    __asm__ volatile("cpuid" : "+a"(old) :: "rbx", "rcx", "rdx");
    return 0;
}
"""
    (unit,) = ProgramFacts.load([build(source, "-O1")]).units.values()
    assert [(item.position.line, item.text) for item in unit.not_understood] == [(5, "fxsave $0"), (8, "syscall")]


def plan(template: str, constraints: str, *arguments: str) -> AsmPlan:
    line = f'  call void asm sideeffect "{template}", "{constraints}"({", ".join(arguments)}) #1'
    return understand(read_call(line, line.index("asm ") + 4))


POINTER = "ptr elementtype(i64) %1"


@pytest.mark.parametrize(
    ("template", "constraints", "arguments", "expected"),
    [
        ("clwb $0", "*m,~{memory}", (POINTER,), [("flush", 3)]),
        ("data16 clflush $0", "*m", (POINTER,), [("flush", 2)]),
        ("prefetchw $0", "*m,~{memory}", (POINTER,), []),
        ("lock\\0A\\09incq $0", "=*m,*m,~{memory}", (POINTER, POINTER), [("locked", 8)]),
        (".byte 0xf0; addb $1,$0", "=*m,q,~{memory}", (POINTER, "i8 1"), [("locked", 1)]),
        ("xchg $0, $1", "=r,=*m,0,*m", (POINTER, "i32 1", POINTER), [("locked", 8)]),
        (
            "lock cmpxchg16b $0",
            "=*m,{ax},*m",
            ("ptr elementtype(i128) %1", "i64 1", "ptr elementtype(i128) %1"),
            [("locked", 16)],
        ),
        ("vmovntdq $1, $0", "=*m,x", ("ptr elementtype(<4 x i64>) %1", "<4 x i64> %2"), [("store", 32)]),
        ("movdir64b ($1), $0", "r,r,~{memory}", ("ptr %1", "ptr %2"), [("movdir64b", 64)]),
        ("rep; movsb", "={di},={si},={cx},0,1,2,~{memory}", ("ptr %1", "ptr %2", "i64 %3"), [("copy", 1)]),
        ("1: pause; jmp 1b", "~{memory}", (), []),
        ("sete $0", "=*m", ("ptr elementtype(i8) %1",), [("store", 1)]),
        ("mov $1, %rax; mov %rax, $0", "=*m,r", (POINTER, "i64 %2"), [("store", 8)]),
    ],
)
def test_assembly_becomes_hooks(
    template: str, constraints: str, arguments: tuple[str, ...], expected: list[tuple[str, int]]
) -> None:
    found = plan(template, constraints, *arguments)
    assert not found.not_understood
    assert [(step.what, step.kind if step.what == "flush" else step.size) for step in found.steps] == expected


@pytest.mark.parametrize(
    ("template", "constraints", "arguments"),
    [
        ("fxsave $0", "=*m", (POINTER,)),
        ("lock; addq $1, 8($0)", "r,r,~{memory}", ("ptr %1", "i64 1")),
        ("movsb", "={di},={si},0,1,~{memory}", ("ptr %1", "ptr %2")),
        (".byte 0x0f, 0x01, 0xc1", "~{memory}", ()),
        ("stosl", "={di},{ax},0,~{memory}", ("i32 %1", "ptr %2")),
        ("std; rep stosl", "={di},={cx},{ax},0,1,~{memory}", ("i32 %1", "ptr %2", "i64 3")),
    ],
)
def test_assembly_that_is_not_known_is_not_guessed(template: str, constraints: str, arguments: tuple[str, ...]) -> None:
    assert plan(template, constraints, *arguments).not_understood
