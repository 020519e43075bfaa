"""Call stacks of system calls: the chain of callers is right, whatever the program was compiled with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.demangling import function_name, variable_name
from crashcheck.analyzer.trace.functions import FunctionNames
from crashcheck.analyzer.trace.reader import CallSite, Trace, read
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import Kind
from crashcheck.runtime.zig import ZIG_CC
from support import compilers, elf
from support.paths import RUNTIME_PROGRAMS

SOURCE = RUNTIME_PROGRAMS / "stacks.c"
OURS = ("main", "outermost", "deep", "aligned", "middle", "innermost", "garbage", "on_signal")
CHAIN = ["main", "outermost", "aligned", "middle", "innermost"]


def build(folder: Path, *flags: str) -> Path:
    if "-static" in flags:
        compilers.needs_static()
    target = folder / "stacks"
    given = ["-O1", "-fno-optimize-sibling-calls", *compilers.UNWINDABLE, *flags]
    subprocess.run([*compilers.c_compiler(), *given, str(SOURCE), "-o", str(target), "-lpthread"], check=True)
    return target


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stacks"))


def traced(folder: Path, program: Path, part: str) -> Trace:
    workload = Workload([str(program), "{pool}/f", part], ["*"], timeout_s=60.0, recorder="syscalls")
    return read(record(workload, folder / "run").trace)


def stack_of_write(trace: Trace) -> list[CallSite]:
    """From the outermost function to the call."""
    (index,) = np.flatnonzero(trace.events["kind"] == Kind.WRITE).tolist()
    event = trace.events[index]
    sites = (int(event["site"]), *trace.stack(int(event["stack"])))
    return [trace.call_sites[site] for site in reversed(sites)]


def functions(stack: list[CallSite], names: Path) -> list[str]:
    """Those of the program itself; `names`: its file as it was before it was stripped or removed."""
    own = [CallSite(str(names), site.offset, site.function) for site in stack if "/stacks" in site.module]
    return [name for name in map(FunctionNames().name, own) if name in OURS]


@pytest.mark.parametrize(
    "flags",
    [
        ["-fomit-frame-pointer"],
        ["-fno-asynchronous-unwind-tables", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"],
        ["-static"],
        ["-no-pie", "-O2"],
    ],
    ids=["frames", "pointers", "static", "not-pie"],
)
def test_the_chain_of_callers_is_found(flags: list[str], tmp_path: Path) -> None:
    program = build(tmp_path, *flags)
    assert functions(stack_of_write(traced(tmp_path, program, "plain")), program) == CHAIN


def test_segments_that_share_the_first_page_of_a_file_are_of_one_module(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="no linker here that is known to do so")
    target = tmp_path / "stacks"
    compiler = [sys.executable, *ZIG_CC, *compilers.UNWINDABLE, "-w"]
    flags = ["-O1", "-fno-optimize-sibling-calls", "-fomit-frame-pointer"]
    subprocess.run([*compiler, *flags, str(SOURCE), "-o", str(target), "-lpthread"], check=True)
    assert functions(stack_of_write(traced(tmp_path, target, "plain")), target) == CHAIN


def test_a_stripped_static_program_has_the_same_chain(tmp_path: Path) -> None:
    compilers.needs_tools("strip")
    program = build(tmp_path, "-static")
    names = shutil.copy(program, tmp_path / "names")
    subprocess.run(["strip", str(program)], check=True)
    stack = stack_of_write(traced(tmp_path, program, "plain"))
    assert functions(stack, Path(names)) == CHAIN
    assert FunctionNames().name(stack[-1]).startswith("stacks+0x")


def test_a_program_that_removes_itself_has_the_same_chain(usual: Path, tmp_path: Path) -> None:
    program = Path(shutil.copy(usual, tmp_path / "stacks"))
    stack = stack_of_write(traced(tmp_path, program, "removed"))
    assert functions(stack, usual) == CHAIN


def test_a_thread_begins_at_its_function(usual: Path, tmp_path: Path) -> None:
    assert functions(stack_of_write(traced(tmp_path, usual, "thread")), usual) == CHAIN[1:]


def test_a_signal_handler_is_called_by_what_it_interrupts(usual: Path, tmp_path: Path) -> None:
    found = functions(stack_of_write(traced(tmp_path, usual, "signal")), usual)
    assert found == ["main", "on_signal", "innermost"]


def test_of_a_very_deep_stack_the_innermost_frames_are_kept(usual: Path, tmp_path: Path) -> None:
    stack = stack_of_write(traced(tmp_path, usual, "deep"))
    assert len(stack) == 256
    assert functions(stack, usual)[-4:] == ["deep", "aligned", "middle", "innermost"]


def test_a_stack_that_makes_no_sense_ends_where_it_does(usual: Path, tmp_path: Path) -> None:
    stack = stack_of_write(traced(tmp_path, usual, "garbage"))
    assert functions(stack[-1:], usual) == ["garbage"]
    assert len(stack) < 5


@pytest.mark.parametrize("spoilt", [".eh_frame", ".eh_frame_hdr"])
@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x5A])
def test_descriptions_of_frames_that_are_damaged_end_no_recording(
    spoilt: str, byte: int, usual: Path, tmp_path: Path
) -> None:
    program = Path(shutil.copy(usual, tmp_path / "stacks"))
    offset, size = elf.sections(program)[spoilt]
    data = bytearray(program.read_bytes())
    data[offset + 12 : offset + size] = bytes([byte]) * (size - 12)
    program.write_bytes(data)
    stack = stack_of_write(traced(tmp_path, program, "plain"))
    assert functions(stack, usual)[-1:] in (["innermost"], [])


def test_names_of_functions_are_for_people(tmp_path: Path) -> None:
    assert function_name("_ZN7leveldb6DBImpl5WriteERKNS_12WriteOptionsEPNS_10WriteBatchE") == "leveldb::DBImpl::Write"
    assert function_name("main") == "main"
    assert function_name("_Znonsense") == "_Znonsense"


def test_names_of_variables_are_for_people() -> None:
    assert variable_name("_ZL5table") == "table"
    assert variable_name("_ZZ4mainE4room") == variable_name("_ZZN4Pool3addEiE4room") == "room"
    assert variable_name("_ZN6server5queueE") == "server::queue"
    assert variable_name("queue.head") == "queue.head"


_OFFSET, _SIZE, _FLAGS = 24, 32, 8  # in the description of a section


@pytest.mark.parametrize(
    ("field", "value"), [(_OFFSET, 1 << 63), (_SIZE, (1 << 64) - 1), (_SIZE, 1 << 62), (_FLAGS, 0x800)]
)
@pytest.mark.parametrize("name", [".symtab", ".strtab"])
def test_a_program_whose_list_of_symbols_is_damaged_has_no_names(
    name: str, field: int, value: int, usual: Path, tmp_path: Path
) -> None:
    program = bytearray(usual.read_bytes())
    table = int.from_bytes(program[0x28:0x30], "little") + 64 * [*elf.sections(usual)].index(name)
    program[table + field : table + field + 8] = value.to_bytes(8, "little")
    (tmp_path / "file").write_bytes(program)
    assert FunctionNames().name(CallSite(str(tmp_path / "file"), 1 << 62)) == f"file+{1 << 62:#x}"


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\2\1\1" + bytes(40) + b"\xff" * 40, b"text"])
def test_a_file_that_is_no_program_has_no_names(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert FunctionNames().name(CallSite(str(tmp_path / "file"), 16)) == "file+0x10"
    assert FunctionNames().name(CallSite(str(tmp_path / "missing"), 16)) == "missing+0x10"
    assert FunctionNames().name(CallSite("", 16)) == ""
