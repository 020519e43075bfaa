"""The helpers that instrumented code calls: IR text of inline checks in front of the recorder's slow paths.

Contract: runtime/include/hooks.h. The helpers are internal and always inlined; they are part of the unit's own text, so
that no second module has to be linked in.
"""

from __future__ import annotations

HOOKS_VERSION = 2
STACK_MAX = 512

# enum cc_store_flags, cc_flush_kind and cc_fence_kind of runtime/include/trace_format.h
ACCESS_WRITES = 128
STORE_NT, STORE_ATOMIC, STORE_BULK, STORE_VOLATILE = 1, 2, 4, 16
ATOMIC_READ = 2  # enum cc_atomic_done of runtime/include/hooks.h
CLFLUSH, CLFLUSHOPT, CLWB = 1, 2, 3
SFENCE, MFENCE, LOCKED = 1, 2, 3

UNIT = '@"cc.unit"'
SHADOW_TYPE = '%"cc.shadow"'
_READS = "memory(read, inaccessiblemem: readwrite)"
RARE = '!prof !{!"branch_weights", i32 1, i32 2000}'

_DECLARATIONS = {
    "cc_shadow": f"@cc_shadow = external thread_local(initialexec) global {SHADOW_TYPE}",
    "cc_window_start": "@cc_window_start = external global i64",
    "cc_window_bytes": "@cc_window_bytes = external global i64",
    "cc_load_on": "@cc_load_on = external global i8",
    "cc_fence_wanted": "@cc_fence_wanted = external thread_local(initialexec) global i32",
    "cc_recording": "@cc_recording = external global i32",
    "cc_call_site": "@cc_call_site = external thread_local(initialexec) global { ptr, i32, i32 }",
    "cc_store": "declare void @cc_store(ptr, ptr, i64, i64, ptr, i32, i32, i32)",
    "cc_store_word": "declare void @cc_store_word(ptr, i64, i32, i64, ptr, i32, i32, i32)",
    "cc_copy": "declare void @cc_copy(ptr, ptr, i64, i64, ptr, i32, i32)",
    "cc_fill": "declare void @cc_fill(ptr, i32, i64, i64, ptr, i32, i32)",
    # Loads of the program may move across it: it changes nothing that the program sees.
    "cc_load": "declare void @cc_load(ptr, i64, i64, ptr, i32, i32, i32) #cc.reads\n",
    "cc_load_string": "declare void @cc_load_string(ptr, i64, ptr, i32, i32) #cc.reads\n",
    "cc_atomic_begin": "declare void @cc_atomic_begin(ptr)",
    "cc_atomic_end": "declare void @cc_atomic_end(ptr, i32, i32, i32, i64, ptr, i32, i32)",
    "cc_flush": "declare void @cc_flush(ptr, i64, i32, ptr, i32, i32)",
    "cc_fence": "declare void @cc_fence(i32, ptr, i32, i32)",
}

_IN_WINDOW = """  %address = ptrtoint ptr %target to i64
  %start = load i64, ptr @cc_window_start
  %distance = sub i64 %address, %start
  %bytes = load i64, ptr @cc_window_bytes
  %inside = icmp ult i64 %distance, %bytes
"""
_LOADS_ON = "  %on = load i8, ptr @cc_load_on\n  %inside = icmp ne i8 %on, 0\n"
# What an access costs when nothing is recorded: a comparison and a jump that is not taken. Assembly, because a branch
# in IR splits a block, and there are so many loads that optimising those would take as long as all the rest. The
# way out lies behind the function, spares its red zone and keeps every register; recorder/loads.c goes on from there.
LOAD_MACRO = """
module asm ".macro cc_access_hook on, target, site, packed, delta"
module asm "cmpb $0, \\5Con"
module asm "jne 2f"
module asm "1:"
module asm ".subsection 1"
module asm "2: leaq -128(%rsp), %rsp"
module asm "pushq \\5Ctarget"
module asm "pushq $\\5Csite"
module asm "pushq $\\5Cpacked"
module asm "pushq $\\5Cdelta"
module asm "callq cc.access.thunk"
module asm "leaq 160(%rsp), %rsp"
module asm "jmp 1b"
module asm ".previous"
module asm ".endm"
module asm ".macro cc_access_done on"
module asm "cmpb $2, \\5Con"
module asm "je 2f"
module asm "1:"
module asm ".subsection 1"
module asm "2: leaq -128(%rsp), %rsp"
module asm "callq *cc_access_done_entry@GOTPCREL(%rip)"
module asm "leaq 128(%rsp), %rsp"
module asm "jmp 1b"
module asm ".previous"
module asm ".endm"
module asm ".text"
module asm "cc.access.thunk: pushq %rax"
module asm "pushq %rax"
module asm "leaq cc.unit(%rip), %rax"
module asm "movq %rax, 8(%rsp)"
module asm "popq %rax"
module asm "jmp *cc_access_entry@GOTPCREL(%rip)"
"""
NO_INSTANCE = -1
ACCESS_BYTES = (1 << 22) - 1
FRAME = "cc.frame"


