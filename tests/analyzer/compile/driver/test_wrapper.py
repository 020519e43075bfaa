"""A drop-in compiler: the flags that build systems use have the outcome that clang's own have."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from crashcheck.analyzer.compile.driver import toolchain, wrapper
from crashcheck.analyzer.compile.facts import PLAIN_SECTION, SECTION, ProgramFacts, read_sections
from crashcheck.analyzer.compile.instrument import unit
from crashcheck.runtime.build import build_runtime
from support import elf
from support.compilers import CLANGS, NEWEST, archiver, c_compiler, has_libpmem, needs_static, plain_clang

MAIN = "int answer(void);\nint main(void) { return answer() - 42; }\n"
ANSWER = '#include "answer.h"\nint *where;\nint answer(void) { *where = ANSWER; return ANSWER; }\n'
SAFE = "int answer(void) { return 42; }\n"


@pytest.fixture(autouse=True)
def project(stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project in a folder with a space and a non-ASCII letter."""
    folder = tmp_path / "proj ä"
    folder.mkdir()
    monkeypatch.setenv("CRASHCHECK_RUNTIME", str(stub))
    monkeypatch.setenv("CRASHCHECK_CLANG", NEWEST)
    monkeypatch.chdir(folder)
    (folder / "main.c").write_text(MAIN)
    (folder / "safe.c").write_text(SAFE)
    (folder / "answer.c").write_text(ANSWER)
    (folder / "answer.h").write_text("#define ANSWER 42\n")
    return folder


def cc(*words: str, cxx: bool = False) -> int:
    return wrapper.run(words, cxx)


def run(program: str) -> int:
    return subprocess.run([os.path.abspath(program)], check=False).returncode


def sources(path: str) -> list[str]:
    return [os.path.basename(unit.source) for unit in ProgramFacts.load([path]).units.values()]


def test_several_sources_compile_and_link_in_one_call(project: Path) -> None:
    assert cc("-O2", "main.c", "safe.c", "-o", "prog") == 0
    assert run("prog") == 0
    assert sorted(sources("prog")) == ["main.c", "safe.c"]
    assert sorted(path.name for path in project.iterdir()) == ["answer.c", "answer.h", "main.c", "prog", "safe.c"]


@pytest.mark.parametrize(("line", "explained"), [("  store", True), ("  store i32 1, ptr (", False)])
def test_a_unit_that_cannot_be_read_is_one_error_and_a_traceback_where_nobody_foresaw_why(
    capfd: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch, line: str, explained: bool
) -> None:
    def damaged(bitcode: bytes, options: unit.UnitOptions) -> str:
        return f"define void @f(ptr %p) {{\n{line}\n}}\n"

    monkeypatch.setattr(unit, "canonical_text", damaged)
    assert cc("-c", "safe.c") == 1
    first, hint, *more = capfd.readouterr().err.splitlines()
    assert first.startswith(f"crashcheck-cc: error: {project}/safe.c: cannot instrument this construct: store")
    assert first.endswith("[ir-construct]")
    assert "CRASHCHECK_FALLBACK=1" in hint
    assert ("Traceback (most recent call last):" in more) == explained


def test_objects_link_later_and_default_names_are_clangs(project: Path) -> None:
    assert cc("-c", "main.c", "safe.c") == 0
    assert cc("main.o", "safe.o") == 0
    assert run("a.out") == 0


def test_only_preprocessing_is_clangs_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert cc("-E", "-P", "answer.c") == 0
    assert capfd.readouterr().out.strip().endswith("int answer(void) { *where = 42; return 42; }")


def test_assembly_output_is_that_of_the_instrumented_unit(project: Path) -> None:
    assert cc("-S", "-O1", "answer.c") == 0
    text = (project / "answer.s").read_text()
    assert "cc_window_start" in text
    assert cc("-c", "answer.s", "-o", "answer.o") == 0
    assert sources("answer.o") == ["answer.c"]


