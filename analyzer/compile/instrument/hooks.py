"""The helpers that instrumented code calls: inline checks in front of the recorder's slow paths, built by llvmlite.

Contract: runtime/include/hooks.h. The helpers are internal and always inlined; they are part of the unit's own text, so
that no second module has to be linked in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from crashcheck.analyzer.compile.instrument.helper_module import (
    APART,
    CALL_SITE,
    I1,
    I8,
    I32,
    I64,
    LOCKED_FENCE,
    PTR,
    READS,
    UNIT_TYPE,
    Helper,
    HelperModule,
    Types,
    UnitType,
    opaque,
)
from crashcheck.analyzer.compile.timers.linked import TIMER_BYTES, TIMER_DIRECTIONS, TIMERS_SECTION

HOOKS_VERSION = 5

# enum cc_store_flags, cc_flush_kind and cc_fence_kind of runtime/include/trace_format.h
ACCESS_WRITES = 128
STORE_NT, STORE_ATOMIC, STORE_BULK, STORE_VOLATILE = 1, 2, 4, 16
ATOMIC_READ = 2  # enum cc_atomic_done of runtime/include/hooks.h
CLFLUSH, CLFLUSHOPT, CLWB = 1, 2, 3
SFENCE, MFENCE, LOCKED = 1, 2, LOCKED_FENCE

NO_INSTANCE = -1
VECTOR_BYTES = 64  # CC_VECTOR_BYTES of runtime/include/hooks.h
ACCESS_BYTES = (1 << 22) - 1  # the largest access that an access hook describes
FRAME = "cc.frame"
UNIT = '@"cc.unit"'
FACTS = '@"cc.facts"'
TIMERS = '@"cc.timers"'

# Parameters of helpers, by name.
_PLACE: Types = {"site": I32, "depth": I32}
_INSTANCE: Types = {"instance": PTR, **_PLACE}  # the address of the outermost struct instance, or null
_FLAGGED: Types = {**_INSTANCE, "flags": I32}

# What an access costs when nothing is recorded: a comparison and a jump that is not taken. Assembly, because a branch
# in IR splits a block, and there are so many loads that optimising those would take as long as all the rest. The
# way out is behind the function, spares its red zone and keeps every register; recorder/loads.c continues from there.
# Text, because llvmlite.ir has no module-level assembly.
_ACCESS_MACROS = """
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
module asm ".text"
module asm "cc.access.thunk: pushq %rax"
module asm "pushq %rax"
module asm "leaq cc.unit(%rip), %rax"
module asm "movq %rax, 8(%rsp)"
module asm "popq %rax"
module asm "jmp *cc_access_entry@GOTPCREL(%rip)"
"""


class Hooks(HelperModule):
    """The helpers that a unit uses, each made when first asked for; `text()` is what its module needs besides its code.

    A method that returns a name describes in its first line how the helper is called.
    """

    def __init__(self) -> None:
        super().__init__()
        self._numbered: dict[tuple[str, str], str] = {}  # family and type → name of the helper
        self._accesses = False

    def _in_window(self, name: str, parameters: Types, slow: Callable[[Helper], None]) -> str:
        """A helper that does `slow` if its `target` may be in a persistent mapping."""

        def body(helper: Helper) -> None:
            with helper.when(helper.inside_window(helper["target"])):
                slow(helper)

        return self.helper(name, parameters, body)

    def _while_loads_count(self, name: str, parameters: Types, slow: Callable[[Helper], None]) -> str:
        """A helper that does `slow` while loads are recorded."""

        def body(helper: Helper) -> None:
            with helper.when(helper.is_set("cc_load_on")):
                slow(helper)

        return self.helper(name, parameters, body)

    def _number(self, family: str, type_text: str) -> str:
        """A short name for the helper of a type, whose text may be long."""
        return self._numbered.setdefault((family, type_text), f"{family}.{len(self._numbered)}")

    # -- stores ------------------------------------------------------------------------------------------------

    def store_word(self, type_text: str, size: int) -> str:
        """`void (ptr target, T value, ptr instance, i32 site, i32 depth, i32 flags)`, T at most 64 bits."""

        def slow(helper: Helper) -> None:
            value, build = helper["value"], helper.build
            if type_text == "ptr":
                word = build.ptrtoint(value, I64)
            else:
                if not type_text.startswith("i"):
                    value = build.bitcast(value, ir.IntType(size * 8))
                word = value if value.type == I64 else build.zext(value, I64)
            packed = build.or_(helper["flags"], I32(size << 8))
            # A callee that keeps the registers costs the ordinary path nothing but the check.
            where = [helper[name] for name in _INSTANCE]
            helper.call(self._slow_word(), [helper["target"], word, *where, packed])

        type_ = PTR if type_text == "ptr" else _word_type(type_text)
        return self._in_window(f"store.{type_text}", {"target": PTR, "value": type_, **_FLAGGED}, slow)

    def _slow_word(self) -> Any:
        """The call of cc_store_word, with size and flags in one word."""

        def body(helper: Helper) -> None:
            size = helper.build.lshr(helper["packed"], I32(8))
            flags = helper.build.and_(helper["packed"], I32(255))
            helper.report("cc_store_word", "target", "word", size, "instance", flags=flags)

        parameters = {"target": PTR, "word": I64, **_INSTANCE, "packed": I32}
        self.helper("slow.word", parameters, body, attributes=APART, convention="preserve_mostcc")
        return self.module.globals["cc.slow.word"]

    def store_wide(self, type_text: str, size: int) -> str:
        """`void (ptr target, T value, ptr instance, i32 site, i32 depth, i32 flags)` for any other type."""
        type_ = UnitType(type_text)

        def body(helper: Helper) -> None:
            copy = helper.space(type_)
            with helper.when(helper.inside_window(helper["target"])):
                helper.build.store(helper["value"], copy)
                helper.report("cc_store", "target", copy, I64(size), "instance", flags=helper["flags"])

        return self.helper(self._number("wide", type_text), {"target": PTR, "value": type_, **_FLAGGED}, body)

    def written(self) -> str:
        """`void (ptr target, i64 size, ptr instance, i32 site, i32 depth, i32 flags)`: after an assembly store."""
        return self._in_window(
            "written",
            {"target": PTR, "size": I64, **_FLAGGED},
            lambda helper: helper.report("cc_store", "target", "target", "size", "instance", flags=helper["flags"]),
        )

    def wide_from(self) -> str:
        """`void (ptr target, ptr source, i64 size, ptr instance, i32 site, i32 depth, i32 flags)`: before a store whose
        bytes are at `source`."""
        return self._in_window(
            "from",
            {"target": PTR, "source": PTR, "size": I64, **_FLAGGED},
            lambda helper: helper.report("cc_store", "target", "source", "size", "instance", flags=helper["flags"]),
        )

    def store_masked(self, vector: str, lanes: int, size: int) -> str:
        """`void (T value, ptr target, <N x i1> mask, ptr instance, i32 site, i32 depth, i32 flags)`: lanes in a row."""
        vector_type, flags_type = UnitType(vector), ir.VectorType(I8, lanes)

        def body(helper: Helper) -> None:
            build = helper.build
            copy, enabled = helper.space(vector_type), helper.space(flags_type)
            last = build.gep(helper["target"], [I64(lanes * size - 1)], source_etype=I8)
            # A mapping may begin or end among the lanes.
            touched = build.or_(helper.inside_window(helper["target"]), helper.inside_window(last))
            with helper.when(touched):
                build.store(helper["value"], copy)
                build.store(build.zext(helper["mask"], flags_type), enabled)
                numbers = (I32(lanes), I32(size))
                helper.report("cc_store_masked", "target", copy, enabled, *numbers, "instance", flags=helper["flags"])

        mask = ir.VectorType(I1, lanes)
        parameters = {"value": vector_type, "target": PTR, "mask": mask, **_FLAGGED}
        return self.helper(self._number("masked", vector), parameters, body)

    def store_scattered(self, vector: str, lanes: int, size: int) -> str:
        """`void (T value, <N x ptr> target, <N x i1> mask, ptr instance, i32 site, i32 depth, i32 flags)`: each enabled
        lane has a target of its own."""
        vector_type, pointers = UnitType(vector), ir.VectorType(PTR, lanes)

        def body(helper: Helper) -> None:
            build = helper.build
            with helper.when(helper.is_set("cc_window_bytes")):
                values = helper.local(vector_type, helper["value"])
                targets = helper.local(pointers, helper["target"])
                with helper.each_enabled_lane(helper["mask"], lanes) as lane:
                    target = build.load(build.gep(targets, [lane], source_etype=PTR), typ=PTR)
                    with helper.when(helper.inside_window(target)):
                        source = build.gep(values, [build.mul(lane, I64(size))], source_etype=I8)
                        helper.report("cc_store", target, source, I64(size), "instance", flags=helper["flags"])

        parameters = {"value": vector_type, "target": pointers, "mask": ir.VectorType(I1, lanes), **_FLAGGED}
        return self.helper(self._number("scatter", vector), parameters, body)

    def store_compressed(self, vector: str, lanes: int, size: int) -> str:
        """`void (T value, ptr target, <N x i1> mask, ptr instance, i32 site, i32 depth, i32 flags)`: the enabled lanes
        become one store, without gaps."""
        vector_type, lane_type = UnitType(vector), ir.IntType(size * 8)

        def body(helper: Helper) -> None:
            build = helper.build
            with helper.when(helper.is_set("cc_window_bytes")):
                values = helper.local(vector_type, helper["value"])
                packed = helper.space(vector_type)
                packed_bytes = helper.local(I64, I64(0))
                with helper.each_enabled_lane(helper["mask"], lanes) as lane:
                    so_far = build.load(packed_bytes, typ=I64)
                    source = build.gep(values, [build.mul(lane, I64(size))], source_etype=I8)
                    place = build.gep(packed, [so_far], source_etype=I8)
                    build.store(build.load(source, typ=lane_type, align=1), place, align=1)
                    build.store(build.add(so_far, I64(size)), packed_bytes)
                total = build.load(packed_bytes, typ=I64)
                last = build.gep(helper["target"], [build.sub(total, I64(1))], source_etype=I8)
                touched = build.or_(helper.inside_window(helper["target"]), helper.inside_window(last))
                some = build.icmp_unsigned("!=", total, I64(0))
                with helper.when(build.and_(some, touched)):
                    helper.report("cc_store", "target", packed, total, "instance", flags=helper["flags"])

        parameters = {"value": vector_type, "target": PTR, "mask": ir.VectorType(I1, lanes), **_FLAGGED}
        return self.helper(self._number("compress", vector), parameters, body)

    def copy(self) -> str:
        """`void (ptr target, ptr source, i64 size, ptr instance, i32 site, i32 depth)`, before memcpy or memmove."""
        return self._in_window(
            "copy",
            {"target": PTR, "source": PTR, "size": I64, **_INSTANCE},
            lambda helper: helper.report("cc_copy", "target", "source", "size", "instance"),
        )

    def fill(self) -> str:
        """`void (ptr target, i8 byte, i64 size, ptr instance, i32 site, i32 depth)`, before memset."""
        return self._in_window(
            "fill",
            {"target": PTR, "byte": I8, "size": I64, **_INSTANCE},
            lambda helper: helper.report(
                "cc_fill", "target", helper.build.zext(helper["byte"], I32), "size", "instance"
            ),
        )

    # -- loads -------------------------------------------------------------------------------------------------

    def access(self, pointer: str, size: int, flags: int, delta: int, site: int, group: int) -> str:
        """The line before a load of at most ACCESS_BYTES. FRAME in it becomes 1 if its function has a frame, else 0.

        `delta`: bytes from the outermost struct instance, NO_INSTANCE if not static; `group`: as for `text`.
        """
        self._accesses = True
        return (
            f'  call void asm sideeffect "cc_access_hook $0,$1,{site},{size << 9 | flags << 1}+{FRAME},{delta}", '
            f'"*m,r,~{{dirflag}},~{{fpsr}},~{{flags}}"(ptr elementtype(i8) @cc_load_on, ptr {pointer}) '
            f"#{group}"
        )

    def load_range(self) -> str:
        """`void (ptr source, i64 size, ptr instance, i32 site, i32 depth)`: what a copy or a comparison reads."""
        return self._while_loads_count(
            "load.range",
            {"source": PTR, "size": I64, **_INSTANCE},
            lambda helper: helper.report("cc_load", "source", "size", "instance", flags=I32(STORE_BULK), attributes=()),
        )

    def load_string(self) -> str:
        """`void (ptr source, i64 most, i32 site, i32 depth)`: a string up to its end, or `most` bytes."""
        return self._while_loads_count(
            "load.string",
            {"source": PTR, "most": I64, **_PLACE},
            lambda helper: helper.report("cc_load_string", "source", "most", attributes=()),
        )

    # -- order -------------------------------------------------------------------------------------------------

    def begin(self) -> str:
        """`i1 (ptr target)`: whether the atomic operation that follows is bracketed."""

        def body(helper: Helper) -> None:
            inside = helper.inside_window(helper["target"])
            with helper.when(inside):
                helper.call(self.slow_path("cc_atomic_begin"), [helper["target"]])
            helper.build.ret(inside)

        return self.helper("begin", {"target": PTR}, body, returns=I1)

    def end(self) -> str:
        """`void (i1 begun, ptr target, i32 size, i1 locked, i1 stored, i32 read, ptr instance, i32 site, i32 depth)`.

        `read`: ATOMIC_READ if the operation reads, else 0.
        """
        parameters = {"begun": I1, "target": PTR, "size": I32, "locked": I1, "stored": I1, "read": I32}

        def body(helper: Helper) -> None:
            over = helper.build.append_basic_block("over")
            with helper.when(helper["begun"]):
                locked = helper.build.zext(helper["locked"], I32)
                done = helper.build.or_(helper.build.zext(helper["stored"], I32), helper["read"])
                helper.report("cc_atomic_end", "target", "size", locked, done, "instance")
                helper.build.branch(over)
            with helper.when(helper["locked"], rare=False, otherwise=over):
                helper.fence_if_wanted(over)
            helper.build.position_at_end(over)

        return self.helper("end", {**parameters, **_INSTANCE}, body)

    def locked(self) -> str:
        """`void (i32 site, i32 depth)`: a locked instruction on memory that is no file's."""
        return self.helper("locked", _PLACE, Helper.fence_if_wanted)

    def fence(self) -> str:
        """`void (i32 kind, i32 site, i32 depth)`."""

        def body(helper: Helper) -> None:
            with helper.when(helper.is_set("cc_recording"), rare=False):
                helper.report("cc_fence", "kind", attributes=())

        return self.helper("fence", {"kind": I32, **_PLACE}, body)

    def flush(self) -> str:
        """`void (ptr address, i32 kind, i32 site, i32 depth)`."""
        return self._in_window(
            "flush",
            {"target": PTR, "kind": I32, **_PLACE},
            lambda helper: helper.report("cc_flush", "target", I64(1), "kind", attributes=()),
        )

    # -- implicit timers ---------------------------------------------------------------------------------------

    def compared(self, type_text: str, unsigned: bool) -> str:
        """`void (T left, T right, ptr timer)`, T i32, i64 or double, before these are compared."""

        def word(helper: Helper, value: Any) -> Any:
            if type_text == "double":
                return helper.build.bitcast(value, I64)
            if type_text == "i64":
                return value
            return helper.build.zext(value, I64) if unsigned else helper.build.sext(value, I64)

        def body(helper: Helper) -> None:
            build = helper.build
            directions = build.gep(helper["timer"], [I64(TIMER_DIRECTIONS)], source_etype=I8)
            with helper.when(build.icmp_unsigned("!=", build.load(directions, typ=I32), I32(0))):
                words = [word(helper, helper[side]) for side in ("left", "right")]
                helper.call(self.slow_path("cc_compared"), [helper["timer"], *words])

        type_ = _word_type(type_text)
        name = f"compared.{type_text}" + (".u" if unsigned else "")
        return self.helper(name, {"left": type_, "right": type_, "timer": PTR}, body)

    # -- shadow stack ------------------------------------------------------------------------------------------

    def enter(self) -> str:
        """`i32 ()`: this function's depth."""
        return self.helper("enter", {}, lambda helper: helper.build.ret(helper.clamped_depth()), returns=I32)

    def enter_frame(self) -> str:
        """`i32 (i64 site)`: this function's depth; its frame is made, with `site` in it until a call sets another."""

        def body(helper: Helper) -> None:
            depth = helper.clamped_depth()
            helper.set_depth(helper.build.add(depth, I32(1), flags=("nuw",)))
            helper.set_frame(depth, 0, self.unit)
            helper.set_frame(depth, 1, helper["site"])
            helper.build.ret(depth)

        return self.helper("enter.frame", {"site": I64}, body, returns=I32)

    def push(self) -> str:
        """`void (i32 depth, i64 site)`, before a call: the frame is there, only its site changes."""
        parameters = {"depth": I32, "site": I64}
        return self.helper("push", parameters, lambda helper: helper.set_frame(helper["depth"], 1, helper["site"]))

    def again(self) -> str:
        """`void (i32 depth)`: this function's frame is the top again, in a landing pad or after setjmp."""

        def body(helper: Helper) -> None:
            helper.set_depth(helper.build.add(helper["depth"], I32(1), flags=("nuw",)))

        return self.helper("again", {"depth": I32}, body)

    def leave(self) -> str:
        """`void (i32 depth)`: this function's frame is gone."""
        return self.helper("leave", {"depth": I32}, lambda helper: helper.set_depth(helper["depth"]))

    def at(self) -> str:
        """`void (i32 site, i32 depth)`, before a call of a library model."""

        def body(helper: Helper) -> None:
            place = self.variable("cc_call_site")
            for field, value in enumerate((self.unit, helper["site"], helper["depth"])):
                path = [I64(0), I32(field)]
                helper.build.store(value, helper.build.gep(place, path, inbounds=True, source_etype=CALL_SITE))

        return self.helper("at", _PLACE, body)

    # -- the rest of the module --------------------------------------------------------------------------------

    def text(self, group: int, key: int, sites: int, blob: bytes, section: str) -> str:
        """Helpers, declarations, the unit's descriptor and its facts (`blob`, in an ELF section).

        `group`: number of the attribute group of accesses, which no group of the unit has; `key`: of the facts.
        """
        facts = opaque(ir.GlobalVariable(self.module, ir.ArrayType(I8, len(blob)), "cc.facts"))
        facts.linkage, facts.global_constant, facts.section, facts.align = "internal", True, section, 8
        facts.initializer = ir.Constant(facts.value_type, bytearray(blob))
        fields = [I32(0), I32(sites), I64(key), I32(HOOKS_VERSION), I32(0), facts]
        self.unit.linkage, self.unit.align = "internal", 8
        self.unit.initializer = ir.Constant(UNIT_TYPE, fields)
        pieces = []
        if self._accesses:
            self.variable("cc_load_on")
            pieces = [_ACCESS_MACROS, f"attributes #{group} = {{ nounwind willreturn {READS} }}"]
        return "\n".join([*pieces, *map(str, self.module.globals.values()), ""])


