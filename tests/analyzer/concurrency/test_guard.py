"""`crashcheck guard` as a user meets it: a false alarm that is relaxed, changed code, static programs and plug-ins."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.driver.toolchain import THREADS
from crashcheck.analyzer.compile.site_names import NamedSite
from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants, Guarded, Seen, Stall, Violation
from crashcheck.analyzer.concurrency.observations import HEADER, HEADER_BYTES, ObservationKind, read_log
from crashcheck.cli.guard import report_lines
from crashcheck.runtime import build
from support import compilers
from support.command_line import run_crashcheck
from support.thread_project import ThreadProject, handover

PROGRAM = handover("    return seen > 1;\n")
AT_ONCE = "stall=0,most=0"  # a violation is logged, and the thread continues


class Project(ThreadProject):
    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        settings = f'env = {{CRASHCHECK_GUARD = "{AT_ONCE}"}}\n'
        super().__init__(folder, environment, PROGRAM, flags="$FLAGS", settings=settings)

    def run(self, *words: str, status: int = 0) -> str:
        done = run_crashcheck(*words, cwd=self.folder, env=self.environment)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def program(self, *words: str, log: str = "log") -> int:
        """The exit status of the program as it was built last."""
        (self.folder / log).unlink(missing_ok=True)
        environment = {"CRASHCHECK_GUARD": f"{AT_ONCE},log={self.folder / log}"}
        return subprocess.run([self.folder / "program", *words], env=environment, check=False).returncode


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    return Project(tmp_path, environment)


LATE = (
    "not learned: program.c:6 get ready (thread 2): after nothing of another thread; in passing runs after "
    "program.c:5 set ready; stalled 0.0 ms: 0 resolved, 1 not"
)


def test_a_false_alarm_is_logged_relaxed_and_gone(project: Project) -> None:
    project.run("learn", "--runs", "1")
    project.run("guard")
    assert project.program() == 0
    assert project.run("guard", "report", "log") == "no violation\n"
    assert project.program("late") == 0
    assert project.run("guard", "report", "log", status=1).splitlines()[0] == LATE
    project.workload("./program late")
    relaxed = project.run("guard", "relax", "--runs", "9", "--settled", "1").splitlines()
    assert relaxed[:2] == ["run 1: passed, 2 violations, 2 learned", "run 2: passed, 2 violations, 0 learned"]
    assert relaxed[2].startswith("2 predecessors learned")
    project.run("guard")
    assert project.program("late") == 0
    assert project.run("guard", "report", "log").splitlines()[0] == "no violation"


def test_violations_with_the_same_text_are_one_line() -> None:
    """As those of the load and of the store of an increment."""
    load, store = (NamedSite(f"p.c:add:{kind}:1", "p.c:add", "p.c:3", "add", "sum") for kind in ("load", "store"))
    stalls = tuple(Stall(Violation(Seen(site, None, 2, 3), (site,)), 0.001, 1, 2) for site in (load, store))
    assert list(report_lines(Guarded(stalls, (), {}, ()))) == [
        "not learned: p.c:3 add sum (thread 2, 6 times): after nothing of another thread; in passing runs after "
        "p.c:3 add sum; stalled 2.0 ms: 2 resolved, 4 not"
    ]


def test_what_relaxing_learned_before_an_error_is_kept(project: Project) -> None:
    project.run("learn", "--runs", "1")
    project.workload("./program late; test {run} = 1 || printf x > ${CRASHCHECK_GUARD##*log=}")
    relaxed = project.run("guard", "relax", "--runs", "2", status=2).splitlines()
    assert relaxed[0].startswith("run 1: passed, 2 violations, 2 learned")
    assert relaxed[1].endswith("[guard-log]")
    project.run("guard")
    assert project.program("late") == 0
    assert project.run("guard", "report", "log").splitlines()[0] == "no violation"


def test_code_that_changed_or_never_ran_is_counted_and_not_judged(project: Project) -> None:
    project.run("learn", "--runs", "1")
    project.source(PROGRAM.replace("return ready;", "return ready + 0 * ready;"))
    project.run("guard")
    assert project.program("late") == 0
    assert project.run("guard", "report", "log").splitlines() == [
        "no violation",
        "not judged: 3 accesses at 3 sites that training never ran, or whose code changed:",
        "  program.c:13 main: 1",
        "  program.c:6 get ready: 1",
        "  program.c:6 get ready: 1",
    ]


def test_runs_that_log_to_one_file_keep_the_facts_of_a_unit_once(project: Project) -> None:
    project.run("learn", "--runs", "1")
    project.run("guard")
    used = []
    for _ in range(2):
        options = {"CRASHCHECK_GUARD": f"{AT_ONCE},log={project.folder / 'log'}"}
        subprocess.run([project.folder / "program", "late"], env=options, check=False)
        used.append(np.fromfile(project.folder / "log", HEADER, 1)["facts_used"][0])
    assert used[0] == used[1] > 0
    log = read_log(project.folder / "log")
    assert [unit.source for unit in log.units] == [str(project.folder / "program.c")]
    assert log.of(ObservationKind.VIOLATION)["count"].tolist() == [2] * len(log.of(ObservationKind.VIOLATION)) != []


@pytest.mark.parametrize("flags", ["-static", "-O2 -flto"])
def test_other_ways_to_build_are_guarded_too(project: Project, flags: str) -> None:
    if "static" in flags:
        compilers.needs_static()
    project.environment["FLAGS"] = flags
    project.run("learn", "--runs", "1")
    project.run("guard")
    assert project.program("late") == 0
    assert project.run("guard", "report", "log", status=1).splitlines()[0] == LATE


def test_a_call_that_has_no_attribute_but_its_effects_is_compiled(tmp_path: Path, environment: dict[str, str]) -> None:
    text = "#include <math.h>\nint big(double x, char *s) { if (isinf(x)) { s[0] = x > 0; return 1; } return 0; }\n"
    (tmp_path / "big.c").write_text(text, encoding="utf-8")
    command = ["crashcheck-cc", "-O2", "-g", "-c", "big.c"]
    subprocess.run(command, cwd=tmp_path, env={**environment, THREADS: "learn"}, check=True)


HOST = """
#include <dlfcn.h>
#include <stddef.h>
int main(int count, char **words) {
    for (int i = 0; i < 2 && count > 1; i++) {
        void *plugin = dlopen(words[1], RTLD_NOW);
        void (*set)(void) = plugin ? (void (*)(void))dlsym(plugin, "set") : NULL;
        if (!set)
            return 1;
        set();
        dlclose(plugin);
    }
    return 0;
}
"""


def test_a_plug_in_observes_its_accesses_in_a_program_that_does_not(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "host.c").write_text(HOST, encoding="utf-8")
    (tmp_path / "plugin.c").write_text("int value;\nvoid set(void) { value = 1; }\n", encoding="utf-8")
    host = [*compilers.c_compiler(), "-o", "host", "host.c", "-ldl"]
    subprocess.run(host, cwd=tmp_path, check=True)
    plugin = ["crashcheck-cc", "-shared", "-fPIC", "-g", "-o", "plugin.so", "plugin.c"]
    subprocess.run(plugin, cwd=tmp_path, env={**environment, "CRASHCHECK_THREADS": "learn"}, check=True)
    options = {"CRASHCHECK_GUARD": f"log={tmp_path / 'log'}"}
    subprocess.run([tmp_path / "host", tmp_path / "plugin.so"], env=options, check=True)
    log = read_log(tmp_path / "log")
    assert [unit.source for unit in log.units] == [str(tmp_path / "plugin.c")]
    assert log.of(ObservationKind.REMOTE)["count"].tolist() == [2]


def test_what_cannot_be_guarded_or_read_is_an_error_that_names_it(project: Project) -> None:
    assert "[learned-missing]" in project.run("guard", status=2)
    project.source("static int x;\nint *p = &x;\nint main(void) { return *p; }\n")
    project.run("learn", "--runs", "1")
    assert "[guard-nothing]" in project.run("guard", status=2)
    log = project.folder / "log"
    for content in (b"", b"x" * 5000, b"CCCguard" + bytes(5000), b"CCCguard\2\0\0\0\xff\xff\xff\xff" + bytes(5000)):
        log.write_bytes(content)
        assert "[guard-log]" in project.run("guard", "report", "log", status=2)
    for missing in ("none", "."):
        assert "[guard-log]" in project.run("guard", "report", missing, status=2)
    assert "[bad-option]" in project.run("guard", "report", status=2)
    assert "[bad-option]" in project.run("guard", "--runs", "2", status=2)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--guard", "none.json"], "none.json: no such file. [learned-missing]"),
        (["--guard=program.c"], "program.c is no file of `crashcheck learn`. [learned-corrupt]"),
        (["--guard", "."], "cannot be read: [Errno 21] Is a directory"),
        (["--guard"], "--guard needs the file that `crashcheck learn` writes [bad-option]"),
    ],
)
def test_a_compilation_without_usable_sets_is_an_error_that_names_them(
    project: Project, words: list[str], error: str
) -> None:
    command = ["crashcheck-cc", "-c", "program.c", *words]
    done = subprocess.run(command, cwd=project.folder, env=project.environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_log_is_an_error_that_names_it(project: Project) -> None:
    project.run("learn", "--runs", "1")
    project.run("guard")
    assert project.program("late") == 0
    log = project.folder / "log"
    whole = log.read_bytes()
    row = whole.index(struct.pack("<II", 1, 1), HEADER_BYTES)
    at = whole.index(b"CRSHFCT\n")
    for damaged in (whole[: row + 8], whole[:at] + b"CRSHFCT\n" + bytes(8) + whole[at + 16 :]):
        log.write_bytes(damaged)
        assert f"{log}" in project.run("guard", "report", str(log), status=2)


def test_a_log_is_read_although_its_program_was_killed_while_it_wrote_its_facts(project: Project) -> None:
    """Their first word is written last."""
    project.run("learn", "--runs", "1")
    project.run("guard")
    assert project.program("late") == 0
    log = project.folder / "log"
    magic = b"CRSHFCT\n"
    log.write_bytes(log.read_bytes().replace(magic, bytes(len(magic))))
    assert project.run("guard", "report", "log", status=1).splitlines()[0] == LATE


def test_a_program_that_was_guarded_with_other_sets_is_reported_as_that(project: Project) -> None:
    project.run("learn", "--runs", "1")
    project.run("guard")
    assert project.program() == 0
    project.run("learn", "--runs", "1")
    assert project.run("guard", "report", "log").splitlines()[-1] == (
        "not exact: what was expected, and left alone: other sets were learned since the program was built"
    )


def test_what_was_learned_from_another_program_stalls_nothing(
    project: Project, tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> None:
    other = Project(tmp_path_factory.mktemp("other"), environment)
    other.source(PROGRAM.replace("set", "put").replace("get", "take"))
    other.run("learn", "--runs", "1")
    project.run("guard", "--file", str(other.folder / "crashcheck.learned.json"))
    assert project.program("late") == 0
    report = project.run("guard", "--file", str(other.folder / "crashcheck.learned.json"), "report", "log").splitlines()
    assert report[:2] == [
        "no violation",
        "not judged: 7 accesses at 7 sites that training never ran, or whose code changed:",
    ]


def test_units_that_were_guarded_with_different_sets_are_counted(project: Project) -> None:
    project.run("learn", "--runs", "1")
    second = project.folder / "second.json"
    second.write_bytes((project.folder / "crashcheck.learned.json").read_bytes().replace(b'"new": [', b'"new": [0, '))
    (project.folder / "more.c").write_text("int more; void set_more(void) { more = 1; }\n", encoding="utf-8")
    program = PROGRAM.replace("    return seen > 1;", "    void set_more(void);\n    set_more();\n    return seen > 1;")
    project.source(program)
    for name, source in (("crashcheck.learned.json", "program"), ("second.json", "more")):
        words = ["crashcheck-cc", "--guard", name, "-c", "-g", "-O0", f"{source}.c"]
        subprocess.run(words, cwd=project.folder, env=project.environment, check=True)
    words = ["crashcheck-cc", "--guard", "second.json", "-pthread", "-o", "program", "program.o", "more.o"]
    subprocess.run(words, cwd=project.folder, env=project.environment, check=True)
    assert project.program() == 0
    assert read_log(project.folder / "log").lost == ("1 units, guarded with other sets than the rest of the program",)


ALLOCATOR = """
#include <stddef.h>
#include <string.h>
static char arena[1 << 24];
static _Atomic size_t used;
void *malloc(size_t size) {
    size_t at = __atomic_fetch_add((size_t *)&used, (size + 31) & ~(size_t)15, __ATOMIC_RELAXED);
    return at + size < sizeof arena ? arena + (at + 15 & ~(size_t)15) : NULL;
}
void free(void *block) { if (block) memset(block, 0xff, 8); }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size) {
    void *moved = malloc(size);
    if (block && moved)
        memcpy(moved, block, size);
    return moved;
}
"""
USES_HEAP = """
#include <pthread.h>
#include <stdlib.h>
static void *body(void *place) { *(int *)place += 1; return NULL; }
int main(void) {
    for (int time = 0; time < 3; time++) {
        int *place = malloc(sizeof *place);
        pthread_t thread;
        *place = 0;
        pthread_create(&thread, NULL, body, place);
        pthread_join(thread, NULL);
        if (*place != 1)
            return 1;
        free(place);
    }
    return 0;
}
"""


@pytest.mark.parametrize("sizes", ["", "size_t malloc_usable_size(void *block) { return block ? 4 : 0; }\n"])
def test_a_preloaded_allocator_is_asked_for_the_size_of_what_it_frees_only_if_it_can_answer(
    project: Project, sizes: str
) -> None:
    """Without an answer libc's would be asked, which reads a header that is not there."""
    project.source(USES_HEAP)
    project.run("learn", "--runs", "1")
    project.run("guard")
    (project.folder / "allocator.c").write_text(ALLOCATOR + sizes, encoding="utf-8")
    compiler = [*compilers.c_compiler(), "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", "allocator.so", "allocator.c"]
    subprocess.run(compiler, cwd=project.folder, check=True)
    log = project.folder / "log"
    environment = {"CRASHCHECK_GUARD": f"{AT_ONCE},log={log}", "LD_PRELOAD": str(project.folder / "allocator.so")}
    subprocess.run([project.folder / "program"], env=environment, check=True, timeout=60)
    freed = [] if sizes else ["3 freed blocks of an allocator without malloc_usable_size, whose accesses still count"]
    assert list(read_log(log).lost) == freed


