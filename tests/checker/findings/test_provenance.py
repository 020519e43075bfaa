"""Places come from the program facts: nearest the project's folder, through inlining, with the source's text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts, Site, TypeStep, UnitFacts
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.analyzer.trace.reader import read
from crashcheck.checker.findings.provenance import OWN, TraceProvenance, ownership
from crashcheck.checker.fixes.source.c_source import Source, visible
from crashcheck.checker.results import Frame, Location
from crashcheck.checker.subject import NoProvenance
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import Kind
from support import compilers
from support.tracing import CallsBuilder, TraceBuilder

SOURCE = """void put(struct entry *e) {
    e->valid = 1;
    e->valid = 1;
}
int main(void) {
    put(slot);
}
"""


def places_of(folder: Path) -> tuple[TraceProvenance, dict[str, int]]:
    """Stores of `put` inlined into `step`, called from `main`; a library's, called from there; and an unknown one."""
    source = folder / "src" / "a.c"
    source.parent.mkdir()
    source.write_text(SOURCE)
    path = str(source)
    put = [
        Site("store", (SourcePosition(path, line, 14, "put"), SourcePosition(path, 9, 3, "step")), "entry.valid")
        for line in (2, 3)
    ]
    main = Site("call", (SourcePosition(path, 6, 5, "main"),), callee="put")
    unit = UnitFacts(path, str(folder), "clang", "llvmlite", (put[0], put[1], main), key=7)
    t = TraceBuilder(folder / "t.cct")
    t.file("p", size=4096)
    base = t.unit(7, 3, "/bin/a")
    t.stack = t.stack_def(0, base + 2)
    events: dict[str, int] = {}
    for name, site in (("first", base), ("second", base + 1), ("library", 0)):
        t.site = site
        t.store("p", 0, 8, 1)
        events[name] = len(t.records) - 1
    t.site = t.stack = 0
    t.store("p", 0, 8, 1)
    events["unknown"] = len(t.records) - 1
    return TraceProvenance(t.trace(), ProgramFacts({7: unit}, (), ()), folder), events


def test_a_place_has_its_inlining_and_its_callers_innermost_first(tmp_path: Path) -> None:
    places, events = places_of(tmp_path)
    stack = (Frame("step", "src/a.c", 9), Frame("main", "src/a.c", 6))
    assert places.of(events["first"]) == Location("src/a.c", 2, 14, "put", "entry.valid", stack, "e->valid = 1;")


def test_a_store_without_facts_is_placed_at_the_nearest_call_that_has_some(tmp_path: Path) -> None:
    places, events = places_of(tmp_path)
    assert places.of(events["library"]) == Location("src/a.c", 6, 5, "main", "", (), "put(slot);")


def test_nothing_is_made_up(tmp_path: Path) -> None:
    places, events = places_of(tmp_path)
    assert places.of(events["unknown"]) is None
    assert NoProvenance().of(0) is None


def test_equal_lines_of_one_function_are_distinguished_by_their_order(tmp_path: Path) -> None:
    places, events = places_of(tmp_path)
    assert [places.ordinal(events[name]) for name in ("first", "second", "unknown")] == [0, 1, 0]


