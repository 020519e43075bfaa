"""The instrumentation pass: walks once over a unit's IR text and puts a call before what the recorder must know of.

Stores, flushes, fences, atomic operations and calls get hooks; everything else is copied. The rules are in
docs/crash-model.md (what an update, a flush and a fence is) and runtime/include/hooks.h (what the recorder receives).
New values have names, so that the numbering of unnamed ones stays; no block is split in text, because the
helpers of `hooks` are inlined afterwards.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from crashcheck.analyzer.compile.facts import Site, UnhookedConstruct
from crashcheck.analyzer.compile.instrument import asm_hooks, hooks, inline_asm, libc_effects
from crashcheck.analyzer.compile.instrument.emitter import DBG, Emitter, FrameCall, Function
from crashcheck.analyzer.compile.instrument.intrinsics import INTRINSICS, Intrinsic
from crashcheck.analyzer.compile.instrument.symbol_wrapping import wrapped
from crashcheck.analyzer.compile.ir.addresses import LocalUses
from crashcheck.analyzer.compile.ir.atomic_calls import atomic_call
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo, SourcePosition
from crashcheck.analyzer.compile.ir.text import (
    NAME,
    IRSyntaxError,
    ModuleText,
    call_arguments,
    operand,
    type_end,
    value_end,
)
from crashcheck.analyzer.compile.ir.typemap import Target

_HEADER = re.compile(rf"^define .*?@({NAME})\(")
_CALLEE = re.compile(rf"(?:(@(?:{NAME})|%(?:{NAME}))\(| asm )")
_ATTACHED = re.compile(r", !dbg !\d+")
_DEFINED = re.compile(r" !dbg !\d+")
_GROUP = re.compile(r" #\d+")
_GROUPS = re.compile(r"#(\d+)")
_STORE = re.compile(r"  store (atomic )?(volatile )?")
_LOAD = re.compile(r" load (atomic )?(volatile )?")
_ATOMIC_TAIL = re.compile(r'(?: syncscope\("([^"]*)"\))? (\w+)(?: (\w+))?, align (\d+)')
_COMPARED = re.compile(
    r" [if]cmp (?:[a-z]+ )*?(?P<relation>[a-z]+) (?P<type>i32|i64|double) (?P<left>[^,]+), (?P<right>[^,]+)"
)
_DEFINING = frozenset({"getelementptr", "bitcast", "alloca", "load"})  # what the way to an address leads through
# Intrinsics for x86 that take a pointer and write nothing there.
_READING = re.compile(
    r"load|gather|ldmxcsr|ldtilecfg|vbcst|vcvtne|aes\w*kl$|prefetch|cldemote|monitor|fxrstor|xrstor|invpcid|\.rd"
)
_OPAQUE_LINKAGE = re.compile(r"^define (?:weak|linkonce|extern_weak|available_externally|common)\b")


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A unit's text with hooks, without its descriptor, and what to report about it."""

    text: str
    sites: tuple[Site, ...]
    not_understood: tuple[UnhookedConstruct, ...]
    functions: dict[str, str]  # symbol → hash of its code, blind to metadata and the numbers of attribute groups
    # symbol → line of its body (0 is the one after `define`) → the site of what it writes or calls, or only reads
    sites_of: dict[str, dict[int, int]]
    reads_of: dict[str, dict[int, tuple[int, ...]]]  # the same → the sites that describe what the line reads