FREED_BY_LIBRARY = """
#include <pthread.h>
#include <stdlib.h>
void library_frees(void *block);
static void *body(void *place) { *(long *)place += 1; return NULL; }
int main(void) {
    for (int time = 0; time < 3; time++) {
        long *place = malloc(sizeof *place);
        pthread_t thread;
        *place = 0;
        pthread_create(&thread, NULL, body, place);
        pthread_join(thread, NULL);
        library_frees(place);
    }
    return 0;
}
"""


def test_a_block_that_a_library_freed_is_a_new_variable_when_it_is_allocated(project: Project) -> None:
    library = project.folder / "library.c"
    library.write_text("#include <stdlib.h>\nvoid library_frees(void *block) { free(block); }\n", encoding="utf-8")
    command = [*compilers.c_compiler(), "-shared", "-fPIC", "-o", "library.so", "library.c"]
    subprocess.run(command, cwd=project.folder, check=True)
    project.environment["FLAGS"] = str(project.folder / "library.so")
    project.source(FREED_BY_LIBRARY)
    project.run("learn", "--runs", "1")
    learned = AnticipatingInvariants.load(project.folder / "crashcheck.learned.json")
    assert learned.sites["program.c:main:store:1"].before == {None}


OWN_ALLOCATOR = """
#include <crashcheck.h>
#include <pthread.h>
static long block[2];
static long *allocate(void) { CRASHCHECK_GUARD_ENDS(block, sizeof block[0]); return block; }
static void *body(void *place) { ((long *)place)[0] += 1; ((long *)place)[1] += 1; return NULL; }
int main(void) {
    for (int time = 0; time < 3; time++) {
        long *place = allocate();
        pthread_t thread;
        place[0] = 0;
        place[1] = 0;
        pthread_create(&thread, NULL, body, place);
        pthread_join(thread, NULL);
    }
    return block[0] != 1;
}
"""


