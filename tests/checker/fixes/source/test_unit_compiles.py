"""An edit is shown only if the units that it changes compile with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.checker.fixes.source.unit_compiles import UnitCompiles
from crashcheck.checker.results import Edit

PROGRAM = """#include "sub/flush.h"
static long pool[64];
#ifdef WANTED
int main(void) {
    int handle = 1;
    pool[0] = handle;
    return 0;
}
#endif
"""
HEADER = """#include <stddef.h>
static inline void wb(const void *at, size_t bytes) {
    (void)at;
    (void)bytes;
}
static inline void set(long *at) {
    *at = 1;
}
"""


def built(folder: Path, environment: dict[str, str], *more: str, compiler: str = "crashcheck-cc") -> UnitCompiles:
    """A program whose unit compiles only with its own flags, in a folder beside its source."""
    (folder / "src" / "sub").mkdir(parents=True)
    (folder / "build").mkdir()
    source = "a.c" if compiler == "crashcheck-cc" else "a.cpp"
    (folder / "src" / source).write_text(PROGRAM.replace("return 0", "set(pool);\n    return 0"))
    (folder / "src" / "sub" / "flush.h").write_text(HEADER)
    words = [compiler, "-DWANTED", "-MD", "-MF", "deps", *more, "-O2", "-c", f"../src/{source}", "-o", "a.o"]
    subprocess.run(words, cwd=folder / "build", env=environment, check=True)
    subprocess.run([compiler, "a.o", "-o", "a"], cwd=folder / "build", env=environment, check=True)
    for made in ("deps", "a.o"):
        (folder / "build" / made).unlink()
    return UnitCompiles(ProgramFacts.load([folder / "build" / "a"]), folder)


@pytest.fixture(autouse=True)
def as_the_build(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def after_store(text: str, file: str = "src/a.c") -> tuple[Edit, ...]:
    return (Edit(file, 6, False, f"    {text}"),)


def test_an_edit_is_compiled_in_the_place_of_the_file_and_nothing_is_written(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    unit = built(tmp_path, environment)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    assert unit.why_not(after_store("wb(&pool[0], sizeof pool[0]);")) == ""
    assert unit.why_not(after_store("wb(absent, &pool[0]);")).startswith("it does not compile: a.c:7: use of undecl")
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["wb(&pool[0], &pool[1]);", "_mm_sfence();", "wb(&pool[0]);"])
def test_what_c_only_warns_of_is_refused_even_where_the_project_asks_for_silence(
    text: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A pointer given as an integer, and a function that no header has declared."""
    assert built(tmp_path, environment, "-w").why_not(after_store(text)).startswith("it does not compile: a.c:7: ")


def test_a_header_is_compiled_in_the_units_that_include_it(tmp_path: Path, environment: dict[str, str]) -> None:
    unit = built(tmp_path, environment)
    here = "src/sub/flush.h"
    assert unit.why_not((Edit(here, 7, False, "    wb(at, sizeof *at);"),)) == ""
    refused = unit.why_not((Edit(here, 7, False, "    wb(pool, sizeof *at);"),))
    assert refused == "it does not compile: flush.h:8: use of undeclared identifier 'pool'"


def test_cxx_is_compiled_as_cxx(tmp_path: Path, environment: dict[str, str]) -> None:
    unit = built(tmp_path, environment, "-std=c++17", compiler="crashcheck-c++")
    assert unit.why_not(after_store("auto at = &pool[0]; wb(at, sizeof *at);", "src/a.cpp")) == ""
    assert "no matching function" in unit.why_not(after_store("wb(pool, nullptr);", "src/a.cpp"))


def test_what_is_not_known_is_refused_with_its_reason(tmp_path: Path, environment: dict[str, str]) -> None:
    unit = built(tmp_path, environment)
    good = after_store("wb(&pool[0], sizeof pool[0]);")
    assert unit.why_not((Edit("src/b.c", 1, False, "x"),)).startswith("whether it compiles is not known: ")
    spent = UnitCompiles(unit.facts, tmp_path, seconds=0)
    assert spent.why_not(good) == "whether it compiles is not known: the time for compiling was spent"
    (tmp_path / "src" / "sub" / "flush.h").write_text("#error gone\n")
    assert "itself does not compile any more: gone" in unit.why_not(good)
    os.rename(tmp_path / "build", tmp_path / "elsewhere")
    moved = UnitCompiles(unit.facts, tmp_path)
    assert moved.why_not(good).startswith("whether it compiles is not known: ")


def test_folders_of_headers_that_the_environment_names_are_searched(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "more.h").write_text("#define MORE 1\n")
    environment = {**environment, "CPATH": str(tmp_path / "more")}
    unit = built(tmp_path, environment, "-include", "more.h")
    assert unit.why_not(after_store("wb(&pool[MORE], sizeof pool[0]);")) == ""