@pytest.mark.parametrize(
    ("flags", "file", "target"),
    [
        (("-c", "-MD", "-o", "sub/x.o"), "sub/x.d", "sub/x.o"),
        (("-c", "-MMD"), "answer.d", "answer.o"),
        (("-c", "-MMD", "-MF", "dep file.d", "-o", "x.o"), "dep file.d", "x.o"),
        (("-c", "-MD", "-MT", "target.o", "-MF", "x.d", "-MP"), "x.d", "target.o"),
        (("-c", "-MD", "-MQ", "ta$get.o", "-MF", "x.d"), "x.d", "ta$$get.o"),
        (("-c", "-Wp,-MD,x.d", "-o", "x.o"), "x.d", "x.o"),
    ],
)
def test_dependency_files_are_clangs_own(project: Path, flags: tuple[str, ...], file: str, target: str) -> None:
    (project / "sub").mkdir()
    subprocess.run([*plain_clang(), *flags, "answer.c"], check=True)
    expected = (project / file).read_text()
    (project / file).unlink()
    assert expected.startswith(target + ":")
    assert cc(*flags, "answer.c") == 0
    assert (project / file).read_text() == expected


def test_response_files_hold_arguments(project: Path) -> None:
    (project / "args").write_text('-O1 -c "main.c"\n@more\n')
    (project / "more").write_text("-o 'out put.o'")
    assert cc("@args") == 0
    assert sources("out put.o") == ["main.c"]


def test_a_compiler_error_is_the_compilers_own_text_and_code(capfd: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "wrong.c").write_text("int main(void) { return missing; }\n")
    plain = subprocess.run([*plain_clang(), "-O2", "-c", "wrong.c"], capture_output=True, text=True, check=False)
    assert cc("-O2", "-c", "wrong.c") == plain.returncode == 1
    assert capfd.readouterr().err == plain.stderr
    assert not (project / "wrong.o").exists()


def test_an_error_in_assembly_is_the_compilers_own_text(capfd: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "wrong.c").write_text('void f(void) { __asm__("bogus %eax"); }\n')
    plain = subprocess.run([*plain_clang(), "-O2", "-c", "wrong.c"], capture_output=True, text=True, check=False)
    assert cc("-O2", "-c", "wrong.c") == plain.returncode == 1
    assert capfd.readouterr().err == plain.stderr


def test_warnings_are_printed_once(capfd: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "warn.c").write_text("int main(void) { int unused; return 0; }\n")
    assert cc("-Wall", "warn.c", "-lm", "-o", "warn") == 0
    assert capfd.readouterr().err.count("warning:") == 1


def test_a_shared_library_and_its_user_are_both_instrumented(project: Path, stub: Path) -> None:
    assert cc("-shared", "-fPIC", "-O1", "safe.c", "-o", "libsafe.so") == 0
    assert cc("main.c", "-L.", "-lsafe", f"-Wl,-rpath,{project}", "-o", "prog") == 0
    assert run("prog") == 0
    assert (sources("prog"), sources("libsafe.so")) == (["main.c"], ["safe.c"])
    assert str(stub) in elf.searched("libsafe.so")


def test_a_static_library_keeps_its_facts_through_section_garbage_collection(project: Path) -> None:
    assert cc("-c", "-ffunction-sections", "-fdata-sections", "-O1", "safe.c") == 0
    subprocess.run([*archiver(), "rcs", "libsafe.a", "safe.o"], check=True)
    assert cc("main.c", "libsafe.a", "-Wl,--gc-sections", "-o", "prog") == 0
    assert run("prog") == 0
    assert sorted(sources("prog")) == ["main.c", "safe.c"]


def test_function_sections_let_the_linker_drop_what_nobody_calls(project: Path) -> None:
    (project / "lib.c").write_text(
        'int table[4] = {1}; int empty[9]; const int fixed = 3; const char *names[] = {"a"};\n'
        "__attribute__((noinline)) int used(void) { return empty[0]; }\nint dropped(int *p) "
        "{ *p = table[0]; return fixed + names[0][0]; }\n"
        "int main(void) { return used(); }\n"
    )
    assert cc("-O1", "-ffunction-sections", "-fdata-sections", "-c", "lib.c") == 0
    made = {".text.used", ".text.dropped", ".data.table", ".bss.empty", ".rodata.fixed", ".data.names"}
    assert made <= elf.sections("lib.o").keys()
    assert cc("lib.o", "-Wl,--gc-sections", "-o", "prog") == 0
    symbols = elf.defined("prog", ".symtab")
    assert "used" in symbols
    assert "dropped" not in symbols
    assert run("prog") == 0


def test_static_programs_link_the_archive(project: Path) -> None:
    needs_static()
    assert cc("-static", "main.c", "safe.c", "-o", "prog") == 0
    assert run("prog") == 0
    assert sorted(sources("prog")) == ["main.c", "safe.c"]


