"""Large units of real code behave the same with hooks, at every level and with every clang."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver import wrapper
from crashcheck.analyzer.compile.facts import ProgramFacts
from support.compilers import NEWEST, plain_clang

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def place(stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRASHCHECK_RUNTIME", str(stub))
    monkeypatch.chdir(tmp_path)


def same(monkeypatch: pytest.MonkeyPatch, clang: str, *flags: str) -> None:
    monkeypatch.setenv("CRASHCHECK_CLANG", clang)
    source = str(HERE / "heavy.cc")
    words = ["-std=c++17", "-pthread", *flags, source]
    subprocess.run([*plain_clang(clang, cxx=True), *words, "-o", "plain"], check=True)
    assert wrapper.run([*words, "-o", "hooked"], True) == 0
    plain = subprocess.run(["./plain"], capture_output=True, text=True, check=True)
    hooked = subprocess.run(["./hooked"], capture_output=True, text=True, check=True)
    assert hooked.stdout == plain.stdout
    (unit,) = ProgramFacts.load(["hooked"]).units.values()
    assert len(unit.sites) > (2000 if "-DWITH_REGEX" in flags else 500)
    assert [item.text for item in unit.not_understood] == []
    named = [site for site in unit.sites if site.kind == "store" and site.variable]
    assert len(named) > 0.7 * len([site for site in unit.sites if site.kind == "store"])


def test_a_unit_full_of_templates_runs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    same(monkeypatch, NEWEST, "-O1")


@pytest.mark.slow
def test_every_clang_gives_a_unit_that_runs_the_same(clang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    same(monkeypatch, clang, "-O2", "-DWITH_REGEX")


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [("-O0",), ("-O3", "-g", "-fPIC", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")]
)
def test_levels_and_sections_change_nothing(flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    same(monkeypatch, NEWEST, "-DWITH_REGEX", *flags)


def test_unusual_c_constructs_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("odd.c").write_text(ODD)
    subprocess.run([*plain_clang(), "-w", "-O2", "odd.c", "-lm", "-o", "plain"], check=True)
    expected = subprocess.run(["./plain"], capture_output=True, text=True, check=True).stdout
    for level in ("-O0", "-O2"):
        assert wrapper.run(["-w", level, "odd.c", "-lm", "-o", "hooked"], False) == 0
        assert subprocess.run(["./hooked"], capture_output=True, text=True, check=True).stdout == expected
    assert re.fullmatch(r"(\S+\n)+", expected)


ODD = r"""
#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
struct flags { unsigned a : 3, b : 13; long long c : 40; } __attribute__((packed));
struct wide { char name[40]; double d[3]; _Complex double z; };
static int computed(int n) {
    static void *const table[] = {&&zero, &&one, &&many};
    goto *table[n > 1 ? 2 : n];
zero: return 10;
one: return 11;
many: return 12;
}
static int jump_asm(int x) {
    __asm__ goto("testl %0, %0\n\tjne %l[yes]" : : "r"(x) : "cc" : yes);
    return 0;
yes:
    return 1;
}
static long total(int n, ...) {
    va_list list;
    long sum = 0;
    va_start(list, n);
    while (n--) sum += va_arg(list, long);
    va_end(list);
    return sum;
}
static struct wide by_value(struct wide w) { w.d[1] *= 2; w.name[3] = 'X'; w.z *= I; return w; }
static int vla(int n) {
    int a[n][n];
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) a[i][j] = i * j;
    return a[n - 1][n - 1];
}
static int (*resolve(void))(int) { return computed; }
static int chosen(int) __attribute__((ifunc("resolve")));
extern int other_name(int) __attribute__((alias("vla_alias_target")));
int vla_alias_target(int n) { return vla(n) + 1; }
__attribute__((naked)) long naked(void) { __asm__("mov $77, %rax; ret"); }
static int odd_section(void) { return 5; }
int weak_one(void) __attribute__((weak));
int weak_one(void) { return 8; }
typedef float v8 __attribute__((vector_size(32)));
static v8 vectors(v8 a, float b) { a[3] = b; return a + a; }
static int quiet_switch(const char *s) {
    switch (s[0]) { case 'a': return 1; case 'b' ... 'k': return 2; case -1: return 3; default: return 4; }
}
static jmp_buf back;
static volatile int volatile_value = 3;
int with_static(void) { static int calls; return ++calls; }
int main(void) {
    struct flags f = {0}, *pf = &f;
    pf->a = 5; pf->b = 4097; pf->c = -3;
    printf("%d,%d,%lld\n", f.a, f.b, (long long)f.c);
    printf("%d,%d,%d,%d\n", computed(0), computed(1), chosen(9), jump_asm(4) + jump_asm(0));
    printf("%ld,%d,%d\n", total(3, 1L, 2L, 39L), other_name(5), (int)naked());
    struct wide w = {"abcdefgh", {1, 2, 3}, 1 + 2 * I};
    w = by_value(w);
    printf("%s,%g,%g,%g\n", w.name, w.d[1], creal(w.z), cimag(w.z));
    v8 v = vectors((v8){1, 2, 3, 4, 5, 6, 7, 8}, 40);
    printf("%g,%g\n", v[3], v[7]);
    printf("%d,%d,%d,%d\n", quiet_switch("a"), quiet_switch("d"), quiet_switch("\xff"), weak_one() + odd_section());
    volatile int tries = 0;
    if (setjmp(back) < 3) { tries++; longjmp(back, tries); }
    volatile_value += with_static() + with_static();
    printf("%d,%d\n", tries, volatile_value);
    long double big = sqrtl(2.0L); _Bool flag = big > 1; unsigned __int128 huge = (unsigned __int128)1 << 100;
    printf("%.10Lf,%d,%llu\n", big, flag, (unsigned long long)(huge >> 90));
    char text[64]; snprintf(text, sizeof text, "%s-%c", "fmt", 'x'); strcat(text, "!"); memmove(text + 1, text, 5);
    printf("%s\n", text);
    return 0;
}
"""