class Rewriter(Emitter):
    """Rewrites one unit. `models`: functions that the runtime wraps; `keep_debug`: the user asked for -g; `timers`:
    comparisons that time may decide, by function and line."""

    def __init__(
        self,
        module: ModuleText,
        debug: DebugInfo,
        models: frozenset[str],
        keep_debug: bool,
        timers: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        super().__init__(module, debug, models, keep_debug)
        self._timers = timers  # symbol → line of its body → number of the comparison
        self._lines = module.body.split("\n")
        self._index = 0  # of the next line
        self._first = 0  # of the function's first line
        self._inside = False  # a function
        self._in_entry = False  # before its first instruction that is no alloca
        self._after_pad = False  # the instruction before was a landing pad

    # -- the pass ----------------------------------------------------------------------------------------------

    def run(self) -> Instrumented:
        """Raises IRSyntaxError with the line that could not be read."""
        try:
            while self._index < len(self._lines):
                self._index += 1
                self._line_of_module(self._lines[self._index - 1])
        except IRSyntaxError:
            raise
        except Exception as error:  # whatever a damaged line leads to
            raise IRSyntaxError(self._lines[self._index - 1]) from error
        self._resolve_calls()
        text = "\n".join(piece for piece in self.out if piece)
        if not self.keep_debug:
            text = _DEFINED.sub("", _ATTACHED.sub("", text))
        return Instrumented(
            wrapped(text, self.models),
            tuple(self.sites),
            tuple(self.not_understood),
            self._hashes,
            {function.name: function.sites for function in self._functions},
            {function.name: function.reads for function in self._functions},
        )

    def _line_of_module(self, line: str) -> None:
        if line[:2] != "  ":
            self._outer_line(line)
        elif not self._inside:
            self.out.append(line)
        elif line[2] != " ":
            self._instruction(line)
        elif self.keep_debug or "#dbg_" not in line:
            self.out.append(line)

    def _outer_line(self, line: str) -> None:
        """A line that is no instruction: a label, a function's first or last line, or no function's at all."""
        if line.startswith("define "):
            end = self._lines.index("}", self._index)
            body = self._lines[self._index : end]
            self._inside = self._in_entry = self._begin_function(line, body)
            self._first = self._index
            if not self._inside:
                self.out += [line, *body]
                self._index = end
                return
        elif line == "}":
            self._inside = False
        self.out.append(line)

    def _instruction(self, line: str) -> None:
        if self._after_pad:
            self._leave_here(False)
            self._after_pad = False
        if line[2] == "%":
            start = line.index(" = ") + 3
            word = line[start : line.find(" ", start)]
            if word in _DEFINING:
                self.definitions[line[2 : start - 3]] = line
                if word == "alloca":
                    self.out.append(line)
                    return
        else:
            space = line.find(" ", 2)
            word = line[2:space] if space > 0 else line[2:]
        if self._in_entry:
            self._in_entry = False
            self.function.entry = len(self.out)
            self.out.append("")
        handler = self._HANDLERS.get(word)
        if handler is not None:
            self._line = self._index - 1 - self._first
            handler(self, line)
            return
        self._after_pad = word == "landingpad"
        self.out.append(line)

    def _begin_function(self, line: str, body: list[str]) -> bool:
        found = _HEADER.match(line)
        if found is None:
            raise IRSyntaxError(line)
        tail = line[line.rfind(")") :]
        if self._naked and self._naked & set(_GROUPS.findall(tail)):
            self.unknown(line, f"naked function {found.group(1)}")
            return False
        dbg = re.search(r"!dbg !(\d+)", line)
        name = found.group(1).strip('"')
        position = self.debug.subprogram(int(dbg.group(1))) if dbg else SourcePosition("", 0, 0, name)
        certain = not _OPAQUE_LINKAGE.match(line) and (
            " dso_local " in line or re.match(r"define (?:internal|private|linkonce_odr|weak_odr) ", line) is not None
        )
        self.function = Function(name, position, certain)
        self._functions.append(self.function)
        self.definitions = {}
        self._slots = LocalUses("\n" + "\n".join(body))
        code = "\n".join([text.partition(", !")[0] for text in body if not text.startswith("    #")])
        self._hashes[name] = hashlib.blake2b(_GROUP.sub("", code).encode(), digest_size=8).hexdigest()
        return True

    def _leave_here(self, left: bool) -> None:
        """A place where this function's frame ends, or is the top again after others were cut off."""
        self.function.leaves.append((len(self.out), left))
        self.out.append("")

    def _resolve_calls(self) -> None:
        """Decide which calls push a frame: those that may reach a hook or code that nobody knows."""
        known = {function.name for function in self._functions}
        loud = self._loud_functions(known)
        for function in self._functions:
            self.function = function
            pushed: list[tuple[int, int, str]] = []
            for call in function.calls:
                if call.callee not in known or call.callee in loud:
                    at = f", !dbg !{call.debug}" if call.debug and self.keep_debug else ""
                    function.sites[call.line] = site = self._site("call", call.debug, call.target, call.callee)
                    pushed.append((call.place, site, at))
            for place in function.accesses:
                self.out[place] = self.out[place].replace(hooks.FRAME, str(int(bool(pushed))), 1)
            if function.entry >= 0:
                self._write_frames(function, pushed)

    def _loud_functions(self, known: set[str]) -> set[str]:
        """Functions of the unit that may reach a hook or code of others, by themselves or by what they call."""
        callers: dict[str, list[str]] = {}
        waiting: list[str] = []
        for function in self._functions:
            callees = [call.callee for call in function.calls]
            for callee in callees:
                if callee in known:
                    callers.setdefault(callee, []).append(function.name)
            if function.hooked or not function.certain or not known.issuperset(callees):
                waiting.append(function.name)
        loud = set(waiting)
        while waiting:
            for caller in callers.get(waiting.pop(), ()):
                if caller not in loud:
                    loud.add(caller)
                    waiting.append(caller)
        return loud

    def _write_frames(self, function: Function, pushed: list[tuple[int, int, str]]) -> None:
        """Fill in the places where a function takes its depth, makes its frame and leaves it.

        `pushed`: for each call with a frame its place in the output, its site and its `!dbg`.
        """
        if not pushed:
            if function.deep:
                self.out[function.entry] = f"  %cc.depth = call i32 {self.hooks.enter()}()"
            return
        self.out[function.entry] = f"  %cc.depth = call i32 {self.hooks.enter_frame()}(i64 {pushed[0][1]})"
        if len(pushed) > 1:
            for place, site, at in pushed:
                self.out[place] = f"  call void {self.hooks.push()}(i32 %cc.depth, i64 {site}){at}"
        for place, left in function.leaves:
            helper = self.hooks.leave() if left else self.hooks.again()
            self.out[place] = f"  call void {helper}(i32 %cc.depth)"

    # -- comparisons -------------------------------------------------------------------------------------------

    def _compare(self, line: str) -> None:
        number = self._timers.get(self.function.name, {}).get(self._line)
        if number is not None:
            found = _COMPARED.search(line)
            assert found is not None
            type_, left, right = found.group("type", "left", "right")
            helper = self.hooks.compared(type_, unsigned=found.group("relation")[0] == "u")
            at = DBG.search(line) if self.keep_debug else None
            self.emit(
                f"  call void {helper}({type_} {left}, {type_} {right}, {hooks.timer(number)})"
                + (at.group() if at else "")
            )
        self._plain(line)

    # -- plain and atomic stores -------------------------------------------------------------------------------

    def _pointer(self, line: str, at: int) -> tuple[str, int]:
        """The pointer operand at `at`, "" if it is in a segment's address space; and where it ends."""
        if line.startswith("ptr addrspace(", at):
            return "", value_end(line, line.index(")", at) + 2)
        end = value_end(line, at + 4)
        return line[at + 4 : end], end

    def _store(self, line: str) -> None:
        prefix = _STORE.match(line)
        assert prefix is not None
        at = prefix.end()
        end = type_end(line, at)
        type_text = line[at:end]
        cut = value_end(line, end + 1)
        value = line[end + 1 : cut]
        pointer, rest = self._pointer(line, cut + 2)
        if prefix.group(1):
            self._atomic_store(line, type_text, pointer, rest)
            return
        flags = hooks.STORE_VOLATILE if prefix.group(2) else 0
        if not pointer or self.is_local(pointer):
            if pointer:
                self.global_access(line, type_text, pointer, flags | hooks.ACCESS_WRITES)
            self._plain(line)
            return
        target = self.target(pointer, type_text, line)
        if target.local:
            self.global_access(line, type_text, pointer, flags | hooks.ACCESS_WRITES)
        else:
            if "!nontemporal" in line:
                flags |= hooks.STORE_NT
            self.store_hook(line, type_text, value, pointer, target, flags)
        self._plain(line)

    def _load(self, line: str) -> None:
        prefix = _LOAD.search(line)
        assert prefix is not None
        end = type_end(line, prefix.end())
        pointer, _ = self._pointer(line, end + 2)
        if pointer:
            flags = hooks.STORE_ATOMIC if prefix.group(1) else 0
            if prefix.group(2):
                flags |= hooks.STORE_VOLATILE
            if self.is_local(pointer):
                self.global_access(line, line[prefix.end() : end], pointer, flags)
            else:
                self.load_hook(line, line[prefix.end() : end], pointer, flags)
        self._plain(line)

    def _plain(self, line: str, following: Sequence[str] = ()) -> None:
        """The instruction itself, unchanged."""
        self.out += [line, *following]

    def _bracket(
        self, line: str, type_text: str, pointer: str, locked: bool, stored: str, read: int = hooks.ATOMIC_READ
    ) -> None:
        """An atomic operation under the recorder's lock, so that recorded order agrees with what was read."""
        size = self.module.types.store_size(type_text)
        target = self.target(pointer, type_text, line) if pointer else Target(local=True)
        if pointer and target.local:
            target = self.shared_global(pointer)
        if target.local:
            self._plain(line)
            self.locked_elsewhere(line, locked)
            return
        begun = self.fresh()
        site = self.site("atomic", line, target)
        self.hook(f"  {begun} = call i1 {self.hooks.begin()}(ptr {pointer})", line)
        self._plain(line)
        if stored == "cmpxchg":
            result = line[2 : line.index(" = ")]
            stored = self.fresh()
            self.emit(f"  {stored} = extractvalue {{ {type_text}, i1 }} {result}, 1")
        self.hook(
            f"  call void {self.hooks.end()}(i1 {begun}, ptr {pointer}, i32 {size}, i1 "
            f"{'true' if locked else 'false'}, "
            f"i1 {stored}, i32 {read}, ptr {target.instance}, i32 {site}, i32 %cc.depth)",
            line,
        )

    def _atomic_store(self, line: str, type_text: str, pointer: str, rest: int) -> None:
        tail = _ATOMIC_TAIL.match(line, rest)
        if tail is None:
            raise IRSyntaxError(line)
        locked = tail.group(2) == "seq_cst" and tail.group(1) != "singlethread"
        self._bracket(line, type_text, pointer, locked, "true", 0)

    def _atomicrmw(self, line: str) -> None:
        at = line.index("atomicrmw ") + 10
        at = line.index("ptr", at)
        pointer, end = self._pointer(line, at)
        type_text = line[end + 2 : type_end(line, end + 2)]
        self._bracket(line, type_text, pointer, True, "true")

    def _cmpxchg(self, line: str) -> None:
        at = line.index("ptr", line.index("cmpxchg ") + 8)
        pointer, end = self._pointer(line, at)
        type_text = line[end + 2 : type_end(line, end + 2)]
        self._bracket(line, type_text, pointer, True, "cmpxchg")

    def _library_atomic(self, line: str, callee: str, parenthesis: int) -> bool:
        """Whether a call is an atomic operation of libatomic, whose read-modify-writes have a locked instruction."""
        arguments = call_arguments(line, parenthesis)
        call = atomic_call(callee, arguments)
        if call is None:
            return False
        pointer, type_text = operand(arguments[call.pointer]).value, f"i{8 * call.size_bytes}"
        if call.operation == "load":
            self.load_hook(line, type_text, pointer, hooks.STORE_ATOMIC)
            self._plain(line)
            return True
        swaps = call.operation == "compare_exchange"
        stored = line[2 : line.index(" = ")] if swaps and " = " in line else "true"
        stores = call.operation == "store"
        self._bracket(line, type_text, pointer, not stores, stored, 0 if stores else hooks.ATOMIC_READ)
        return True

    def _fence(self, line: str) -> None:
        if line.startswith("  fence seq_cst"):
            self.fence(line, hooks.MFENCE)
        self._plain(line)

    # -- calls -------------------------------------------------------------------------------------------------

    def _ret(self, line: str) -> None:
        if not self._tail_called():
            self._leave_here(True)
        self._plain(line)

    def _tail_called(self) -> bool:
        for previous in reversed(self.out[-3:]):
            if "musttail call " in previous:
                return True
            if previous and " = bitcast " not in previous:
                return False
        return False

    def _call(self, line: str) -> None:
        self._any_call(line, [])

    def _invoke(self, line: str) -> None:
        """An invoke or callbr, with the lines that it continues in."""
        following = []
        while self._lines[self._index].startswith("          "):
            following.append(self._lines[self._index])
            self._index += 1
        self._any_call(line, following)

    def _any_call(self, line: str, following: list[str]) -> None:
        found = _CALLEE.search(line)
        if found is not None and found.group(1) is None:
            self._assembly(line, following, found.end())
            return
        parenthesis = found.end() - 1 if found else 0
        callee = found.group(1)[1:].strip('"') if found is not None and found.group(1)[0] == "@" else ""
        if callee.startswith("llvm."):
            self._intrinsic(line, following, callee, parenthesis)
            return
        external = callee in self.module.declared and not following
        if external and callee.startswith("__atomic_") and self._library_atomic(line, callee, parenthesis):
            return
        if callee in libc_effects.READS and callee in self.module.declared:
            self.read_by(line, callee, parenthesis)
        musttail = "musttail call " in line
        self._before_call(line, "".join([line, *following]), callee, parenthesis, musttail)
        self._plain(line, following)
        if self._twice and not following and self._twice & set(_GROUPS.findall(line[line.rfind(")") :])):
            self._leave_here(False)

    def _before_call(self, line: str, whole: str, callee: str, parenthesis: int, musttail: bool) -> None:
        """What a library model or the shadow stack needs before a call."""
        if callee in self.models:
            site = self.site("model", whole, self._destination(line, callee, parenthesis), callee)
            self.hook(f"  call void {self.hooks.at()}(i32 {site}, i32 %cc.depth)", whole)
        elif musttail:
            self.function.hooked = True  # its callee may be anything, and this call has no frame
        elif callee not in libc_effects.QUIET or callee not in self.module.declared:
            dbg = DBG.search(whole)
            target = self._destination(line, callee, parenthesis)
            debug = dbg.group(1) if dbg else ""
            self.function.calls.append(FrameCall(len(self.out), callee, debug, self._line, target))
            self.out.append("")
        if musttail:
            self._leave_here(True)

    def _destination(self, line: str, callee: str, parenthesis: int) -> Target | None:
        """What a call writes to, for its name; of a library call the model itself reports the address."""
        index = libc_effects.destination(callee)
        if index is None:
            return None
        arguments = call_arguments(line, parenthesis)
        if index >= len(arguments):
            return None
        pointer = operand(arguments[index])
        if pointer.type != "ptr" or self.is_local(pointer.value):
            return None
        return self.types.resolve(pointer.value, self.definitions, self._slots, "", line, self.fresh)

    def _intrinsic(self, line: str, following: list[str], callee: str, parenthesis: int) -> None:
        handler: Intrinsic | None = None
        if callee.startswith("llvm.threadlocal.address"):
            self.definitions[line[2 : line.index(" = ")]] = line
        if not callee.startswith(
            ("llvm.dbg", "llvm.lifetime", "llvm.assume", "llvm.expect", "llvm.umul", "llvm.fmuladd")
        ):
            parts = callee.split(".")
            for length in range(len(parts), 1, -1):
                handler = INTRINSICS.get(".".join(parts[:length]))
                if handler is not None:
                    break
        if handler is None:
            if callee.startswith("llvm.x86.") and "ptr" in line[parenthesis:]:
                self._unknown_intrinsic(line, callee, parenthesis)
            self._plain(line, following)
            return
        arguments = [operand(part) for part in call_arguments(line, parenthesis)]
        handler(self, "".join([line, *following]), callee, arguments)
        self._plain(line, following)

    def _unknown_intrinsic(self, line: str, callee: str, parenthesis: int) -> None:
        if _READING.search(callee):
            return
        for part in call_arguments(line, parenthesis):
            argument = operand(part)
            if argument.type == "ptr" and argument.value != "null" and not self.is_local(argument.value):
                self.unknown(line, callee)
                return

    # -- inline assembly ---------------------------------------------------------------------------------------

    def _assembly(self, line: str, following: list[str], at: int) -> None:
        whole = "".join([line, *following])
        call = inline_asm.read_call(line, at)
        plan = inline_asm.understand(call)
        if plan.not_understood:
            if not (plan.targets and all(self.is_local(pointer) for pointer in plan.targets)):
                self.unknown(whole, call.template)
            self._plain(line, following)
            return
        after = [] if following else asm_hooks.emit_before(self, whole, plan)
        if following and plan.steps:
            self.unknown(whole, call.template)
        self._plain(line, following)
        for step in after:
            step()

    _HANDLERS: ClassVar[dict[str, Callable[[Rewriter, str], None]]] = {
        "store": _store,
        "load": _load,
        **dict.fromkeys(("call", "tail", "notail", "musttail"), _call),
        **dict.fromkeys(("invoke", "callbr"), _invoke),
        "atomicrmw": _atomicrmw,
        "cmpxchg": _cmpxchg,
        "fence": _fence,
        "ret": _ret,
        **dict.fromkeys(("icmp", "fcmp"), _compare),
    }
