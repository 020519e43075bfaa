"""Program facts: what a unit's instrumentation knew, packed into its object and read back from the binary."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.errors import CrashcheckError

SECTION = "crashcheck_facts"
PLAIN_SECTION = "crashcheck_plain"  # not loaded: facts of units that were compiled without hooks
MAGIC = b"CRSHFCT\n"
VERSION = 4
STORES = frozenset({"store", "copy", "fill", "atomic", "model"})  # kinds of sites that write memory
_HEADER = struct.Struct("<8sIIQQ")  # magic, version, compressed bytes, raw bytes, key


@dataclass(frozen=True, slots=True)
class TypeStep:
    """`field` of `type`, and where it is in it; offset and size in bytes (offset -1 if not static)."""

    type: str
    field: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the program that calls the recorder, or a call site of the shadow stack."""

    kind: str  # "store" | "copy" | "fill" | "atomic" | "flush" | "fence" | "asm" | "call" | "model"
    positions: tuple[SourcePosition, ...]  # inlining chain, innermost first; never empty
    variable: str = ""  # "entry.valid", "node.slots[].key"; "" where no type is known
    steps: tuple[TypeStep, ...] = ()  # innermost first
    callee: str = ""  # of call and model sites, "" for an indirect call

    @property
    def function(self) -> str:
        return self.positions[0].function

    @property
    def file(self) -> str:
        return self.positions[0].file

    @property
    def line(self) -> int:
        return self.positions[0].line

    @property
    def column(self) -> int:
        return self.positions[0].column


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """A member of a struct, class or union; offset and size in bytes, of a bit-field the bytes that it touches."""

    name: str  # of a base class: its type's; "" if it has none
    offset: int
    size: int
    type: str  # the struct, class or union that it is, or that its elements are; "" for others
    count: int  # elements of an array; 0: it is none


@dataclass(frozen=True, slots=True)
class TypeLayout:
    """A struct, class or union by the name that sites give it. `size` in bytes."""

    name: str
    size: int
    fields: tuple[FieldLayout, ...]  # as declared


@dataclass(frozen=True, slots=True)
class UnhookedConstruct:
    """A construct that may write memory and gets no hook."""

    position: SourcePosition
    text: str


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """Facts of one compiled source."""

    source: str  # absolute path
    directory: str  # where the compiler ran
    compiler: str  # "Debian clang version 14.0.6"
    binding: str  # "llvmlite 0.50.0 (LLVM 22.1.0)"
    sites: tuple[Site, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)  # symbol → hash of its code
    not_understood: tuple[UnhookedConstruct, ...] = ()
    not_instrumented: str = ""  # why the unit has no hooks, else empty
    notes: tuple[str, ...] = ()  # flags that were ignored
    dependences: str = ""  # packed; read by dependence.summaries.unpack when needed
    layouts: tuple[TypeLayout, ...] = ()  # of types that its sites name, and of their parts; sorted by name
    command: tuple[str, ...] = ()  # compiles `source`, to be appended, in `directory`; no mode, no outputs; () unknown
    timers: str = ""  # flows of numbers, packed; read by timers.flows.unpack
    key: int = 0


def is_source(unit: UnitFacts, file: str) -> bool:
    """Whether a file, as a site of the unit names it, is the unit's own source, and no header."""
    return os.path.normpath(os.path.join(unit.directory, file)) == os.path.normpath(unit.source)