@pytest.mark.parametrize(
    "header",
    ["/usr/include/c++/12/atomic", "/usr/lib/llvm-14/lib/clang/14.0.6/include/emmintrin.h", "/opt/boost/atomic.hpp"],
)
def test_a_store_in_an_installed_header_is_placed_where_the_project_called_it(tmp_path: Path, header: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.c").write_text(SOURCE)
    source = str(project / "a.c")
    store = Site(
        "store", (SourcePosition(header, 464, 2, "store"), SourcePosition(header, 70, 2, "operator=")), "entry.valid"
    )
    calls = [Site("call", (SourcePosition(source, line, 5, "put"),), callee="operator=") for line in (2, 3)]
    unit = UnitFacts(source, str(project), "clang", "llvmlite", (store, *calls), key=7)
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    base = t.unit(7, 3, "/bin/a")
    t.site = base
    events = []
    for call in (1, 2):
        t.stack = t.stack_def(0, base + call)
        t.store("p", 0, 8, 1)
        events.append(len(t.records) - 1)
    places = TraceProvenance(t.trace(), ProgramFacts({7: unit}, (), ()), project)
    assert places.of(events[1]) == Location("a.c", 3, 5, "put", "entry.valid", (), "e->valid = 1;")
    assert [places.ordinal(event) for event in events] == [0, 1]


@pytest.mark.parametrize(
    ("function", "size", "variable", "line"),
    [
        ("pm::p<unsigned long>::operator=", 8, "Queue.tail.v", 3),  # as its caller names it, and at that
        ("pm::p<unsigned long>::operator=", 24, "p.v", 2),  # a container, of which it is one member
        ("pm::p::operator=", 8, "p.v", 2),  # no template: it has a name of its own
        ("pm::q<unsigned long>::operator=", 8, "p.v", 2),  # stores to another object than its own
    ],
)
def test_what_a_wrapper_stores_to_itself_has_the_name_and_place_that_its_caller_gives_it(
    tmp_path: Path, function: str, size: int, variable: str, line: int
) -> None:
    (tmp_path / "a.cc").write_text("\nthis->v = v;\ntail = t;\n")
    source = str(tmp_path / "a.cc")
    sites = (
        Site("store", (SourcePosition(source, 2, 9, function),), "p.v", (TypeStep("p", "v", 0, 8),)),
        Site(
            "call",
            (SourcePosition(source, 3, 6, "Queue::push"),),
            "Queue.tail",
            (TypeStep("Queue", "tail", 64, size),),
            callee="operator=",
        ),
    )
    unit = UnitFacts(source, str(tmp_path), "clang", "llvmlite", sites, key=7)
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    base = t.unit(7, 2, "/bin/a")
    t.site, t.stack = base, t.stack_def(0, base + 1)
    t.store("p", 0, 8, 1)
    event = len(t.records) - 1
    places = TraceProvenance(t.trace(), ProgramFacts({7: unit}, (), ()), tmp_path)
    here = places.of(event)
    assert here is not None
    assert (here.variable, here.line, places.ordinal(event)) == (variable, line, 0)


def test_an_algorithm_of_the_library_stores_to_what_its_call_names(tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text("std::copy_n(text, n, m.text);\n")
    source, header = str(tmp_path / "a.cc"), "/usr/include/c++/12/bits/stl_algobase.h"
    named = []
    for callee in ("_ZSt6copy_nIPKcmPcET1_T_T0_S3_", "_ZN5Cache3putEPKc"):
        sites = (
            Site("copy", (SourcePosition(header, 431, 4, "std::__copy_move<false>::__copy_m"),), ""),
            Site("call", (SourcePosition(source, 1, 1, "fill"),), "Message.text[]", callee=callee),
        )
        unit = UnitFacts(source, str(tmp_path), "clang", "llvmlite", sites, key=7)
        t = TraceBuilder(tmp_path / f"{len(named)}.cct")
        t.file("p", size=4096)
        base = t.unit(7, 2, "/bin/a")
        t.site, t.stack = base, t.stack_def(0, base + 1)
        t.store("p", 0, 8, 1)
        here = TraceProvenance(t.trace(), ProgramFacts({7: unit}, (), ()), tmp_path).of(len(t.records) - 1)
        assert here is not None
        named.append((here.variable, here.line))
    assert named == [("Message.text[]", 1), ("", 1)]


def test_a_library_that_was_built_elsewhere_for_the_test_is_placed_in_its_own_sources(tmp_path: Path) -> None:
    project, library = tmp_path / "project", tmp_path / "library"
    for folder in (project, library):
        folder.mkdir()
        (folder / "a.c").write_text(SOURCE)
    store = Site("store", (SourcePosition(str(library / "a.c"), 2, 14, "put"),), "entry.valid")
    header = Site(
        "copy", (SourcePosition(str(library / "a.h"), 9, 3, "fill"), SourcePosition(str(library / "a.c"), 6, 5, "main"))
    )
    call = Site("call", (SourcePosition(str(project / "a.c"), 6, 5, "main"),), callee="put")
    units = {
        key: UnitFacts(str(folder / "a.c"), str(folder), "clang", "llvmlite", sites, key=key)
        for key, folder, sites in ((7, library, (store, header)), (8, project, (call,)))
    }
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    base = t.unit(7, 2, "/lib/a.so")
    t.stack = t.stack_def(0, t.unit(8, 1, "/bin/a"))
    for t.site in (base, base + 1):
        t.store("p", 0, 8, 1)
    places = TraceProvenance(t.trace(), ProgramFacts(units, (), ()), project)
    inner = str(library / "a.c")
    assert places.of(len(t.records) - 2) == Location(
        inner, 2, 14, "put", "entry.valid", (Frame("main", "a.c", 6),), "e->valid = 1;"
    )
    assert places.of(len(t.records) - 1) == Location(
        str(library / "a.h"), 9, 3, "fill", "", (Frame("main", inner, 6), Frame("main", "a.c", 6)), ""
    )


def test_a_header_of_another_folder_is_under_test_as_much_as_what_includes_it(tmp_path: Path) -> None:
    project, header = tmp_path / "tests", tmp_path / "include" / "tree.h"
    for folder in (project, header.parent):
        folder.mkdir()
    header.write_text(SOURCE)
    (project / "driver.cpp").write_text(SOURCE)
    source = str(project / "driver.cpp")
    store = Site(
        "store", (SourcePosition(str(header), 2, 14, "put"), SourcePosition(source, 6, 5, "main")), "entry.valid"
    )
    unit = UnitFacts(source, str(project), "clang", "llvmlite", (store,), key=7)
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    t.site = t.unit(7, 1, "/bin/a")
    t.store("p", 0, 8, 1)
    places = TraceProvenance(t.trace(), ProgramFacts({7: unit}, (), ()), project)
    assert places.of(len(t.records) - 1) == Location(
        str(header), 2, 14, "put", "entry.valid", (Frame("main", "driver.cpp", 6),), "e->valid = 1;"
    )


REFERENCES = """static void set(int64_t &ref, int64_t value) { ref = value; persist(&ref); }
void put(char *p, int *a, int n) {
    *p = 1; a[n]++;
    memcpy(p + n, a, 4);
    int here = n;
    *p++ = 2;
    if ((*p = n)) return;
}
"""


def test_a_store_in_the_header_of_atomics_is_named_by_what_it_stores_to(tmp_path: Path) -> None:
    """The text of a call into any other header does not show what that stores to."""
    source = tmp_path / "a.cc"
    source.write_text("void f() {\n    slot->store(1);\n}\n")
    named = {}
    for number, header in enumerate(
        ("/usr/include/c++/12/bits/atomic_base.h", "/usr/include/c++/12/bits/stl_vector.h")
    ):
        chain = (SourcePosition(header, 9, 3, "store"), SourcePosition(str(source), 2, 11, "f"))
        unit = UnitFacts(str(source), str(tmp_path), "clang", "llvmlite", (Site("store", chain, ""),), key=7)
        t = TraceBuilder(tmp_path / f"{number}.cct")
        t.file("p", size=4096)
        t.site = t.unit(7, 1, "/bin/a")
        t.store("p", 0, 8, 1)
        here = TraceProvenance(t.trace(), ProgramFacts({7: unit}, (), ()), tmp_path).of(len(t.records) - 1)
        assert here is not None
        named[header] = here.expression
    assert list(named.values()) == ["*slot", ""]


PUBLISH = """#define PUBLISH(p, v) __atomic_store_n(&(p), v, __ATOMIC_RELEASE)
#define PUT(p, v)            \\
    do {                     \\
        (p) = (v);           \\
        flush(&(p));         \\
    } while (0)
#define BOTH(p, q) ((p) = 1, (q) = 2)
#define AT(offset) ((int *)(base + (offset)))
#define PERSIST(p, v) ((p) = (v), flush(&(p)))
#ifdef ONE
#define SET(p, q) ((p) = 1)
#else
#define SET(p, q) ((q) = 1)
#endif
#define GONE(p) ((p) = 1)
#undef GONE
#define NEXT(p) (++(p))
"""


@pytest.mark.parametrize(
    ("statement", "expression"),
    [
        ("PUBLISH(*place, node);", "*place"),
        ("PUBLISH(*AT(8), node);", "*AT(8)"),
        ("PUBLISH(node->next, value);", "node->next"),
        ("PUBLISH(place[NEXT(n)], 1);", "PUBLISH(place[NEXT(n)], 1)"),
        ("PUBLISH(*place++, 1);", "PUBLISH(*place++, 1)"),
        ("if (PUBLISH(*place, node)) return;", "*place"),
        ("SELF(*place);", "*place"),
        ("PERSIST(*place, node);", "*place"),
        ("PUT(*place, node);", "PUT(*place, node)"),
        ("BOTH(*place, *node);", "BOTH(*place, *node)"),
        ("SET(*place, *node);", "SET(*place, *node)"),
        ("GONE(*place);", "GONE(*place)"),
        ("ELSEWHERE(*place, /* which */ 1);", "ELSEWHERE(*place, 1)"),
        ("if (*place) *node = 1;", ""),  # what the column points at is no call
    ],
)
def test_a_store_through_a_macro_is_named_by_its_definition_or_by_the_call(
    tmp_path: Path, statement: str, expression: str
) -> None:
    (tmp_path / "publish.h").write_text(PUBLISH)
    source = tmp_path / "a.c"
    source.write_text(f'#include "publish.h"\n#define SELF(p) PUBLISH(p, p)\nvoid put(void) {{ {statement} }}\n')
    column = source.read_text().splitlines()[2].index(statement.removeprefix("if (")) + 1
    assert expression_of(tmp_path, source, 3, column) == expression


def test_headers_that_include_each_other_from_a_folder_above_are_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "a.h").write_text('#include "../include/b.h"\n')
    (folder / "b.h").write_text('#include "../include/a.h"\n#define SET(p) (*(p) = 1)\n')
    source = folder / "a.c"
    source.write_text('#include "../include/a.h"\nvoid put(int *place) { SET(place); }\n')
    assert expression_of(tmp_path, source, 2, 24) == "*(place)"
    read: list[str] = []

    def source_of(path: Path) -> Source:
        read.append(path.name)
        return Source(path.read_text())

    assert len(visible(source, source_of)) == 3
    assert read == ["a.c", "a.h", "b.h"]


def expression_of(folder: Path, source: Path, line: int, column: int) -> str:
    site = Site("store", (SourcePosition(str(source), line, column, "put"),))
    unit = UnitFacts(str(source), str(folder), "clang", "llvmlite", (site,), key=7)
    t = TraceBuilder(folder / "t.cct")
    t.file("p", size=4096)
    t.site = t.unit(7, 1, "/bin/a")
    t.store("p", 0, 8, 1)
    here = TraceProvenance(t.trace(), ProgramFacts({7: unit}, (), ()), folder).of(len(t.records) - 1)
    assert here is not None
    return here.expression


@pytest.mark.parametrize(
    ("line", "column", "expression"),
    [
        (1, REFERENCES.index("= value") + 1, "ref"),
        (3, 8, "*p"),
        (3, 17, "a[n]"),
        (4, 5, "*(p + n)"),
        (5, 14, ""),  # a declaration
        (6, 10, ""),  # has a side effect
        (7, 13, ""),  # part of a condition
        (2, 6, ""),
    ],
)
def test_what_is_stored_to_is_named_by_the_source_where_no_type_is_known(
    tmp_path: Path, line: int, column: int, expression: str
) -> None:
    source = tmp_path / "a.cpp"
    source.write_text(REFERENCES)
    sites = (
        Site("store", (SourcePosition(str(source), line, column, "put"),)),
        Site("store", (SourcePosition(str(source), line, column, "put"),), "entry.valid"),
        Site("call", (SourcePosition(str(source), line, column, "put"),)),
    )
    unit = UnitFacts(str(source), str(tmp_path), "clang", "llvmlite", sites, key=7)
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    base = t.unit(7, len(sites), "/bin/a")
    for site in range(len(sites)):
        t.site = base + site
        t.store("p", 0, 8, 1)
    places = TraceProvenance(t.trace(), ProgramFacts({7: unit}, (), ()), tmp_path)
    found = [places.of(len(t.records) - len(sites) + site) for site in range(len(sites))]
    assert [here.expression for here in found if here is not None] == [expression, "", ""]
    assert [here.name for here in found if here is not None] == [expression, "entry.valid", ""]


def test_a_link_to_a_script_beside_an_interpreter_is_none_of_the_programs_own(tmp_path: Path) -> None:
    installed = tmp_path / "pipx/bin"
    installed.mkdir(parents=True)
    for name in ("python3", "tool"):
        (installed / name).touch()
    (tmp_path / "tool").symlink_to(installed / "tool")
    (tmp_path / "own").touch()
    assert [ownership(str(tmp_path / name)) for name in ("tool", "own")] == [1, 2]


PROGRAM, PACKAGE = "/home/u/app/save.py", "/home/u/.venv/lib/python3.11/site-packages/store/db.py"
LAUNCHER, PYENV = "/home/u/.venv/bin/store", "/home/u/.pyenv/libexec/pyenv-exec"
THREADS = "/usr/lib/python3.11/threading.py"
TEST = "/home/u/app/tests/test_save.py"
LIBRARY, FROZEN = "/usr/lib/python3.11/pathlib.py", "<frozen runpy>"


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ((LIBRARY, PACKAGE, PROGRAM, FROZEN), PROGRAM),
        ((LIBRARY, PACKAGE, LIBRARY, FROZEN), PACKAGE),
        ((LIBRARY, FROZEN), LIBRARY),
        ((FROZEN, LIBRARY), FROZEN),
        ((LIBRARY, "<stdin>"), "<stdin>"),
        ((LIBRARY, "<-c>"), "<-c>"),
        ((LIBRARY, PACKAGE, "<-c>"), PACKAGE),
        ((LIBRARY, PACKAGE, TEST), PACKAGE),
        ((LIBRARY, PACKAGE, PROGRAM, TEST), PROGRAM),
        ((LIBRARY, TEST), TEST),
        ((LIBRARY, "<string>", PROGRAM), PROGRAM),
        ((LIBRARY, PACKAGE, LAUNCHER, PYENV), PACKAGE),
        ((LIBRARY, LAUNCHER, PYENV), LAUNCHER),
    ],
)
def test_a_place_in_python_is_the_innermost_of_the_programs_own_functions(
    files: tuple[str, ...], shown: str, tmp_path: Path
) -> None:
    t = CallsBuilder(tmp_path / "t.cct", {"f": b""})
    sites = [t.python_site(file, f"function_{number}", number + 1) for number, file in enumerate(files)]
    for site in reversed(sites):
        t.stack = t.stack_def(t.stack, site)
    t.site = t.call_site("/lib/libc.so.6", 64)
    t.write("f", 0, b"new")
    place = TraceProvenance(t.trace(), ProgramFacts({}, (), ()), tmp_path / "project").of(len(t.records) - 1)
    assert place is not None
    at = files.index(shown)
    assert (place.file, place.function, place.line) == (shown, f"function_{at}", at + 1)
    assert [frame.line for frame in place.stack] == [*range(at + 2, len(files) + 1)]


