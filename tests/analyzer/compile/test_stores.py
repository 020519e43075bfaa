"""Each kind of store is recorded with its bytes, its field and its flags, and only while its target is watched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts
from support.compilers import needs_static

Build = Callable[..., Path]
Run = Callable[..., list[str]]


WIDTHS = """
#include <immintrin.h>
struct big { long a, b, c; };
typedef int v4 __attribute__((vector_size(16)));
struct all {
    char c; short s; int i; long l; float f; double d; void *p; long double x; __int128 q; v4 v;
    volatile int vol; struct big big; _Bool flag;
};
static struct big make(void) { struct big b = {1, 2, 3}; return b; }
int main(void) {
    struct all *a = (struct all *)pool; OPAQUE(a);
    watch(pool, sizeof pool);
    a->c = 1;
    a->s = 2;
    a->i = 3;
    a->l = 4;
    a->f = 1.0f;
    a->d = 1.0;
    a->p = (void *)16;
    a->x = 1.0L;
    a->q = 5;
    a->v = (v4){1, 2, 3, 4};
    a->vol = 7;
    a->big = make();
    a->flag = 1;
    _mm_stream_si64((long long *)&a->l, 9);
    _mm_stream_si128((__m128i *)&a->v, _mm_set1_epi8(1));
    unwatch();
    a->c = 2;
    return 0;
}
"""

TOLD = """\
store @0 01 flags=0 instance=0 | all.c at main:13
store @2 0200 flags=0 instance=0 | all.s at main:14
store @4 03000000 flags=0 instance=0 | all.i at main:15
store @8 0400000000000000 flags=0 instance=0 | all.l at main:16
store @16 0000803f flags=0 instance=0 | all.f at main:17
store @24 000000000000f03f flags=0 instance=0 | all.d at main:18
store @32 1000000000000000 flags=0 instance=0 | all.p at main:19
store @48 0000000000000080ff3f flags=0 instance=0 | all.x at main:20
store @64 05000000000000000000000000000000 flags=0 instance=0 | all.q at main:21
store @80 01000000020000000300000004000000 flags=0 instance=0 | all.v at main:22
store @96 07000000 flags=16 instance=0 | all.vol at main:23
copy @104 010000000000000002000000000000000300000000000000 instance=0 | all.big at main:24
store @128 01 flags=0 instance=0 | all.flag at main:25
store @8 0900000000000000 flags=1 instance=0 | all.l at main:26
store @80 01010101010101010101010101010101 flags=1 instance=0 | all.v at main:27"""


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3", "-Os"])
def test_every_width_is_recorded_at_every_level(recorded: Run, level: str) -> None:
    assert recorded(WIDTHS, level) == TOLD.splitlines()


def test_programs_of_every_clang_record_the_same(recorded: Run, clang: str) -> None:
    assert recorded(WIDTHS, "-O2", clang=clang) == TOLD.splitlines()


@pytest.mark.parametrize(
    "flags", [("-g",), ("-fno-strict-aliasing",), ("-fno-pie", "-no-pie"), ("-fPIC",), ("-static",)]
)
def test_flags_of_code_generation_change_nothing(recorded: Run, flags: tuple[str, ...]) -> None:
    if "-static" in flags:
        needs_static()
    assert recorded(WIDTHS, "-O1", *flags) == TOLD.splitlines()


def test_stores_to_the_stack_and_to_globals_get_no_hook(recorded: Run) -> None:
    source = """
static long counter; static __thread long mine; static long table[4];
int main(int argc, char **argv) {
    (void)argv;
    watch((void *)8, (size_t)-4096);
    int local = argc, many[4]; int *p = &local, *q = many;
    counter = 1; mine = 2; table[argc] = 3; *p = 4; q[argc] = 5;
    unwatch();
    return local - 4;
}
"""
    assert recorded(source, "-O1") == []


def test_masked_stores_record_the_enabled_lanes(recorded: Run) -> None:
    source = """
