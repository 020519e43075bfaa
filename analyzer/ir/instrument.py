"""Which instruction gets which hook: one pass over a unit's IR text.

Rules: crash-model.md (what an update, a flush and a fence is) and runtime/hooks.h (what the recorder is told).
New values have names, so that the numbering of unnamed ones stays; no block is split in text, because the
helpers of `hooks` are inlined afterwards.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from crashcheck.analyzer.ir import asm, hooks
from crashcheck.analyzer.ir.debuginfo import DebugInfo, Position
from crashcheck.analyzer.ir.facts import NotUnderstood, Site
from crashcheck.analyzer.ir.hooks import Hooks
from crashcheck.analyzer.ir.intrinsics import INTRINSICS, Intrinsic
from crashcheck.analyzer.ir.module import (
    NAME,
    IRSyntaxError,
    ModuleText,
    Operand,
    matching,
    operand,
    split_commas,
    type_end,
)
from crashcheck.analyzer.ir.typemap import Slots, Target, TypeMap

_HEADER = re.compile(rf"^define .*?@({NAME})\(")
_CALLEE = re.compile(rf"(?:(@(?:{NAME})|%(?:{NAME}))\(| asm )")
_VALUE = re.compile(rf"[%@](?:{NAME})|-?\d[\w.+]*|[a-z]\w*(?![\w (])")
_DBG = re.compile(r", !dbg !(\d+)")
_ATTACHED = re.compile(r", !dbg !\d+")
_DEFINED = re.compile(r" !dbg !\d+")
_GROUP = re.compile(r" #\d+")
_GROUPS = re.compile(r"#(\d+)")
_STORE = re.compile(r"  store (atomic )?(volatile )?")
_ATOMIC_TAIL = re.compile(r'(?: syncscope\("([^"]*)"\))? (\w+)(?: (\w+))?, align (\d+)')
_WORDS = frozenset({"half", "bfloat", "float", "double", "ptr"})
_OPAQUE_LINKAGE = re.compile(r"^define (?:weak|linkonce|extern_weak|available_externally|common)\b")
# External functions that never call back into the program and that no model records.
QUIET_EXTERNALS = frozenset(
    [
        "strlen",
        "strnlen",
        "strcmp",
        "strncmp",
        "strcasecmp",
        "strncasecmp",
        "strchr",
        "strrchr",
        "strstr",
        "strspn",
        "strcspn",
        "strpbrk",
        "memcmp",
        "memchr",
        "memrchr",
        "malloc",
        "calloc",
        "free",
        "aligned_alloc",
        "posix_memalign",
        "abort",
        "_exit",
        "__assert_fail",
        "__errno_location",
        "__stack_chk_fail",
        "isatty",
        "getpid",
        "getppid",
        "gettid",
        "time",
        "clock_gettime",
        "gettimeofday",
        "sched_yield",
        "usleep",
        "nanosleep",
        "pthread_mutex_lock",
        "pthread_mutex_unlock",
        "pthread_mutex_trylock",
        "pthread_rwlock_rdlock",
        "pthread_rwlock_wrlock",
        "pthread_rwlock_unlock",
        "pthread_self",
        "pthread_getspecific",
        "printf",
        "puts",
        "putchar",
        "fprintf",
        "fputs",
        "fputc",
        "fwrite",
        "fflush",
        "perror",
        "strerror",
        "rand",
        "srand",
        "random",
        "srandom",
        "atoi",
        "atol",
        "strtol",
        "strtoul",
        "strtoll",
        "strtoull",
        "strtod",
        "getenv",
        "abs",
        "labs",
        "sqrt",
        "pow",
        "floor",
        "ceil",
        "log",
        "exp",
        "_Znwm",
        "_Znam",
        "_ZdlPv",
        "_ZdlPvm",
        "_ZdaPv",
        "_ZdaPvm",
        "__cxa_allocate_exception",
        "__cxa_free_exception",
        "__cxa_begin_catch",
        "__cxa_throw",
        "__cxa_rethrow",
        "__cxa_guard_acquire",
        "__cxa_guard_release",
        "__cxa_guard_abort",
        "__clang_call_terminate",
        "_ZSt9terminatev",
        "_ZSt17__throw_bad_allocv",
        "_ZSt20__throw_length_errorPKc",
        "__cxa_pure_virtual",
    ]
)


@dataclass(slots=True)
class _Function:
    name: str
    position: Position
    certain: bool  # the definition that runs is this one
    hooked: bool = False
    entry: int = -1  # where in the output the depth is loaded
    leaves: list[tuple[int, bool]] = field(default_factory=list)  # (place in the output, whether the function is left)
    calls: list[tuple[int, str, str]] = field(default_factory=list)  # (place in the output, callee or "", !dbg number)


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A unit's text with hooks, without its descriptor, and what to say about it."""

    text: str
    sites: tuple[Site, ...]
    not_understood: tuple[NotUnderstood, ...]
    functions: dict[str, str]  # symbol → hash of its code, blind to metadata and the numbers of attribute groups


