"""Which reads get a hook, and which site a line of a function's body has."""

from __future__ import annotations

from collections.abc import Callable

from crashcheck.analyzer.compile.instrument.rewriter import Rewriter
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo
from crashcheck.analyzer.compile.ir.text import read_module

Run = Callable[..., list[str]]
READS = """
struct pair { long a; int b; };
int main(void)
{
    struct pair *p = (struct pair *)pool;
    long local = 4;
    OPAQUE(p);
    watch(pool, sizeof pool);
    local += p->a;
    watch_loads();
    local += p->a;
    local += p->b;
    local += (long)strlen((char *)p + 64);
    unwatch();
    local += p->a;
    return local == 4 ? 0 : 1;
}
"""
LINES = """
define i64 @f(ptr %p, ptr %q) {
  %local = alloca i64
  %a = load i64, ptr %p
  store i64 %a, ptr %local
  %b = load i64, ptr %local
  store i64 %b, ptr %q
  call void @llvm.memcpy.p0.p0.i64(ptr %q, ptr %p, i64 24, i1 false)
  %old = atomicrmw add ptr %q, i64 1 seq_cst
  %c = call i64 @g(ptr %p)
  ret i64 %c
}

declare i64 @g(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def test_reads_reach_the_recorder_only_while_it_wants_them(recorded: Run, clang: str) -> None:
    lines = [line for line in recorded(READS, "-O1", "-g", clang=clang) if line.startswith(("load", "string"))]
    assert [line.split("|")[1] for line in lines] == [" pair.a at main:11", " pair.b at main:12", " at main:13"]
    assert [line.split("|")[0].split()[:3] for line in lines] == [
        ["load", "@0", "8"],
        ["load", "@8", "4"],
        ["string", "@64", "-1"],
    ]


COMPARED = """
#include <string.h>
#include <strings.h>
int main(void)
{
    char *p = (char *)pool;
    long sum = 0;
    OPAQUE(p);
    watch(pool, sizeof pool);
    watch_loads();
    sum += bcmp(p, p + 8, 1);
    sum += memcmp(p + 16, p + 24, 2);
    sum += (long)memchr(p + 32, 1, 3);
    sum += strcmp(p + 40, p + 48);
    sum += strncmp(p + 56, p + 64, 4);
    sum += (long)strlen(p + 72);
    sum += (long)strnlen(p + 80, 5);
    unwatch();
    OPAQUE(sum);
    return 0;
}
"""


def test_what_a_library_function_reads_is_recorded_up_to_its_bound_or_a_zero_byte(recorded: Run, clang: str) -> None:
    """Each function of `libc_effects.READS`, in the order of the table."""
    lines = recorded(COMPARED, "-O1", "-g", "-D_GNU_SOURCE", "-fno-builtin", clang=clang)
    assert [line.split("|")[0].split()[:3] for line in lines if line.startswith(("load", "string"))] == [
        ["load", "@0", "1"], ["load", "@8", "1"],
        ["load", "@16", "2"], ["load", "@24", "2"],
        ["load", "@32", "3"],
        ["string", "@40", "-1"], ["string", "@48", "-1"],
        ["string", "@56", "4"], ["string", "@64", "4"],
        ["string", "@72", "-1"],
        ["string", "@80", "5"],
    ]  # fmt: skip


def test_a_line_of_the_body_has_the_site_of_what_it_writes_and_those_of_what_it_reads() -> None:
    module = read_module(LINES)
    result = Rewriter(module, DebugInfo(module.metadata), frozenset(), True).run()
    kinds = {line: result.sites[site].kind for line, site in result.sites_of["f"].items()}
    assert kinds == {1: "load", 4: "store", 5: "copy", 6: "atomic", 7: "call"}
    reads = {line: [result.sites[site].kind for site in sites] for line, sites in result.reads_of["f"].items()}
    assert reads == {1: ["load"], 5: ["load"]}