#include <immintrin.h>
__attribute__((target("avx2"))) static void lanes(int *p) {
    _mm_maskstore_epi32(p, _mm_set_epi32(0, -1, 0, -1), _mm_set_epi32(4, 3, 2, 1));
    _mm_maskstore_pd((double *)(p + 4), _mm_set_epi64x(-1, 0), _mm_set_pd(1.0, 2.0));
}
int main(void) {
    int *p = (int *)pool; OPAQUE(p);
    watch(pool, sizeof pool);
    if (__builtin_cpu_supports("avx2"))
        lanes(p);
    _mm_maskmoveu_si128(_mm_set1_epi8(7), _mm_set_epi8(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, -1), (char *)p);
    return 0;
}
"""
    assert [line.split(" |")[0] for line in recorded(source, "-O1") if "at main" in line] == [
        "masked @0 07 - 07 - - - - - - - - - - - - - flags=1",
    ]
    assert [line.split(" |")[0] for line in recorded(source, "-O1") if "lanes" in line] in (
        [],
        ["masked @0 01000000 - 03000000 - flags=0", "masked @16 - 000000000000f03f flags=0"],
    )


LINE = "masked @64 - 01000000 " + "- " * 14 + "flags=0"


def test_scattered_and_compressed_stores_record_the_enabled_lanes(recorded: Run) -> None:
    source = """
#include <immintrin.h>
__attribute__((target("avx512f"))) static void lanes(int *p) {
    _mm512_mask_i32scatter_epi32(p, 0x5, _mm512_set1_epi32(3), _mm512_set1_epi32(9), 4);
    _mm512_mask_compressstoreu_epi32(p + 8, 0x6, _mm512_set1_epi32(2));
    _mm512_mask_storeu_epi32(p + 16, 0x2, _mm512_set1_epi32(1));
}
int main(void) {
    int *p = (int *)pool; OPAQUE(p);
    watch(pool, sizeof pool);
    if (__builtin_cpu_supports("avx512f"))
        lanes(p);
    return 0;
}
"""
    events = [line.split(" |")[0].split(" instance")[0] for line in recorded(source, "-O1")]
    assert events in (
        [],
        ["store @32 0200000002000000 flags=0", LINE],
        [
            "store @12 09000000 flags=0",
            "store @12 09000000 flags=0",
            "store @32 0200000002000000 flags=0",
            LINE,
        ],
    )


def test_an_unaligned_vector_load_is_a_load_and_writes_nothing(build: Build, recorded: Run, clang: str) -> None:
    source = """
#include <immintrin.h>
__attribute__((target("avx"))) static int wide(int *p) {
    return _mm256_extract_epi32(_mm256_lddqu_si256((__m256i *)(p + 1)), 0);
}
int main(void) {
    int *p = (int *)pool; OPAQUE(p);
    watch(pool, sizeof pool);
    watch_loads();
    int sum = __builtin_cpu_supports("avx") ? wide(p) : 0;
    return sum + _mm_cvtsi128_si32(_mm_lddqu_si128((__m128i *)(p + 2)));
}
"""
    events = [line.split(" |")[0] for line in recorded(source, "-O1", "-msse3", clang=clang)]
    assert events in (["load @8 16 flags=0"], ["load @4 32 flags=0", "load @8 16 flags=0"])
    (unit,) = ProgramFacts.load([build(source, "-O1", "-msse3", clang=clang)]).units.values()
    assert unit.not_understood == ()


def test_a_bitcast_constant_and_a_large_offset_are_understood(recorded: Run) -> None:
    source = """
int main(void) {
    unsigned char *p = pool; OPAQUE(p);
    watch(pool, sizeof pool);
    *(double *)(p + 4088) = -0.0;
    *(void **)p = (void *)(pool + 4096);
    *(void (**)(void))(p + 8) = 0;
    unwatch();
    return 0;
}
"""
    first, _, third = recorded(source, "-O2")
    assert first == "store @4088 0000000000000080 flags=0 | at main:5"
    assert third == "store @8 0000000000000000 flags=0 | at main:7"