def timers_text(comparisons: Sequence[tuple[int, str]], key: int) -> str:
    """The table of a unit's comparisons, each with how and where it compares: struct cc_timer of hooks.h.

    Nothing in the unit writes it, but crashcheck-cc does once the program is linked: so its values are no constants.
    """
    entry = "{ ptr, double, i32, i32, i64 }"
    texts, entries = [], [f"{entry} {{ ptr null, double 0.0, i32 {len(comparisons)}, i32 0, i64 {key} }}"]
    for number, (how, place) in enumerate(comparisons):
        data = place.encode("utf-8", "surrogateescape") + b"\0"
        shown = "".join(f"\\{byte:02x}" for byte in data)
        texts.append(f'@"cc.place.{number}" = private unnamed_addr constant [{len(data)} x i8] c"{shown}"')
        entries.append(f'{entry} {{ ptr @"cc.place.{number}", double 0.0, i32 0, i32 {how}, i64 0 }}')
    table = f"{TIMERS} = internal externally_initialized global [{len(entries)} x {entry}] [{', '.join(entries)}]"
    return "\n".join([*texts, f'{table}, section "{TIMERS_SECTION}", align 8', ""])


def timer(number: int) -> str:
    """The address of a comparison's entry in that table."""
    return f"ptr getelementptr (i8, ptr {TIMERS}, i64 {TIMER_BYTES * (number + 1)})"


def _word_type(type_text: str) -> ir.Type:
    """An integer or floating-point type of at most 64 bits."""
    return ir.IntType(int(type_text[1:])) if type_text.startswith("i") else UnitType(type_text)