def test_a_script_beside_an_interpreter_starts_a_package(tmp_path: Path) -> None:
    assert ownership(str(tmp_path / "mine" / "bin" / "store")) == OWN
    (tmp_path / "any" / "bin").mkdir(parents=True)
    (tmp_path / "any" / "bin" / "python3").touch()
    assert ownership(str(tmp_path / "any" / "bin" / "store")) == 1


@pytest.mark.parametrize(
    ("native", "scripts", "acting"),
    [
        (("/usr/lib/libc.so.6", "/usr/bin/mv"), (("/a/save.sh", "save"), ("/a/save.sh", "main")), "save"),
        (("/usr/lib/libc.so.6", "/usr/bin/mv"), (("/a/save.sh", "main"),), "mv"),
        (("/usr/lib/libc.so.6",), (("/a/save.sh", "main"),), "main"),
        (("/usr/lib/_sqlite3.cpython-311-x86_64-linux-gnu.so",), (("/a/save.py", "<module>"),), "<module>"),
        (("/usr/lib/libc.so.6",), (("/usr/bin/tool", "main"), ("/a/save.sh", "main")), "tool"),
        (("/usr/lib/libc.so.6",), (("/usr/share/perl5/A.pm", "put"), ("/a/save.pl", "main")), "main"),
        (("/usr/lib/libc.so.6",), (("<-c>", "<module>"), ("/a/save.sh", "main")), "main"),
    ],
)
def test_a_line_at_the_top_of_a_script_is_named_by_the_program_that_it_runs(
    native: tuple[str, ...], scripts: tuple[tuple[str, str], ...], acting: str, tmp_path: Path
) -> None:
    t = CallsBuilder(tmp_path / "t.cct", {"f": b""})
    for number, (file, name) in reversed(list(enumerate(scripts))):
        t.stack = t.stack_def(t.stack, t.python_site(file, name, number + 1))
    for number, module in reversed(list(enumerate(native))):
        t.stack = t.stack_def(t.stack, t.call_site(module, 64 * (number + 1)))
    t.site = t.call_site("/lib/libc.so.6", 64)
    t.write("f", 0, b"new")
    place = TraceProvenance(t.trace(), ProgramFacts({}, (), ()), tmp_path / "project").of(len(t.records) - 1)
    assert place is not None
    assert place.function == acting


