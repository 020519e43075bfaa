"""`crashcheck learn` as a user meets it: files that stay as they are, failing runs, rebuilt and changed programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crashcheck.analyzer.concurrency.observations import UNOBSERVED, Log, ObservationKind, read_log
from crashcheck.cli.learn import curve
from support.command_line import run_crashcheck
from support.thread_project import ThreadProject, handover

PROGRAM = handover(
    "    if (argc > 2)\n        return atoi(argv[2]);\n    return seen == 1 ? 0 : 1;\n", headers="#include <stdlib.h>\n"
)


class Project(ThreadProject):
    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        super().__init__(folder, environment, PROGRAM)
        self.learned = folder / "crashcheck.learned.json"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_crashcheck("learn", *words, cwd=self.folder, env=self.environment)

    def learn(self, runs: int = 1) -> subprocess.CompletedProcess[str]:
        done = self.run("--runs", str(runs))
        assert done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    return Project(tmp_path, environment)


def test_runs_are_counted_until_nothing_new_comes(project: Project) -> None:
    lines = project.learn(3).stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["run 1", "run 2", "run 3"]
    assert lines[1].endswith(" 0 new predecessors")
    assert lines[3].endswith("from 3 runs; nothing new since run 1")
    assert lines[4] == f"new predecessors: {lines[0].split()[4]} in run 1, 0 in run 2, 0 in run 3"
    document = json.loads(project.learned.read_text(encoding="utf-8"))
    before = {site["site"]: site["before"] for site in document["sites"]}
    assert before["program.c:get:load:1"] == ["program.c:set:store:1"]
    assert before["program.c:set:store:1"] == [None]


def test_the_file_is_the_same_for_the_same_runs(project: Project) -> None:
    project.environment["PYTHONHASHSEED"] = "1"
    project.learn(2)
    first = project.learned.read_bytes()
    project.learned.unlink()
    project.environment["PYTHONHASHSEED"] = "2"
    project.learn()
    project.learn()
    assert project.learned.read_bytes() == first


def test_an_unseen_order_is_reported_and_that_the_run_failed(project: Project) -> None:
    project.learn()
    project.workload("./program late")
    done = project.run("--check")
    assert done.returncode == 1
    reported, ended = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert reported.startswith("not learned: program.c:7 get ready (thread ")
    assert reported.endswith("): after nothing of another thread; in passing runs after program.c:6 set ready")
    assert ended == "the run exited with status 1: anticipated by the first of these"


def test_a_passing_run_can_be_learned_from(project: Project) -> None:
    project.learn()
    project.workload("./program late 0")
    done = project.run("--check")
    assert done.returncode == 1
    assert "the run passed: if it was right, `crashcheck learn --check --relax` learns what it shows" in done.stdout
    assert project.run("--check", "--relax").returncode == 1
    done = project.run("--check")
    assert (done.returncode, done.stdout) == (0, "the run passed, and showed nothing that was not learned\n")


def test_a_failing_run_is_not_relaxed(project: Project) -> None:
    project.learn()
    before = project.learned.read_bytes()
    project.workload("./program late")
    assert project.run("--check", "--relax").returncode == 1
    assert project.learned.read_bytes() == before


def test_a_failing_run_teaches_nothing(project: Project) -> None:
    project.learn()
    before = project.learned.read_bytes()
    project.workload("./program late")
    done = project.run("--runs", "2")
    assert done.returncode == 2
    assert "run 1 of 2: the workload exited with status 1" in done.stderr
    assert "[learn-run-failed]" in done.stderr
    assert project.learned.read_bytes() == before


def test_the_runs_before_a_failing_one_are_kept(project: Project) -> None:
    project.workload("./program on $(({run} / 3 * 7))")
    done = project.run("--runs", "4")
    assert done.returncode == 2
    assert "run 3 of 4: the workload exited with status 7" in done.stderr
    assert "The 2 runs before it are kept" in done.stderr
    kept = project.learned.read_bytes()
    project.learned.unlink()
    project.learn(2)
    assert project.learned.read_bytes() == kept


def test_failing_runs_are_passed_over_if_asked_for(project: Project) -> None:
    project.workload("./program on $(({run} % 2))")
    done = project.run("--runs", "5", "--keep-going")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.partition(": ")[2].split(",")[0] for line in lines[:5:2]] == ["failed"] * 3
    assert "from 2 runs; nothing new since run 1" in lines[5]
    project.workload("./program on 4")
    done = project.run("--runs", "2", "--keep-going")
    assert done.returncode == 2
    assert "none of 2 runs passed" in done.stderr


def test_training_ends_when_passing_runs_teach_nothing_new(project: Project) -> None:
    project.workload("./program on $(({run} % 2))")
    lines = project.run("--runs", "50", "--keep-going", "--settled", "2").stdout.splitlines()
    assert lines[6].endswith("from 3 runs; nothing new since run 1")
    assert (
        project.run("--runs", "50", "--settled", "1", "--keep-going")
        .stdout.splitlines()[2]
        .endswith("from 4 runs; nothing new since run 1")
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_keeps_the_runs_that_passed(project: Project, number: signal.Signals) -> None:
    command = ["crashcheck", "learn", "--runs", "1000000"]
    process = subprocess.Popen(
        command, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while not process.stdout.readline().startswith("run       2:"):
        assert process.poll() is None
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (2, "crashcheck: interrupted\n")
    kept = json.loads(project.learned.read_text(encoding="utf-8"))["new"]
    assert len(kept) >= 2
    assert output.splitlines()[-1] == f"interrupted: {len(kept)} runs kept in {project.learned}"
    lines = project.learn().stdout.splitlines()
    assert f"from {len(kept) + 1} runs; nothing new since run 1" in lines[1]


def test_a_configuration_that_is_only_for_threads_needs_no_files_and_no_check(project: Project) -> None:
    toml = project.folder / "crashcheck.toml"
    toml.write_text(toml.read_text(encoding="utf-8").partition("[pool]")[0], encoding="utf-8")
    project.learn()
    assert run_crashcheck("guard", cwd=project.folder, env=project.environment).returncode == 0


ASSEMBLY = """
static int get(void) {
    int own = 0, value = 0;
    __asm__ volatile("" : : : "memory");
    __asm__ volatile("pause" : : : "memory");
    __asm__ volatile("movl %1, %0" : "=r"(value) : "m"(own));
    __asm__ volatile("lock; xaddl %0, %1" : "+r"(value), "+m"(ready) : : "memory");
    return value;
}
"""


def test_inline_assembly_that_accesses_shared_memory_is_named(project: Project) -> None:
    """A barrier, a pause and what reads a local are not."""
    source = PROGRAM.replace("static int get(void) { return ready; }\n", ASSEMBLY)
    project.source(source)
    line = source.partition("lock; xaddl")[0].count("\n") + 1
    assert f"not exact: {UNOBSERVED}: {project.folder}/program.c:{line}" in project.learn().stdout.splitlines()


def test_code_whose_facts_a_killed_process_did_not_log_is_counted_and_the_rest_learned(project: Project) -> None:
    """The facts of the first unit are torn, as a kill leaves them: their first word is written last."""
    (project.folder / "more.c").write_text("int more; void set_more(void) { more = 1; }\n", encoding="utf-8")
    program = PROGRAM.replace("int main", "void set_more(void);\nint main")
    project.source(program.replace("!late)", "!late) set_more(),"))
    (project.folder / "tear.py").write_text(
        "import os, mmap\n"
        "log = mmap.mmap(os.open(os.environ['CRASHCHECK_GUARD'].partition('log=')[2], os.O_RDWR), 0)\n"
        "at = log.find(b'CRSHFCT\\n')\n"
        "log[at : at + 8] = bytes(8)\n",
        encoding="utf-8",
    )
    config = project.folder / "crashcheck.toml"
    text = config.read_text(encoding="utf-8").replace("program.c", "program.c more.c")
    config.write_text(text.replace("./program", f"./program && {sys.executable} tear.py"), encoding="utf-8")
    assert "not exact: 1 observations of code whose facts are not in the log" in project.learn().stdout.splitlines()
    assert "program.c:get:load:1" in project.learned.read_text(encoding="utf-8")


def test_perturbed_runs_hold_threads_up_at_other_places_each(project: Project) -> None:
    project.workload("printenv CRASHCHECK_GUARD >> $OPTIONS; ./program")
    project.environment["OPTIONS"] = str(project.folder / "options")
    for words in (("--runs", "2", "--perturb"), ("--perturb", "--runs", "1"), ("--runs", "1")):
        assert project.run(*words).returncode == 0
    options = [line.split(",") for line in (project.folder / "options").read_text(encoding="utf-8").splitlines()]
    assert [words[0] for words in options[:3]] == ["perturb=1", "perturb=2", "perturb=3"]
    assert options[3][0].startswith("log=")


def test_the_curve_sums_up_runs_in_steps_that_double() -> None:
    assert curve([9]) == "9 in run 1"
    assert curve([9, 4, 2, 1]) == "9 in run 1, 4 in run 2, 3 in runs 3–4"
    assert (
        curve([9, 4, 2, 1, 1, 1, 1, 1, 5, 0]) == "9 in run 1, 4 in run 2, 3 in runs 3–4, 4 in runs 5–8, 5 in runs 9–10"
    )


@pytest.mark.parametrize(
    "words",
    [("--relax",), ("--check", "--runs", "2"), ("--check", "--perturb"), ("--runs", "0"), ("--settled", "0")],
)
def test_options_that_make_no_sense_together_are_refused(project: Project, words: tuple[str, ...]) -> None:
    done = project.run(*words)
    assert done.returncode == 2
    assert "[bad-option]" in done.stderr


def test_a_check_without_anything_learned_is_an_error_that_names_the_next_step(project: Project) -> None:
    done = project.run("--check")
    assert done.returncode == 2
    assert "[learned-missing]" in done.stderr


def test_what_was_learned_survives_a_rebuild_of_code_that_only_moved(project: Project) -> None:
    project.learn()
    project.source("/* Another comment. */\n\n" + PROGRAM.replace("static void *reader", "\n\nstatic void *reader"))
    done = project.run("--check")
    assert (done.returncode, done.stdout) == (0, "the run passed, and showed nothing that was not learned\n")


def test_changed_code_is_not_judged_until_it_is_learned(project: Project) -> None:
    project.learn()
    project.source(PROGRAM.replace("{ ready = value; }", "{ ready = value; ready = value; }"))
    done = project.run("--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("not judged: 2 accesses that no learned run made, or whose code changed: ")
    project.learn()
    assert project.run("--check").stdout == "the run passed, and showed nothing that was not learned\n"


def log_of(folder: Path, program: str, environment: dict[str, str], level: str = "-O0") -> Log:
    """What a program that learns observes."""
    (folder / "program.c").write_text(program, encoding="utf-8")
    training = {**environment, "CRASHCHECK_THREADS": "learn"}
    command = ["crashcheck-cc", level, "-g", "-pthread", "-o", "program", "program.c"]
    subprocess.run(command, cwd=folder, env=training, check=True)
    subprocess.run([folder / "program"], env={"CRASHCHECK_GUARD": f"log={folder / 'log'}"}, check=False)
    return read_log(folder / "log")


def seen_in(folder: Path, program: str, environment: dict[str, str]) -> list[tuple[int, str]]:
    """Line and kind of each observed access of a program, in order."""
    log = log_of(folder, program, environment)
    (unit,) = log.units
    sites = [unit.sites[int(row["site"] - unit.key)] for row in log.of(ObservationKind.REMOTE)]
    return [(site.line, site.kind) for site in sites]


def counted_in(folder: Path, program: str, environment: dict[str, str], level: str) -> dict[int, int]:
    """How many accesses each line makes."""
    log = log_of(folder, program, environment, level)
    (unit,) = log.units
    counts: Counter[int] = Counter()
    for row in log.of(ObservationKind.REMOTE):
        counts[unit.sites[int(row["site"] - unit.key)].line] += int(row["count"])
    return dict(counts)


def test_an_access_is_observed_before_it_takes_place(tmp_path: Path, environment: dict[str, str]) -> None:
    """The last thing that this program does is to read memory that it may not read; the read is in the log."""
    found = seen_in(
        tmp_path,
        """
