"""The helpers that instrumented code calls: inline checks in front of the recorder's slow paths, built by llvmlite.

Contract: runtime/include/hooks.h. The helpers are internal and always inlined; they are part of the unit's own text, so
that no second module has to be linked in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

HOOKS_VERSION = 3
STACK_MAX = 512

# enum cc_store_flags, cc_flush_kind and cc_fence_kind of runtime/include/trace_format.h
ACCESS_WRITES = 128
STORE_NT, STORE_ATOMIC, STORE_BULK, STORE_VOLATILE = 1, 2, 4, 16
ATOMIC_READ = 2  # enum cc_atomic_done of runtime/include/hooks.h
CLFLUSH, CLFLUSHOPT, CLWB = 1, 2, 3
SFENCE, MFENCE, LOCKED = 1, 2, 3

NO_INSTANCE = -1
VECTOR_BYTES = 64  # CC_VECTOR_BYTES of runtime/include/hooks.h
ACCESS_BYTES = (1 << 22) - 1  # the largest access that an access hook describes
FRAME = "cc.frame"
UNIT = '@"cc.unit"'
FACTS = '@"cc.facts"'

_VOID, _PTR = ir.VoidType(), ir.PointerType()
_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_FRAME = ir.LiteralStructType([_PTR, _I64])  # struct cc_frame
_SHADOW = ir.LiteralStructType([_I32, _I32, ir.ArrayType(_FRAME, STACK_MAX)])  # struct cc_shadow
_CALL_SITE = ir.LiteralStructType([_PTR, _I32, _I32])  # struct cc_call_site
_UNIT = ir.LiteralStructType([_I32, _I32, _I64, _I32, _I32, _PTR])  # struct cc_unit

# The recorder's variables: type, and whether each thread has its own.
_VARIABLES = {
    "cc_shadow": (_SHADOW, True),
    "cc_window_start": (_I64, False),
    "cc_window_bytes": (_I64, False),
    "cc_load_on": (_I8, False),
    "cc_fence_wanted": (_I32, True),
    "cc_recording": (_I32, False),
    "cc_call_site": (_CALL_SITE, True),
}
_WHERE = (_PTR, _I32, _I32)  # unit, site, depth
_SLOW_PATHS = {
    "cc_store": (_PTR, _PTR, _I64, _I64, *_WHERE, _I32),
    "cc_store_word": (_PTR, _I64, _I32, _I64, *_WHERE, _I32),
    "cc_store_masked": (_PTR, _PTR, _PTR, _I32, _I32, _I64, *_WHERE, _I32),
    "cc_copy": (_PTR, _PTR, _I64, _I64, *_WHERE),
    "cc_fill": (_PTR, _I32, _I64, _I64, *_WHERE),
    "cc_load": (_PTR, _I64, _I64, *_WHERE, _I32),
    "cc_load_string": (_PTR, _I64, *_WHERE),
    "cc_atomic_begin": (_PTR,),
    "cc_atomic_end": (_PTR, _I32, _I32, _I32, _I64, *_WHERE),
    "cc_flush": (_PTR, _I64, _I32, *_WHERE),
    "cc_fence": (_I32, *_WHERE),
}

_INLINED = ("alwaysinline", "nounwind")
_COLD = ("cold", "nounwind")
_APART = ("cold", "noinline", "nounwind")
# Loads of the program may move across the call: it changes nothing that the program sees.
_READS = "memory(read, inaccessiblemem: readwrite)"
_READING = ("cold", "nounwind", "willreturn", _READS)

# Parameters of helpers, by name.
_Types = Mapping[str, ir.Type]
_PLACE: _Types = {"site": _I32, "depth": _I32}
_INSTANCE: _Types = {"instance": _PTR, **_PLACE}  # the address of the outermost struct instance, or null
_FLAGGED: _Types = {**_INSTANCE, "flags": _I32}

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


class _UnitType(ir.Type):  # type: ignore[misc]  # the binding has no annotations
    """A type of the unit, by its text: llvmlite.ir only has to repeat it, and does not know all (x86_fp80, bfloat)."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _to_string(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _UnitType) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class _Attributes(ir.values.AttributeSet):  # type: ignore[misc]
    """Attributes of a function or a call; llvmlite.ir's own sets lack some of these."""

    _known = frozenset({*_INLINED, *_APART, *_READING})


class _RareBranch:
    """Branch weights, written in place: a numbered node would collide with the unit's metadata."""

    @staticmethod
    def get_reference() -> str:
        return '!{!"branch_weights", i32 1, i32 2000}'


