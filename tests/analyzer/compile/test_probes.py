"""Questions to the compiler go straight to clang; parts of a build do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver.client import is_probe
from crashcheck.analyzer.compile.facts import read_sections
from support.paths import ROOT


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        ("--version", "/p"),
        ("-v", "/p"),
        ("-dumpmachine", "/p"),
        ("-print-search-dirs", "/p"),
        ("-print-prog-name=ld", "/p"),
        ("-E conftest.c", "/p"),
        ("-E x.c", "/p"),
        ("-o conftest -O2 conftest.c -lm", "/p"),
        ("-c conftest.cpp", "/p"),
        ("conftest.o -o conftest", "/p"),
        ("-x c - -o /dev/null", "/p"),
        ("-MM a.c", "/p"),
        ("-o x.o -c /b/CMakeFiles/CMakeScratch/TryCompile-A1/src.c", "/b"),
        ("-c src.c", "/b/CMakeFiles/CMakeScratch/TryCompile-A1"),
        ("CMakeCCompilerId.c", "/b/CMakeFiles/3.25/CompilerIdC"),
        ("-c /usr/share/cmake/Modules/CMakeCXXCompilerABI.cpp", "/b"),
        ("/b/meson-private/tmpx/testfile.c -o x", "/b"),
        ("sanitycheckc.c", "/b"),
    ],
)
def test_a_probe_is_known_by_its_names(words: str, folder: str) -> None:
    assert is_probe(words.split(), folder)


@pytest.mark.parametrize(
    "words",
    [
        "-c main.c",
        "-O2 main.c -o main",
        "main.o -o main",
        "-v -c main.c",
        "-shared -o libx.so a.o",
        "-c confess.c",
        "-MD -c a.c",
    ],
)
def test_a_part_of_a_build_is_no_probe(words: str) -> None:
    assert not is_probe(words.split(), "/home/u/project")


@pytest.mark.parametrize("path", [os.environ["PATH"], ""], ids=["the machine's clang", "the wheel's"])
def test_a_probe_loads_neither_llvm_nor_the_wrapper(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path)
    (tmp_path / "conftest.c").write_text("int main(void) { return 0; }\n")
    code = (
        f"import os, sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n"
        "from crashcheck.cli.cc import main_c\n"
        "os.execv = lambda path, words: print(words[0], sorted(set(sys.modules) & "
        "{'llvmlite', 'subprocess', 'json', 'socket', "
        "'dataclasses', 'crashcheck.analyzer.compile.driver.wrapper'}))\n"
        "sys.argv = ['crashcheck-cc', 'conftest.c', '-o', 'conftest']\n"
        "main_c()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith(" []"), done.stdout


def test_a_probe_links_and_runs_without_hooks(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "conftest.c").write_text('#include <stdio.h>\nint main(void) { puts("yes"); return 0; }\n')
    subprocess.run(["crashcheck-cc", "-o", "conftest", "conftest.c"], cwd=tmp_path, env=environment, check=True)
    assert subprocess.run([str(tmp_path / "conftest")], capture_output=True, text=True, check=True).stdout == "yes\n"
    assert read_sections(str(tmp_path / "conftest")) == {}


def test_what_a_probe_compiled_with_lto_can_be_linked_by_what_is_no_probe(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """As gnulib asks for the inline functions of wchar.h: it renames the objects of two probes, and links them."""
    for number, source in enumerate(
        ("int zero(void);\nint main(void) { return zero(); }\n", "int zero(void) { return 0; }\n")
    ):
        (tmp_path / "conftest.c").write_text(source, encoding="utf-8")
        subprocess.run(["crashcheck-cc", "-flto", "-c", "conftest.c"], cwd=tmp_path, env=environment, check=True)
        (tmp_path / "conftest.o").rename(tmp_path / f"conftest{number}.o")
    link = ["crashcheck-cc", "-flto", "-o", "conftest", "conftest0.o", "conftest1.o"]
    subprocess.run(link, cwd=tmp_path, env=environment, check=True)
