"""Hooks at a place in the text: what is emitted for a store, a flush, a fence or a locked instruction.

New values have names, so that the numbering of unnamed ones stays; no block is split in text, because the
helpers of `hooks` are inlined afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from crashcheck.analyzer.compile.facts import Site, UnhookedConstruct
from crashcheck.analyzer.compile.instrument import libc_effects
from crashcheck.analyzer.compile.instrument.hooks import ACCESS_BYTES, ACCESS_WRITES, ATOMIC_READ, NO_INSTANCE, Hooks
from crashcheck.analyzer.compile.ir import addresses
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo, SourcePosition
from crashcheck.analyzer.compile.ir.text import ModuleText, Operand, call_arguments, operand
from crashcheck.analyzer.compile.ir.typemap import Target, TypeMap

DBG = re.compile(r", !dbg !(\d+)")
_WORDS = frozenset({"half", "bfloat", "float", "double", "ptr"})


@dataclass(frozen=True, slots=True)
class FrameCall:
    """A call that may push a frame."""

    place: int  # in the output: where the frame is pushed
    callee: str  # "" if it is indirect
    debug: str  # number of its !dbg, or ""
    line: int  # of the body
    target: Target | None  # what it writes to, as far as its name shows that


@dataclass(slots=True)
class Function:
    name: str
    position: SourcePosition
    certain: bool  # the definition that runs is this one
    hooked: bool = False  # something in it reaches the recorder, so callers' frames matter
    deep: bool = False  # and uses its depth
    accesses: list[int] = field(default_factory=list)  # places in the output of lines that ask whether it has a frame
    entry: int = -1  # where in the output the depth is loaded
    leaves: list[tuple[int, bool]] = field(default_factory=list)  # (place in the output, whether the function is left)
    calls: list[FrameCall] = field(default_factory=list)
    sites: dict[int, int] = field(default_factory=dict)  # line of the body → what it writes, calls, or only reads
    reads: dict[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # line of the body → the sites that describe what it reads


class Emitter:
    """A unit's output and its sites. `models`: what the runtime wraps; `keep_debug`: the user asked for -g."""

    def __init__(self, module: ModuleText, debug: DebugInfo, models: frozenset[str], keep_debug: bool) -> None:
        self.module = module
        self.debug = debug
        self.models = models & module.declared
        self.keep_debug = keep_debug
        self.hooks = Hooks()
        self.types = TypeMap(module, debug)
        self.sites: list[Site] = []
        self.not_understood: list[UnhookedConstruct] = []
        self.out: list[str] = []
        self._functions: list[Function] = []
        self._hashes: dict[str, str] = {}
        self.function = Function("", SourcePosition("", 0, 0, ""), False)
        self.definitions: dict[str, str] = {}
        self._slots = addresses.LocalUses("")
        self.group = 1 + max((int(number) for number in module.attributes), default=-1)  # attributes of accesses
        self._fresh = 0
        self._line = 0  # of the function's body
        self._naked = {number for number, text in module.attributes.items() if re.search(r"\bnaked\b", text)}
        self._twice = {number for number, text in module.attributes.items() if "returns_twice" in text}

    def fresh(self) -> str:
        self._fresh += 1
        return f"%cc.{self._fresh}"

    def emit(self, line: str) -> None:
        self.out.append(line)

    def hook(self, call: str, line: str) -> None:
        """Emit a call at the source position of `line`."""
        self.function.hooked = self.function.deep = True
        found = DBG.search(line) if self.keep_debug else None
        self.out.append(call + found.group() if found else call)

    def site(self, kind: str, line: str, target: Target | None = None, callee: str = "") -> int:
        found = DBG.search(line)
        site = self._site(kind, found.group(1) if found else "", target, callee)
        if kind == "load":
            self.function.reads[self._line] = (*self.function.reads.get(self._line, ()), site)
            self.function.sites.setdefault(self._line, site)
        else:
            self.function.sites[self._line] = site
        return site

    def _site(self, kind: str, dbg: str, target: Target | None, callee: str) -> int:
        positions = (self.debug.positions(int(dbg)) if dbg else ()) or (self.function.position,)
        variable, steps = (target.variable, target.steps) if target is not None else ("", ())
        self.sites.append(Site(kind, positions, variable, steps, callee))
        return len(self.sites) - 1

    def position(self, line: str) -> SourcePosition:
        found = DBG.search(line)
        positions = self.debug.positions(int(found.group(1))) if found else ()
        return positions[0] if positions else self.function.position

    def target(self, pointer: str, stored: str, line: str) -> Target:
        """Resolve a pointer and emit what computes its instance."""
        target = self.types.resolve(pointer, self.definitions, self._slots, stored, line, self.fresh)
        if target.prelude:
            self.emit(target.prelude)
        return target

    def is_local(self, pointer: str) -> bool:
        return addresses.is_local(pointer, self.definitions)

    def unknown(self, line: str, text: str) -> None:
        self.not_understood.append(UnhookedConstruct(self.position(line), text))

    def store_hook(self, line: str, type_text: str, value: str, pointer: str, target: Target, flags: int) -> None:
        size = self.module.types.store_size(type_text)
        if size is None:
            self.unknown(line, f"store of {type_text}")
            return
        if size == 0:
            return
        site = self.site("store", line, target)
        word = type_text in _WORDS or (type_text[0] == "i" and type_text[1:].isdigit() and int(type_text[1:]) <= 64)
        helper = self.hooks.store_word(type_text, size) if word else self.hooks.store_wide(type_text, size)
        self.hook(
            f"  call void {helper}(ptr {pointer}, {type_text} {value}, ptr {target.instance}, i32 {site}, "
            f"i32 %cc.depth, "
            f"i32 {flags})",
            line,
        )

    def load_hook(self, line: str, type_text: str, pointer: str, flags: int) -> None:
        """Before a load of a scalar, a vector or a whole struct."""
        size = self.module.types.store_size(type_text)
        if not size:
            return
        target = self.types.resolve(pointer, self.definitions, self._slots, type_text, line, self.fresh)
        if target.local:
            self.global_access(line, type_text, pointer, flags)
            return
        if size > ACCESS_BYTES:
            self.load_range(line, pointer, Operand("i64", str(size)))
            return
        site = self.site("load", line, target)
        self.access(pointer, size, flags, target.delta, site)

    def shared_global(self, pointer: str) -> Target:
        """The variable of the program's image that an address is in; local if it is constant, or of one thread."""
        name = addresses.base_of(pointer, self.definitions, self._slots)
        if not name.startswith("@") or name in self.module.unshared:
            return Target(local=True)
        return Target(variable=name[1:].strip('"'))

    def global_access(self, line: str, type_text: str, pointer: str, flags: int) -> None:
        """Before an access to a variable that threads share. No file is there: it counts with all other memory."""
        target = self.shared_global(pointer)
        size = self.module.types.store_size(type_text) or 0
        if target.local or not 0 < size <= ACCESS_BYTES:
            return
        site = self.site("store" if flags & ACCESS_WRITES else "load", line, target)
        self.access(pointer, size, flags, NO_INSTANCE, site)

    def access(self, pointer: str, size: int, flags: int, delta: int, site: int) -> None:
        self.function.hooked = True
        self.function.accesses.append(len(self.out))
        self.out.append(self.hooks.access(pointer, size, flags, delta, site, self.group))

    def _recorded(self, kind: str, line: str, pointer: str, type_text: str = "") -> tuple[Target, int] | None:
        """Where an access leads, and its site; None for one to a local, which is not recorded."""
        if self.is_local(pointer):
            return None
        target = self.target(pointer, type_text, line)
        return None if target.local else (target, self.site(kind, line, target))

    def load_range(self, line: str, pointer: str, size: Operand) -> None:
        """Before something that reads `size` bytes."""
        if found := self._recorded("load", line, pointer):
            target, site = found
            self.hook(
                f"  call void {self.hooks.load_range()}(ptr {pointer}, i64 {self.wide(size)}, ptr {target.instance}, "
                f"i32 {site}, i32 %cc.depth)",
                line,
            )

    def load_string(self, line: str, pointer: str, most: Operand | None) -> None:
        """Before something that reads a string up to its end, or `most` bytes of it."""
        if found := self._recorded("load", line, pointer):
            _, site = found
            bound = "-1" if most is None else self.wide(most)
            self.hook(
                f"  call void {self.hooks.load_string()}(ptr {pointer}, i64 {bound}, i32 {site}, i32 %cc.depth)", line
            )

    def read_by(self, line: str, callee: str, parenthesis: int) -> None:
        """What a library function reads that is called without a model of it."""
        arguments = call_arguments(line, parenthesis)
        pointers, bound, string = libc_effects.READS[callee]
        if len(arguments) <= max(*pointers, -1 if bound is None else bound):
            return
        size = None if bound is None else operand(arguments[bound])
        for pointer in (operand(arguments[index]) for index in pointers):
            if pointer.type != "ptr":
                continue
            if string:
                self.load_string(line, pointer.value, size)
            elif size is not None:
                self.load_range(line, pointer.value, size)

    def locked_elsewhere(self, line: str, locked: bool) -> None:
        if locked:
            site = self.site("fence", line)
            self.hook(f"  call void {self.hooks.locked()}(i32 {site}, i32 %cc.depth)", line)

    def fence(self, line: str, kind: int) -> None:
        site = self.site("fence", line)
        self.hook(f"  call void {self.hooks.fence()}(i32 {kind}, i32 {site}, i32 %cc.depth)", line)

    def flush(self, line: str, pointer: str, kind: int) -> None:
        if found := self._recorded("flush", line, pointer, "i8"):
            _, site = found
            self.hook(f"  call void {self.hooks.flush()}(ptr {pointer}, i32 {kind}, i32 {site}, i32 %cc.depth)", line)

    def copy(self, line: str, target_pointer: str, source: str, size: Operand) -> None:
        self.load_range(line, source, size)
        if found := self._recorded("copy", line, target_pointer):
            target, site = found
            self.hook(
                f"  call void {self.hooks.copy()}(ptr {target_pointer}, ptr {source}, i64 {self.wide(size)}, "
                f"ptr {target.instance}, i32 {site}, i32 %cc.depth)",
                line,
            )

    def fill(self, line: str, target_pointer: str, byte: str, size: Operand) -> None:
        if found := self._recorded("fill", line, target_pointer):
            target, site = found
            self.hook(
                f"  call void {self.hooks.fill()}(ptr {target_pointer}, i8 {byte}, i64 {self.wide(size)}, "
                f"ptr {target.instance}, i32 {site}, i32 %cc.depth)",
                line,
            )

    def wide(self, value: Operand) -> str:
        """An integer as i64."""
        if value.type == "i64":
            return value.value
        name = self.fresh()
        self.emit(f"  {name} = zext {value.type} {value.value} to i64")
        return name

    def store_from(self, line: str, pointer: str, source: str, size: str, flags: int) -> None:
        """A store whose bytes are at `source`, before it executes."""
        if found := self._recorded("store", line, pointer):
            target, site = found
            self.hook(
                f"  call void {self.hooks.wide_from()}(ptr {pointer}, ptr {source}, i64 {size}, ptr {target.instance}, "
                f"i32 {site}, i32 %cc.depth, i32 {flags})",
                line,
            )

    def assembly_store(self, line: str, pointer: str, size: Operand, flags: int) -> Callable[[], None] | None:
        """A store by assembly: its bytes are read back after it."""
        if self.is_local(pointer):
            return None
        target = self.target(pointer, f"i{int(size.value) * 8}" if size.value.isdigit() else "", line)
        if target.local:
            return None
        site = self.site("asm", line, target)

        def finish() -> None:
            self.hook(
                f"  call void {self.hooks.written()}(ptr {pointer}, i64 {size.value}, ptr {target.instance}, "
                f"i32 {site}, i32 %cc.depth, i32 {flags})",
                line,
            )

        return finish

    def locked_assembly(self, line: str, pointer: str, size: int, conditional: bool) -> Callable[[], None]:
        """A locked instruction in assembly. A failed cmpxchg leaves the bytes as they were."""
        target = Target(local=True) if self.is_local(pointer) else self.target(pointer, f"i{size * 8}", line)
        if target.local:
            return lambda: self.locked_elsewhere(line, True)
        site = self.site("asm", line, target)
        begun = self.fresh()
        self.hook(f"  {begun} = call i1 {self.hooks.begin()}(ptr {pointer})", line)
        before = self.fresh()
        if conditional:
            self.emit(f"  {before} = load i{size * 8}, ptr {pointer}, align 1")

        def finish() -> None:
            stored = "true"
            if conditional:
                now, stored = self.fresh(), self.fresh()
                self.emit(f"  {now} = load i{size * 8}, ptr {pointer}, align 1")
                self.emit(f"  {stored} = icmp ne i{size * 8} {before}, {now}")
            self.hook(
                f"  call void {self.hooks.end()}(i1 {begun}, ptr {pointer}, i32 {size}, i1 true, i1 {stored}, "
                f"i32 {ATOMIC_READ}, ptr {target.instance}, i32 {site}, i32 %cc.depth)",
                line,
            )

        return finish
