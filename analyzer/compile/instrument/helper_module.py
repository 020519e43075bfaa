"""Building the helpers of a unit with llvmlite: their types, the recorder's variables and functions, one helper's body.

Contract: runtime/include/hooks.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

LOCKED_FENCE = 3  # enum cc_fence_kind
STACK_MAX = 512

VOID, PTR = ir.VoidType(), ir.PointerType()
I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
FRAME_TYPE = ir.LiteralStructType([PTR, I64])  # struct cc_frame
SHADOW = ir.LiteralStructType([I32, I32, ir.ArrayType(FRAME_TYPE, STACK_MAX)])  # struct cc_shadow
CALL_SITE = ir.LiteralStructType([PTR, I32, I32])  # struct cc_call_site
UNIT_TYPE = ir.LiteralStructType([I32, I32, I64, I32, I32, PTR])  # struct cc_unit

# The recorder's variables: type, and whether each thread has its own.
VARIABLES = {
    "cc_shadow": (SHADOW, True),
    "cc_window_start": (I64, False),
    "cc_window_bytes": (I64, False),
    "cc_load_on": (I8, False),
    "cc_fence_wanted": (I32, True),
    "cc_recording": (I32, False),
    "cc_call_site": (CALL_SITE, True),
}
WHERE = (PTR, I32, I32)  # unit, site, depth
SLOW_PATHS = {
    "cc_store": (PTR, PTR, I64, I64, *WHERE, I32),
    "cc_store_word": (PTR, I64, I32, I64, *WHERE, I32),
    "cc_store_masked": (PTR, PTR, PTR, I32, I32, I64, *WHERE, I32),
    "cc_copy": (PTR, PTR, I64, I64, *WHERE),
    "cc_fill": (PTR, I32, I64, I64, *WHERE),
    "cc_load": (PTR, I64, I64, *WHERE, I32),
    "cc_load_string": (PTR, I64, *WHERE),
    "cc_atomic_begin": (PTR,),
    "cc_atomic_end": (PTR, I32, I32, I32, I64, *WHERE),
    "cc_flush": (PTR, I64, I32, *WHERE),
    "cc_fence": (I32, *WHERE),
    "cc_compared": (PTR, I64, I64),
}

INLINED = ("alwaysinline", "nounwind")
COLD = ("cold", "nounwind")
APART = ("cold", "noinline", "nounwind")
# Loads of the program may move across the call: it changes nothing that the program sees.
READS = "memory(read, inaccessiblemem: readwrite)"
READING = ("cold", "nounwind", "willreturn", READS)

# Parameters of helpers, by name.
Types = Mapping[str, ir.Type]


class UnitType(ir.Type):  # type: ignore[misc]  # the binding has no annotations
    """A type of the unit, by its text: llvmlite.ir only has to repeat it, and does not know all (x86_fp80, bfloat)."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _to_string(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnitType) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class Attributes(ir.values.AttributeSet):  # type: ignore[misc]
    """Attributes of a function or a call; llvmlite.ir's own sets lack some of these."""

    _known = frozenset({*INLINED, *APART, *READING})


class _RareBranch:
    """Branch weights, written in place: a numbered node would collide with the unit's metadata."""

    @staticmethod
    def get_reference() -> str:
        return '!{!"branch_weights", i32 1, i32 2000}'


def opaque(value: Any) -> Any:
    """A variable or local as `ptr`: llvmlite.ir prints typed pointers by default, which LLVM no longer reads."""
    value.type = PTR
    return value