def test_assembler_sources_mix_with_c(project: Path) -> None:
    (project / "value.S").write_text(
        "#define VALUE 42\n.globl answer\n.type answer,@function\nanswer: mov $VALUE, %eax\n ret\n"
        '.section .note.GNU-stack,"",@progbits\n'
    )
    assert cc("main.c", "value.S", "-o", "prog") == 0
    assert run("prog") == 0
    assert cc("-c", "value.S") == 0
    assert cc("-c", "main.c") == 0
    assert cc("main.o", "value.o", "-o", "prog") == 0
    assert run("prog") == 0


def test_a_language_is_chosen_with_x_and_preprocessed_input_is_taken(project: Path) -> None:
    shutil.copy("main.c", "main.txt")
    assert cc("-x", "c", "main.txt", "safe.c", "-x", "none", "-o", "prog") == 0
    assert run("prog") == 0
    if toolchain.find_compiler().zig:
        pytest.skip("zig's driver does not take preprocessed input")
    assert cc("-E", "main.c", "-o", "main.i") == 0
    assert cc("main.i", "safe.c", "-o", "prog") == 0
    assert sorted(sources("prog")) == ["main.i", "safe.c"]


def test_the_cxx_command_takes_c_sources_for_cxx_as_clang_does_unless_x_says_otherwise(project: Path) -> None:
    code = "#ifndef __cplusplus\n#error C\n#endif\nint main() { return nullptr != nullptr; }\n"
    (project / "both.c").write_text(code)
    assert cc("-std=c++11", "-Wno-deprecated", "both.c", "-o", "prog", cxx=True) == 0
    assert run("prog") == 0
    assert cc("-c", "-x", "c", "both.c", cxx=True) != 0


def test_nostdlib_and_partial_links_get_no_runtime(project: Path) -> None:
    assert cc("-c", "main.c") == 0
    assert cc("-c", "safe.c") == 0
    assert cc("-r", "-nostdlib", "main.o", "safe.o", "-o", "both.o") == 0
    assert sorted(sources("both.o")) == ["main.c", "safe.c"]
    assert cc("both.o", "-o", "prog") == 0
    assert run("prog") == 0


def test_lto_flags_are_ignored_with_one_note(capfd: pytest.CaptureFixture[str], project: Path) -> None:
    assert cc("-O2", "-flto", "main.c", "safe.c", "-o", "prog") == 0
    assert capfd.readouterr().err == (
        "crashcheck-cc: note: -flto is ignored: each unit is instrumented and emitted on its own\n"
    )
    assert run("prog") == 0
    (unit, _) = ProgramFacts.load(["prog"]).units.values()
    assert unit.notes == ("-flto is ignored: each unit is instrumented and emitted on its own",)


def test_sanitizers_of_the_optimiser_are_named_and_those_of_the_language_work(
    capfd: pytest.CaptureFixture[str], project: Path
) -> None:
    (project / "over.c").write_text(
        "int main(int argc, char **argv) { (void)argv; return (argc + 0x7fffffff) != 0 ? 0 : 1; }\n"
    )
    assert cc("-fsanitize=address", "-c", "main.c") == 0
    assert "-fsanitize=address is ignored" in capfd.readouterr().err
    assert cc("-fsanitize=signed-integer-overflow", "-fsanitize-trap=all", "over.c", "-o", "over") == 0
    assert run("over") < 0


def test_optimize_macros_are_those_of_the_level_asked_for(project: Path) -> None:
    (project / "macro.c").write_text(
        "#if defined __OPTIMIZE__ || !defined __NO_INLINE__\n#error not -O0\n#endif\nint main(void) { return 0; }\n"
    )
    assert cc("macro.c", "-o", "prog") == 0
    assert cc("-O0", "macro.c", "-o", "prog") == 0
    (project / "macro.c").write_text(
        "#if !defined __OPTIMIZE__ || !defined __OPTIMIZE_SIZE__\n#error not -Os\n#endif\nint "
        "main(void) { return 0; }\n"
    )
    assert cc("-O0", "-Os", "macro.c", "-o", "prog") == 0


def test_debug_information_is_there_when_it_was_asked_for(project: Path) -> None:
    assert cc("-O1", "-c", "main.c") == 0
    assert ".debug_info" not in elf.sections("main.o")
    assert cc("-O1", "-g", "-c", "main.c") == 0
    assert ".debug_info" in elf.sections("main.o")