def test_an_eval_of_perl_is_a_part_of_the_function_around_it(tmp_path: Path) -> None:
    t = CallsBuilder(tmp_path / "t.cct", {"f": b""})
    for name, line in (("main", 9), ("save", 4), ("(eval)", 3)):
        t.stack = t.stack_def(t.stack, t.python_site("/home/u/app/save.pl", name, line))
    t.site = t.call_site("/lib/libc.so.6", 64)
    t.write("f", 0, b"new")
    place = TraceProvenance(t.trace(), ProgramFacts({}, (), ()), tmp_path / "project").of(len(t.records) - 1)
    assert place is not None
    assert (place.function, place.line) == ("save", 3)
    assert [frame.function for frame in place.stack] == ["save", "main"]


def test_a_frozen_module_is_no_caller_in_the_project() -> None:
    stack = (Frame("_run_module_as_main", "<frozen runpy>", 198), Frame("run", "app.py", 3))
    assert Location("/elsewhere/save.py", 5, 0, "save", "", stack, "").called_from == stack[1]


@pytest.mark.parametrize(
    ("path", "owned"),
    [
        ("/home/user/store/bin/tool", OWN),
        ("/usr/bin/hg", 1),
        ("/usr/lib/python3/dist-packages/mercurial/util.py", 1),
        ("/home/user/store/.venv/bin/tool", 1),
        ("example.org/store/log/log.go", OWN),
        ("github.com/other/store@v1.2.3/log.go", 1),
        ("os/file_unix.go", 0),
        ("internal/poll/fd_unix.go", 0),
        ("/usr/lib/go-1.19/src/os/file.go", 0),
    ],
)
def test_a_source_is_the_programs_own_a_packages_or_of_a_library(path: str, owned: int) -> None:
    """A launcher is a package's; names without a folder are those of `go build -trimpath`."""
    assert ownership(path) == owned