#include <sys/mman.h>
#include <sys/resource.h>
int main(void) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    volatile int *forbidden = mmap((void *)0x10000000, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return *forbidden;
}
""",
        environment,
    )
    assert found[-1] == (7, "load")


LAMBDAS = """
#include <atomic>
#include <thread>
static std::atomic<int> given{0};
static int taken;
int main() {
    std::thread giver([] { given.store(3); });
    giver.join();
    std::thread taker([] { taken = given.load(); });
    taker.join();
    return taken == 3 ? 0 : 1;
}
"""


def test_cxx_code_that_only_moved_keeps_its_names(tmp_path: Path, environment: dict[str, str]) -> None:
    project = Project(tmp_path, environment)
    (tmp_path / "crashcheck.toml").write_text(
        '[build]\ncommand = "crashcheck-c++ -O0 -g -pthread -o program program.cc"\n'
        '[workload]\ncommand = "./program"\n[pool]\nfiles = ["*"]\n[check]\ncommand = "true"\n',
        encoding="utf-8",
    )
    (tmp_path / "program.cc").write_text(LAMBDAS, encoding="utf-8")
    project.learn()
    sites = json.loads(project.learned.read_text(encoding="utf-8"))["sites"]
    names = {(site["where"], site["variable"]): site["site"] for site in sites}
    before = {site["site"]: site["before"] for site in sites}
    gives, takes = names["program.cc:7", "given"], names["program.cc:9", "given"]
    assert before[takes] == [gives]
    assert [name for name in before if "program.cc:7" in name or "program.cc:9" in name] == []
    (tmp_path / "program.cc").write_text(LAMBDAS.replace("int main", "\n\nint main"), encoding="utf-8")
    done = project.run("--check")
    assert (done.returncode, done.stdout) == (0, "the run passed, and showed nothing that was not learned\n")


VARIABLES = """
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
static int plain;
static atomic_int counted;
static const int fixed = 3;
static __thread int own;
static struct { int a, b; } pair, other;
static void fill(int *escaping) { *escaping = fixed; }
int main(void) {
    int *p = &plain;
    atomic_int *q = &counted;
    int *h = malloc(sizeof *h);
    int kept = 2, given;
    *p = kept;
    atomic_store(q, 3);
    atomic_fetch_add(q, 1);
    pair.b = own;
    *h = 6;
    fill(&given);
    given++;
    memcpy(&other, &pair, sizeof pair);
    return 0;
}
"""


def test_globals_and_what_pointers_lead_to_are_seen_and_locals_only_if_their_address_escapes(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    found = [(line, kind) for line, kind in seen_in(tmp_path, VARIABLES, environment) if line]
    assert found == [
        (16, "store"), (17, "atomic"), (18, "atomic"), (19, "store"), (20, "store"), (10, "store"), (22, "load"),
        (22, "store"), (23, "load"), (23, "copy"),
    ]  # fmt: skip


REPEATED = """
int *shared, sum;
__attribute__((noinline)) static int twice(void) {
    return *shared + *shared;
}
int main(int argc, char **argv) {
    static int place;
    (void)argv;
    shared = argc > 9 ? &sum : &place;
    for (int i = 0; i < 100; i++)
        sum += argc;
    return twice();
}
"""


OPTIMISED = {4: 2, 6: 1, 9: 1, 11: 1}


@pytest.mark.parametrize(
    ("level", "accesses"), [("-O0", {4: 4, 9: 1, 11: 200}), ("-O1", OPTIMISED), ("-O2", OPTIMISED)]
)
def test_what_is_observed_are_the_accesses_of_the_optimised_program(
    tmp_path: Path, environment: dict[str, str], level: str, accesses: dict[int, int]
) -> None:
    """In its source `twice` reads the pointer and the value twice, and the loop reads and stores each time."""
    assert counted_in(tmp_path, REPEATED, environment, level) == accesses


STALE = """
#include <pthread.h>
#include <stdlib.h>
static void set(int *place, int value) { *place = value; }
static void *other(void *place) { set(place, 2); return NULL; }
static void share(void) {
    int local = 0;
    pthread_t thread;
    set(&local, 1);
    pthread_create(&thread, NULL, other, &local);
    pthread_join(thread, NULL);
}
static int again(void) {
    int local = 0;
    set(&local, 3);
    return local;
}
int main(void) {
    share();
    int result = again();
    int *heap = malloc(16);
    pthread_t thread;
    pthread_create(&thread, NULL, other, heap);
    pthread_join(thread, NULL);
    free(heap);
    heap = malloc(16);
    *heap = 4;
    return result != 3 || *heap != 4;
}
"""


def test_memory_that_begins_a_new_life_has_no_predecessors(project: Project) -> None:
    project.source(STALE)
    project.learn()
    sites = json.loads(project.learned.read_text(encoding="utf-8"))["sites"]
    before = {site["site"]: site["before"] for site in sites}
    assert before["program.c:set:store:1"] == [None, "program.c:set:store:1"]
    assert before["program.c:again:load:1"] == before["program.c:main:store:1"] == [None]