class Rewriter:
    """Rewrites one unit. `models`: functions that the runtime wraps; `keep_debug`: the user asked for -g."""

    def __init__(self, module: ModuleText, debug: DebugInfo, models: frozenset[str], keep_debug: bool) -> None:
        self.module = module
        self.debug = debug
        self.models = models & module.declared
        self.keep_debug = keep_debug
        self.hooks = Hooks()
        self.types = TypeMap(module.types, debug)
        self.sites: list[Site] = []
        self.not_understood: list[NotUnderstood] = []
        self.out: list[str] = []
        self._site_index: dict[tuple[object, ...], int] = {}
        self._functions: list[_Function] = []
        self._hashes: dict[str, str] = {}
        self._function = _Function("", Position("", 0, 0, ""), False)
        self.definitions: dict[str, str] = {}
        self._slots = Slots("")
        self._fresh = 0
        self._naked = {number for number, text in module.attributes.items() if re.search(r"\bnaked\b", text)}
        self._twice = {number for number, text in module.attributes.items() if "returns_twice" in text}

    # -- what handlers use -------------------------------------------------------------------------------------

    def fresh(self) -> str:
        self._fresh += 1
        return f"%cc.{self._fresh}"

    def emit(self, line: str) -> None:
        self.out.append(line)

    def hook(self, call: str, line: str) -> None:
        """Emit a call at the source position of `line`."""
        self._function.hooked = True
        found = _DBG.search(line) if self.keep_debug else None
        self.out.append(call + found.group() if found else call)

    def site(self, kind: str, line: str, target: Target | None = None, callee: str = "") -> int:
        found = _DBG.search(line)
        return self._site(kind, found.group(1) if found else "", target, callee)

    def _site(self, kind: str, dbg: str, target: Target | None, callee: str) -> int:
        positions = (self.debug.positions(int(dbg)) if dbg else ()) or (self._function.position,)
        variable, steps = (target.variable, target.steps) if target is not None else ("", ())
        self.sites.append(Site(kind, positions, variable, steps, callee))
        return len(self.sites) - 1

    def position(self, line: str) -> Position:
        found = _DBG.search(line)
        positions = self.debug.positions(int(found.group(1))) if found else ()
        return positions[0] if positions else self._function.position

    def target(self, pointer: str, stored: str, line: str) -> Target:
        """Resolve a pointer and emit what computes its instance."""
        target = self.types.resolve(pointer, self.definitions, self._slots, stored, line, self.fresh)
        if target.prelude:
            self.emit(target.prelude)
        return target

    def is_local(self, pointer: str) -> bool:
        return self.types.is_local(pointer, self.definitions)

    def unknown(self, line: str, text: str) -> None:
        self.not_understood.append(NotUnderstood(self.position(line), text))

    # -- the pass ----------------------------------------------------------------------------------------------

    def run(self) -> Instrumented:
        """Raises IRSyntaxError with the line that could not be read."""
        body = self.module.body
        lines = body.split("\n")
        handlers: dict[str, Callable[[str], None]] = {
            "store": self._store,
            "call": self._call,
            "tail": self._call,
            "notail": self._call,
            "musttail": self._call,
            "atomicrmw": self._atomicrmw,
            "cmpxchg": self._cmpxchg,
            "fence": self._fence,
            "ret": self._ret,
        }
        keep = frozenset({"getelementptr", "bitcast", "alloca", "load"})
        out = self.out
        inside = False
        in_entry = False
        pad = False
        index, count = 0, len(lines)
        while index < count:
            line = lines[index]
            index += 1
            if line[:2] != "  ":
                if line.startswith("define "):
                    end = lines.index("}", index)
                    if self._begin_function(line, lines[index:end]):
                        inside = in_entry = True
                    else:
                        out.append(line)
                        out.extend(lines[index:end])
                        index = end
                        continue
                elif line == "}":
                    inside = False
                out.append(line)
                continue
            if not inside:
                out.append(line)
                continue
            third = line[2]
            if third == " ":
                if self.keep_debug or "#dbg_" not in line:
                    out.append(line)
                continue
            if pad:
                self._leave_here(False)
                pad = False
            if third == "%":
                start = line.index(" = ") + 3
                word = line[start : line.find(" ", start)]
                if word in keep:
                    self.definitions[line[2 : start - 3]] = line
                    if word == "alloca":
                        out.append(line)
                        continue
            else:
                space = line.find(" ", 2)
                word = line[2:space] if space > 0 else line[2:]
            if in_entry:
                in_entry = False
                self._function.entry = len(out)
                out.append("")
            handler = handlers.get(word)
            if handler is not None:
                handler(line)
            elif word in ("invoke", "callbr"):
                following = []
                while lines[index].startswith("          "):
                    following.append(lines[index])
                    index += 1
                self._invoke(line, following)
            else:
                if word == "landingpad":
                    pad = True
                out.append(line)
        self._resolve_calls()
        text = "\n".join(piece for piece in out if piece)
        if not self.keep_debug:
            text = _DEFINED.sub("", _ATTACHED.sub("", text))
        if self.models:
            names = "|".join(re.escape(name) for name in sorted(self.models))
            text = re.sub(rf"@(?:{names})(?![-\w.$])", lambda found: "@cc_wrap_" + found.group()[1:], text)
        return Instrumented(text, tuple(self.sites), tuple(self.not_understood), self._hashes)

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
        position = self.debug.subprogram(int(dbg.group(1))) if dbg else Position("", 0, 0, name)
        certain = not _OPAQUE_LINKAGE.match(line) and (
            " dso_local " in line or re.match(r"define (?:internal|private|linkonce_odr|weak_odr) ", line) is not None
        )
        self._function = _Function(name, position, certain)
        self._functions.append(self._function)
        self.definitions = {}
        self._slots = Slots("\n" + "\n".join(body))
        code = "\n".join([text.partition(", !")[0] for text in body if not text.startswith("    #")])
        self._hashes[name] = hashlib.blake2b(_GROUP.sub("", code).encode(), digest_size=8).hexdigest()
        return True

    def _leave_here(self, left: bool) -> None:
        """A place where this function's frame ends, or is the top again after others were cut off."""
        self._function.leaves.append((len(self.out), left))
        self.out.append("")

    def _resolve_calls(self) -> None:
        """Decide which calls push a frame: those that may reach a hook or code that nobody knows."""
        by_name = {function.name: function for function in self._functions}
        callers: dict[str, list[str]] = {}
        noisy: list[str] = []
        for function in self._functions:
            loud = function.hooked or not function.certain
            for _, callee, _ in function.calls:
                if callee in by_name:
                    callers.setdefault(callee, []).append(function.name)
                else:
                    loud = True
            if loud:
                noisy.append(function.name)
        loud_names = set(noisy)
        while noisy:
            for caller in callers.get(noisy.pop(), ()):
                if caller not in loud_names:
                    loud_names.add(caller)
                    noisy.append(caller)
        for function in self._functions:
            self._function = function
            pushed: list[tuple[int, int, str]] = []
            for place, callee, dbg in function.calls:
                if callee not in by_name or callee in loud_names:
                    at = f", !dbg !{dbg}" if dbg and self.keep_debug else ""
                    pushed.append((place, self._site("call", dbg, None, callee), at))
            if function.entry < 0 or not (pushed or function.hooked):
                continue
            if not pushed:
                self.out[function.entry] = f"  %cc.depth = call i32 {self.hooks.enter()}()"
                continue
            self.out[function.entry] = f"  %cc.depth = call i32 {self.hooks.enter_frame()}(i64 {pushed[0][1]})"
            if len(pushed) > 1:
                for place, site, at in pushed:
                    self.out[place] = f"  call void {self.hooks.push()}(i32 %cc.depth, i64 {site}){at}"
            for place, left in function.leaves:
                helper = self.hooks.leave() if left else self.hooks.again()
                self.out[place] = f"  call void {helper}(i32 %cc.depth)"

    # -- plain and atomic stores -------------------------------------------------------------------------------

    def _value_end(self, line: str, at: int) -> int:
        found = _VALUE.match(line, at)
        if found is not None and line[found.end() : found.end() + 1] in (",", " ", ""):
            return found.end()
        position = at
        while position < len(line):
            character = line[position]
            if character in "([{<":
                position = matching(line, position)
                continue
            if character == '"':
                position = line.index('"', position + 1) + 1
                continue
            if character == ",":
                return position
            position += 1
        return position

    def _pointer(self, line: str, at: int) -> tuple[str, int]:
        """The pointer operand at `at`, "" if it is in a segment's address space; and where it ends."""
        if line.startswith("ptr addrspace(", at):
            return "", self._value_end(line, line.index(")", at) + 2)
        end = self._value_end(line, at + 4)
        return line[at + 4 : end], end

    def _store(self, line: str) -> None:
        prefix = _STORE.match(line)
        assert prefix is not None
        at = prefix.end()
        end = type_end(line, at)
        type_text = line[at:end]
        value_end = self._value_end(line, end + 1)
        value = line[end + 1 : value_end]
        pointer, rest = self._pointer(line, value_end + 2)
        if prefix.group(1):
            self._atomic_store(line, type_text, pointer, rest)
            return
        if not pointer or self.is_local(pointer):
            self._plain(line)
            return
        target = self.target(pointer, type_text, line)
        if not target.local:
            flags = hooks.STORE_VOLATILE if prefix.group(2) else 0
            if "!nontemporal" in line:
                flags |= hooks.STORE_NT
            self.store_hook(line, type_text, value, pointer, target, flags)
        self._plain(line)

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

    def _plain(self, line: str) -> None:
        self.out.append(line)

    def _bracket(self, line: str, type_text: str, pointer: str, locked: bool, stored: str) -> None:
        """An atomic operation under the recorder's lock, so that recorded order agrees with what was read."""
        size = self.module.types.store_size(type_text)
        target = self.target(pointer, type_text, line)
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
            f"i1 {stored}, ptr {target.instance}, i32 {site}, i32 %cc.depth)",
            line,
        )

    def locked_elsewhere(self, line: str, locked: bool) -> None:
        if locked:
            site = self.site("fence", line)
            self.hook(f"  call void {self.hooks.locked()}(i32 {site}, i32 %cc.depth)", line)

    def _atomic_store(self, line: str, type_text: str, pointer: str, rest: int) -> None:
        tail = _ATOMIC_TAIL.match(line, rest)
        if tail is None:
            raise IRSyntaxError(line)
        locked = tail.group(2) == "seq_cst" and tail.group(1) != "singlethread"
        if not pointer or self.is_local(pointer):
            self._plain(line)
            self.locked_elsewhere(line, locked)
            return
        self._bracket(line, type_text, pointer, locked, "true")

    def _atomicrmw(self, line: str) -> None:
        at = line.index("atomicrmw ") + 10
        at = line.index("ptr", at)
        pointer, end = self._pointer(line, at)
        type_text = line[end + 2 : type_end(line, end + 2)]
        if not pointer or self.is_local(pointer):
            self._plain(line)
            self.locked_elsewhere(line, True)
            return
        self._bracket(line, type_text, pointer, True, "true")

    def _cmpxchg(self, line: str) -> None:
        at = line.index("ptr", line.index("cmpxchg ") + 8)
        pointer, end = self._pointer(line, at)
        type_text = line[end + 2 : type_end(line, end + 2)]
        if not pointer or self.is_local(pointer):
            self._plain(line)
            self.locked_elsewhere(line, True)
            return
        self._bracket(line, type_text, pointer, True, "cmpxchg")

    def _fence(self, line: str) -> None:
        if line.startswith("  fence seq_cst"):
            self.fence(line, hooks.MFENCE)
        self._plain(line)

    def fence(self, line: str, kind: int) -> None:
        site = self.site("fence", line)
        self.hook(f"  call void {self.hooks.fence()}(i32 {kind}, i32 {site}, i32 %cc.depth)", line)

    def flush(self, line: str, pointer: str, kind: int) -> None:
        if not self.is_local(pointer):
            target = self.target(pointer, "i8", line)
            if target.local:
                return
            site = self.site("flush", line, target)
            self.hook(f"  call void {self.hooks.flush()}(ptr {pointer}, i32 {kind}, i32 {site}, i32 %cc.depth)", line)

    def copy(self, line: str, target_pointer: str, source: str, size: Operand) -> None:
        if self.is_local(target_pointer):
            return
        target = self.target(target_pointer, "", line)
        if not target.local:
            site = self.site("copy", line, target)
            self.hook(
                f"  call void {self.hooks.copy()}(ptr {target_pointer}, ptr {source}, i64 {self.wide(size)}, "
                f"ptr {target.instance}, i32 {site}, i32 %cc.depth)",
                line,
            )

    def fill(self, line: str, target_pointer: str, byte: str, size: Operand) -> None:
        if self.is_local(target_pointer):
            return
        target = self.target(target_pointer, "", line)
        if not target.local:
            site = self.site("fill", line, target)
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

    # -- what only assembly and a few intrinsics do ---------------------------------------------------------------

    def store_from(self, line: str, pointer: str, source: str, size: str, flags: int) -> None:
        """A store whose bytes lie at `source`, before it executes."""
        if self.is_local(pointer):
            return
        target = self.target(pointer, "", line)
        if not target.local:
            site = self.site("store", line, target)
            self.hook(
                f"  call void {self.hooks.wide_from()}(ptr {pointer}, ptr {source}, i64 {size}, ptr {target.instance}, "
                f"i32 {site}, i32 %cc.depth, i32 {flags})",
                line,
            )

    def assembly_store(self, line: str, pointer: str, size: int, flags: int) -> Callable[[], None] | None:
        """A store by assembly: its bytes are read back after it."""
        if self.is_local(pointer):
            return None
        target = self.target(pointer, f"i{size * 8}", line)
        if target.local:
            return None
        site = self.site("asm", line, target)

        def finish() -> None:
            self.hook(
                f"  call void {self.hooks.written()}(ptr {pointer}, i64 {size}, ptr {target.instance}, i32 {site}, "
                f"i32 %cc.depth, i32 {flags})",
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
                f"ptr {target.instance}, i32 {site}, i32 %cc.depth)",
                line,
            )

        return finish

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

    def _invoke(self, line: str, following: list[str]) -> None:
        self._any_call(line, following)

    def _any_call(self, line: str, following: list[str]) -> None:
        whole = "".join([line, *following])
        found = _CALLEE.search(line)
        if found is not None and found.group(1) is None:
            self._assembly(line, following, found.end())
            return
        callee = found.group(1)[1:].strip('"') if found is not None and found.group(1)[0] == "@" else ""
        if callee.startswith("llvm."):
            self._intrinsic(line, following, callee, found.end() - 1 if found else 0)
            return
        musttail = "musttail call " in line
        if callee in self.models:
            site = self.site("model", whole, None, callee)
            self.hook(f"  call void {self.hooks.at()}(i32 {site}, i32 %cc.depth)", whole)
            if musttail:
                self._leave_here(True)
        elif musttail:
            self._function.hooked = True  # its callee may be anything, and no frame stands for this call
            self._leave_here(True)
        elif callee not in QUIET_EXTERNALS or callee not in self.module.declared:
            dbg = _DBG.search(whole)
            self._function.calls.append((len(self.out), callee, dbg.group(1) if dbg else ""))
            self.out.append("")
        self._plain(line)
        for more in following:
            self._plain(more)
        if self._twice and not following and self._twice & set(_GROUPS.findall(line[line.rfind(")") :])):
            self._leave_here(False)

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
            self._plain(line)
            for more in following:
                self._plain(more)
            return
        arguments = [operand(part) for part in split_commas(line[parenthesis + 1 : matching(line, parenthesis) - 1])]
        handler(self, "".join([line, *following]), callee, arguments)
        self._plain(line)
        for more in following:
            self._plain(more)

    def _unknown_intrinsic(self, line: str, callee: str, parenthesis: int) -> None:
        if re.search(r"load|gather|maskload|prefetch|ldmxcsr|\.rd|monitor|fxrstor|xrstor", callee):
            return
        for part in split_commas(line[parenthesis + 1 : matching(line, parenthesis) - 1]):
            argument = operand(part)
            if argument.type == "ptr" and argument.value != "null" and not self.is_local(argument.value):
                self.unknown(line, callee)
                return

    # -- inline assembly ---------------------------------------------------------------------------------------

    def _assembly(self, line: str, following: list[str], at: int) -> None:
        whole = "".join([line, *following])
        call = asm.read_call(line, at)
        plan = asm.understand(call)
        if plan.not_understood:
            if not (plan.targets and all(self.is_local(pointer) for pointer in plan.targets)):
                self.unknown(whole, call.template)
            self._plain(line)
            for more in following:
                self._plain(more)
            return
        after = [] if following else asm.emit_before(self, whole, plan)
        if following and plan.steps:
            self.unknown(whole, call.template)
        self._plain(line)
        for more in following:
            self._plain(more)
        for step in after:
            step()
