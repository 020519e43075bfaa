"""Compile snippets with the real clang and the wrapper, run them against a recorder that prints."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver import wrapper
from crashcheck.analyzer.compile.facts import ProgramFacts, Site
from support import compilers
from support.compilers import CLANGS, NEWEST
from support.paths import ROOT

HERE = Path(__file__).parent
PRELUDE = """
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif
void watch(void *start, size_t bytes); void watch_loads(void); void unwatch(void); void wanted(uint32_t value);
#ifdef __cplusplus
}
#endif
static unsigned char pool[4096] __attribute__((aligned(4096)));
#define OPAQUE(p) __asm__("" : "+r"(p))
#line 1 "snippet"
"""


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime folder whose recorder prints."""
    folder = tmp_path_factory.mktemp("stub runtime")
    include = ROOT / "runtime" / "include"
    common = [
        *compilers.c_compiler(),
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-fPIC",
        f"-I{include}",
        str(HERE / "stub.c"),
    ]
    subprocess.run([*common, "-shared", "-o", str(folder / "libcrashcheck.so")], check=True)
    subprocess.run([*common, "-c", "-o", str(folder / "stub.o")], check=True)
    subprocess.run([*compilers.archiver(), "rcs", str(folder / "libcrashcheck.a"), str(folder / "stub.o")], check=True)
    (folder / "models.def").write_text("/* two of them */\nX(memcpy)\nX(strcpy)\n")
    return folder


@pytest.fixture(params=CLANGS or ("",), ids=lambda name: name or "the only one")
def clang(request: pytest.FixtureRequest) -> str:
    """Every clang from 14 to 19 that is installed; empty for the one that crashcheck-cc finds."""
    return str(request.param)


Build = Callable[..., Path]
Run = Callable[..., list[str]]


@pytest.fixture
def build(stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """`build(source, *flags, cxx=False, clang=...)`: an instrumented program."""
    monkeypatch.setenv("CRASHCHECK_RUNTIME", str(stub))
    monkeypatch.delenv("CRASHCHECK_FALLBACK", raising=False)
    monkeypatch.chdir(tmp_path)

    def compile_it(source: str, *flags: str, cxx: bool = False, clang: str = NEWEST, name: str = "snippet") -> Path:
        monkeypatch.setenv("CRASHCHECK_CLANG", clang)
        path = tmp_path / (name + (".cc" if cxx else ".c"))
        path.write_text(PRELUDE + source)
        program = tmp_path / name
        assert wrapper.run([*flags, "-Wno-unused-function", str(path), "-o", str(program)], cxx) == 0
        return program

    return compile_it


def place(site: Site) -> str:
    inlined = "".join(f" in {link.function}:{link.line}" for link in site.positions[1:])
    return f"{site.function}:{site.line}{inlined}"


def explain(text: str, program: Path) -> list[str]:
    """The printed events, each site as `variable at function:line` and each frame as `< function:line`."""
    facts = ProgramFacts.load([program])

    def site(key: str, index: str) -> Site:
        unit = facts.unit(int(key, 16))
        assert unit is not None
        return unit.sites[int(index)]

    def describe(found: re.Match[str]) -> str:
        known = site(found.group(1), found.group(2))
        variable = f" {known.variable}" if known.variable else ""
        return f"|{variable} at {place(known)}"

    text = re.sub(r"site=(\w+):(\d+) depth=\d+", describe, text)
    text = re.sub(r"<(\w+):(\d+)", lambda found: f"< {place(site(found.group(1), found.group(2)))}", text)
    return text.splitlines()


@pytest.fixture
def recorded(build: Build) -> Run:
    """`recorded(source, ...)`: the calls of hooks when the program runs."""

    def run(source: str, *flags: str, cxx: bool = False, clang: str = NEWEST) -> list[str]:
        program = build(source, *flags, cxx=cxx, clang=clang)
        done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return explain(done.stdout, program)

    return run