def _guarded(signature: str, slow: str, check: str = _IN_WINDOW) -> str:
    return (
        f"define internal void {signature} #cc {{\n{check}  br i1 %inside, label %slow, label %done, {RARE}\n"
        f"slow:\n{slow}  br label %done\ndone:\n  ret void\n}}\n"
    )


_INSTANCE = "  %instance.address = ptrtoint ptr %instance to i64\n"
_SITE = "ptr %instance, i32 %site, i32 %depth"


class Hooks:
    """The helpers that a unit uses; `text()` is what its module needs besides its own code."""

    def __init__(self) -> None:
        self._helpers: dict[str, str] = {}
        self._typed: dict[tuple[str, str], str] = {}
        self._accesses = False

    def _add(self, name: str, text: str) -> str:
        quoted = f'@"cc.{name}"'
        self._helpers.setdefault(quoted, text)
        return quoted

    # -- stores ------------------------------------------------------------------------------------------------

    def store_word(self, type_text: str, size: int) -> str:
        """`void (ptr target, T value, ptr instance, i32 site, i32 depth, i32 flags)`, T at most 64 bits."""
        name = f'@"cc.store.{type_text}"'
        if name not in self._helpers:
            if type_text == "ptr":
                word = "  %word = ptrtoint ptr %value to i64\n"
            elif type_text == "i64":
                word = "  %word = add i64 %value, 0\n"
            elif type_text.startswith("i"):
                word = f"  %word = zext {type_text} %value to i64\n"
            else:
                bits = f"i{size * 8}"
                word = f"  %bits = bitcast {type_text} %value to {bits}\n"
                word += "  %word = zext " + f"{bits} %bits to i64\n" if size < 8 else "  %word = add i64 %bits, 0\n"
            slow = self._add(
                "slow.word",
                'define internal preserve_mostcc void @"cc.slow.word"(ptr %target, i64 %word, ptr %instance, '
                "i32 %site, i32 %depth, "
                f"i32 %packed) #cc.apart "
                f"{{\n{_INSTANCE}  %size = lshr i32 %packed, 8\n  %flags = and i32 %packed, 255\n"
                "  call void @cc_store_word(ptr %target, i64 %word, i32 %size, i64 %instance.address, "
                f"ptr {UNIT}, i32 %site, i32 %depth, i32 %flags) #cc.cold\n  ret void\n}}\n",
            )
            # A callee that keeps the registers costs the ordinary path nothing but the check.
            self._helpers[name] = _guarded(
                f"{name}(ptr %target, {type_text} %value, {_SITE}, i32 %flags)",
                f"{word}  %packed = or i32 %flags, {size << 8}\n"
                f"  call preserve_mostcc void {slow}(ptr %target, i64 %word, ptr %instance, i32 %site, i32 %depth, "
                "i32 %packed) #cc.cold\n",
            )
        return name

    def _name(self, family: str, type_text: str) -> tuple[str, bool]:
        known = self._typed.get((family, type_text))
        if known is not None:
            return known, True
        name = self._typed[family, type_text] = f'@"cc.{family}.{len(self._typed)}"'
        return name, False

    def store_wide(self, type_text: str, size: int) -> str:
        """The same for any other type: the value goes through a temporary."""
        name, known = self._name("wide", type_text)
        if not known:
            self._helpers[name] = (
                f"define internal void {name}(ptr %target, {type_text} %value, {_SITE}, i32 %flags) #cc {{\n"
                f"  %copy = alloca {type_text}\n{_IN_WINDOW}  br i1 %inside, label %slow, label %done, {RARE}\n"
                f"slow:\n  store {type_text} %value, ptr %copy\n{_INSTANCE}"
                f"  call void @cc_store(ptr %target, ptr %copy, i64 {size}, i64 %instance.address, ptr {UNIT}, "
                f"i32 %site, "
                f"i32 %depth, i32 %flags) #cc.cold\n  br label %done\ndone:\n  ret void\n}}\n"
            )
        return name

    def written(self) -> str:
        """`void (ptr target, i64 size, ptr instance, i32 site, i32 depth, i32 flags)`: after an assembly store."""
        return self._add(
            "written",
            _guarded(
                f'@"cc.written"(ptr %target, i64 %size, {_SITE}, i32 %flags)',
                f"{_INSTANCE}  call void @cc_store(ptr %target, ptr %target, i64 %size, i64 %instance.address, "
                f"ptr {UNIT}, i32 %site, i32 %depth, i32 %flags) #cc.cold\n",
            ),
        )

    def wide_from(self) -> str:
        """`void (ptr target, ptr source, i64 size, ptr instance, i32 site, i32 depth, i32 flags)`: before it."""
        return self._add(
            "from",
            _guarded(
                f'@"cc.from"(ptr %target, ptr %source, i64 %size, {_SITE}, i32 %flags)',
                f"{_INSTANCE}  call void @cc_store(ptr %target, ptr %source, i64 %size, i64 %instance.address, "
                f"ptr {UNIT}, i32 %site, i32 %depth, i32 %flags) #cc.cold\n",
            ),
        )

    def store_lanes(self, vector: str, lane: str, lanes: int, size: int, form: str) -> str:
        """`void (T value, <ptr|vector of ptr> target, <N x i1> mask, ptr instance, i32 site, i32 depth, i32 flags)`.

        `form`: "masked" (lane i at target + i), "scatter" (a pointer a lane) or "compress" (enabled lanes packed).
        """
        name, known = self._name(form, vector)
        if known:
            return name
        pointers = f"<{lanes} x ptr>"
        parameter = f"{pointers} %targets" if form == "scatter" else "ptr %target"
        where = {
            "masked": "  %to = getelementptr i8, ptr %target, i64 %shift\n",
            "compress": f"  %packed = mul i64 %count, {size}\n  %to = getelementptr i8, ptr %target, i64 %packed\n",
            "scatter": "  %at = getelementptr ptr, ptr %pointers, i64 %lane\n  %to = load ptr, ptr %at\n",
        }[form]
        setup = f"  %pointers = alloca {pointers}\n" if form == "scatter" else ""
        fill = f"  store {pointers} %targets, ptr %pointers\n" if form == "scatter" else ""
        check = _IN_WINDOW.replace("%target", "%to")
        self._helpers[name] = (
            f"define internal void {name}({vector} %value, {parameter}, <{lanes} x i1> %mask, {_SITE}, i32 "
            f"%flags) #cc {{\n"
            f"  %copy = alloca {vector}\n  %enabled = alloca <{lanes} x i8>\n{setup}"
            f"  store {vector} %value, ptr %copy\n  %wide = zext <{lanes} x i1> %mask to <{lanes} x i8>\n"
            f"  store <{lanes} x i8> %wide, ptr %enabled\n{fill}{_INSTANCE}"
            f"  %recording = load i64, ptr @cc_window_bytes\n  %off = icmp eq i64 %recording, 0\n"
            f"  %entry.count = add i64 0, 0\n  br i1 %off, label %done, label %loop\n"
            f"loop:\n  %lane = phi i64 [ %entry.count, %0 ], [ %next, %step ]\n"
            f"  %count = phi i64 [ 0, %0 ], [ %counted, %step ]\n"
            f"  %flag.at = getelementptr i8, ptr %enabled, i64 %lane\n  %flag = load i8, ptr %flag.at\n"
            f"  %on = icmp ne i8 %flag, 0\n  br i1 %on, label %look, label %step\n"
            f"look:\n  %shift = mul i64 %lane, {size}\n{where}{check}  br i1 %inside, label %slow, label %step\n"
            f"slow:\n  %from = getelementptr i8, ptr %copy, i64 %shift\n"
            f"  call void @cc_store(ptr %to, ptr %from, i64 {size}, i64 %instance.address, ptr {UNIT}, i32 "
            f"%site, i32 %depth, "
            f"i32 %flags) #cc.cold\n  br label %step\n"
            f"step:\n  %one = zext i8 %flag to i64\n  %counted = add i64 %count, %one\n  %next = add i64 %lane, 1\n"
            f"  %more = icmp ult i64 %next, {lanes}\n  br i1 %more, label %loop, label %done\ndone:\n  ret void\n}}\n"
        )
        return name

    def copy(self) -> str:
        """`void (ptr target, ptr source, i64 size, ptr instance, i32 site, i32 depth)`, before memcpy or memmove."""
        return self._add(
            "copy",
            _guarded(
                f'@"cc.copy"(ptr %target, ptr %source, i64 %size, {_SITE})',
                f"{_INSTANCE}  call void @cc_copy(ptr %target, ptr %source, i64 %size, i64 %instance.address, "
                f"ptr {UNIT}, "
                "i32 %site, i32 %depth) #cc.cold\n",
            ),
        )

    def fill(self) -> str:
        """`void (ptr target, i8 byte, i64 size, ptr instance, i32 site, i32 depth)`, before memset."""
        return self._add(
            "fill",
            _guarded(
                f'@"cc.fill"(ptr %target, i8 %byte, i64 %size, {_SITE})',
                f"{_INSTANCE}  %word = zext i8 %byte to i32\n"
                f"  call void @cc_fill(ptr %target, i32 %word, i64 %size, i64 %instance.address, ptr {UNIT}, "
                "i32 %site, i32 %depth) #cc.cold\n",
            ),
        )

    # -- loads -------------------------------------------------------------------------------------------------

    def access(self, pointer: str, size: int, flags: int, delta: int, site: int, first_group: int) -> str:
        """The line before a load of at most ACCESS_BYTES. FRAME in it becomes 1 if its function has a frame, else 0.

        `delta`: bytes from the outermost struct instance, NO_INSTANCE if not static.
        """
        self._accesses = True
        return (
            f'  call void asm sideeffect "cc_access_hook $0,$1,{site},{size << 9 | flags << 1}+{FRAME},{delta}", '
            f'"*m,r,~{{dirflag}},~{{fpsr}},~{{flags}}"(ptr elementtype(i8) @cc_load_on, ptr {pointer}) '
            f"#{first_group + 5}"
        )

    def access_done(self, first_group: int) -> str:
        """The line after the accesses of a stretch of code that neither calls nor jumps."""
        self._accesses = True
        return (
            '  call void asm sideeffect "cc_access_done $0", "*m,~{dirflag},~{fpsr},~{flags}"'
            f"(ptr elementtype(i8) @cc_load_on) #{first_group + 5}"
        )

    def load_range(self) -> str:
        """`void (ptr source, i64 size, ptr instance, i32 site, i32 depth)`: what a copy or a comparison reads."""
        return self._add(
            "load.range",
            _guarded(
                f'@"cc.load.range"(ptr %target, i64 %size, {_SITE})',
                f"{_INSTANCE}  call void @cc_load(ptr %target, i64 %size, i64 %instance.address, ptr {UNIT}, "
                f"i32 %site, i32 %depth, i32 {STORE_BULK})\n",
                _LOADS_ON,
            ),
        )

    def load_string(self) -> str:
        """`void (ptr source, i64 most, i32 site, i32 depth)`: a string up to its end, or `most` bytes."""
        return self._add(
            "load.string",
            _guarded(
                '@"cc.load.string"(ptr %target, i64 %most, i32 %site, i32 %depth)',
                f"  call void @cc_load_string(ptr %target, i64 %most, ptr {UNIT}, i32 %site, i32 %depth)\n",
                _LOADS_ON,
            ),
        )

    # -- order -------------------------------------------------------------------------------------------------

    def begin(self) -> str:
        """`i1 (ptr target)`: whether the atomic operation that follows is bracketed."""
        return self._add(
            "begin",
            f'define internal i1 @"cc.begin"(ptr %target) #cc {{\n{_IN_WINDOW}'
            f"  br i1 %inside, label %slow, label %done, {RARE}\n"
            "slow:\n  call void @cc_atomic_begin(ptr %target) #cc.cold\n  br label %done\ndone:\n  ret i1 %inside\n}\n",
        )

    def end(self) -> str:
        """`void (i1 begun, ptr target, i32 size, i1 locked, i1 stored, i32 read, ptr instance, i32 site, i32 depth)`.

        `read`: ATOMIC_READ if the operation reads, else 0.
        """
        return self._add(
            "end",
            f'define internal void @"cc.end"(i1 %begun, ptr %target, i32 %size, i1 %locked, i1 %stored, '
            f"i32 %read, {_SITE}) #cc {{\n"
            f"  br i1 %begun, label %slow, label %ordinary, {RARE}\n"
            f"slow:\n{_INSTANCE}  %locked.word = zext i1 %locked to i32\n  %stored.word = zext i1 %stored to i32\n"
            "  %done.word = or i32 %stored.word, %read\n"
            "  call void @cc_atomic_end(ptr %target, i32 %size, i32 %locked.word, i32 %done.word, i64 "
            "%instance.address, "
            f"ptr {UNIT}, i32 %site, i32 %depth) #cc.cold\n  br label %done\n"
            "ordinary:\n  br i1 %locked, label %check, label %done\n"
            f"check:\n  %wanted = load i32, ptr @cc_fence_wanted\n  %some = icmp ne i32 %wanted, 0\n"
            f"  br i1 %some, label %fence, label %done, {RARE}\n"
            f"fence:\n  call void @cc_fence(i32 {LOCKED}, ptr {UNIT}, i32 %site, i32 %depth) #cc.cold\n  br "
            f"label %done\n"
            "done:\n  ret void\n}\n",
        )

    def locked(self) -> str:
        """`void (i32 site, i32 depth)`: a locked instruction on memory that is no file's."""
        return self._add(
            "locked",
            'define internal void @"cc.locked"(i32 %site, i32 %depth) #cc {\n'
            "  %wanted = load i32, ptr @cc_fence_wanted\n  %some = icmp ne i32 %wanted, 0\n"
            f"  br i1 %some, label %slow, label %done, {RARE}\n"
            f"slow:\n  call void @cc_fence(i32 {LOCKED}, ptr {UNIT}, i32 %site, i32 %depth) #cc.cold\n  br "
            f"label %done\n"
            "done:\n  ret void\n}\n",
        )

    def fence(self) -> str:
        """`void (i32 kind, i32 site, i32 depth)`."""
        return self._add(
            "fence",
            'define internal void @"cc.fence"(i32 %kind, i32 %site, i32 %depth) #cc {\n'
            "  %recording = load i32, ptr @cc_recording\n  %on = icmp ne i32 %recording, 0\n"
            "  br i1 %on, label %slow, label %done\n"
            f"slow:\n  call void @cc_fence(i32 %kind, ptr {UNIT}, i32 %site, i32 %depth)\n  br label %done\n"
            "done:\n  ret void\n}\n",
        )

    def flush(self) -> str:
        """`void (ptr address, i32 kind, i32 site, i32 depth)`."""
        return self._add(
            "flush",
            _guarded(
                '@"cc.flush"(ptr %target, i32 %kind, i32 %site, i32 %depth)',
                f"  call void @cc_flush(ptr %target, i64 1, i32 %kind, ptr {UNIT}, i32 %site, i32 %depth)\n",
            ),
        )

    # -- shadow stack ------------------------------------------------------------------------------------------

    def enter(self) -> str:
        """`i32 ()`: this function's depth."""
        return self._add(
            "enter",
            'define internal i32 @"cc.enter"() #cc {\n  %depth = load i32, ptr @cc_shadow\n'
            f"  %deep = icmp ugt i32 %depth, {STACK_MAX - 1}\n"
            f"  %clamped = select i1 %deep, i32 {STACK_MAX - 1}, i32 %depth\n  ret i32 %clamped\n}}\n",
        )

    def enter_frame(self) -> str:
        """`i32 (i64 site)`: this function's depth; its frame is made, `site` in it until a call says otherwise."""
        return self._add(
            "enter.frame",
            'define internal i32 @"cc.enter.frame"(i64 %site) #cc {\n  %depth = load i32, ptr @cc_shadow\n'
            f"  %deep = icmp ugt i32 %depth, {STACK_MAX - 1}\n"
            f"  %clamped = select i1 %deep, i32 {STACK_MAX - 1}, i32 %depth\n"
            "  %next = add nuw i32 %clamped, 1\n  store i32 %next, ptr @cc_shadow\n  %wide = zext i32 %clamped to i64\n"
            f"  %unit.at = getelementptr inbounds {SHADOW_TYPE}, ptr @cc_shadow, i64 0, i32 2, i64 %wide, i32 0\n"
            f"  store ptr {UNIT}, ptr %unit.at\n"
            f"  %site.at = getelementptr inbounds {SHADOW_TYPE}, ptr @cc_shadow, i64 0, i32 2, i64 %wide, i32 1\n"
            "  store i64 %site, ptr %site.at\n  ret i32 %clamped\n}\n",
        )

    def push(self) -> str:
        """`void (i32 depth, i64 site)`, before a call: the frame is there, only its site changes."""
        return self._add(
            "push",
            'define internal void @"cc.push"(i32 %depth, i64 %site) #cc {\n  %wide = zext i32 %depth to i64\n'
            f"  %site.at = getelementptr inbounds {SHADOW_TYPE}, ptr @cc_shadow, i64 0, i32 2, i64 %wide, i32 1\n"
            "  store i64 %site, ptr %site.at\n  ret void\n}\n",
        )

    def again(self) -> str:
        """`void (i32 depth)`: this function's frame is the top again, in a landing pad or after setjmp."""
        return self._add(
            "again",
            'define internal void @"cc.again"(i32 %depth) #cc {\n  %next = add nuw i32 %depth, 1\n'
            "  store i32 %next, ptr @cc_shadow\n  ret void\n}\n",
        )

    def leave(self) -> str:
        """`void (i32 depth)`: this function's frame is gone."""
        return self._add(
            "leave",
            'define internal void @"cc.leave"(i32 %depth) #cc {\n  store i32 %depth, ptr @cc_shadow\n  ret void\n}\n',
        )

    def at(self) -> str:
        """`void (i32 site, i32 depth)`, before a call of a library model."""
        return self._add(
            "at",
            'define internal void @"cc.at"(i32 %site, i32 %depth) #cc {\n'
            f"  store ptr {UNIT}, ptr @cc_call_site\n"
            "  %site.at = getelementptr inbounds { ptr, i32, i32 }, ptr @cc_call_site, i64 0, i32 1\n"
            "  store i32 %site, ptr %site.at\n"
            "  %depth.at = getelementptr inbounds { ptr, i32, i32 }, ptr @cc_call_site, i64 0, i32 2\n"
            "  store i32 %depth, ptr %depth.at\n  ret void\n}\n",
        )

    # -- the rest of the module --------------------------------------------------------------------------------

    def text(self, first_group: int) -> str:
        """Helpers, declarations and their attribute groups numbered from `first_group`."""
        helpers = "\n".join(self._helpers.values())
        needed = [
            line
            for name, line in _DECLARATIONS.items()
            if f"@{name}" in helpers or (self._accesses and name == "cc_load_on")
        ]
        groups = (
            f"attributes #{first_group} = {{ alwaysinline nounwind }}\n"
            f"attributes #{first_group + 1} = {{ cold nounwind }}\n"
            f"attributes #{first_group + 2} = {{ cold noinline nounwind }}\n"
            f"attributes #{first_group + 3} = {{ cold nounwind willreturn {_READS} }}\n"
            f"attributes #{first_group + 4} = {{ cold noinline nounwind willreturn {_READS} }}\n"
            f"attributes #{first_group + 5} = {{ nounwind willreturn {_READS} }}\n"
        )
        body = (
            "\n".join([*needed, helpers])
            .replace("#cc.apart", f"#{first_group + 2}")
            .replace("#cc.reads.apart", f"#{first_group + 4}")
            .replace("#cc.reads\n", f"#{first_group + 3}\n")
            .replace("#cc.cold", f"#{first_group + 1}")
            .replace("#cc ", f"#{first_group} ")
        )
        shadow = (
            f"{SHADOW_TYPE} = type {{ i32, i32, [{STACK_MAX} x {{ ptr, i64 }}] }}\n"
            if SHADOW_TYPE in helpers + "".join(needed)
            else ""
        )
        accesses = LOAD_MACRO if self._accesses else ""
        return accesses + shadow + body + groups


def unit_text(key: int, sites: int, blob: bytes, section: str) -> str:
    """The unit's descriptor (struct cc_unit) and its facts."""
    escaped = "\\" + blob.hex("\\")
    signed = key - (1 << 64) if key >> 63 else key
    return (
        f'@"cc.facts" = internal constant [{len(blob)} x i8] c"{escaped}", section "{section}", align 8\n'
        f"{UNIT} = internal global {{ i32, i32, i64, i32, i32, ptr }} "
        f'{{ i32 0, i32 {sites}, i64 {signed}, i32 {HOOKS_VERSION}, i32 0, ptr @"cc.facts" }}, align 8\n'
    )
