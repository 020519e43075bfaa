"""Which comparisons of a program time decides, in which unit and direction: the analysis for implicit timers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver import wrapper
from support.compilers import NEWEST

Build = Callable[..., Path]

# Every comparison is on a line of its own; those whose line has `//` beside it are timers.
WAYS = r"""
#include <stdbool.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
struct peer { struct timespec seen; int64_t until_ms, tries; double at; struct { struct timeval tv; } last;
    int64_t (*clock)(struct peer *); };
static struct peer peers[2];
static uint64_t started_us;
static size_t used = 3;
static int64_t ms(struct timespec t) { return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
static void get(struct timespec *to) { clock_gettime(CLOCK_MONOTONIC, to); }
static int64_t now_ms(void) { struct timespec now; get(&now); return ms(now); }
static bool over(int64_t now, int64_t due) {
    return now >= due;  // grows in 1e+06 ns
}
static int elapsed_ms(int64_t since) { return (int)(now_ms() - since); }
__attribute__((noinline)) static void check(struct peer *p, int limit) {
    struct timespec now;
    struct timeval tv;
    get(&now);
    if (now.tv_sec > p->seen.tv_sec) used++;  // grows in 1e+09 ns
    if ((now.tv_sec == p->seen.tv_sec) &  // grows in 1e+09 ns
        (now.tv_nsec > p->seen.tv_nsec)) used++;  // grows in 1 ns
    if (over(now_ms(), p->until_ms)) used++;
    if (p->until_ms - now_ms() <= 0) used++;  // shrinks in 1e+06 ns
    if (elapsed_ms(p->until_ms) > 250) used++;  // grows in 1e+06 ns
    if (difftime(time(NULL), (time_t)p->at) > 5) used++;  // grows in 1e+09 ns
    gettimeofday(&tv, NULL);
    double seconds = tv.tv_sec + tv.tv_usec / 1e6;
    if (seconds < p->at) used++;  // grows in 1e+09 ns
    uint64_t us = tv.tv_sec * 1000000ull + tv.tv_usec;
    if (started_us + 100 < us) used++;  // shrinks in 1000 ns
    if (tv.tv_usec != p->last.tv.tv_usec) used++;  // grows in 1000 ns
    if (p->tries > 3) used++;
    if (p->clock(p) > p->until_ms) used++;  // grows in 1e+06 ns
    if (used > 100) used++;
    if (strlen("abc") > used) used++;
    if (limit > 7) used++;
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    if (cpu.tv_sec > 5) used++;
}
static int64_t clock_of(struct peer *p) { return now_ms() + 0 * (p - peers); }
int main(void) {
    peers[0].clock = clock_of;
    get(&peers[0].seen);
    peers[0].until_ms = now_ms() + 1000;
    gettimeofday(&peers[0].last.tv, NULL);
    check(&peers[0], 5);
    return 0;
}
"""


def timers(program: Path) -> list[tuple[int, str]]:
    """Line, and the rest, of each hook that is called when the program runs."""
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    printed = [line.partition(",")[0].split(" ", 2) for line in done.stdout.splitlines() if line.startswith("line ")]
    return sorted({(int(line), rest) for _, line, rest in printed})


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_times_are_followed_through_the_ways_of_c(build: Build, clang: str, level: str) -> None:
    marked = [(number, line.partition("// ")[2]) for number, line in enumerate(WAYS.splitlines(), 1) if "//" in line]
    assert timers(build(WAYS, level, "-g", clang=clang)) == marked


def test_times_are_followed_from_unit_to_unit(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit that reads the clock is compiled last, and the one that compares knows nothing of it."""
    build("int main(void) { return 0; }")  # sets the environment
    monkeypatch.setenv("CRASHCHECK_CLANG", NEWEST)
    sources = {
        "compares.c": "long now_us(void); void keep(long); extern long kept;\n"
        "int main(void) { keep(now_us()); return\nnow_us() - kept > 1000000; }\n",
        "keeps.c": "long kept; void keep(long us) { kept = us; }\n",
        "reads.c": "#include <time.h>\nlong now_us(void) { struct timespec t; timespec_get(&t, TIME_UTC);\n"
        "return t.tv_sec * 1000000 + t.tv_nsec / 1000; }\n",
    }
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
        assert wrapper.run(["-g", "-O1", "-c", name, "-o", f"{name}.o"], cxx=False) == 0
    assert wrapper.run([*(f"{name}.o" for name in sources), "-o", "linked"], cxx=False) == 0
    assert timers(tmp_path / "linked") == [(3, "grows in 1000 ns")]


def test_chrono_is_followed(build: Build) -> None:
    source = """
    #include <chrono>
    using namespace std::chrono;
    static steady_clock::time_point begun = steady_clock::now();
    int main() {
        if (steady_clock::now() - begun > seconds(3600)) return 1;
        return 0;
    }
    """
    printed = {rest for _, rest in timers(build(source, "-O1", "-g", cxx=True))}
    assert printed == {"moves in 1 ns"}  # all uses share its operators: which side is the present is not known
