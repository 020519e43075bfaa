"""On a machine without a clang, the one in the ziglang wheel builds programs that the recorder can watch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver import toolchain, wrapper
from crashcheck.analyzer.compile.facts import ProgramFacts
from crashcheck.analyzer.compile.instrument import unit
from crashcheck.analyzer.trace.reader import read
from crashcheck.checker.fixes.source.unit_compiles import UnitCompiles
from crashcheck.checker.results import Edit
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import build
from crashcheck.runtime.build import RuntimeLibrary, find_compiler
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import NAME_KINDS, Kind
from support.compilers import needs_libpmem

C_COMPILERS = ("cc", "c++", "c89", "c99", "ar", "ld", "as")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of links to the programs on PATH without a clang: gcc with its binutils, objcopy, all others."""
    base = tmp_path_factory.mktemp("tools")
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in sorted(Path(folder).glob("*")):
            of_gcc = "gcc" in tool.name or "g++" in tool.name or tool.name in C_COMPILERS
            kind = "gcc" if of_gcc else "objcopy" if tool.name == "objcopy" else "others"
            link = base / kind / tool.name
            link.parent.mkdir(exist_ok=True)
            if "clang" not in tool.name and not link.is_symlink():
                link.symlink_to(tool)
    return base


@pytest.fixture(autouse=True)
def no_clang(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH without any clang; the real runtime, built by the machine's own compiler, as for all other tests.

    A compiler's path is part of the name of what it built: by a link to it, each worker built all of it once more.
    """
    compiler = find_compiler()
    monkeypatch.setattr(build, "find_compiler", lambda: compiler)
    monkeypatch.setenv("PATH", os.pathsep.join(str(tools / kind) for kind in ("gcc", "objcopy", "others")))
    monkeypatch.delenv("CRASHCHECK_CLANG", raising=False)
    monkeypatch.delenv("CRASHCHECK_RUNTIME", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("cxx", [False, pytest.param(True, marks=pytest.mark.slow)])  # libc++ is compiled first
def test_the_wheels_clang_links_with_the_recorder_and_the_machines_own_libraries(tmp_path: Path, cxx: bool) -> None:
    assert toolchain.find_compiler().zig
    if not cxx:
        needs_libpmem()
    source = tmp_path / ("program.cc" if cxx else "program.c")
    text = "#include <string>\nint main() { return std::string(1, 'a').size() - 1; }\n"
    source.write_text(text if cxx else "#include <libpmem.h>\nint main(void) { return pmem_errormsg() == 0; }\n")
    assert wrapper.run(["-g", "-O1", source.name, "-o", "program", *([] if cxx else ["-lpmem"])], cxx) == 0
    assert subprocess.run([str(tmp_path / "program")], check=False).returncode == 0
    assert [Path(unit.source).name for unit in ProgramFacts.load(["program"]).units.values()] == [source.name]


@pytest.mark.parametrize("debug", ["-g0", "-g1"])
def test_lines_and_members_are_known_whatever_debug_information_a_user_wants(tmp_path: Path, debug: str) -> None:
    (tmp_path / "part.c").write_text("struct s { int size, count; };\nvoid put(struct s *s) {\n    s->count = 1;\n}\n")
    assert wrapper.run([debug, "-O1", "-c", "part.c"], False) == 0
    (unit,) = ProgramFacts.load(["part.o"]).units.values()
    assert [(site.line, site.variable) for site in unit.sites if site.kind == "store"] == [(3, "s.count")]


def test_the_wheels_clang_writes_an_object_beside_a_dependency_file(tmp_path: Path) -> None:
    (tmp_path / "answer.h").write_text("#define ANSWER 7\n")
    (tmp_path / "program.c").write_text('#include "answer.h"\nint main(void) { return ANSWER; }\n')
    assert wrapper.run(["-MMD", "-MF", "rule", "-O1", "-c", "program.c", "-o", "program.o"], False) == 0
    assert (tmp_path / "rule").read_text().split() == ["program.o:", "program.c", "answer.h"]
    assert wrapper.run(["program.o", "-o", "program"], False) == 0
    assert subprocess.run([str(tmp_path / "program")], check=False).returncode == 7


def test_the_wheels_clang_writes_assembly_beside_a_dependency_file(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 7; }\n")
    assert wrapper.run(["-MMD", "-MF", "rule", "-O1", "-S", "program.c", "-o", "program.s"], False) == 0
    assert (tmp_path / "rule").read_text().split() == ["program.s:", "program.c"]
    assert "main:" in (tmp_path / "program.s").read_text()


def test_the_wheels_clang_compiles_the_edits_that_are_proposed(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int counts[2];\nint main(void) {\n    return counts[0];\n}\n")
    assert wrapper.run(["-g", "-O1", "program.c", "-o", "program"], False) == 0
    unit = UnitCompiles(ProgramFacts.load(["program"]), tmp_path)
    for _ in range(2):  # zig prints the messages of an object once, and then has it in its cache
        fresh = UnitCompiles(unit.facts, tmp_path)
        assert fresh.why_not((Edit("program.c", 2, False, "    counts[1] = 1;"),)) == ""
        refused = fresh.why_not((Edit("program.c", 2, False, "    total = 1;"),))
        assert refused == "it does not compile: program.c:3: use of undeclared identifier 'total'"


@pytest.fixture
def only_zig(tools: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command that is found where there is no C compiler."""
    monkeypatch.setenv("PATH", os.pathsep.join(str(tools / kind) for kind in ("objcopy", "others")))
    monkeypatch.setattr(build, "find_compiler", find_compiler)
    command = find_compiler()
    assert command[1:4] == ("-m", "ziglang", "cc")
    return command


def recorded(tmp_path: Path, library: RuntimeLibrary | None) -> list[Kind]:
    workload = Workload(["sh", "-c", "echo text > {pool}/f; sync {pool}/f"], ["*"], recorder="syscalls")
    kinds = read(record(workload, tmp_path / "run", runtime=library).trace).events["kind"].tolist()
    return [kind for kind in kinds if kind in (*NAME_KINDS, Kind.WRITE, Kind.SYNC_END)]


def test_without_any_c_compiler_the_wheels_clang_builds_the_recorder_of_system_calls(
    only_zig: tuple[str, ...], tmp_path: Path
) -> None:
    build._compile_program(only_zig, tmp_path / "syscalls", build.syscalls_sources())
    nothing = tmp_path / "nothing"
    library = RuntimeLibrary(*(nothing,) * 4, tmp_path / "syscalls", nothing)
    assert recorded(tmp_path, library) == [Kind.NAME_CREATE, Kind.WRITE, Kind.SYNC_END]


@pytest.mark.slow  # 70 files: half a minute of CPU
def test_without_any_c_compiler_the_wheels_clang_builds_the_recorders(
    only_zig: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 0; }\n")
    assert wrapper.run(["-O1", "program.c", "-o", "program"], False) == 0
    assert subprocess.run([str(tmp_path / "program")], check=False).returncode == 0
    assert recorded(tmp_path, None) == [Kind.NAME_CREATE, Kind.WRITE, Kind.SYNC_END]


def test_without_binutils_a_unit_that_is_compiled_plain_keeps_the_reason(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(bitcode: bytes, options: unit.UnitOptions) -> str:
        raise CrashcheckError("ir-unreadable", "it is too new")

    monkeypatch.setenv("PATH", os.pathsep.join(str(tools / kind) for kind in ("gcc", "others")))
    monkeypatch.setattr(unit, "canonical_text", refused)
    monkeypatch.setenv("CRASHCHECK_FALLBACK", "1")
    (tmp_path / "program.c").write_text("int main(void) { return 7; }\n")
    assert wrapper.run(["-O1", "-c", "program.c"], False) == 0
    assert wrapper.run(["program.o", "-o", "program"], False) == 0
    assert [plain.not_instrumented for plain in ProgramFacts.load(["program"]).plain] == [
        "it is too new [ir-unreadable]"
    ]
    assert subprocess.run([str(tmp_path / "program")], check=False).returncode == 7