def _opaque(value: Any) -> Any:
    """A variable or local as `ptr`: llvmlite.ir prints typed pointers by default, which LLVM no longer reads."""
    value.type = _PTR
    return value


class _Helper:
    """A helper whose body is being built. `helper["target"]` is its parameter of that name."""

    def __init__(self, hooks: Hooks, function: Any, parameters: _Types) -> None:
        self.hooks = hooks
        self.build = ir.IRBuilder(function.append_basic_block("entry"))
        self._parameters = dict(zip(parameters, function.args, strict=True))
        self._instance = self._parameters.get("instance")

    def __getitem__(self, parameter: str) -> Any:
        return self._parameters[parameter]

    def load(self, variable: str) -> Any:
        """The value of one of the recorder's variables."""
        return self.build.load(self.hooks.variable(variable), typ=_VARIABLES[variable][0])

    def local(self, type_: ir.Type, value: Any) -> Any:
        """The address of a new local that holds `value`."""
        place = _opaque(self.build.alloca(type_))
        self.build.store(value, place)
        return place

    def inside_window(self, address: Any) -> Any:
        """Whether an address may be in a persistent mapping."""
        number = self.build.ptrtoint(address, _I64)
        distance = self.build.sub(number, self.load("cc_window_start"))
        return self.build.icmp_unsigned("<", distance, self.load("cc_window_bytes"))

    def is_set(self, variable: str) -> Any:
        """Whether one of the recorder's switches is on."""
        return self.build.icmp_unsigned("!=", self.load(variable), _VARIABLES[variable][0](0))

    @contextmanager
    def when(self, condition: Any, rare: bool = True, otherwise: Any = None) -> Iterator[None]:
        """What is built inside runs only if `condition` holds; both ways lead to `otherwise`, or to what comes next."""
        function = self.build.function
        after = function.blocks.index(self.build.block) + 1
        slow = function.insert_basic_block(after, "slow")
        done = otherwise or function.insert_basic_block(after + 1, "done")
        branch = self.build.cbranch(condition, slow, done)
        if rare:
            branch.set_metadata("prof", _RareBranch)
        self.build.position_at_end(slow)
        yield
        if not self.build.block.is_terminated:
            self.build.branch(done)
        if otherwise is None:
            self.build.position_at_end(done)

    def fence_if_wanted(self, otherwise: Any = None) -> None:
        """Report a locked instruction where a flush waits for a fence."""
        with self.when(self.is_set("cc_fence_wanted"), otherwise=otherwise):
            self.report("cc_fence", _I32(LOCKED))

    def call(self, function: Any, arguments: list[Any], attributes: tuple[str, ...] = _COLD) -> None:
        self.build.call(function, arguments).attributes = _Attributes(attributes)

    def report(self, slow_path: str, *arguments: Any, flags: Any = None, attributes: tuple[str, ...] = _COLD) -> None:
        """Call a slow path with `arguments` (values, or names of parameters; the instance as a number), the unit, the
        site, the depth, and `flags` if given."""
        values = [self[one] if isinstance(one, str) else one for one in arguments]
        values = [self.build.ptrtoint(one, _I64) if one is self._instance else one for one in values]
        values += [self.hooks.unit, self["site"], self["depth"]]
        if flags is not None:
            values.append(flags)
        self.call(self.hooks.slow_path(slow_path), values, attributes)

    def set_depth(self, depth: Any) -> None:
        """Set the thread's depth in the shadow stack."""
        self.build.store(depth, self.hooks.variable("cc_shadow"))

    def set_frame(self, depth: Any, field: int, value: Any) -> None:
        """Set a field of the frame at `depth` of the shadow stack: 0 is its unit, 1 its site."""
        wide = self.build.zext(depth, _I64)
        path = [_I64(0), _I32(2), wide, _I32(field)]
        shadow = self.hooks.variable("cc_shadow")
        self.build.store(value, self.build.gep(shadow, path, inbounds=True, source_etype=_SHADOW))

    def clamped_depth(self) -> Any:
        """The thread's depth, at most the last frame's."""
        depth = self.build.load(self.hooks.variable("cc_shadow"), typ=_I32)
        last = _I32(STACK_MAX - 1)
        return self.build.select(self.build.icmp_unsigned(">", depth, last), last, depth)


