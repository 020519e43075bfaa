"""The table that a program in Go holds: functions, lines, and code that was inlined, also where DWARF was stripped."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crashcheck.analyzer.trace.functions import FunctionNames
from crashcheck.analyzer.trace.go_table import GoTable, read_go_table
from crashcheck.analyzer.trace.native_lines import NativeLines, NativePlace
from crashcheck.analyzer.trace.reader import CallSite
from support import compilers

# Two functions: one begins the program, the other has eight bytes, the last four of which were inlined into it.
TABLE = """\
    .text
    .globl _start
_start:
    .fill 16, 1, 0x90
    .globl append
append:
    .fill 8, 1, 0x90
end:
    .section .gopclntab, "a", @progbits
table:
    .long {magic}
    .byte 0, 0, 1, 8
    .quad 2, 2, {start}, names - table, units - table, files - table, values - table, functions - table
names:
    .asciz "_rt0_amd64_linux"
append_name:
    .asciz "example.org/deep/log.(*Log[go.shape.int]).Append"
files:
    .asciz "/src/rt0.s"
inlined_file:
    .asciz "/src/bytes.go"
own_file:
    .asciz "/src/log.go"
    .p2align 2
units:
    .long 0, inlined_file - files, own_file - files
values:
    .byte 0
first_file:
    .byte 2, 16, 0                # from -1 by 1 to file 0, for 16 bytes
first_line:
    .byte 16, 16, 0               # line 7
append_file:
    .byte 4, 4, 1, 4, 0           # file 1 of its unit for 4 bytes, then file 0
append_line:
    .uleb128 402                  # line 200
    .byte 4, 7, 4, 0              # then 196
append_inlined:
    .byte 1, 4, 4, 4, 0           # from -1 by -1 to -2 … that is not inlined; then 0
    .p2align 2
functions:
    .long 0, of_first - functions, append - _start, of_append - functions, end - _start
of_first:
    .long 0, 0, 0, 0, 0, first_file - values, first_line - values, 0, 0
    .fill {rest}, 1, 0
of_append:
    .long append - _start, append_name - names, 0, 0, 0
    .long append_file - values, append_line - values, 3, 1
    .fill {rest}, 1, 0
    .long 0, 0, append_inlined - values
    .section .note.GNU-stack, "", @progbits
"""


def built(folder: Path, *options: str, magic: int = 0xFFFFFFF1, start: str = "0", rest: int = 8) -> Path:
    source, program = folder / "table.s", folder / "program"
    source.write_text(TABLE.format(magic=magic, start=start, rest=rest))
    subprocess.run([*compilers.c_compiler(), "-nostdlib", *options, source, "-o", program], check=True)
    return program


def of(program: Path) -> GoTable | None:
    with open(program, "rb") as file:
        return read_go_table(ELFFile(file))


def code(program: Path) -> int:
    """Where its code begins in the file."""
    with open(program, "rb") as file:
        return int(ELFFile(file).get_section_by_name(".text")["sh_offset"])


@pytest.mark.parametrize(("magic", "rest"), [(0xFFFFFFF0, 4), (0xFFFFFFF1, 8)])
@pytest.mark.parametrize("start", ["_start", "0"])
def test_a_place_has_the_function_and_line_of_the_table(start: str, magic: int, rest: int, tmp_path: Path) -> None:
    program = built(tmp_path, "-static", "-no-pie", "-s", magic=magic, start=start, rest=rest)
    lines, begins = NativeLines(lambda path: True), code(program)
    assert lines.chain(str(program), begins + 15) == (NativePlace("_rt0_amd64_linux", "/src/rt0.s", 7, 0),)
    assert lines.chain(str(program), begins + 16) == (
        NativePlace("log.(*Log[go.shape.int]).Append", "/src/log.go", 200, 0),
    )
    assert lines.chain(str(program), begins + 24) == ()


def test_code_that_was_inlined_has_its_own_line_and_no_function(tmp_path: Path) -> None:
    program = built(tmp_path, "-static", "-no-pie")
    place = NativePlace("", "/src/bytes.go", 196, 0)
    assert NativeLines(lambda path: True).chain(str(program), code(program) + 20) == (place,)


def test_a_call_of_a_stripped_program_has_the_name_and_the_start_of_its_function(tmp_path: Path) -> None:
    program = built(tmp_path, "-static", "-no-pie", "-s")
    begins, names = code(program), FunctionNames()
    site = CallSite(str(program), begins + 23)
    assert (names.name(site), names.start(site)) == ("log.(*Log[go.shape.int]).Append", begins + 16)
    assert names.start(CallSite(str(program), begins + 25)) == 0


def test_a_table_is_not_read_where_it_is_not_known_from_which_address_it_counts(tmp_path: Path) -> None:
    """A program that another linker than Go's made, as with C in it, and that is loaded anywhere."""
    program = built(tmp_path, "-static-pie", "-Wl,-e,append")
    assert of(program) is None


def test_a_damaged_table_gives_no_lines(tmp_path: Path) -> None:
    program = built(tmp_path, "-static", "-no-pie")
    good, begins, chance = program.read_bytes(), code(program), random.Random(1)
    at = good.index((0xFFFFFFF1).to_bytes(4, "little"))
    for number in range(60):
        damaged = bytearray(good)
        for _ in range(3):
            damaged[at + chance.randrange(400)] = chance.randrange(256)
        other = tmp_path / f"damaged{number}"
        other.write_bytes(damaged)
        lines = NativeLines(lambda path: True)
        for offset in range(begins, begins + 25):
            found = lines.chain(str(other), offset)
            assert len(found) <= 1
            if not found:  # after an error it reads no more of the file
                lines = NativeLines(lambda path: True)
        FunctionNames().name(CallSite(str(other), begins + 20))
