"""The line of a place in a program that somebody else built with debug information."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crashcheck.analyzer.trace.debug_lines import DebugLine, DebugLines
from crashcheck.analyzer.trace.reader import CallSite
from support import compilers

SOURCE = """#include <unistd.h>
int written;

void marked(const char *text)
{
    written += write(1, text, 1);
    written++;
}

int main(void)
{
    marked("a");
    return 0;
}
"""


def behind_first_call(program: Path, name: str) -> int:
    """The offset in the file of the instruction after the first call (e8 and 4 bytes) of a function."""
    with program.open("rb") as file:
        elf = ELFFile(file)
        (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(name)
        address = symbol["st_value"]
        (load,) = [
            each
            for each in elf.iter_segments("PT_LOAD")
            if each["p_vaddr"] <= address < each["p_vaddr"] + each["p_filesz"]
        ]
        offset = address - load["p_vaddr"] + load["p_offset"]
        file.seek(offset)
        return offset + file.read(symbol["st_size"]).index(b"\xe8") + 5


@pytest.mark.parametrize("version", ["4", "5"])
def test_a_call_has_the_line_of_its_source(tmp_path: Path, version: str) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(SOURCE, encoding="utf-8")
    subprocess.run([*compilers.c_compiler(), "-O0", f"-gdwarf-{version}", str(source), "-o", str(program)], check=True)
    lines = DebugLines()
    found = [lines.of(CallSite(str(program), behind_first_call(program, name))) for name in ("marked", "main")]
    assert found == [DebugLine(str(source), 6), DebugLine(str(source), 12)]


def test_a_program_without_debug_information_and_a_file_that_is_none_have_no_lines(tmp_path: Path) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(SOURCE, encoding="utf-8")
    subprocess.run([*compilers.c_compiler(), "-O0", "-g0", str(source), "-o", str(program)], check=True)
    lines = DebugLines()
    assert lines.of(CallSite(str(program), behind_first_call(program, "main"))) is None
    assert lines.of(CallSite(str(source), 10)) is None
    assert lines.of(CallSite("", 10)) is None


def test_a_call_of_python_has_its_own_line() -> None:
    assert DebugLines().of(CallSite("log.py", 3, 1, "append", 24)) == DebugLine("log.py", 24)