@pytest.mark.parametrize("begins", [PROGRAM, LIBRARY])
def test_a_thread_with_functions_of_the_library_alone_is_nobodys_place(begins: str, tmp_path: Path) -> None:
    """As one of an executor, to which a coroutine gave a call."""
    t = CallsBuilder(tmp_path / "t.cct", {"f": b""})
    for file, name in ((THREADS, "Thread._bootstrap"), (THREADS, "Thread.run"), (begins, "work")):
        t.stack = t.stack_def(t.stack, t.python_site(file, name, 7))
    t.site = t.call_site("/lib/libc.so.6", 64)
    t.write("f", 0, b"new")
    place = TraceProvenance(t.trace(), ProgramFacts({}, (), ()), tmp_path / "project").of(len(t.records) - 1)
    assert (place.file if place is not None else "") == (PROGRAM if begins == PROGRAM else "")


@pytest.mark.parametrize(
    ("name", "has_source", "line"),
    [("node", False, 0), ("node", True, 2), ("app", False, 2), ("lib/python3.11/lib-dynload/_sqlite3.so", False, 0)],
)
def test_code_of_an_interpreter_is_nobodys_place_unless_its_source_is_here(
    name: str, has_source: bool, line: int, tmp_path: Path
) -> None:
    source, program = tmp_path / "fs.c", tmp_path / name
    program.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("#include <fcntl.h>\nint main(int n, char **word) { return creat(word[n - 1], 0600) < 0; }\n")
    subprocess.run([*compilers.c_compiler(), "-g", str(source), "-o", str(program)], check=True)
    if not has_source:
        source.unlink()
    workload = Workload([str(program), "{pool}/f"], ["*"], timeout_s=60.0, recorder="syscalls")
    trace = read(record(workload, tmp_path / "run").trace)
    (created,) = np.flatnonzero(trace.events["kind"] == Kind.NAME_CREATE).tolist()
    place = TraceProvenance(trace, ProgramFacts({}, (), ()), tmp_path).of(created)
    assert (place.line if place is not None else 0) == line
