"""Parsers of what compilers leave: program facts, ELF, LLVM IR."""

from __future__ import annotations

import contextlib
import subprocess
import zlib
from pathlib import Path

from crashcheck.analyzer.compile import facts
from crashcheck.analyzer.compile.dependence import summaries
from crashcheck.analyzer.compile.instrument.unit import UnitOptions, canonical_text, instrument_text
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.analyzer.trace import functions
from crashcheck.analyzer.trace.reader import CallSite
from crashcheck.stages.run_summary import _needed
from support.compilers import c_compiler, plain_clang
from support.parsers.parser import Parser
from support.parsers.written import SOURCE

FACTS = facts.UnitFacts(
    source="/a.c",
    directory="/",
    compiler="clang",
    binding="llvmlite",
    sites=(facts.Site("store", (SourcePosition("/a.c", 3, 1, "f"),), "a.b", (facts.TypeStep("a", "b", 0, 8),)),),
    functions={"f": "00"},
    layouts=(facts.TypeLayout("a", 8, (facts.FieldLayout("b", 0, 8, "", 0),)),),
)


def _facts(data: bytes, _: Path) -> None:
    """With a checksum that fits."""
    key = int.from_bytes(facts.hashlib.blake2b(data, digest_size=8).digest(), "little") or 1
    packed = zlib.compress(data, 1)
    section = facts._HEADER.pack(facts.MAGIC, facts.VERSION, len(packed), len(data), key) + packed
    for unit in facts.decode(section, "program"):
        with contextlib.suppress(ValueError):  # who asks for them has an error for users for it
            summaries.unpack(unit.dependences)


def _elf(data: bytes, folder: Path) -> None:
    path = folder / "program"
    path.write_bytes(data)
    facts.ProgramFacts.load([path])
    list(_needed(str(path)))
    names = functions.FunctionNames()
    for offset in (0, 4096, 4097, 4500, 1 << 40):
        names.name(CallSite(str(path), offset))


def _programs(folder: Path) -> list[bytes]:
    source = "int a; static int g(void) { return a; } int f(int b) { a += b; return g(); }\n"
    blob = ",".join(map(str, facts.encode(FACTS)[1]))
    hooked = f'__attribute__((used, section("{facts.SECTION}"))) const unsigned char facts[] = {{{blob}}};\n'
    made = []
    for text in (source, source + hooked):
        (folder / "a.c").write_text(text, encoding="ascii")
        flags = ["-g", "-shared", "-fPIC", "-nostdlib", "-o", "a.so"]
        subprocess.run([*c_compiler(), "a.c", *flags], cwd=folder, check=True)
        made.append((folder / "a.so").read_bytes())
    return made


def _unit(data: bytes, _: Path) -> None:
    instrument_text(data.decode("utf-8", "surrogateescape"), UnitOptions("unit.c", "/", "clang"))


def _units(folder: Path) -> list[bytes]:
    small = b"struct s { int a; _Atomic long b; } *p; void f(int k) { p->a = k; p->b += 2; if (k) "
    small += b'__asm__("clwb %0" : "+m"(*p)); }\n'
    found = []
    for name, source in (("small.c", small), ("unit.c", SOURCE)):
        (folder / name).write_bytes(source)
        flags = ["-g", "-O1", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm", "-Wno-everything"]
        subprocess.run([*plain_clang(), *flags, str(folder / name), "-o", str(folder / "unit.bc")], check=True)
        found.append(canonical_text((folder / "unit.bc").read_bytes(), UnitOptions(name, "/", "clang")).encode())
    return found


PARSERS = {
    "facts": Parser(_facts, lambda _: [facts._pack(FACTS)]),
    "ELF": Parser(_elf, _programs),
    "LLVM text": Parser(_unit, _units),
}
