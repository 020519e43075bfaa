"""The hooks are a contract: what Python emits, what hooks.h declares and what each runtime behind it defines agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from llvmlite import binding, ir

from crashcheck.analyzer.compile.driver import wrapper
from crashcheck.analyzer.compile.instrument import helper_module, hooks
from crashcheck.runtime import build
from crashcheck.runtime.build import RuntimeLibrary
from support import compilers, elf
from support.paths import RUNTIME_PROGRAMS

HEADER = (build.INCLUDE / "hooks.h").read_text(encoding="utf-8")
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
FUNCTIONS = set(re.findall(r"^void (cc_\w+)\(", CODE, re.MULTILINE))
VARIABLES = set(re.findall(r"^extern [^;]*?\b(cc_\w+)(?: __attribute__[^;]*)?;", CODE, re.MULTILINE))
IN_ASSEMBLY = {"cc_access_entry"}
OF_OPERATIONS = {"cc_operation_enter", "cc_operation_leave"}


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a runtime that is not the recorder, and has no models."""
    folder = tmp_path_factory.mktemp("counter")
    source = str(RUNTIME_PROGRAMS / "counter.c")
    command = [*compilers.c_compiler(), "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", f"-I{build.INCLUDE}", source]
    subprocess.run([*command, "-shared", "-o", str(folder / "libcrashcheck.so")], check=True)
    subprocess.run([*command, "-c", "-o", str(folder / "counter.o")], check=True)
    subprocess.run(
        [*compilers.archiver(), "rcs", str(folder / "libcrashcheck.a"), str(folder / "counter.o")], check=True
    )
    (folder / "models.def").touch()
    return folder


@pytest.mark.parametrize("flags", [(), ("-static",)], ids=["shared", "static"])
def test_a_program_runs_with_another_runtime_and_without_the_recorder(
    counter: Path, flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if flags:
        compilers.needs_static()
    monkeypatch.setenv("CRASHCHECK_RUNTIME", str(counter))
    target = tmp_path / "counted"
    assert wrapper.run(["-O0", "-g", *flags, str(RUNTIME_PROGRAMS / "counted.c"), "-o", str(target)], cxx=False) == 0
    done = subprocess.run([target], capture_output=True, text=True, check=True)
    # the fill; three times two stores and a copy — three times `used` and what the copy reads, and `used` at the end
    assert done.stdout == (
        f"10 stores of {72 + 3 * (8 + 8 + 5)} bytes, 7 loads of {3 * (8 + 5) + 8} bytes, 1 atomics, 3 flushes, "
        "4 fences, 0 operations\n"
    )
    assert not elf.defined(target, ".symtab") & {"cc_trace_open", "cc_number_slow", "cc_header"}


def test_each_runtime_defines_what_the_header_declares(counter: Path, library: RuntimeLibrary) -> None:
    assert helper_module.SLOW_PATHS.keys() | IN_ASSEMBLY | OF_OPERATIONS == FUNCTIONS
    assert helper_module.VARIABLES.keys() == VARIABLES
    assert elf.defined(counter / "libcrashcheck.so") >= FUNCTIONS | VARIABLES
    assert elf.defined(library.shared) >= FUNCTIONS | VARIABLES
    assert {
        name for name in elf.defined(counter / "libcrashcheck.so") if name.startswith("cc_")
    } == FUNCTIONS | VARIABLES


def test_python_emits_the_types_that_the_header_declares(tmp_path: Path) -> None:
    source, target = tmp_path / "all.c", tmp_path / "all.ll"
    names = sorted(helper_module.SLOW_PATHS)
    source.write_text(f'#include "hooks.h"\nvoid *all[] = {{{", ".join(names)}}};\n', encoding="utf-8")
    subprocess.run(
        [*compilers.plain_clang(), f"-I{build.INCLUDE}", "-S", "-emit-llvm", source, "-o", target], check=True
    )
    declared = {}
    for name, parameters in re.findall(r"^declare void @(\w+)\((.*)\)", target.read_text(), re.MULTILINE):
        types = [parameter.split()[0] for parameter in parameters.split(",")]
        declared[name] = ["ptr" if text.endswith("*") else text for text in types]
    emitted = {
        name: ["ptr" if isinstance(type_, ir.PointerType) else str(type_) for type_ in types]
        for name, types in helper_module.SLOW_PATHS.items()
    }
    assert declared == emitted


def test_python_has_the_layouts_and_numbers_of_the_header(tmp_path: Path) -> None:
    layout = binding.create_target_data("e-m:e-i64:64-f80:128-n8:16:32:64-S128")
    sizes = {
        "cc_frame": helper_module.FRAME_TYPE,
        "cc_shadow": helper_module.SHADOW,
        "cc_call_site": helper_module.CALL_SITE,
        "cc_unit": helper_module.UNIT_TYPE,
    }
    numbers = {
        "CC_HOOKS_VERSION": hooks.HOOKS_VERSION,
        "CC_STACK_MAX": helper_module.STACK_MAX,
        "CC_VECTOR_BYTES": hooks.VECTOR_BYTES,
        "CC_ACCESS_WRITES": hooks.ACCESS_WRITES,
        "CC_ATOMIC_READ": hooks.ATOMIC_READ,
        "CC_STORE_NT": hooks.STORE_NT,
        "CC_STORE_ATOMIC": hooks.STORE_ATOMIC,
        "CC_STORE_BULK": hooks.STORE_BULK,
        "CC_STORE_VOLATILE": hooks.STORE_VOLATILE,
        "CC_CLFLUSH": hooks.CLFLUSH,
        "CC_CLFLUSHOPT": hooks.CLFLUSHOPT,
        "CC_CLWB": hooks.CLWB,
        "CC_SFENCE": hooks.SFENCE,
        "CC_MFENCE": hooks.MFENCE,
        "CC_LOCKED": hooks.LOCKED,
        **{f"sizeof(struct {name})": type_.get_abi_size(layout) for name, type_ in sizes.items()},
    }
    claims = [f'_Static_assert({name} == {number}, "{name}");' for name, number in numbers.items()]
    source = tmp_path / "claims.c"
    source.write_text("\n".join(['#include "hooks.h"', '#include "trace_format.h"', *claims]), encoding="utf-8")
    subprocess.run([*compilers.c_compiler(), f"-I{build.INCLUDE}", "-fsyntax-only", str(source)], check=True)