class Hooks:
    """The helpers that a unit uses, each made when first asked for; `text()` is what its module needs besides its code.

    A method that returns a name describes in its first line how the helper is called.
    """

    def __init__(self) -> None:
        self._module = ir.Module()
        self._numbered: dict[tuple[str, str], str] = {}  # family and type → name of the helper
        self._accesses = False
        self.unit = _opaque(ir.GlobalVariable(self._module, _UNIT, "cc.unit"))

    def variable(self, name: str) -> Any:
        """One of the recorder's variables."""
        known = self._module.globals.get(name)
        if known is None:
            type_, of_thread = _VARIABLES[name]
            known = _opaque(ir.GlobalVariable(self._module, type_, name))
            known.linkage = "external"
            if of_thread:
                known.storage_class = "thread_local(initialexec)"
        return known

    def slow_path(self, name: str) -> Any:
        """One of the recorder's functions."""
        known = self._module.globals.get(name)
        if known is None:
            known = ir.Function(self._module, ir.FunctionType(_VOID, _SLOW_PATHS[name]), name)
            if name in ("cc_load", "cc_load_string"):
                known.attributes = _Attributes(_READING)
        return known

    def _helper(
        self,
        name: str,
        parameters: _Types,
        body: Callable[[_Helper], None],
        returns: ir.Type = _VOID,
        attributes: tuple[str, ...] = _INLINED,
        convention: str = "",
    ) -> str:
        """The name of the helper `cc.<name>`; `body` builds it the first time."""
        function = self._module.globals.get(f"cc.{name}")
        if function is None:
            function = ir.Function(self._module, ir.FunctionType(returns, list(parameters.values())), f"cc.{name}")
            for argument, parameter in zip(function.args, parameters, strict=True):
                argument.name = parameter
            function.linkage = "internal"
            function.calling_convention = convention
            function.attributes = _Attributes(attributes)
            helper = _Helper(self, function, parameters)
            body(helper)
            if not helper.build.block.is_terminated:
                helper.build.ret_void()
        return str(function.get_reference())

    def _in_window(self, name: str, parameters: _Types, slow: Callable[[_Helper], None]) -> str:
        """A helper that does `slow` if its `target` may be in a persistent mapping."""

        def body(helper: _Helper) -> None:
            with helper.when(helper.inside_window(helper["target"])):
                slow(helper)

        return self._helper(name, parameters, body)

    def _while_loads_count(self, name: str, parameters: _Types, slow: Callable[[_Helper], None]) -> str:
        """A helper that does `slow` while loads are recorded."""

        def body(helper: _Helper) -> None:
            with helper.when(helper.is_set("cc_load_on")):
                slow(helper)

        return self._helper(name, parameters, body)

    def _number(self, family: str, type_text: str) -> str:
        """A short name for the helper of a type, whose text may be long."""
        return self._numbered.setdefault((family, type_text), f"{family}.{len(self._numbered)}")

    # -- stores ------------------------------------------------------------------------------------------------

    def store_word(self, type_text: str, size: int) -> str:
        """`void (ptr target, T value, ptr instance, i32 site, i32 depth, i32 flags)`, T at most 64 bits."""

        def slow(helper: _Helper) -> None:
            value, build = helper["value"], helper.build
            if type_text == "ptr":
                word = build.ptrtoint(value, _I64)
            else:
                if not type_text.startswith("i"):
                    value = build.bitcast(value, ir.IntType(size * 8))
                word = value if value.type == _I64 else build.zext(value, _I64)
            packed = build.or_(helper["flags"], _I32(size << 8))
            # A callee that keeps the registers costs the ordinary path nothing but the check.
            where = [helper[name] for name in _INSTANCE]
            helper.call(self._slow_word(), [helper["target"], word, *where, packed])

        type_ = _PTR if type_text == "ptr" else _word_type(type_text)
        return self._in_window(f"store.{type_text}", {"target": _PTR, "value": type_, **_FLAGGED}, slow)

    def _slow_word(self) -> Any:
        """The call of cc_store_word, with size and flags in one word."""

        def body(helper: _Helper) -> None:
            size = helper.build.lshr(helper["packed"], _I32(8))
            flags = helper.build.and_(helper["packed"], _I32(255))
            helper.report("cc_store_word", "target", "word", size, "instance", flags=flags)

        parameters = {"target": _PTR, "word": _I64, **_INSTANCE, "packed": _I32}
        self._helper("slow.word", parameters, body, attributes=_APART, convention="preserve_mostcc")
        return self._module.globals["cc.slow.word"]

    def store_wide(self, type_text: str, size: int) -> str:
        """`void (ptr target, T value, ptr instance, i32 site, i32 depth, i32 flags)` for any other type."""
        type_ = _UnitType(type_text)

        def body(helper: _Helper) -> None:
            copy = _opaque(helper.build.alloca(type_))
            with helper.when(helper.inside_window(helper["target"])):
                helper.build.store(helper["value"], copy)
                helper.report("cc_store", "target", copy, _I64(size), "instance", flags=helper["flags"])

        return self._helper(self._number("wide", type_text), {"target": _PTR, "value": type_, **_FLAGGED}, body)

    def written(self) -> str:
        """`void (ptr target, i64 size, ptr instance, i32 site, i32 depth, i32 flags)`: after an assembly store."""
        return self._in_window(
            "written",
            {"target": _PTR, "size": _I64, **_FLAGGED},
            lambda helper: helper.report("cc_store", "target", "target", "size", "instance", flags=helper["flags"]),
        )

    def wide_from(self) -> str:
        """`void (ptr target, ptr source, i64 size, ptr instance, i32 site, i32 depth, i32 flags)`: before a store whose
        bytes lie at `source`."""
        return self._in_window(
            "from",
            {"target": _PTR, "source": _PTR, "size": _I64, **_FLAGGED},
            lambda helper: helper.report("cc_store", "target", "source", "size", "instance", flags=helper["flags"]),
        )

    def store_masked(self, vector: str, lanes: int, size: int) -> str:
        """`void (T value, ptr target, <N x i1> mask, ptr instance, i32 site, i32 depth, i32 flags)`: lanes in a row."""
        vector_type, flags_type = _UnitType(vector), ir.VectorType(_I8, lanes)

        def body(helper: _Helper) -> None:
            build = helper.build
            copy, enabled = _opaque(build.alloca(vector_type)), _opaque(build.alloca(flags_type))
            last = build.gep(helper["target"], [_I64(lanes * size - 1)], source_etype=_I8)
            # A mapping may begin or end among the lanes.
            touched = build.or_(helper.inside_window(helper["target"]), helper.inside_window(last))
            with helper.when(touched):
                build.store(helper["value"], copy)
                build.store(build.zext(helper["mask"], flags_type), enabled)
                numbers = (_I32(lanes), _I32(size))
                helper.report("cc_store_masked", "target", copy, enabled, *numbers, "instance", flags=helper["flags"])

        mask = ir.VectorType(_I1, lanes)
        parameters = {"value": vector_type, "target": _PTR, "mask": mask, **_FLAGGED}
        return self._helper(self._number("masked", vector), parameters, body)

    def store_lanes(self, vector: str, lanes: int, size: int, form: str) -> str:
        """`void (T value, <ptr|vector of ptr> target, <N x i1> mask, ptr instance, i32 site, i32 depth, i32 flags)`.

        `form`: "scatter" (one pointer and one store per lane) or "compress" (one store of the enabled lanes, packed).
        """
        vector_type, pointers = _UnitType(vector), ir.VectorType(_PTR, lanes)
        flags_type = ir.VectorType(_I8, lanes)
        parameters = {
            "value": vector_type,
            "target": pointers if form == "scatter" else _PTR,
            "mask": ir.VectorType(_I1, lanes),
            **_FLAGGED,
        }

        def body(helper: _Helper) -> None:
            build = helper.build
            copy = helper.local(vector_type, helper["value"])
            enabled = helper.local(flags_type, build.zext(helper["mask"], flags_type))
            targets = helper.local(pointers, helper["target"]) if form == "scatter" else None
            packed = _opaque(build.alloca(vector_type))
            entry = build.block
            loop, step, end, done = (build.append_basic_block(name) for name in ("loop", "step", "end", "done"))
            off = build.icmp_unsigned("==", helper.load("cc_window_bytes"), _I64(0))
            build.cbranch(off, done, loop)

            build.position_at_end(loop)
            lane, count = build.phi(_I64), build.phi(_I64)  # count: enabled lanes before this one
            flag = build.load(build.gep(enabled, [lane], source_etype=_I8), typ=_I8)
            with helper.when(build.icmp_unsigned("!=", flag, _I8(0)), rare=False, otherwise=step):
                shift = build.mul(lane, _I64(size))
                source = build.gep(copy, [shift], source_etype=_I8)
                if targets is None:
                    place = build.gep(packed, [build.mul(count, _I64(size))], source_etype=_I8)
                    one = ir.IntType(size * 8)
                    build.store(build.load(source, typ=one, align=1), place, align=1)
                else:
                    target = build.load(build.gep(targets, [lane], source_etype=_PTR), typ=_PTR)
                    with helper.when(helper.inside_window(target), otherwise=step):
                        helper.report("cc_store", target, source, _I64(size), "instance", flags=helper["flags"])
            build.position_at_end(step)
            counted = build.add(count, build.zext(flag, _I64))
            following = build.add(lane, _I64(1))
            build.cbranch(build.icmp_unsigned("<", following, _I64(lanes)), loop, end)
            for phi, next_value in ((lane, following), (count, counted)):
                phi.add_incoming(_I64(0), entry)
                phi.add_incoming(next_value, step)
            build.position_at_end(end)
            if targets is None:
                total = build.mul(counted, _I64(size))
                last = build.gep(helper["target"], [build.sub(total, _I64(1))], source_etype=_I8)
                touched = build.or_(helper.inside_window(helper["target"]), helper.inside_window(last))
                some = build.icmp_unsigned("!=", total, _I64(0))
                with helper.when(build.and_(some, touched), otherwise=done):
                    helper.report("cc_store", "target", packed, total, "instance", flags=helper["flags"])
            else:
                build.branch(done)
            build.position_at_end(done)

        return self._helper(self._number(form, vector), parameters, body)

    def copy(self) -> str:
        """`void (ptr target, ptr source, i64 size, ptr instance, i32 site, i32 depth)`, before memcpy or memmove."""
        return self._in_window(
            "copy",
            {"target": _PTR, "source": _PTR, "size": _I64, **_INSTANCE},
            lambda helper: helper.report("cc_copy", "target", "source", "size", "instance"),
        )

    def fill(self) -> str:
        """`void (ptr target, i8 byte, i64 size, ptr instance, i32 site, i32 depth)`, before memset."""
        return self._in_window(
            "fill",
            {"target": _PTR, "byte": _I8, "size": _I64, **_INSTANCE},
            lambda helper: helper.report(
                "cc_fill", "target", helper.build.zext(helper["byte"], _I32), "size", "instance"
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

    def access_done(self, group: int) -> str:
        """The line after the accesses of a stretch of code that neither calls nor jumps."""
        self._accesses = True
        return (
            '  call void asm sideeffect "cc_access_done $0", "*m,~{dirflag},~{fpsr},~{flags}"'
            f"(ptr elementtype(i8) @cc_load_on) #{group}"
        )

    def load_range(self) -> str:
        """`void (ptr source, i64 size, ptr instance, i32 site, i32 depth)`: what a copy or a comparison reads."""
        return self._while_loads_count(
            "load.range",
            {"source": _PTR, "size": _I64, **_INSTANCE},
            lambda helper: helper.report(
                "cc_load", "source", "size", "instance", flags=_I32(STORE_BULK), attributes=()
            ),
        )

    def load_string(self) -> str:
        """`void (ptr source, i64 most, i32 site, i32 depth)`: a string up to its end, or `most` bytes."""
        return self._while_loads_count(
            "load.string",
            {"source": _PTR, "most": _I64, **_PLACE},
            lambda helper: helper.report("cc_load_string", "source", "most", attributes=()),
        )

    # -- order -------------------------------------------------------------------------------------------------

    def begin(self) -> str:
        """`i1 (ptr target)`: whether the atomic operation that follows is bracketed."""

        def body(helper: _Helper) -> None:
            inside = helper.inside_window(helper["target"])
            with helper.when(inside):
                helper.call(self.slow_path("cc_atomic_begin"), [helper["target"]])
            helper.build.ret(inside)

        return self._helper("begin", {"target": _PTR}, body, returns=_I1)

    def end(self) -> str:
        """`void (i1 begun, ptr target, i32 size, i1 locked, i1 stored, i32 read, ptr instance, i32 site, i32 depth)`.

        `read`: ATOMIC_READ if the operation reads, else 0.
        """
        parameters = {"begun": _I1, "target": _PTR, "size": _I32, "locked": _I1, "stored": _I1, "read": _I32}

        def body(helper: _Helper) -> None:
            over = helper.build.append_basic_block("over")
            with helper.when(helper["begun"]):
                locked = helper.build.zext(helper["locked"], _I32)
                done = helper.build.or_(helper.build.zext(helper["stored"], _I32), helper["read"])
                helper.report("cc_atomic_end", "target", "size", locked, done, "instance")
                helper.build.branch(over)
            with helper.when(helper["locked"], rare=False, otherwise=over):
                helper.fence_if_wanted(over)
            helper.build.position_at_end(over)

        return self._helper("end", {**parameters, **_INSTANCE}, body)

    def locked(self) -> str:
        """`void (i32 site, i32 depth)`: a locked instruction on memory that is no file's."""
        return self._helper("locked", _PLACE, _Helper.fence_if_wanted)

    def fence(self) -> str:
        """`void (i32 kind, i32 site, i32 depth)`."""

        def body(helper: _Helper) -> None:
            with helper.when(helper.is_set("cc_recording"), rare=False):
                helper.report("cc_fence", "kind", attributes=())

        return self._helper("fence", {"kind": _I32, **_PLACE}, body)

    def flush(self) -> str:
        """`void (ptr address, i32 kind, i32 site, i32 depth)`."""
        return self._in_window(
            "flush",
            {"target": _PTR, "kind": _I32, **_PLACE},
            lambda helper: helper.report("cc_flush", "target", _I64(1), "kind", attributes=()),
        )

    # -- shadow stack ------------------------------------------------------------------------------------------

    def enter(self) -> str:
        """`i32 ()`: this function's depth."""
        return self._helper("enter", {}, lambda helper: helper.build.ret(helper.clamped_depth()), returns=_I32)

    def enter_frame(self) -> str:
        """`i32 (i64 site)`: this function's depth; its frame is made, with `site` in it until a call sets another."""

        def body(helper: _Helper) -> None:
            depth = helper.clamped_depth()
            helper.set_depth(helper.build.add(depth, _I32(1), flags=("nuw",)))
            helper.set_frame(depth, 0, self.unit)
            helper.set_frame(depth, 1, helper["site"])
            helper.build.ret(depth)

        return self._helper("enter.frame", {"site": _I64}, body, returns=_I32)

    def push(self) -> str:
        """`void (i32 depth, i64 site)`, before a call: the frame is there, only its site changes."""
        parameters = {"depth": _I32, "site": _I64}
        return self._helper("push", parameters, lambda helper: helper.set_frame(helper["depth"], 1, helper["site"]))

    def again(self) -> str:
        """`void (i32 depth)`: this function's frame is the top again, in a landing pad or after setjmp."""

        def body(helper: _Helper) -> None:
            helper.set_depth(helper.build.add(helper["depth"], _I32(1), flags=("nuw",)))

        return self._helper("again", {"depth": _I32}, body)

    def leave(self) -> str:
        """`void (i32 depth)`: this function's frame is gone."""
        return self._helper("leave", {"depth": _I32}, lambda helper: helper.set_depth(helper["depth"]))

    def at(self) -> str:
        """`void (i32 site, i32 depth)`, before a call of a library model."""

        def body(helper: _Helper) -> None:
            place = self.variable("cc_call_site")
            for field, value in enumerate((self.unit, helper["site"], helper["depth"])):
                path = [_I64(0), _I32(field)]
                helper.build.store(value, helper.build.gep(place, path, inbounds=True, source_etype=_CALL_SITE))

        return self._helper("at", _PLACE, body)

    # -- the rest of the module --------------------------------------------------------------------------------

    def text(self, group: int, key: int, sites: int, blob: bytes, section: str) -> str:
        """Helpers, declarations, the unit's descriptor and its facts (`blob`, in an ELF section).

        `group`: number of the attribute group of accesses, which no group of the unit has; `key`: of the facts.
        """
        facts = _opaque(ir.GlobalVariable(self._module, ir.ArrayType(_I8, len(blob)), "cc.facts"))
        facts.linkage, facts.global_constant, facts.section, facts.align = "internal", True, section, 8
        facts.initializer = ir.Constant(facts.value_type, bytearray(blob))
        fields = [_I32(0), _I32(sites), _I64(key), _I32(HOOKS_VERSION), _I32(0), facts]
        self.unit.linkage, self.unit.align = "internal", 8
        self.unit.initializer = ir.Constant(_UNIT, fields)
        pieces = []
        if self._accesses:
            self.variable("cc_load_on")
            pieces = [_ACCESS_MACROS, f"attributes #{group} = {{ nounwind willreturn {_READS} }}"]
        return "\n".join([*pieces, *map(str, self._module.globals.values()), ""])


def _word_type(type_text: str) -> ir.Type:
    """An integer or floating-point type of at most 64 bits."""
    return ir.IntType(int(type_text[1:])) if type_text.startswith("i") else _UnitType(type_text)
