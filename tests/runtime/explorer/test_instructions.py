"""The explorer's instruction decoder against capstone's: lengths, operand sizes, which operands are only written."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import capstone
import pytest
from capstone.x86_const import X86_OP_MEM
from elftools.elf.elffile import ELFFile

from crashcheck.runtime import build

# Reads 16 bytes for each instruction; writes touch, length, bytes, writes, string and string_bytes.
HARNESS = """
#include <stdio.h>
#include "explorer/instructions.h"
int main(void)
{
    unsigned char code[16];
    while (fread(code, 1, sizeof code, stdin) == sizeof code) {
        struct instruction found = cc_explore_decode(code);
        int row[6] = {found.touch, found.length, found.bytes, found.writes, found.string, found.string_bytes};
        fwrite(row, sizeof row, 1, stdout);
    }
    return 0;
}
"""
ROW = struct.Struct("<6i")
TOUCHES_FAR, ONLY_FLUSHES = 2, 3
SLICE = 1 << 16


class Decoded(NamedTuple):
    touch: int
    length: int
    bytes: int
    writes: int
    string: int
    string_bytes: int


# Capstone 5 reports that these read their operand in memory. They store a vector and do not: Intel's manual, volume 2.
STORES_THAT_CAPSTONE_READS = re.compile("v?mov(ups|upd|aps|apd|dqa|dqu|ntps|ntpd|ntdq)")
FLUSHES = {"clflush", "clflushopt", "clwb"}
LONGER_THAN_A_STRETCH = re.compile("fxsave|fxrstor|xsave|xrstor|frstor|fnsave|vp?gather|vp?scatter|movdir64b|enqcmd")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decoder")
    (folder / "harness.c").write_text(HARNESS)
    source = next(path for path in build.c_sources() if path.name == "explore_instructions.c")
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-DCC_SHARED", "-O1", f"-I{build.INCLUDE}"]
    command = [*build.find_compiler(), *flags, str(source), str(folder / "harness.c"), "-o", str(folder / "decoder")]
    subprocess.run(command, check=True)
    return folder / "decoder"


def decode(decoder: Path, codes: Sequence[bytes]) -> list[Decoded]:
    padded = b"".join(code[:15].ljust(16, b"\x90") for code in codes)
    done = subprocess.run([decoder], input=padded, stdout=subprocess.PIPE, check=True)
    return [Decoded(*row) for row in ROW.iter_unpack(done.stdout)]


def codes_of_libc() -> list[bytes]:
    """Each instruction with an operand in memory in a quarter of libc's text, once."""
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line)
    with open(libc, "rb") as file:
        text = ELFFile(file).get_section_by_name(".text").data()
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.skipdata = True
    found: dict[bytes, None] = {}
    for start in range(0, len(text), 4 * SLICE):
        for at, size, _, operands in engine.disasm_lite(text[start : start + SLICE], start):
            if "[" in operands:
                found[text[at : at + size]] = None
    return list(found)


def random_codes(number: int) -> list[bytes]:
    """Instructions with random prefixes, opcodes, operands: legacy, VEX and EVEX."""
    draw = random.Random(1)
    found = []
    for _ in range(number):
        code = bytearray(draw.choices((0x66, 0xF2, 0xF3, 0xF0, 0x2E, 0x64, 0x67), k=draw.choice((0, 0, 0, 1, 2))))
        form = draw.choice(("legacy", "legacy", "rex", "rex", "vex2", "vex3", "evex"))
        if form == "vex2":
            code += bytes((0xC5, draw.randrange(256)))
        elif form == "vex3":
            code += bytes((0xC4, draw.randrange(256) & 0xE0 | draw.choice((1, 1, 2, 3)), draw.randrange(256)))
        elif form == "evex":
            code.append(0x62)
        else:
            code += bytes((0x40 | draw.randrange(16),)) if form == "rex" else b""
            code += draw.choice((b"", b"\x0f", b"\x0f", b"\x0f\x38", b"\x0f\x3a"))
        found.append(bytes(code) + draw.randbytes(15 - len(code)))
    return found


def compared(decoder: Path, codes: Sequence[bytes]) -> Iterator[tuple[Decoded, capstone.CsInsn, list[int]]]:
    """What both decoders report of the instructions that capstone knows, and the sizes of the operands in memory."""
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.detail = True
    for code, ours in zip(codes, decode(decoder, codes), strict=True):
        for theirs in engine.disasm(code, 0, 1):
            yield ours, theirs, [operand.size for operand in theirs.operands if operand.type == X86_OP_MEM]


def only_writes(theirs: capstone.CsInsn) -> bool:
    access = next(operand.access for operand in theirs.operands if operand.type == X86_OP_MEM)
    return access == capstone.CS_AC_WRITE or STORES_THAT_CAPSTONE_READS.fullmatch(theirs.mnemonic) is not None


@pytest.mark.parametrize(
    ("codes", "known"), [(codes_of_libc, 3000), (lambda: random_codes(30_000), 600)], ids=["libc", "random"]
)
def test_lengths_sizes_and_writes_are_those_of_another_decoder(
    decoder: Path, codes: Callable[[], list[bytes]], known: int
) -> None:
    lengths = sizes = 0
    for ours, theirs, operands in compared(decoder, codes()):
        seen = f"{theirs.bytes.hex()} {theirs.mnemonic} {theirs.op_str}"
        if ours.length:
            lengths += 1
            assert ours.length == theirs.size, seen
        if ours.bytes:
            sizes += 1
            assert operands == [ours.bytes], seen
        if ours.writes:
            assert only_writes(theirs), seen
        if ours.string:
            assert set(operands) == {ours.string_bytes}, seen
    assert min(lengths, sizes) > known


def test_flushes_and_long_operands_are_known_by_name(decoder: Path) -> None:
    met = set()
    chosen = [bytes.fromhex(code) for code in ("660fae30", "0fae38", "660fae38", "c4e26d920408")]
    for ours, theirs, operands in compared(decoder, [*random_codes(30_000), *chosen]):
        if operands:
            seen = f"{theirs.bytes.hex()} {theirs.mnemonic} {theirs.op_str}"
            assert (ours.touch == ONLY_FLUSHES) == (theirs.mnemonic in FLUSHES), seen
            assert ours.touch == TOUCHES_FAR or not LONGER_THAN_A_STRETCH.match(theirs.mnemonic), seen
            met.add(theirs.mnemonic)
    assert met >= {*FLUSHES, "fxsave", "xrstor", "fnsave", "vgatherdps"}