def _pack(facts: UnitFacts) -> bytes:
    strings: dict[str, int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    def position(value: SourcePosition) -> list[int]:
        return [text(value.file), value.line, value.column, text(value.function)]

    chains: dict[tuple[SourcePosition, ...], int] = {}
    sites = [
        [
            text(site.kind),
            chains.setdefault(site.positions, len(chains)),
            text(site.variable),
            [[text(step.type), text(step.field), step.offset, step.size] for step in site.steps],
            text(site.callee),
        ]
        for site in facts.sites
    ]
    document = {
        "source": facts.source,
        "directory": facts.directory,
        "compiler": facts.compiler,
        "binding": facts.binding,
        "chains": [[position(link) for link in chain] for chain in chains],
        "sites": sites,
        "functions": dict(facts.functions),
        "not_understood": [[position(item.position), text(item.text)] for item in facts.not_understood],
        "not_instrumented": facts.not_instrumented,
        "notes": list(facts.notes),
        "dependences": facts.dependences,
        "layouts": [
            [
                text(layout.name),
                layout.size,
                [[text(one.name), one.offset, one.size, text(one.type), one.count] for one in layout.fields],
            ]
            for layout in facts.layouts
        ],
        "command": list(facts.command),
        "timers": facts.timers,
        "strings": list(strings),
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True).encode()


def _key_of(raw: bytes) -> int:
    """A checksum of packed facts; 0 would be no unit."""
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little") or 1


def encode(facts: UnitFacts) -> tuple[int, bytes]:
    """The unit's key (never 0) and its blob, padded to 8 bytes."""
    raw = _pack(facts)
    key = _key_of(raw)
    packed = zlib.compress(raw, 3)
    blob = _HEADER.pack(MAGIC, VERSION, len(packed), len(raw), key) + packed
    return key, blob + bytes(-len(blob) % 8)


def _unpack(raw: bytes, key: int) -> UnitFacts:
    document: dict[str, Any] = json.loads(raw)
    strings: list[str] = document["strings"]

    def position(packed: list[int]) -> SourcePosition:
        return SourcePosition(strings[packed[0]], packed[1], packed[2], strings[packed[3]])

    chains = [tuple(position(link) for link in chain) for chain in document["chains"]]
    return UnitFacts(
        source=document["source"],
        directory=document["directory"],
        compiler=document["compiler"],
        binding=document["binding"],
        sites=tuple(
            Site(
                strings[kind],
                chains[chain],
                strings[variable],
                tuple(TypeStep(strings[s[0]], strings[s[1]], s[2], s[3]) for s in steps),
                strings[callee],
            )
            for kind, chain, variable, steps, callee in document["sites"]
        ),
        functions=document["functions"],
        not_understood=tuple(UnhookedConstruct(position(at), strings[text]) for at, text in document["not_understood"]),
        not_instrumented=document["not_instrumented"],
        notes=tuple(document["notes"]),
        dependences=document["dependences"],
        layouts=tuple(
            TypeLayout(
                strings[name], size, tuple(FieldLayout(strings[f[0]], f[1], f[2], strings[f[3]], f[4]) for f in fields)
            )
            for name, size, fields in document["layouts"]
        ),
        command=tuple(document["command"]),
        timers=document.get("timers", ""),  # an older crashcheck-cc wrote none
        key=key,
    )


def decode(section: bytes, origin: str, *, torn: bool = False) -> list[UnitFacts]:
    """All units in a section (the linker concatenates them, with zeros between). `torn`: of those whose writer was
    killed the magic is not there yet, and the rest is passed over.

    Raises CrashcheckError `facts-corrupt` and `facts-version`, naming `origin`.
    """
    result = []
    at = 0
    while at < len(section):
        if section[at] == 0 or (torn and not section.startswith(MAGIC, at)):
            at += 1
            continue
        if len(section) - at < _HEADER.size or section[at : at + len(MAGIC)] != MAGIC:
            raise _corrupt(origin, f"no facts header at byte {at} of section {SECTION}")
        _, version, packed, raw_bytes, key = _HEADER.unpack_from(section, at)
        if version != VERSION:
            raise CrashcheckError(
                "facts-version",
                f"{origin} holds program facts of version {version}; this crashcheck reads version {VERSION}",
                "rebuild the program with the crashcheck-cc of this installation",
            )
        start = at + _HEADER.size
        try:
            raw = zlib.decompress(section[start : start + packed])
            if len(raw) != raw_bytes or _key_of(raw) != key:
                raise _corrupt(origin, f"the facts at byte {at} do not match their checksum")
            result.append(_unpack(raw, key))
        except (zlib.error, ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise _corrupt(origin, f"the facts at byte {at} cannot be read: {error}") from error
        at = start + packed
    return result


def _corrupt(origin: str, what: str) -> CrashcheckError:
    return CrashcheckError("facts-corrupt", f"{origin}: {what}", "rebuild the program with crashcheck-cc")


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """Facts of all units of a program and of the shared libraries it loads."""

    units: Mapping[int, UnitFacts]
    plain: tuple[UnitFacts, ...]  # compiled without hooks (CRASHCHECK_FALLBACK)
    without_facts: tuple[str, ...]  # modules built without crashcheck-cc

    @classmethod
    def load(cls, modules: Iterable[str | os.PathLike[str]]) -> ProgramFacts:
        """Read the facts of executables and shared libraries; those that are gone or no ELF files have none.

        Raises CrashcheckError `facts-corrupt` or `facts-version`.
        """
        units: dict[int, UnitFacts] = {}
        plain: list[UnitFacts] = []
        without: list[str] = []
        for path in dict.fromkeys(os.fspath(module) for module in modules):
            sections = read_sections(path)
            if sections is None:
                continue
            hooked = [unit for data in sections.get(SECTION, ()) for unit in decode(data, path)]
            bare = [unit for data in sections.get(PLAIN_SECTION, ()) for unit in decode(data, path)]
            if not hooked and not bare:
                without.append(path)
            units.update((unit.key, unit) for unit in hooked)
            plain.extend(bare)
        return cls(units, tuple(plain), tuple(without))

    def unit(self, key: int) -> UnitFacts | None:
        """The unit that a trace names by its key."""
        return self.units.get(key)


def read_sections(path: str) -> dict[str, list[bytes]] | None:
    """The facts sections of an ELF file; None if it cannot be read as one."""
    from elftools.elf.elffile import ELFFile

    try:
        with open(path, "rb") as stream:
            found: dict[str, list[bytes]] = {}
            for section in ELFFile(stream).iter_sections():
                if section.name in (SECTION, PLAIN_SECTION):
                    found.setdefault(section.name, []).append(section.data())
            return found
    except Exception:  # of a damaged file pyelftools raises errors of its parser, of zlib, of the codecs…
        return None