@pytest.mark.parametrize("flags", ["", "-static"])
def test_a_block_of_the_programs_own_allocator_is_a_new_variable_where_it_says_so(project: Project, flags: str) -> None:
    project.environment["FLAGS"] = flags
    project.source(OWN_ALLOCATOR)
    project.run("learn", "--runs", "1")
    learned = AnticipatingInvariants.load(project.folder / "crashcheck.learned.json")
    assert learned.sites["program.c:main:store:1"].before == {None}
    assert learned.sites["program.c:main:store:2"].before == {None, "program.c:body:store:2"}


def test_a_mark_of_an_allocator_does_nothing_where_no_guard_is(project: Project) -> None:
    project.source(OWN_ALLOCATOR)
    include = f"-I{build.INCLUDE}"
    for compiler in (compilers.c_compiler(), ["crashcheck-cc"]):
        command = [*compiler, include, "-pthread", "-o", "program", "program.c"]
        subprocess.run(command, cwd=project.folder, env=project.environment, check=True)
        assert subprocess.run([project.folder / "program"], check=False).returncode == 0


@pytest.mark.parametrize("path", ["/no/such/folder/log", "mine", "older", "log"])
def test_a_log_that_cannot_be_written_does_not_stop_the_program(project: Project, path: str) -> None:
    """Also one that another version wrote, and a new one where the process may not write files of that size."""
    project.run("learn", "--runs", "1")
    project.run("guard")
    assert project.program("late", log="older") == 0
    older = bytearray((project.folder / "older").read_bytes())
    older[HEADER["magic"].itemsize] += 1  # its version
    others = {"mine": b"mine" * 2048, "older": bytes(older)}
    for name, content in others.items():
        (project.folder / name).write_bytes(content)
    words = ["prlimit", "--fsize=100000", "./program"] if path == "log" else ["./program"]
    options = {"CRASHCHECK_GUARD": f"log={path}", "PATH": os.environ["PATH"]}
    done = subprocess.run(words, cwd=project.folder, env=options, capture_output=True, check=False)
    assert done.returncode == 0
    assert b"the log cannot be written" in done.stderr
    assert {name: (project.folder / name).read_bytes() for name in others} == others
