"""The recorder's reader of .eh_frame on the memory of a program, where no number can be trusted."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from crashcheck.runtime import build
from support.compilers import c_compiler
from support.paths import TESTS

# Gives each file that it is called with to the function that `make fuzz` calls.
MAIN = """
#include <stdio.h>
#include <stddef.h>
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int main(int argc, char **argv)
{
    static unsigned char data[1 << 16];
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof data, file));
        fclose(file);
    }
    puts("read");
    return 0;
}
"""
CODE, TABLE, COMMON, ENTRY = 0x400, 0x100, 0x200, 0x300
LARGE = b"\xff" * 8 + b"\x3f"  # 2**62 - 1, as LEB128


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that ends with a signal where what it does is undefined."""
    folder = tmp_path_factory.mktemp("unwind")
    (folder / "main.c").write_text(MAIN)
    harness = TESTS / "fuzz" / "unwind.c"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    files = [build.SYSCALLS / "stacks" / "unwind.c", harness, folder / "main.c"]
    command = [*c_compiler(), *flags, f"-I{build.INCLUDE}", *map(str, files), "-o", str(folder / "reader")]
    subprocess.run(command, check=True)
    return folder / "reader"


def module(instructions: bytes) -> bytes:
    """A shared library in memory: one function, whose frame is described by these instructions in units of -8."""
    memory = bytearray(0x500)

    def put(at: int, data: bytes) -> None:
        memory[at : at + len(data)] = data

    headers = struct.pack("<IIQQQQQQ", 0x6474E550, 4, TABLE, TABLE, 0, 0x20, 0x20, 4)
    headers += struct.pack("<IIQQQQQQ", 2, 4, 0, 0, 0, 0, 0, 8)
    elf = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    put(0, elf + headers)
    put(TABLE, b"\x01\x1b\x03\x3b" + struct.pack("<iIii", ENTRY - TABLE, 1, CODE - TABLE, ENTRY - TABLE))
    common = struct.pack("<I", 0) + b"\x01zR\0" + b"\x01\x78\x10\x01\x1b" + b"\x0c\x07\x08\x90\x01"
    put(COMMON, struct.pack("<I", len(common)) + common)
    entry = struct.pack("<iiI", ENTRY + 4 - COMMON, CODE - (ENTRY + 8), 0x100) + b"\0" + instructions
    put(ENTRY, struct.pack("<I", len(entry)) + entry)
    return (CODE + 8).to_bytes(2, "little") + memory


@pytest.mark.parametrize(
    "instructions",
    [
        pytest.param(b"\x86\x02", id="an offset as compilers write it"),
        pytest.param(b"\x86" + LARGE, id="offset"),
        pytest.param(b"\x05\x06" + LARGE, id="offset_extended"),
        pytest.param(b"\x11\x06" + LARGE, id="offset_extended_sf"),
        pytest.param(b"\x12\x07" + LARGE, id="def_cfa_sf"),
        pytest.param(b"\x13" + LARGE, id="def_cfa_offset_sf"),
    ],
)
def test_offsets_of_frames_may_be_any_numbers(reader: Path, tmp_path: Path, instructions: bytes) -> None:
    (tmp_path / "module").write_bytes(module(instructions))
    done = subprocess.run([reader, tmp_path / "module"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "read\n")
