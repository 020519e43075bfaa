"""A program's sites are named by its facts alone: no run is needed to know what a name will be."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver.toolchain import THREADS
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.compile.site_names import Namer
from support.command_line import run_crashcheck

SOURCE = """
#include "lock.h"
struct queue { long head, tail; };
static struct queue queue;
static long pop(void) {
    long now = queue.head;
    queue.head = now + 1;
    return now + queue.tail;
}
int main(void) {
    take(1);
    take(2);
    return pop() != 0;
}
"""
HEADER = """
static long held;
static void take(long by) { held = by; }
"""


def built(folder: Path, environment: dict[str, str]) -> ProgramFacts:
    (folder / "queue.c").write_text(SOURCE, encoding="utf-8")
    (folder / "lock.h").write_text(HEADER, encoding="utf-8")
    command = ["crashcheck-cc", "-O0", "-g", "-o", "program", "queue.c"]
    subprocess.run(command, cwd=folder, env={**environment, THREADS: "learn"}, check=True)
    return ProgramFacts.load([folder / "program"])


def test_each_site_has_a_name_without_a_run(tmp_path: Path, environment: dict[str, str]) -> None:
    (unit,) = built(tmp_path, environment).units.values()
    namer = Namer(tmp_path)
    named = {site.name: site for index in range(len(unit.sites)) for site in [namer.named(unit, index)]}
    assert len(named) == len(unit.sites)
    assert {name: str(site) for name, site in named.items() if ":pop:" in name or ":take:" in name} == {
        "queue.c:pop:load:1": "queue.c:6 pop queue",
        "queue.c:pop:load:2": "queue.c:8 pop queue",
        "queue.c:pop:store:1": "queue.c:7 pop queue",
        "queue.c:take:store:1": "lock.h:3 take held",
    }
    assert set(namer.codes([unit])) == {"queue.c:pop", "queue.c:take"}


def test_what_a_run_taught_has_the_names_of_the_facts(tmp_path: Path, environment: dict[str, str]) -> None:
    facts = built(tmp_path, environment)
    (tmp_path / "crashcheck.toml").write_text(
        '[build]\ncommand = "true"\n[workload]\ncommand = "./program"\n'
        '[pool]\nfiles = ["*"]\n[check]\ncommand = "true"\n',
        encoding="utf-8",
    )
    run_crashcheck("learn", "--runs", "1", cwd=tmp_path, env=environment)
    learned = json.loads((tmp_path / "crashcheck.learned.json").read_text(encoding="utf-8"))
    namer = Namer(tmp_path)
    known = {namer.named(unit, index).name for unit in facts.units.values() for index in range(len(unit.sites))}
    parts = {part for site in learned["sites"] for part in site["site"].split(" < ")}
    assert parts
    assert parts <= known
    assert learned["codes"] == namer.codes(facts.units.values())


INLINED = """
struct queue { volatile long head, tail; } queue;
static inline __attribute__((always_inline)) long pop(struct queue *from) {
    long now = from->head++ + from->head++;
    return now + from->tail;
}
long first(struct queue *from) { return pop(from); }
long twice(void) { return pop(&queue) + pop(&queue); }
"""


def test_inlined_copies_of_an_access_have_one_name(tmp_path: Path, environment: dict[str, str]) -> None:
    """The two of one line stay two; neither a caller more nor a comment gives them other names."""
    names = []
    for text in (INLINED, INLINED.replace("long twice", "//"), INLINED.replace("    return", "\n\n/* tail */ return")):
        (tmp_path / "queue.c").write_text(text, encoding="utf-8")
        command = ["crashcheck-cc", "-O1", "-g", "-c", "-o", "queue.o", "queue.c"]
        subprocess.run(command, cwd=tmp_path, env={**environment, THREADS: "learn"}, check=True)
        (unit,) = ProgramFacts.load([tmp_path / "queue.o"]).units.values()
        assert len(unit.sites) in (5, 15)
        names.append({Namer(tmp_path).named(unit, index).name for index in range(len(unit.sites))})
    assert names[0] == {f"queue.c:pop:{access}" for access in ("load:1", "load:2", "load:3", "store:1", "store:2")}
    assert names[1] == names[2] == names[0]


OPENMP = """
static long sum, tasks;
long total(long to) {
#pragma omp parallel for
    for (long i = 0; i < to; i++)
        sum += i;
#pragma omp parallel
    {
#pragma omp task
        tasks++;
    }
    return sum;
}
"""


@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_an_openmp_body_has_the_name_of_the_function_that_it_is_written_in(
    tmp_path: Path, environment: dict[str, str], level: str
) -> None:
    (tmp_path / "sum.c").write_text(OPENMP, encoding="utf-8")
    command = ["crashcheck-cc", level, "-g", "-fopenmp", "-c", "-o", "sum.o", "sum.c"]
    subprocess.run(command, cwd=tmp_path, env={**environment, THREADS: "learn"}, check=True)
    (unit,) = ProgramFacts.load([tmp_path / "sum.o"]).units.values()
    named = [Namer(tmp_path).named(unit, index) for index in range(len(unit.sites))]
    assert {(site.function, site.variable) for site in named if site.variable in ("sum", "tasks")} == {
        ("total (OpenMP body)", "sum"),
        ("total (OpenMP body)", "tasks"),
        ("total", "sum"),
    }