class Helper:
    """A helper whose body is being built. `helper["target"]` is its parameter of that name."""

    def __init__(self, hooks: HelperModule, function: Any, parameters: Types) -> None:
        self.hooks = hooks
        self.build = ir.IRBuilder(function.append_basic_block("entry"))
        self._parameters = dict(zip(parameters, function.args, strict=True))
        self._instance = self._parameters.get("instance")

    def __getitem__(self, parameter: str) -> Any:
        return self._parameters[parameter]

    def load(self, variable: str) -> Any:
        """The value of one of the recorder's variables."""
        return self.build.load(self.hooks.variable(variable), typ=VARIABLES[variable][0])

    def space(self, type_: ir.Type) -> Any:
        """The address of a new local, reserved where the helper begins: elsewhere it would be a dynamic one."""
        with self.build.goto_entry_block():
            return opaque(self.build.alloca(type_))

    def local(self, type_: ir.Type, value: Any) -> Any:
        """The address of a new local that holds `value`."""
        place = self.space(type_)
        self.build.store(value, place)
        return place

    def inside_window(self, address: Any) -> Any:
        """Whether an address may be in a persistent mapping."""
        number = self.build.ptrtoint(address, I64)
        distance = self.build.sub(number, self.load("cc_window_start"))
        return self.build.icmp_unsigned("<", distance, self.load("cc_window_bytes"))

    def is_set(self, variable: str) -> Any:
        """Whether one of the recorder's switches is on."""
        return self.build.icmp_unsigned("!=", self.load(variable), VARIABLES[variable][0](0))

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

    @contextmanager
    def each_enabled_lane(self, mask: Any, lanes: int) -> Iterator[Any]:
        """What is built inside runs for each lane of a vector whose bit in `mask` is set, with the lane's number."""
        build = self.build
        flags_type = ir.VectorType(I8, lanes)
        enabled = self.local(flags_type, build.zext(mask, flags_type))
        before = build.block
        loop, step, done = (build.append_basic_block(name) for name in ("loop", "step", "done"))
        build.branch(loop)
        build.position_at_end(loop)
        lane = build.phi(I64)
        flag = build.load(build.gep(enabled, [lane], source_etype=I8), typ=I8)
        with self.when(build.icmp_unsigned("!=", flag, I8(0)), rare=False, otherwise=step):
            yield lane
        build.position_at_end(step)
        following = build.add(lane, I64(1))
        lane.add_incoming(I64(0), before)
        lane.add_incoming(following, step)
        build.cbranch(build.icmp_unsigned("<", following, I64(lanes)), loop, done)
        build.position_at_end(done)

    def fence_if_wanted(self, otherwise: Any = None) -> None:
        """Report a locked instruction where a flush waits for a fence."""
        with self.when(self.is_set("cc_fence_wanted"), otherwise=otherwise):
            self.report("cc_fence", I32(LOCKED_FENCE))

    def call(self, function: Any, arguments: list[Any], attributes: tuple[str, ...] = COLD) -> None:
        self.build.call(function, arguments).attributes = Attributes(attributes)

    def report(self, slow_path: str, *arguments: Any, flags: Any = None, attributes: tuple[str, ...] = COLD) -> None:
        """Call a slow path with `arguments` (values, or names of parameters; the instance as a number), the unit, the
        site, the depth, and `flags` if given."""
        values = [self[argument] if isinstance(argument, str) else argument for argument in arguments]
        values = [self.build.ptrtoint(value, I64) if value is self._instance else value for value in values]
        values += [self.hooks.unit, self["site"], self["depth"]]
        if flags is not None:
            values.append(flags)
        self.call(self.hooks.slow_path(slow_path), values, attributes)

    def set_depth(self, depth: Any) -> None:
        """Set the thread's depth in the shadow stack."""
        self.build.store(depth, self.hooks.variable("cc_shadow"))

    def set_frame(self, depth: Any, field: int, value: Any) -> None:
        """Set a field of the frame at `depth` of the shadow stack: 0 is its unit, 1 its site."""
        wide = self.build.zext(depth, I64)
        path = [I64(0), I32(2), wide, I32(field)]
        shadow = self.hooks.variable("cc_shadow")
        self.build.store(value, self.build.gep(shadow, path, inbounds=True, source_etype=SHADOW))

    def clamped_depth(self) -> Any:
        """The thread's depth, at most the last frame's."""
        depth = self.build.load(self.hooks.variable("cc_shadow"), typ=I32)
        last = I32(STACK_MAX - 1)
        return self.build.select(self.build.icmp_unsigned(">", depth, last), last, depth)


class HelperModule:
    """The module in which a unit's helpers are built; what they use of the recorder is declared on demand."""

    def __init__(self) -> None:
        self.module = ir.Module()
        self.unit = opaque(ir.GlobalVariable(self.module, UNIT_TYPE, "cc.unit"))

    def variable(self, name: str) -> Any:
        """One of the recorder's variables."""
        known = self.module.globals.get(name)
        if known is None:
            type_, of_thread = VARIABLES[name]
            known = opaque(ir.GlobalVariable(self.module, type_, name))
            known.linkage = "external"
            if of_thread:
                known.storage_class = "thread_local(initialexec)"
        return known

    def slow_path(self, name: str) -> Any:
        """One of the recorder's functions."""
        known = self.module.globals.get(name)
        if known is None:
            known = ir.Function(self.module, ir.FunctionType(VOID, SLOW_PATHS[name]), name)
            if name in ("cc_load", "cc_load_string"):
                known.attributes = Attributes(READING)
        return known

    def helper(
        self,
        name: str,
        parameters: Types,
        body: Callable[[Helper], None],
        returns: ir.Type = VOID,
        attributes: tuple[str, ...] = INLINED,
        convention: str = "",
    ) -> str:
        """The name of the helper `cc.<name>`; `body` builds it the first time."""
        function = self.module.globals.get(f"cc.{name}")
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(returns, list(parameters.values())), f"cc.{name}")
            for argument, parameter in zip(function.args, parameters, strict=True):
                argument.name = parameter
            function.linkage = "internal"
            function.calling_convention = convention
            function.attributes = Attributes(attributes)
            helper = Helper(self, function, parameters)
            body(helper)
            if not helper.build.block.is_terminated:
                helper.build.ret_void()
        return str(function.get_reference())