def test_another_target_is_compiled_plain_with_a_warning(capfd: pytest.CaptureFixture[str], project: Path) -> None:
    assert cc("--target=aarch64-linux-gnu", "-c", "safe.c", "-o", "arm.o", "-ffreestanding") in (0, 1)
    assert "not instrumented: target aarch64-linux-gnu: only x86-64 Linux is instrumented" in capfd.readouterr().err


def test_crashcheck_h_is_found_without_a_flag(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRASHCHECK_RUNTIME")
    (project / "marks.c").write_text(
        "#include <crashcheck.h>\nint main(void) { CRASHCHECK_OP_BEGIN(); CRASHCHECK_OP_END(); return 0; }\n"
    )
    assert cc("marks.c", "-o", "marks") == 0
    assert run("marks") == 0


def test_a_failure_names_unit_construct_and_versions(
    capfd: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = project / "broken.bc"
    broken.write_bytes(b"BC\xc0\xde no bitcode")
    fake = project / "fake-clang"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *-emit-llvm*) for w; do case "$o" in -o) cp "{broken}" "$w"; exit 0;; '
        f'esac; o="$w"; done;; esac\n'
        f'exec {shlex.join(plain_clang())} "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("CRASHCHECK_CLANG", str(fake))
    assert cc("-c", "main.c", "-o", "main.o") == 1
    error = capfd.readouterr().err
    assert str(project / "main.c") in error
    assert "clang version" in error
    assert "llvmlite" in error
    assert "[ir-unreadable]" in error
    monkeypatch.setenv("CRASHCHECK_FALLBACK", "1")
    assert cc("-c", "main.c", "-o", "main.o") == 0
    assert "warning: not instrumented: " in capfd.readouterr().err
    assert cc("main.o", "safe.c", "-o", "prog") == 0
    facts = ProgramFacts.load(["prog"])
    assert sorted(os.path.basename(unit.source) for unit in facts.plain) == ["main.c", "safe.c"]
    assert all("cannot read the bitcode" in unit.not_instrumented for unit in facts.plain)


def test_no_clang_is_an_error_with_a_slug(
    capfd: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRASHCHECK_CLANG", "clang-of-nowhere")
    assert cc("-c", "main.c") == 1
    assert "[no-clang]" in capfd.readouterr().err


def test_static_constructors_run_in_order_of_priority(project: Path) -> None:
    (project / "order.cc").write_text(
        "#include <cstdio>\n"
        "struct say { say(const char *s) { std::fputs(s, stdout); } };\n"
        '__attribute__((init_priority(200))) say second("b");\n'
        '__attribute__((init_priority(101))) say first("a");\n'
        'say third("c");\ntemplate <class T> struct holder { static say it; };\n'
        'template <class T> say holder<T>::it("d");\ntemplate struct holder<int>;\n'
        '__attribute__((destructor)) static void last() { std::puts("z"); }\n'
        'int main() { std::fputs("m", stdout); return 0; }\n'
    )
    for level in ("-O0", "-O2"):
        assert cc(level, "order.cc", "-o", "order", cxx=True) == 0
        done = subprocess.run(["./order"], capture_output=True, text=True, check=True)
        assert done.stdout in ("abcdmz\n", "abdcmz\n")


def test_every_section_name_is_known(project: Path) -> None:
    assert cc("-c", "main.c") == 0
    assert set(read_sections("main.o") or {}) == {SECTION}
    assert PLAIN_SECTION != SECTION


CALLS_IT = "char pmem_persist();\nint main(void) { return pmem_persist(); }\n"
TAKES_ITS_ADDRESS = "char pmem_persist();\nint main(int argc, char **argv) { return ((int *)&pmem_persist)[argc]; }\n"
NEVER_CALLS_IT = "char pmem_persist();\nint main(void) { return 0 ? pmem_persist() : 0; }\n"


@pytest.mark.parametrize("compiler", CLANGS or ("",))
@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-fPIE", "-pie"), ("-O1", "-static")], ids=" ".join)
def test_a_configure_script_finds_libpmem_only_where_it_is_linked(
    project: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], compiler: str
) -> None:
    if "-static" in flags:
        needs_static()
    monkeypatch.delenv("CRASHCHECK_RUNTIME")  # the recorder itself, which has models of libpmem
    monkeypatch.setenv("CRASHCHECK_CLANG", compiler)
    (project / "absent.c").write_text("char pmem_persist() { return 7; }\n")
    for source in (CALLS_IT, TAKES_ITS_ADDRESS, NEVER_CALLS_IT):
        (project / "conftest.c").write_text(source)
        plain = subprocess.run(
            [*plain_clang(compiler), *flags, "conftest.c", "-o", "plain"], check=False, stderr=subprocess.DEVNULL
        )
        assert (plain.returncode == 0) == (source == NEVER_CALLS_IT)
        assert cc(*flags, "conftest.c", "-o", "conftest") == plain.returncode
        assert cc(*flags, "conftest.c", "absent.c", "-o", "conftest") == 0


