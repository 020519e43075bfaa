"""Large sources of other people compile with hooks, link, and run as they do built plainly.

`pytest -m slow -s tests/real/test_builds.py` prints for each program its lines, and CPU seconds of both compilers.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver.toolchain import find_compiler
from crashcheck.analyzer.compile.facts import ProgramFacts

sys.path.insert(0, str(Path(__file__).parent))
import real_programs


@dataclass(frozen=True)
class Build:
    """`sources`: patterns below the package's source; `main`: a program that uses them and prints `prints`."""

    package: str
    sources: tuple[str, ...]
    flags: tuple[str, ...]
    main: str
    prints: str
    cxx: bool = False


BUILDS = {
    "sqlite3": Build(
        "fossil",  # which carries sqlite3's amalgamation as its authors publish it
        ("extsrc/sqlite3.c",),
        ("-Iextsrc", "-DSQLITE_OMIT_LOAD_EXTENSION", "-lpthread", "-lm"),
        """
#include <stdio.h>
#include "sqlite3.h"
int main(void)
{
    sqlite3 *db;
    sqlite3_stmt *rows;
    sqlite3_open(":memory:", &db);
    sqlite3_exec(db, "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b);"
                     "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<500)"
                     "INSERT INTO t SELECT x, 'row' || (x % 7) FROM n;", 0, 0, 0);
    sqlite3_prepare_v2(db, "SELECT b, sum(a) FROM t GROUP BY b ORDER BY 2 DESC", -1, &rows, 0);
    while (sqlite3_step(rows) == SQLITE_ROW)
        printf("%s=%d ", sqlite3_column_text(rows, 0), sqlite3_column_int(rows, 1));
    sqlite3_finalize(rows);
    return sqlite3_close(db);
}
""",
        "row3=18108 row2=18036 row1=17964 row0=17892 row6=17821 row5=17750 row4=17679 ",
    ),
    "duktape": Build(
        "duktape",
        ("src/duktape.c",),
        ("-Isrc", "-lm"),
        """
#include <stdio.h>
#include "duktape.h"
int main(void)
{
    duk_context *ctx = duk_create_heap_default();
    duk_eval_string(ctx, "[1, 2, 3, 4].map(function (x) { return x * x; }).join('-') +"
                         "JSON.stringify({a: /b+/.exec('abbc')[0]})");
    printf("%s", duk_get_string(ctx, -1));
    duk_destroy_heap(ctx);
    return 0;
}
""",
        '1-4-9-16{"a":"bb"}',
    ),
    "mujs": Build(
        "mujs",
        ("one.c",),
        ("-I.", "-lm"),
        """
#include <stdio.h>
#include "mujs.h"
static void out(js_State *J) { printf("%s", js_tostring(J, 1)); js_pushundefined(J); }
int main(void)
{
    js_State *J = js_newstate(NULL, NULL, JS_STRICT);
    js_newcfunction(J, out, "out", 1);
    js_setglobal(J, "out");
    return js_dostring(J, "var s = 0; for (var i = 0; i < 100; ++i) s += i; out('sum ' + s);");
}
""",
        "sum 4950",
    ),
    "tinyxml2": Build(
        "tinyxml2",
        ("tinyxml2.cpp",),
        ("-I.",),
        """
#include <cstdio>
#include "tinyxml2.h"
int main()
{
    tinyxml2::XMLDocument doc;
    doc.Parse("<a><b n='40'/><c n='2'/></a>");
    std::printf("%d", doc.RootElement()->FirstChildElement("b")->IntAttribute("n") +
                          doc.RootElement()->LastChildElement()->IntAttribute("n"));
}
""",
        "42",
        cxx=True,
    ),
    "zstd": Build(
        "libzstd",
        ("lib/common/*.c", "lib/compress/*.c", "lib/decompress/*.c"),
        ("-Ilib", "-DZSTD_DISABLE_ASM"),
        """
#include <stdio.h>
#include <string.h>
#include "zstd.h"
int main(void)
{
    static char text[100000], packed[110000], back[100000];
    for (int i = 0; i < 100000; i++)
        text[i] = (char)(i * i / 1000);
    size_t size = ZSTD_compress(packed, sizeof packed, text, sizeof text, 19);
    size_t whole = ZSTD_decompress(back, sizeof back, packed, size);
    printf("%zu %d %d", whole, memcmp(text, back, sizeof text), !ZSTD_isError(size));
    return 0;
}
""",
        "100000 0 1",
    ),
    "mimalloc": Build(
        "mimalloc",
        ("src/static.c",),
        ("-Iinclude", "-lpthread"),
        """
#include <stdio.h>
#include "mimalloc.h"
int main(void)
{
    unsigned long sum = 0;
    for (int i = 1; i < 2000; i++) {
        unsigned char *at = mi_calloc(1, (size_t)i * 37);
        at[i] = (unsigned char)i;
        sum += at[i];
        if (i % 3)
            mi_free(at);
    }
    printf("%lu", sum);
    return 0;
}
""",
        "250008",
    ),
    "pikchr": Build(
        "fossil",
        ("extsrc/pikchr.c",),
        ("-lm",),
        """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
char *pikchr(const char *, const char *, unsigned, int *, int *);
int main(void)
{
    int w, h;
    char *svg = pikchr("box \\"a\\"; arrow; circle \\"b\\"", 0, 0, &w, &h);
    printf("%d %d %d", w, h, strstr(svg, "<circle") != NULL);
    free(svg);
    return 0;
}
""",
        "256 76 1",
    ),
    "pugixml": Build(
        "pugixml",
        ("src/pugixml.cpp",),
        ("-Isrc",),
        """
#include <cstdio>
#include "pugixml.hpp"
int main()
{
    pugi::xml_document doc;
    doc.load_string("<a><b n='1'/><b n='41'/></a>");
    std::printf("%g", pugi::xpath_query("sum(/a/b/@n)").evaluate_number(doc));
}
""",
        "42",
        cxx=True,
    ),
    "fmt": Build(
        "fmtlib",
        ("src/format.cc", "src/os.cc"),
        ("-Iinclude",),
        """
#include <vector>
#include <fmt/ranges.h>
#include <fmt/chrono.h>
int main() { fmt::print("{:>6.2f}|{}|{:%H:%M}", 3.14159, std::vector<int>{1, 2, 3}, std::chrono::minutes(61)); }
""",
        "  3.14|[1, 2, 3]|01:01",
        cxx=True,
    ),
    "simdjson": Build(
        "simdjson",
        ("singleheader/simdjson.cpp",),
        ("-Isingleheader",),
        """
#include <cstdio>
#include "simdjson.h"
using namespace simdjson;
int main()
{
    simdjson::dom::parser parser;
    auto text = R"({"a": [1, 2, {"b": "c"}], "d": -1.5e3})"_padded;
    simdjson::dom::element doc = parser.parse(text);
    std::printf("%g %zu", double(doc["d"]), doc["a"].get_array().size());
}
""",
        "-1500 3",
        cxx=True,
    ),
    "nlohmann-json": Build(
        "nlohmann-json3",
        (),
        ("-Isingle_include",),
        """
#include <iostream>
#include <nlohmann/json.hpp>
int main()
{
    auto doc = nlohmann::json::parse(R"({"a": [1, 2.5, null, {"b": "c"}]})");
    doc["a"].push_back(doc["a"][3]);
    std::cout << doc.dump() << doc.flatten().size() << nlohmann::json::to_cbor(doc).size();
}
""",
        '{"a":[1,2.5,null,{"b":"c"},{"b":"c"}]}521',
        cxx=True,
    ),
    "catch2": Build(
        "catch2",
        (),
        ("-Isingle_include",),
        """
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
TEST_CASE("a section per way") {
    int n = GENERATE(1, 2, 3);
    SECTION("one") { REQUIRE(n * n > 0); }
    SECTION("two") { REQUIRE_THROWS_AS(throw n, int); }
}
""",
        "===============================================================================\n"
        "All tests passed (6 assertions in 1 test case)\n\n",
        cxx=True,
    ),
}


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_it_builds_and_runs_as_built_plainly(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    build = BUILDS[name]
    try:
        folder = real_programs.source(build.package)
    except real_programs.Unavailable as error:
        pytest.skip(str(error))
    main = tmp_path / ("main.cpp" if build.cxx else "main.c")
    main.write_text(build.main)
    sources = [path for pattern in build.sources for path in sorted(folder.glob(pattern))]
    assert len(sources) >= len(build.sources)
    lines = sum(len(path.read_bytes().splitlines()) for path in (main, *sources))
    clang = find_compiler().command(build.cxx)
    spent = []
    environment = {**environment, "CRASHCHECK_COMPILE_SERVER": "0"}  # so that its time is a child's
    for kind, compiler in (("plain", clang), ("hooked", ["crashcheck-c++" if build.cxx else "crashcheck-cc"])):
        words = ["-O1", "-g", "-w", *(["-std=c++17"] if build.cxx else []), str(main), *map(str, sources), *build.flags]
        begin = cpu_seconds()
        done = subprocess.run(
            [*compiler, *words, "-o", str(tmp_path / kind)], cwd=folder, env=environment, capture_output=True, text=True
        )
        spent.append(cpu_seconds() - begin)
        assert (done.returncode, done.stderr) == (0, "")
        ran = subprocess.run([str(tmp_path / kind)], env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout == build.prints
    units = ProgramFacts.load([tmp_path / "hooked"]).units.values()
    assert len(units) == len(sources) + 1
    assert [unit.not_instrumented for unit in units if unit.not_instrumented] == []
    print(f"\n{name:14} {lines:7} lines  clang {spent[0]:6.1f} s  crashcheck-cc {spent[1]:6.1f} s", end="")


COROUTINES = """
#include <coroutine>
#include <cstdio>
#include <exception>
#include <utility>
struct generator {
    struct promise_type {
        long value;
        generator get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(long v) { value = v; return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
    generator(std::coroutine_handle<promise_type> h) : handle(h) {}
    generator(generator &&other) : handle(std::exchange(other.handle, {})) {}
    ~generator() { if (handle) handle.destroy(); }
    bool next() { handle.resume(); return !handle.done(); }
    long get() const { return handle.promise().value; }
};
static generator fibonacci(int many) {
    long a = 0, b = 1;
    for (int i = 0; i < many; i++) { co_yield a; a = std::exchange(b, a + b); }
}
static generator evens(generator from) {
    while (from.next()) if (from.get() % 2 == 0) co_yield from.get();
}
int main() {
    auto numbers = evens(fibonacci(40));
    while (numbers.next()) std::printf("%ld ", numbers.get());
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2"])
def test_coroutines_build_and_run(level: str, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "main.cpp").write_text(COROUTINES)
    words = ["-std=c++20", level, "-g", "main.cpp"]
    compiler = find_compiler()
    if compiler.major < 16:
        words.insert(0, "-fcoroutines-ts")
    plain = subprocess.run(
        [*compiler.command(True), *words, "-o", "plain"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    if plain.returncode:
        pytest.skip(f"clang {compiler.major} and this library do not compile coroutines: {plain.stderr[:200]}")
    done = subprocess.run(
        ["crashcheck-c++", *words, "-o", "hooked"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    ran = subprocess.run([tmp_path / "hooked"], capture_output=True, text=True, check=True)
    assert ran.stdout == "0 2 8 34 144 610 2584 10946 46368 196418 832040 3524578 14930352 63245986 "