LIBPMEM = ("-Wl,--no-as-needed", "-lpmem")  # a weak reference alone is no need
WEAK = """
#include <stddef.h>
void pmem_drain(void) __attribute__((weak));
void pmem_persist(const void *, size_t) __attribute__((weak));
int pmem_is_pmem(const void *, size_t) __attribute__((weak));
static void (*const drains)(void) = pmem_drain;
int main(int argc, char **argv) {
    if (pmem_drain)
        pmem_drain();
    if (pmem_persist)
        pmem_persist(argv, sizeof *argv);
    return !!drains + !!pmem_drain + !!pmem_persist + !!pmem_is_pmem;
}
"""


@pytest.mark.parametrize("compiler", CLANGS or ("",))
@pytest.mark.parametrize(
    "flags", [("-O0", "-g"), ("-O2",), ("-O1", "-g", "-no-pie"), ("-O2", "-g", "-static")], ids=" ".join
)
def test_a_weak_reference_to_libpmem_is_null_without_it_as_in_plain_code(
    project: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], compiler: str
) -> None:
    if "-static" in flags:
        needs_static()
    monkeypatch.delenv("CRASHCHECK_RUNTIME")
    monkeypatch.setenv("CRASHCHECK_CLANG", compiler)
    (project / "weak.c").write_text(WEAK)
    assert cc(*flags, "weak.c", "-o", "weak") == 0
    assert run("weak") == 0
    if has_libpmem() and "-static" not in flags:
        assert cc(*flags, "weak.c", *LIBPMEM, "-o", "weak") == 0
        assert run("weak") == 4


def test_a_weak_reference_of_plain_code_is_null_beside_the_recorder_if_it_is_without_it(project: Path) -> None:
    (project / "weak.c").write_text(WEAK)
    for libraries, there in (((), 0), (LIBPMEM, 4)):
        if libraries and not has_libpmem():
            continue
        subprocess.run([*c_compiler(), "weak.c", *libraries, "-o", "weak"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(build_runtime().shared)}
        assert subprocess.run(["./weak"], env=environment, check=False).returncode == there


def test_an_output_of_inline_assembly_may_be_a_cast_as_gcc_accepts_it(project: Path) -> None:
    (project / "safe.c").write_text(
        'int answer(void) { int found; __asm__("movl $42, %0" : "=r"((unsigned)found)); return found; }\n'
    )
    assert cc("main.c", "safe.c", "-o", "prog") == 0
    assert run("prog") == 0


def test_an_inline_function_without_an_external_definition_links_as_it_does_where_it_is_inlined(project: Path) -> None:
    (project / "safe.c").write_text(
        "inline int *fill(int *to) { "
        + "".join(f"to[{place}] = {place};" for place in range(42, 0, -3))
        + " return to; }\nstatic int numbers[64];\nint answer(void) { return fill(numbers)[42]; }\n"
    )
    assert cc("-O1", "main.c", "safe.c", "-o", "prog") == 0
    assert run("prog") == 0


def test_an_inline_function_with_an_external_definition_has_one(project: Path) -> None:
    (project / "twice.h").write_text("inline int twice(int *place, int v) { *place = v; return *place + v; }\n")
    (project / "twice.c").write_text('#include "twice.h"\nextern inline int twice(int *place, int value);\n')
    (project / "safe.c").write_text('#include "twice.h"\nint answer(void) { int place; return twice(&place, 21); }\n')
    assert cc("-O1", "main.c", "safe.c", "twice.c", "-o", "prog") == 0
    assert run("prog") == 0
